"""`numpy.util`: how `jax.numpy` makes operands meet. Each takes arrays and scalars, and gives arrays."""

from typing import Any

from shardwise.ir import Array
from shardwise.numpy import _promote
from shardwise.ops.rules.convert import as_array


def check_arraylike(fun_name: str, *args: Any) -> None:
    """TypeError, naming the function and the position, unless all are arrays or scalars."""
    _promote.values(fun_name, *args)


def promote_dtypes(*args: Any) -> list[Array]:
    """`args` with the dtype that promotion gives them together."""
    return [as_array(x) for x in _promote.promote_dtypes(*_promote.values("promote_dtypes", *args))]


def promote_dtypes_inexact(*args: Any) -> list[Array]:
    """`args` with one floating or complex dtype."""
    return [as_array(x) for x in _promote.promote_inexact(*_promote.values("promote_dtypes_inexact", *args))]


def promote_dtypes_numeric(*args: Any) -> list[Array]:
    """`args` with one dtype other than bool."""
    return [as_array(x) for x in _promote.promote_numeric(*_promote.values("promote_dtypes_numeric", *args))]


def promote_dtypes_complex(*args: Any) -> list[Array]:
    """`args` with one complex dtype."""
    return [as_array(x) for x in _promote.promote_complex(*_promote.values("promote_dtypes_complex", *args))]


def promote_shapes(fun_name: str, *args: Any) -> list[Array]:
    """`args` with one rank: dims of size 1 in front."""
    return [as_array(x) for x in _promote.promote_shapes(fun_name, *_promote.values(fun_name, *args))]


def promote_args(fun_name: str, *args: Any) -> list[Array]:
    """`args` with one dtype and one rank."""
    return [as_array(x) for x in _promote.promote(fun_name, *args)]


def promote_args_inexact(fun_name: str, *args: Any) -> list[Array]:
    """`args` with one floating or complex dtype, and one rank."""
    return [as_array(x) for x in _promote.promote_to_inexact(fun_name, *args)]


def promote_args_numeric(fun_name: str, *args: Any) -> list[Array]:
    """`args` with one dtype other than bool, and one rank."""
    return [as_array(x) for x in _promote.promote_to_numeric(fun_name, *args)]
