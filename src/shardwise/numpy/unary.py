"""Elementwise arithmetic of one operand: signs, rounding, the parts of complex numbers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import default_dtype, finfo, isdtype
from shardwise.base.renamed import rename_function
from shardwise.ir import Array, bind
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Value,
    align_ranks,
    array,
    as_array,
    astype,
    constant,
    convert,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    no_out,
    number_value,
    promote_inexact,
    value,
    zero_like,
)
from shardwise.numpy._ufunc_forms import weak_if_scalar, where_
from shardwise.ops.elementwise import unary as one
from shardwise.transforms.jit.shown_calls import shown_call


def negative(x: Any, /) -> Array:
    """Elementwise ``-x``; wraps for unsigned integers. TypeError for bools.

    >>> jnp.negative(jnp.array([1, -2]))
    Array([-1,  2], dtype=int32)
    """
    return bind(one.neg_p, value("negative", x))


def positive(x: Any, /) -> Array:
    """Elementwise ``+x``: the array itself.

    >>> jnp.positive(jnp.array([-1, 2]))
    Array([-1,  2], dtype=int32)
    """
    return array("positive", x)


def sign(x: Any, /) -> Array:
    """Elementwise -1, 0 or 1; for complex values ``x / abs(x)``.

    >>> jnp.sign(jnp.array([-2.0, 0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return bind(one.sign_p, value("sign", x))


def absolute(x: Any, /) -> Array:
    """Elementwise absolute value of `x`, the modulus of complex values. The result has the shape of `x` and its
    dtype, or the real one.

    Raises:
        TypeError: `x` is no array or number.

    >>> jnp.abs(jnp.array([-2.5, 3.0]))
    Array([2.5, 3. ], dtype=float32)
    """
    v = value("absolute", x)
    if is_bool(v.dtype) or isdtype(v.dtype, "unsigned integer"):
        return as_array(v)
    return bind(one.abs_p, v)


abs = rename_function(absolute, "abs")


def fabs(x: Any, /) -> Array:
    """Elementwise absolute value of `x` as a float. TypeError for complex values.

    >>> jnp.fabs(jnp.array([-1, 2]))
    Array([1., 2.], dtype=float32)
    """
    (v,) = promote_inexact(value("fabs", x))
    if is_complex(v.dtype):
        raise TypeError(f"fabs does not take complex values, got {v.dtype}. Use jnp.abs.")
    return bind(one.abs_p, v)


def square(x: Any, /) -> Array:
    """Elementwise ``x * x``.

    >>> jnp.square(jnp.array([-3, 4]))
    Array([ 9, 16], dtype=int32)
    """
    v = value("square", x)
    if is_bool(v.dtype):
        v = astype(v, default_dtype("i"))
    return bind(one.square_p, v)


def reciprocal(x: Any, /) -> Array:
    """Elementwise ``1 / x``, as a float.

    >>> jnp.reciprocal(jnp.array([2.0, 4.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    (v,) = promote_inexact(value("reciprocal", x))
    return lax.div(constant(v, 1), v)


def floor(x: Any, /) -> Array:
    """Elementwise greatest integer not above `x`; integers and bools stay.

    >>> jnp.floor(jnp.array([-1.5, 1.5]))
    Array([-2.,  1.], dtype=float32)
    """
    v = number_value("floor", x)
    return as_array(v) if not is_inexact(v.dtype) else bind(one.floor_p, v)


def ceil(x: Any, /) -> Array:
    """Elementwise least integer not below `x`; integers and bools stay.

    >>> jnp.ceil(jnp.array([-1.5, 1.5]))
    Array([-1.,  2.], dtype=float32)
    """
    v = number_value("ceil", x)
    return as_array(v) if not is_inexact(v.dtype) else bind(one.ceil_p, v)


@shown_call()
def trunc(x: Any) -> Array:
    """Elementwise `x` without its fraction; integers and bools stay.

    >>> jnp.trunc(jnp.array([-1.5, 1.5]))
    Array([-1.,  1.], dtype=float32)
    """
    v = number_value("trunc", x)
    if not is_inexact(v.dtype):
        return as_array(v)
    return where_(lax.lt(v, zero_like(v)), lax.ceil(v), lax.floor(v))


def fix(x: Any, out: None = None) -> Array:
    """Elementwise `x` without its fraction; the old name of `trunc`.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.fix(jnp.array([-1.5, 1.5]))
    Array([-1.,  1.], dtype=float32)
    """
    no_out("fix", out)
    return trunc(x)


@shown_call()
def rint(x: Any, /) -> Array:
    """Elementwise nearest integer of `x`, as a float; halves go to the even neighbour.

    >>> jnp.rint(jnp.array([0.5, 1.5]))
    Array([0., 2.], dtype=float32)
    """
    v = value("rint", x)
    if not is_inexact(v.dtype):
        return as_array(astype(v, default_dtype("f")))
    return _round_decimals(v, 0)


@shown_call("decimals out")
def round(a: Any, decimals: int = 0, out: None = None) -> Array:
    """Elementwise `a` rounded to this number of decimals, halves to even.

    NotImplementedError for integers and negative `decimals`, ValueError for bools.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.round(jnp.array([1.25, 2.5]), 1)
    Array([1.2, 2.5], dtype=float32)
    """
    no_out("round", out)
    return _round_decimals(value("round", a), operator.index(decimals))


def _round_decimals(v: Any, decimals: int) -> Array:
    if is_bool(v.dtype):
        raise config.dialect.functions.round_of_bools_error("round takes numbers, got bools. Cast them first.")
    if is_integer(v.dtype):
        if decimals < 0:
            raise NotImplementedError(f"round of integers to {decimals} decimals; cast to a float first.")
        return as_array(v)
    if is_complex(v.dtype):
        return lax.complex(_round_decimals(lax.real(v), decimals), _round_decimals(lax.imag(v), decimals))
    if decimals == 0:
        return lax.round(v, lax.RoundingMethod.TO_NEAREST_EVEN)
    narrow = finfo(v.dtype).bits < 32
    x = convert(v, np.dtype(np.float32), v.weak_type) if narrow else v
    factor = constant(x, 10.0 ** (decimals if decimals > 0 else -decimals))
    if decimals > 0:
        rounded_value = lax.div(lax.round(lax.mul(x, factor), lax.RoundingMethod.TO_NEAREST_EVEN), factor)
    else:
        rounded_value = lax.mul(lax.round(lax.div(x, factor), lax.RoundingMethod.TO_NEAREST_EVEN), factor)
    return weak_if_scalar(as_array(convert(rounded_value, v.dtype, v.weak_type)))


around = shown_call("decimals out")(rename_function(round, "around"))


@shown_call("copy")
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """Elementwise `x` with NaN and the infinities replaced: by `nan`, `posinf` and `neginf`, of which the last two
    are the largest and the least finite value if not given.

    `copy` changes nothing: arrays are immutable, and the result is a new one.

    >>> jnp.nan_to_num(jnp.array([1.0, jnp.nan]), nan=-1.0)
    Array([ 1., -1.], dtype=float32)
    """
    del copy
    v = value("nan_to_num", x)
    if is_complex(v.dtype):
        return lax.complex(
            nan_to_num(lax.real(v), True, nan, posinf, neginf), nan_to_num(lax.imag(v), True, nan, posinf, neginf)
        )
    if not is_float(v.dtype):
        return as_array(v)
    info = finfo(v.dtype)
    posinf = info.max if posinf is None else posinf
    neginf = info.min if neginf is None else neginf
    out = _replace(v, lax.ne(v, v), nan)
    out = _replace(out, lax.eq(v, constant(v, np.inf)), posinf)
    return _replace(out, lax.eq(v, constant(v, -np.inf)), neginf)


def _replace(x: Value, mask: Value, new: Any) -> Array:
    mask, new, x = align_ranks(mask, astype(value("nan_to_num", new), x.dtype), x)
    return where_(mask, new, x)


def real(val: Any, /) -> Array:
    """Elementwise real part of `val`.

    >>> jnp.real(jnp.array([1 + 2j]))
    Array([1.], dtype=float32)
    """
    v = value("real", val)
    return lax.real(v) if is_complex(v.dtype) else as_array(v)


def imag(val: Any, /) -> Array:
    """Elementwise imaginary part of `val`; zeros for reals.

    >>> jnp.imag(jnp.array([1 + 2j]))
    Array([2.], dtype=float32)
    """
    v = value("imag", val)
    if is_complex(v.dtype):
        return lax.imag(v)
    if v.aval.mesh is not None or v.aval.weak_type:
        return lax.full_like(v, 0)
    return lax.full(v.shape, 0, v.dtype)  # depends on nothing of `val`


def conjugate(x: Any, /) -> Array:
    """Elementwise complex conjugate of `x`; reals stay.

    >>> jnp.conj(jnp.array([1 + 2j]))
    Array([1.-2.j], dtype=complex64)
    """
    v = value("conjugate", x)
    return bind(one.conj_p, v) if is_complex(v.dtype) else as_array(v)


conj = rename_function(conjugate, "conj")


@shown_call("deg")
def angle(z: Any, deg: bool = False) -> Array:
    """Elementwise angle of the complex `z`, in radians or degrees; 0 or pi for reals.

    >>> jnp.angle(jnp.array([1j, -1]), deg=True)
    Array([ 90., 180.], dtype=float32)
    """
    v = value("angle", z)
    if is_complex(v.dtype):
        result = lax.atan2(lax.imag(v), lax.real(v))
    else:
        keeps_weak = v.ndim > 0 and is_inexact(v.dtype) and v.aval.weak_type
        float_dtype = v.dtype if is_inexact(v.dtype) else default_dtype("f")
        v = convert(v, float_dtype if float_dtype.itemsize > 2 or v.ndim else np.dtype(np.float32), keeps_weak)
        result = lax.atan2(lax.full_like(v, 0), v)  # pi at -0.0, too
    return weak_if_scalar(lax.mul(result, 180 / np.pi)) if deg else result


__all__ = [
    "abs",
    "absolute",
    "angle",
    "around",
    "ceil",
    "conj",
    "conjugate",
    "fabs",
    "fix",
    "floor",
    "imag",
    "nan_to_num",
    "positive",
    "real",
    "reciprocal",
    "rint",
    "round",
    "sign",
    "square",
    "trunc",
]
