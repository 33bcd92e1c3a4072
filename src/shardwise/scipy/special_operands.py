"""Operands of special functions: promoted to one inexact dtype, broadcast, checked."""

from __future__ import annotations

from typing import Any

from shardwise.base import config
from shardwise.ir import Array
from shardwise.numpy._promote import (
    array,
    constant,
    is_complex,
    promote_to_inexact,
    spread_together,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.creation import asarray
from shardwise.ops.rules.convert import wide_float


def inexact_operands(name: str, *xs: Any) -> list[Array]:
    """The arguments with one floating or complex dtype, broadcast to one shape. Python ints may be as large as floats."""
    return spread_together(name, *promote_to_inexact(name, *map(wide_float, xs)))


def as_arrays(*xs: Any) -> list[Any]:
    """The arguments of a function that takes nested lists: these as arrays."""
    return [asarray(x) if isinstance(x, list | tuple) else x for x in xs]


def real_operands(name: str, *xs: Any) -> list[Array]:
    """`inexact_operands` for functions of real numbers; complex ones raise the error that JAX raises for this function."""
    out = inexact_operands(name, *xs)
    if is_complex(out[0].dtype):
        kind = ValueError if name in config.dialect.functions.complex_value_errors else TypeError
        raise kind(f"{name} does not support complex-valued inputs.")
    return out


def float_operand(name: str, x: Any) -> Array:
    """An argument that must be float32 or float64 already."""
    value = array(name, x)
    if value.dtype.name not in ("float32", "float64"):
        raise TypeError(f"{name}: x.dtype={value.dtype} is not supported; cast to float32 or float64.")
    return value


def choose(condition: Array, yes: Any, no: Any) -> Array:
    """Elementwise choice; a number stands for itself everywhere, as a constant and not as a value that `debug_nans` would look at."""
    like = yes if isinstance(yes, Array) else no
    case = lambda v: v if isinstance(v, Array) else constant(like, v)  # noqa: E731
    return where_(condition, case(yes), case(no))
