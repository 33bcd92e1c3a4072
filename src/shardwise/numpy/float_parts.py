"""Floats taken apart: signs, exponents, mantissas, neighbours.

In: real arrays and scalars; integers become floats. Out: the parts, computed on the bits where rounding must not enter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Value,
    as_array,
    astype,
    constant,
    is_bool,
    is_complex,
    is_float,
    is_integer,
    no_out,
    promote_inexact,
    promote_shapes,
    promote_to_inexact,
    value,
    values,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.ops.control.calls import define_along
from shardwise.transforms.jit.shown_calls import shown_call


@shown_call()
def signbit(x: Any, /) -> Array:
    """Elementwise whether the sign bit of `x` is set: for negative numbers, -0.0 and some NaNs. ValueError for
    complex values.

    >>> jnp.signbit(jnp.array([-0.0, 0.0]))
    Array([ True, False], dtype=bool)
    """
    v = value("signbit", x)
    if is_complex(v.dtype):
        raise ValueError(f"signbit is not well defined for {v.dtype}.")
    if is_float(v.dtype):
        v = lax.bitcast_convert_type(v, _bits_dtype(v.dtype))
    else:
        v = astype(v, np.dtype(np.int8)) if is_bool(v.dtype) else astype(v, v.dtype)
    return lax.lt(v, zero_like(v))


def _bits_dtype(dtype: Any) -> np.dtype[Any]:
    return np.dtype(f"i{dtype.itemsize}")


@shown_call()
def copysign(x1: Any, x2: Any, /) -> Array:
    """Elementwise `x1` with the sign of `x2`, as a float. TypeError for complex values.

    >>> jnp.copysign(jnp.array([1.0, -2.0]), -1.0)
    Array([-1., -2.], dtype=float32)
    """
    x, y = promote_to_inexact("copysign", x1, x2)
    if is_complex(x.dtype):
        raise TypeError("copysign does not support complex-valued inputs")
    size = lax.abs(x)
    return where_(signbit(y), lax.neg(size), size)


@shown_call()
def ldexp(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``x1 * 2**x2`` for an integer `x2`. ValueError for other dtypes.

    >>> jnp.ldexp(1.5, jnp.array([2, 3]))
    Array([ 6., 12.], dtype=float32)
    """
    x, n = values("ldexp", x1, x2)
    if is_complex(x.dtype) or not (is_integer(n.dtype) or is_bool(n.dtype)):
        raise ValueError(f"ldexp takes a real number and an integer, got {x.dtype} and {n.dtype}.")
    (x,) = promote_inexact(x)
    dtype = x.dtype
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    info = np.finfo(wide)
    # Three factors that are normal floats reach every exponent, from the least subnormal to the largest number.
    limit = 3 * (info.maxexp - 2)
    if n.dtype.itemsize > 4 or n.dtype == np.uint32:
        n = lax.min(n, constant(n, limit))
        n = n if n.dtype.kind == "u" else lax.max(n, constant(n, -limit))
    x, n = promote_shapes("ldexp", astype(x, wide), astype(n, np.dtype(np.int32)))
    n = lax.min(lax.max(n, np.int32(-limit)), np.int32(limit))
    third = lax.div(n, np.int32(3))
    result = lax.mul(lax.mul(x, _power_of_two(third, wide)), _power_of_two(third, wide))
    result = lax.mul(result, _power_of_two(lax.sub(n, lax.mul(third, np.int32(2))), wide))
    return as_array(astype(result, dtype))


def _power_of_two(n: Value, dtype: np.dtype[Any]) -> Array:
    """2**n for int32 `n` within the exponents of normal floats, exactly."""
    info = np.finfo(dtype)
    bits = _bits_dtype(dtype)
    exponent = lax.add(astype(n, bits), bits.type(info.maxexp - 1))
    return lax.bitcast_convert_type(lax.shift_left(exponent, bits.type(info.nmant)), dtype)


# The mantissa, found by its bits, of a float: the derivative is the factor between them.
_mantissa = define_along(
    "mantissa", lambda x, found, factor: found, lambda t, y, x, found, factor: lax.mul(t, factor), None, None
)


@shown_call()
def frexp(x: Any, /) -> tuple[Array, Array]:
    """Elementwise (mantissa, exponent) with ``x == mantissa * 2**exponent`` and 0.5 <= abs(mantissa) < 1.

    Raises:
        TypeError: `x` is complex.

    >>> jnp.frexp(jnp.array([8.0, 0.3]))
    (Array([0.5, 0.6], dtype=float32), Array([ 4, -1], dtype=int32))
    """
    (v,) = promote_inexact(value("frexp", x))
    if is_complex(v.dtype):
        raise TypeError(f"frexp takes real numbers, got {v.dtype}.")
    dtype = v.dtype
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    info, bits = np.finfo(wide), _bits_dtype(wide)
    v = astype(v, wide)
    subnormal = lax.lt(lax.abs(v), wide.type(info.tiny))
    scaled_values = where_(subnormal, lax.mul(v, wide.type(2.0**info.nmant * 2)), v)
    raw = lax.bitcast_convert_type(scaled_values, bits)
    mask = bits.type((1 << (info.bits - 1 - info.nmant)) - 1)
    exponent = lax.bitwise_and(lax.shift_right_logical(raw, bits.type(info.nmant)), mask)
    exponent = lax.sub(exponent, bits.type(info.maxexp - 2))
    shift = where_(subnormal, literal(info.nmant + 1, bits), literal(0, bits))
    exponent = lax.sub(exponent, shift)
    half = bits.type((info.maxexp - 2) << info.nmant)
    keep = bits.type(~(int(mask) << info.nmant))
    mantissa = lax.bitcast_convert_type(lax.bitwise_or(lax.bitwise_and(raw, keep), half), wide)
    as_is = lax.bitwise_or(lax.eq(v, wide.type(0)), lax.bitwise_not(lax.is_finite(v)))
    exponent = where_(as_is, literal(0, bits), exponent)
    mantissa = _mantissa(v, where_(as_is, v, mantissa), lax.exp2(lax.neg(astype(exponent, wide))))
    return as_array(astype(mantissa, dtype)), as_array(astype(exponent, np.dtype(np.int32)))


@shown_call()
def modf(x: Any, /, out: None = None) -> tuple[Array, Array]:
    """Elementwise (fraction, whole part), both with the sign of `x`.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.modf(jnp.array([1.5, -2.25]))
    (Array([ 0.5 , -0.25], dtype=float32), Array([ 1., -2.], dtype=float32))
    """
    no_out("modf", out)
    (v,) = promote_inexact(value("modf", x))
    whole = where_(lax.lt(v, zero_like(v)), lax.ceil(v), lax.floor(v))
    return lax.sub(v, whole), whole


def spacing(x: Any, /) -> Array:
    """Elementwise distance to the next float further from 0, with the sign of `x`. ValueError for complex values.

    For float16, as in NumPy, the distance to the next greater float.

    >>> jnp.spacing(1.0)
    Array(1.1920929e-07, dtype=float32)
    """
    (v,) = promote_inexact(value("spacing", x))
    if is_complex(v.dtype):
        raise ValueError(f"spacing takes real numbers, got {v.dtype}.")
    v = astype(v, v.dtype)
    outward = constant(v, np.inf) if v.dtype == np.float16 else copysign(constant(v, np.inf), v)
    step = lax.sub(lax.nextafter(v, outward), v)
    return where_(lax.is_finite(v), step, constant(v, np.nan))


__all__ = [
    "copysign", "frexp", "ldexp", "modf", "signbit", "spacing",
]  # fmt: skip
