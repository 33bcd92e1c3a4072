"""Elementwise questions: comparisons, logic, tests for NaN, infinity and closeness.

In: arrays and scalars of any dtypes. Out: bool arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype, dtype_of, is_key_dtype, lattice_result_type
from shardwise.ir import Array, Op, bind, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._documented import document
from shardwise.numpy._promote import (
    Value,
    as_array,
    astype,
    broadcast_shapes,
    constant,
    convert,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    no_out,
    number_value,
    promote,
    promote_shapes,
    strong,
    value,
    values,
    zero_like,
)
from shardwise.numpy._ufunc_forms import TWO_OPERANDS, weak_if_scalar, where_
from shardwise.numpy.creation import asarray
from shardwise.ops.elementwise import bitwise, comparison
from shardwise.ops.elementwise import unary as one
from shardwise.ops.rules.convert import own_array
from shardwise.ops.rules.operands import dtype_kind
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call

# -- comparisons -----------------------------------------------------------------------------------------------


def _equality(name: str, op: Op, doc: str) -> Callable[[Any, Any], Array]:
    def function(x: Any, y: Any, /) -> Array:
        if isinstance(x, Array) and isinstance(y, Array) and x.aval is y.aval and not x.aval.weak_type:
            return bind(op, x, y)
        return bind(op, *promote(name, x, y))

    return document(function, name, doc, f"{TWO_OPERANDS} The result is of bools.")


def _order(name: str, op: Op, strict: Op, doc: str) -> Callable[[Any, Any], Array]:
    """A comparison that orders complex values by their real, then their imaginary part."""

    def function(x: Any, y: Any, /) -> Array:
        a, b = promote(name, x, y)
        if not is_complex(a.dtype):
            return bind(op, a, b)
        real_a, real_b = lax.real(a), lax.real(b)
        return where_(lax.eq(real_a, real_b), bind(op, lax.imag(a), lax.imag(b)), bind(strict, real_a, real_b))

    return document(function, name, doc, f"{TWO_OPERANDS} The result is of bools.")


equal = _equality("equal", comparison.eq_p, "Elementwise ``x == y``.")
not_equal = _equality("not_equal", comparison.ne_p, "Elementwise ``x != y``.")
less = _order(
    "less", comparison.lt_p, comparison.lt_p, "Elementwise ``x < y``; complex values by real, then imaginary part."
)
less_equal = _order(
    "less_equal",
    comparison.le_p,
    comparison.lt_p,
    "Elementwise ``x <= y``; complex values by real, then imaginary part.",
)
greater = _order(
    "greater", comparison.gt_p, comparison.gt_p, "Elementwise ``x > y``; complex values by real, then imaginary part."
)
greater_equal = _order(
    "greater_equal",
    comparison.ge_p,
    comparison.gt_p,
    "Elementwise ``x >= y``; complex values by real, then imaginary part.",
)


# -- logic -----------------------------------------------------------------------------------------------------


def to_bool(x: Value) -> Value:
    """Elementwise ``x != 0``, strongly typed unless it is `x`. TypeError for PRNG keys."""
    if dtype_kind(x.dtype) == "k":
        raise TypeError(f"{x.dtype} has no truth value: PRNG keys are no numbers.")
    return x if is_bool(x.dtype) else bind(comparison.ne_p, x, literal(0, x.dtype, False))


def _logical(name: str, op: Op, doc: str) -> Callable[[Any, Any], Array]:
    def function(x: Any, y: Any, /) -> Array:
        a, b = values(name, x, y)
        weak = lattice_result_type(a, b)[1]  # also where it is not used: dtypes without a promotion raise here
        result = bind(op, *promote(name, to_bool(a), to_bool(b)))
        if weak and not result.ndim:
            return as_array(convert(result, result.dtype, True))
        return strong(result)

    return document(function, name, doc, f"{TWO_OPERANDS} The result is of bools.")


logical_and = _logical("logical_and", bitwise.and_p, "Elementwise and of truth values; what is not 0 is true.")
logical_or = _logical("logical_or", bitwise.or_p, "Elementwise or of truth values; what is not 0 is true.")
logical_xor = _logical("logical_xor", bitwise.xor_p, "Elementwise exclusive or of truth values; what is not 0 is true.")


def logical_not(x: Any, /) -> Array:
    """Elementwise whether `x` is 0.

    >>> jnp.logical_not(jnp.array([0, 3]))
    Array([ True, False], dtype=bool)
    """
    v = value("logical_not", x)
    result = bind(one.not_p, to_bool(v))
    return as_array(convert(result, result.dtype, v.aval.weak_type and (v.dtype == np.bool_ or not v.ndim)))


# -- NaN, infinity, complex ------------------------------------------------------------------------------------


def isnan(x: Any, /) -> Array:
    """Elementwise whether `x` is NaN.

    >>> jnp.isnan(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([False,  True, False], dtype=bool)
    """
    v = value("isnan", x)
    return bind(comparison.ne_p, v, v)


def isfinite(x: Any, /) -> Array:
    """Elementwise whether `x` is neither NaN nor infinite.

    >>> jnp.isfinite(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([ True, False, False], dtype=bool)
    """
    v = value("isfinite", x)
    if is_float(v.dtype):
        return lax.is_finite(v)
    if is_complex(v.dtype):
        return lax.bitwise_and(lax.is_finite(lax.real(v)), lax.is_finite(lax.imag(v)))
    return lax.full_like(v, True, np.bool_)


@shown_call()
def isinf(x: Any, /) -> Array:
    """Elementwise whether `x` is infinite, in either part.

    >>> jnp.isinf(jnp.array([1.0, jnp.nan, -jnp.inf]))
    Array([False, False,  True], dtype=bool)
    """
    v = value("isinf", x)
    if is_float(v.dtype):
        v = astype(v, v.dtype)
        return lax.eq(lax.abs(v), constant(v, np.inf))
    if is_complex(v.dtype):
        return lax.bitwise_or(isinf(lax.real(v)), isinf(lax.imag(v)))
    return lax.full_like(v, False, np.bool_)


def isposinf(x: Any, /, out: None = None) -> Array:
    """Elementwise whether `x` is +infinity. ValueError for complex values.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.isposinf(jnp.array([jnp.inf, -jnp.inf]))
    Array([ True, False], dtype=bool)
    """
    return _is_infinity("isposinf", x, np.inf, out)


def isneginf(x: Any, /, out: None = None) -> Array:
    """Elementwise whether `x` is -infinity. ValueError for complex values.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.isneginf(jnp.array([jnp.inf, -jnp.inf]))
    Array([False,  True], dtype=bool)
    """
    return _is_infinity("isneginf", x, -np.inf, out)


def _is_infinity(name: str, x: Any, infinity: float, out: None) -> Array:
    no_out(name, out)
    v = value(name, x)
    if is_complex(v.dtype):
        raise ValueError(f"{name} is not well defined for complex values; test real and imag apart.")
    if is_float(v.dtype):
        v = astype(v, v.dtype)
        return lax.eq(v, constant(v, infinity))
    return lax.full_like(v, False, np.bool_)


@shown_call()
def isreal(x: Any) -> Array:
    """Elementwise whether the imaginary part of `x` is 0.

    >>> jnp.isreal(jnp.array([1 + 0j, 1j]))
    Array([ True, False], dtype=bool)
    """
    v = value("isreal", x)
    if is_complex(v.dtype):
        part = lax.imag(v)
        return weak_if_scalar(lax.eq(part, zero_like(part)))
    return weak_if_scalar(lax.eq(v, v) if not is_inexact(v.dtype) else bind(one.not_p, iscomplex(v)))


@shown_call()
def iscomplex(x: Any) -> Array:
    """Elementwise whether the imaginary part of `x` is not 0.

    >>> jnp.iscomplex(jnp.array([1 + 0j, 1j]))
    Array([False,  True], dtype=bool)
    """
    v = number_value("iscomplex", x)
    if is_complex(v.dtype):
        part = lax.imag(v)
        return weak_if_scalar(lax.ne(part, zero_like(part)))
    zero = lax.full_like(v, 0)
    return weak_if_scalar(lax.ne(zero, zero))


def iscomplexobj(x: Any) -> bool:
    """Whether `x` has a complex dtype.

    >>> jnp.iscomplexobj(jnp.array([1 + 0j]))
    True
    """
    if x is None:
        return False
    try:
        return is_complex(dtype_of(x))
    except TypeError:
        if hasattr(x, "__jax_array__"):
            return iscomplexobj(own_array(x))
        return any(iscomplexobj(v) for v in x) if isinstance(x, list | tuple) else np.iscomplexobj(x)


def isrealobj(x: Any) -> bool:
    """Whether `x` does not have a complex dtype.

    >>> jnp.isrealobj(jnp.arange(2))
    True
    """
    return not iscomplexobj(x)


def isscalar(element: Any) -> bool:
    """Whether `element` is a scalar: a Python or NumPy one, or an array without dims.

    >>> jnp.isscalar(2.5)
    True
    """
    if isinstance(element, Array | np.ndarray):
        return element.ndim == 0
    return isscalar(own_array(element)) if hasattr(element, "__jax_array__") else np.isscalar(element)


# -- closeness -------------------------------------------------------------------------------------------------


@composed_function(2)
@shown_call("equal_nan")
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Array:
    """Elementwise ``abs(a - b) <= atol + rtol * abs(b)``; infinities are close if equal, NaN is close to NaN if asked.

    >>> jnp.isclose(jnp.array([1.0, jnp.nan]), jnp.array([1.0, jnp.nan]), equal_nan=True)
    Array([ True,  True], dtype=bool)
    """
    x, y = promote("isclose", a, b)
    if is_key_dtype(x.dtype):
        return equal(x, y)
    x, y = astype(x, x.dtype), astype(y, y.dtype)
    if not is_inexact(x.dtype):
        x, y = astype(x, default_dtype("f")), astype(y, default_dtype("f"))
    part = lax.real(x).dtype if is_complex(x.dtype) else x.dtype
    rtol, atol = (astype(value("isclose", t, i + 2), part) for i, t in enumerate((rtol, atol)))
    size = lax.abs(y)
    difference = lax.abs(lax.sub(*promote_shapes("isclose", x, y)))
    bound, distance = promote_shapes("isclose", _tolerance(rtol, atol, size), difference)
    finite = lax.bitwise_and(*promote_shapes("isclose", isfinite(x), isfinite(y)))
    close = logical_and(lax.le(distance, bound), finite)
    result = logical_or(close, logical_and(equal(x, y), bind(one.not_p, finite)))
    if equal_nan:
        result = logical_or(result, logical_and(isnan(x), isnan(y)))
    return result


def _tolerance(rtol: Value, atol: Value, size: Value) -> Array:
    r, s = promote_shapes("isclose", rtol, size)
    product = lax.mul(r, s)
    return lax.add(*promote_shapes("isclose", atol, product))


@composed_function(2)
@shown_call("equal_nan")
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Array:
    """Whether all elements of `a` and `b`, whose shapes broadcast, are close: ``abs(a - b) <= atol + rtol * abs(b)``.
    A bool array without dims.

    Args:
        rtol: the tolerance relative to `b`.
        atol: the absolute tolerance.
        equal_nan: NaN is close to NaN.

    >>> jnp.allclose(jnp.array([1.0, 2.0]), jnp.array([1.0, 2.000001]))
    Array(True, dtype=bool)
    """
    return _all(isclose(a, b, rtol, atol, equal_nan))


def _all(x: Array) -> Array:
    return lax.reduce_and(x, tuple(range(x.ndim)))


@composed_function(2)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Whether `a1` and `a2` (arrays or nested sequences) have one shape and equal elements. A bool array without
    dims.

    With `equal_nan` NaN equals NaN.

    >>> jnp.array_equal(jnp.array([1, 2]), jnp.array([1, 2, 3]))
    Array(False, dtype=bool)
    """
    x, y = _any_array(a1), _any_array(a2)
    if x.shape != y.shape:
        return as_array(value("array_equal", np.bool_(False)))
    same = equal(x, y)
    if equal_nan:
        same = lax.bitwise_or(same, lax.bitwise_and(isnan(x), isnan(y)))
    return strong(_all(same))


def array_equiv(a1: Any, a2: Any) -> Array:
    """Whether `a1` and `a2` (arrays or nested sequences) broadcast to one shape with equal elements. A bool array
    without dims.

    >>> jnp.array_equiv(jnp.array([[1, 2], [1, 2]]), jnp.array([1, 2]))
    Array(True, dtype=bool)
    """
    x, y = _any_array(a1), _any_array(a2)
    try:
        broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return as_array(value("array_equiv", np.bool_(False)))
    return as_array(lax.convert_element_type(_all(equal(x, y)), np.bool_))


def _any_array(x: Any) -> Array:

    return asarray(x)


__all__ = [
    "allclose", "array_equal", "array_equiv", "equal", "greater", "greater_equal", "isclose", "iscomplex",
    "iscomplexobj", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "less",
    "less_equal", "logical_not", "not_equal",
]  # fmt: skip
