"""Exponentials, logarithms, trigonometric and hyperbolic functions of one operand; integers become floats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base.renamed import rename_function
from shardwise.ir import Array, Literal, bind, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import constant, is_complex, is_float, promote_inexact, value, zero_like
from shardwise.numpy._ufunc_forms import unary, where_
from shardwise.ops.control.calls import define_along
from shardwise.ops.elementwise import transcendental as one
from shardwise.ops.rules.operands import Value
from shardwise.transforms.jit.shown_calls import shown_call

exp = unary("exp", one.exp_p, "Elementwise e to the power `x`.")
expm1 = unary("expm1", one.expm1_p, "Elementwise ``exp(x) - 1``, exact near 0.")
log = unary("log", one.log_p, "Elementwise natural logarithm.")
log1p = unary("log1p", one.log1p_p, "Elementwise ``log(1 + x)``, exact near 0.")
exp2 = unary("exp2", one.exp2_p, "Elementwise 2 to the power `x`.")
sqrt = unary("sqrt", one.sqrt_p, "Elementwise square root; NaN for negative reals.")
cbrt = unary("cbrt", one.cbrt_p, "Elementwise cube root.")
sin = unary("sin", one.sin_p, "Elementwise sine.")
cos = unary("cos", one.cos_p, "Elementwise cosine.")
tan = unary("tan", one.tan_p, "Elementwise tangent.")
arcsin = unary("arcsin", one.asin_p, "Elementwise arc sine.")
arccos = unary("arccos", one.acos_p, "Elementwise arc cosine.")
arctan = unary("arctan", one.atan_p, "Elementwise arc tangent.")
sinh = unary("sinh", one.sinh_p, "Elementwise hyperbolic sine.")
cosh = unary("cosh", one.cosh_p, "Elementwise hyperbolic cosine.")
tanh = unary("tanh", one.tanh_p, "Elementwise hyperbolic tangent.")
arcsinh = unary("arcsinh", one.asinh_p, "Elementwise inverse of `sinh`.")
arccosh = unary("arccosh", one.acosh_p, "Elementwise inverse of `cosh`; NaN for reals below 1.")
arctanh = unary("arctanh", one.atanh_p, "Elementwise inverse of `tanh`.")
asin, asinh = rename_function(arcsin, "asin"), rename_function(arcsinh, "asinh")
acos, acosh = rename_function(arccos, "acos"), rename_function(arccosh, "acosh")
atan, atanh = rename_function(arctan, "atan"), rename_function(arctanh, "atanh")


def log2(x: Any, /) -> Array:
    """Elementwise logarithm of `x` to the base 2, as a float.

    >>> jnp.log2(jnp.array([1.0, 8.0]))
    Array([0., 3.], dtype=float32)
    """
    (v,) = promote_inexact(value("log2", x))
    return _by(lax.log(v), math.log(2))


def log10(x: Any, /) -> Array:
    """Elementwise logarithm of `x` to the base 10, as a float.

    >>> jnp.log10(jnp.array([1.0, 1000.0]))
    Array([0., 3.], dtype=float32)
    """
    (v,) = promote_inexact(value("log10", x))
    return _by(lax.log(v), math.log(10))


def _by(x: Array, number: float) -> Array:
    """`x` divided by a strongly typed real number, of complex values each part by itself."""
    if is_complex(x.dtype):
        return lax.complex(_by(lax.real(x), number), _by(lax.imag(x), number))
    return lax.div(x, literal(number, x.dtype))


def _like_an_array(x: Value, number: float) -> Literal:
    """A constant beside `x`, strongly typed if `x` has dims, as the arrays are of which JAX makes it."""
    return literal(number, x.dtype) if x.ndim else constant(x, number)


def degrees(x: Any, /) -> Array:
    """Elementwise `x` from radians to degrees, as floats.

    >>> jnp.degrees(jnp.pi / 2)
    Array(90., dtype=float32, weak_type=True)
    """
    (v,) = promote_inexact(value("degrees", x))
    return lax.mul(v, _like_an_array(v, 180 / np.pi))


def radians(x: Any, /) -> Array:
    """Elementwise `x` from degrees to radians, as floats.

    >>> jnp.radians(jnp.array([0.0, 180.0])).round(4)
    Array([0.    , 3.1416], dtype=float32)
    """
    (v,) = promote_inexact(value("radians", x))
    return lax.mul(v, _like_an_array(v, np.pi / 180))


rad2deg, deg2rad = rename_function(degrees, "rad2deg"), rename_function(radians, "deg2rad")


@shown_call()
def sinc(x: Any, /) -> Array:
    """Elementwise ``sin(pi x) / (pi x)``; 1 at 0.

    >>> jnp.sinc(jnp.array([0.0, 0.5])).round(4)
    Array([1.    , 0.6366], dtype=float32)
    """
    (v,) = promote_inexact(value("sinc", x))
    zero = lax.eq(v, zero_like(v))
    angle = lax.mul(v, _like_an_array(v, np.pi))
    angle = where_(zero, constant(angle, 1), angle)
    return where_(zero, bind(one.sinc_at_zero_p, v, order=0), lax.div(lax.sin(angle), angle))


# The derivative is the function of order 1.
bessel_i0 = define_along(
    "bessel_i0",
    lambda x: lax.mul(lax.exp(lax.abs(x)), lax.bessel_i0e(x)),
    lambda t, y, x: lax.mul(t, lax.mul(lax.exp(lax.abs(x)), lax.bessel_i1e(x))),
)


@shown_call()
def i0(x: Any) -> Array:
    """Elementwise modified Bessel function of the first kind, order 0. ValueError unless `x` is real.

    >>> jnp.i0(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 1.266], dtype=float32)
    """
    (v,) = promote_inexact(value("i0", x))
    if not is_float(v.dtype):
        raise ValueError(f"i0 takes real numbers, got {v.dtype}.")
    return bessel_i0(v)


__all__ = [
    "acos",
    "acosh",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cbrt",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "exp",
    "exp2",
    "expm1",
    "i0",
    "log",
    "log1p",
    "log2",
    "log10",
    "rad2deg",
    "radians",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
