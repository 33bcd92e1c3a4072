"""Operands of special functions: promoted to one inexact dtype, broadcast, checked."""

from __future__ import annotations

from typing import Any

from shardwise.base import config
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, broadcast_shapes, broadcast_to_shape, is_complex, promote_to_inexact
from shardwise.numpy.creation import asarray


def inexact_operands(name: str, *xs: Any) -> list[Array]:
    """The arguments with one floating or complex dtype, broadcast to one shape."""
    promoted = promote_to_inexact(name, *xs)
    shape = broadcast_shapes(*(x.shape for x in promoted))
    return [broadcast_to_shape(x, shape) for x in promoted]


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
    """Elementwise choice; numbers stand for arrays of them."""
    like = yes if isinstance(yes, Array) else no
    fill = lambda v: v if isinstance(v, Array) else lax.full_like(like, v)  # noqa: E731
    return lax.select(condition, fill(yes), fill(no))
