"""Transcendental elementwise functions of one operand: exponentials, logarithms, trigonometry, roots."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Emit, Op, bind, define_op
from shardwise.ops.elementwise import complex_loops, complex_points
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.elementwise.accuracy import check_accuracy
from shardwise.ops.elementwise.by_dtype import by_dtype
from shardwise.ops.rules.derivative import along, do, number
from shardwise.ops.rules.operands import elementwise_op, operand, own_ufunc

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "exp", "exp2", "expm1", "log", "log1p",
    "logistic", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
]  # fmt: skip


# -- kernels -----------------------------------------------------------------------------------------------------------


def _in_float32(x: Ndarray) -> bool:
    """Whether a kernel of several steps computes in float32 because the dtype is narrower."""
    return x.dtype.itemsize < 4


def _rsqrt(x: Ndarray) -> Ndarray:
    if _in_float32(x):
        return _rsqrt(x.astype(np.float32)).astype(x.dtype)
    if x.dtype.kind == "c":
        return complex_loops.divide(np.ones_like(x), complex_loops.sqrt(x))
    return np.reciprocal(np.sqrt(x))


def _logistic(x: Ndarray) -> Ndarray:
    if x.dtype.kind == "c":
        return complex_loops.divide(np.ones_like(x), complex_loops.exp(-x) + 1)
    if _in_float32(x):
        wide = x.astype(np.float32)
        return (own_ufunc("logistic", ir.LOGISTIC, wide.dtype) or _logistic)(wide).astype(x.dtype)
    out = np.empty_like(x)
    np.negative(x, out=out)
    np.exp(out, out=out)  # overflows to inf below -88: the result is 0 there
    np.add(out, 1, out=out)
    return np.reciprocal(out, out=out)


def _through_double(ufunc: np.ufunc) -> Callable[[Ndarray], Ndarray]:
    """`ufunc` of float32 blocks computed in float64 and rounded once: NumPy's float32 loops err by an ulp, visible in print."""

    def narrow(x: Ndarray) -> Ndarray:
        return ufunc(x.astype(np.float64)).astype(np.float32)

    narrow.__name__ = ufunc.__name__
    return narrow


_exp, _exp_of = by_dtype(np.exp, complex_loops.exp)
_sqrt, _sqrt_of = by_dtype(np.sqrt, complex_loops.sqrt)
_exp2, _exp2_of = by_dtype(np.exp2, complex_points.exp2)
_expm1, _expm1_of = by_dtype(np.expm1, complex_points.expm1)
_log, _log_of = by_dtype(np.log, complex_points.log)
_log1p, _log1p_of = by_dtype(np.log1p, complex_points.log1p)
_tan, _tan_of = by_dtype(np.tan, complex_points.tan)
_tanh, _tanh_of = by_dtype(np.tanh, complex_points.tanh)
_sinh, _sinh_of = by_dtype(np.sinh, complex_points.sinh)
_cosh, _cosh_of = by_dtype(np.cosh, complex_points.cosh)
_asin, _asin_of = by_dtype(np.arcsin, complex_points.asin)
_acos, _acos_of = by_dtype(np.arccos, complex_points.acos)
_asinh, _asinh_of = by_dtype(np.arcsinh, complex_points.asinh)
_acosh, _acosh_of = by_dtype(np.arccosh, complex_points.acosh)
_sin, _sin_of = by_dtype(np.sin, complex_points.sin, _through_double(np.sin))
_cos, _cos_of = by_dtype(np.cos, complex_points.cos, _through_double(np.cos))


# -- ops ---------------------------------------------------------------------------------------------------------------


def _transcendental(name: str, *args: Any, **fields: Any) -> Op:
    return elementwise_op(name, *args, transcendental=True, **fields)


exp_p = _transcendental("exp", _exp, "fc", ufunc_of=_exp_of, emit=ir.EXP, push=lambda t, y, x: do.mul(t, y))
exp2_p = _transcendental(
    "exp2", _exp2, "fc", ufunc_of=_exp2_of, emit=ir.EXP2, push=lambda t, y, x: do.mul(t, do.mul(y, math.log(2)))
)
expm1_p = _transcendental(
    "expm1", _expm1, "fc", ufunc_of=_expm1_of, emit=ir.EXPM1, push=lambda t, y, x: do.mul(t, do.add(y, 1))
)
log_p = _transcendental("log", _log, "fc", ufunc_of=_log_of, emit=ir.LOG, push=lambda t, y, x: do.div(t, x))
log1p_p = _transcendental(
    "log1p", _log1p, "fc", ufunc_of=_log1p_of, emit=ir.LOG1P, push=lambda t, y, x: do.div(t, do.add(x, 1))
)
sin_p = _transcendental("sin", _sin, "fc", ufunc_of=_sin_of, emit=ir.SIN, push=lambda t, y, x: do.mul(t, do.cos(x)))
cos_p = _transcendental(
    "cos", _cos, "fc", ufunc_of=_cos_of, emit=ir.COS, push=lambda t, y, x: do.mul(t, do.neg(do.sin(x)))
)
tan_p = _transcendental(
    "tan",
    _tan,
    "fc",
    ufunc_of=_tan_of,
    emit=ir.TAN,
    push=lambda t, y, x: do.mul(t, do.add(do.square(y), number(1, y.aval))),
)
tanh_p = _transcendental(
    "tanh", _tanh, "fc", ufunc_of=_tanh_of, emit=ir.TANH, push=lambda t, y, x: do.mul(t, do.sub(1, do.square(y)))
)
sinh_p = _transcendental(
    "sinh", _sinh, "fc", ufunc_of=_sinh_of, emit=ir.SINH, push=lambda t, y, x: do.mul(t, do.cosh(x))
)
cosh_p = _transcendental(
    "cosh", _cosh, "fc", ufunc_of=_cosh_of, emit=ir.COSH, push=lambda t, y, x: do.mul(t, do.sinh(x))
)
asin_p = _transcendental(
    "asin",
    _asin,
    "fc",
    ufunc_of=_asin_of,
    emit=ir.ASIN,
    push=lambda t, y, x: do.mul(t, do.rsqrt(do.sub(number(1, x.aval), do.square(x)))),
)
acos_p = _transcendental(
    "acos",
    _acos,
    "fc",
    ufunc_of=_acos_of,
    emit=ir.ACOS,
    push=lambda t, y, x: do.mul(t, do.neg(do.rsqrt(do.sub(number(1, x.aval), do.square(x))))),
)
atan_p = _transcendental(
    "atan", np.arctan, "fc", emit=ir.ATAN, push=lambda t, y, x: do.div(t, do.add(do.square(x), number(1, x.aval)))
)
asinh_p = _transcendental(
    "asinh",
    _asinh,
    "fc",
    ufunc_of=_asinh_of,
    emit=ir.ASINH,
    push=lambda t, y, x: do.mul(t, do.rsqrt(do.add(do.square(x), 1))),
)
acosh_p = _transcendental(
    "acosh",
    _acosh,
    "fc",
    ufunc_of=_acosh_of,
    emit=ir.ACOSH,
    push=lambda t, y, x: do.mul(t, do.rsqrt(do.mul(do.sub(x, 1), do.add(x, 1)))),
)
atanh_p = _transcendental(
    "atanh", np.arctanh, "fc", emit=ir.ATANH, push=lambda t, y, x: do.div(t, do.mul(do.add(x, 1), do.sub(1, x)))
)
sqrt_p = _transcendental(
    "sqrt",
    _sqrt,
    "fc",
    ufunc_of=_sqrt_of,
    emit=ir.SQRT,
    rounds_alike=True,
    push=lambda t, y, x: do.mul(t, do.div(0.5, y)),
)
rsqrt_p = _transcendental(
    "rsqrt", _rsqrt, "fc", emit=ir.RSQRT, rounds_alike=True, push=lambda t, y, x: do.mul(t, do.mul(-0.5, do.div(y, x)))
)
cbrt_p = _transcendental(
    "cbrt", np.cbrt, "f", emit=ir.CBRT, push=lambda t, y, x: do.mul(t, do.mul(1 / 3, do.integer_pow(y, y=-2)))
)
# For few elements it rounds as NumPy's exponential does: a document that the tests run shows these digits. Loops may differ by an ulp.
logistic_p = _transcendental(
    "logistic",
    _logistic,
    "fc",
    emit=ir.LOGISTIC,
    rounds_alike=True,
    push=lambda t, y, x: do.mul(t, do.mul(y, do.sub(1, y))),
)


def _sinc_slope(order: int) -> float:
    """The derivative of this order of ``sin(pi x) / (pi x)`` at zero."""
    return 0.0 if order % 2 else (-1) ** (order // 2) * math.pi**order / (order + 1)


# That derivative, whatever `x`: for elements that are zero, where the quotient has none.
sinc_at_zero_p = define_op(
    "sinc_at_zero",
    type_rule=lambda x, *, order: x,
    kernel=lambda env, x, *, order: np.full_like(x, _sinc_slope(order)),
    emit=Emit(lambda w, x, *, order: w.like(_sinc_slope(order), x), "f"),
    jvp=along("sinc_at_zero", lambda t, y, x, *, order: do.mul(t, do.sinc_at_zero(x, order=order + 1))),
)


# -- functions ---------------------------------------------------------------------------------------------------------


def exp(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise e to the power `x`, for floats and complex values.

    Args:
        accuracy: None, a `lax.Tolerance` or an `AccuracyMode`; the result is the same. NotImplementedError for a
            Tolerance of fewer ulps than it keeps.

    >>> lax.exp(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 2.718], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("exp", accuracy)
    return bind(exp_p, operand("exp", x))


def exp2(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise 2 to the power `x`, for floats and complex values. `accuracy` as for `exp`.

    >>> lax.exp2(jnp.array([0.0, 3.0])).round(3)
    Array([1., 8.], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("exp2", accuracy)
    return bind(exp2_p, operand("exp2", x))


def expm1(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``exp(x) - 1``, accurate near 0. `accuracy` as for `exp`.

    >>> lax.expm1(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.718], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("expm1", accuracy)
    return bind(expm1_p, operand("expm1", x))


def log(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise natural logarithm of the floats or complex values `x`; NaN for negative reals. `accuracy` as for
    `exp`.

    >>> lax.log(jnp.array([1.0, 2.0])).round(3)
    Array([0.   , 0.693], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("log", accuracy)
    return bind(log_p, operand("log", x))


def log1p(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``log(1 + x)``, accurate near 0. `accuracy` as for `exp`.

    >>> lax.log1p(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.693], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("log1p", accuracy)
    return bind(log1p_p, operand("log1p", x))


def sin(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise sine of the floats or complex values `x`. `accuracy` as for `exp`.

    >>> lax.sin(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.841], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("sin", accuracy)
    return bind(sin_p, operand("sin", x))


def cos(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise cosine of the floats or complex values `x`. `accuracy` as for `exp`.

    >>> lax.cos(jnp.array([0.0, 1.0])).round(3)
    Array([1.  , 0.54], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("cos", accuracy)
    return bind(cos_p, operand("cos", x))


def tan(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise tangent of the floats or complex values `x`. `accuracy` as for `exp`.

    >>> lax.tan(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.557], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("tan", accuracy)
    return bind(tan_p, operand("tan", x))


def tanh(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise hyperbolic tangent of the floats or complex values `x`. `accuracy` as for `exp`.

    >>> lax.tanh(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.762], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("tanh", accuracy)
    return bind(tanh_p, operand("tanh", x))


def sinh(x: Any) -> Array:
    """Elementwise hyperbolic sine of the floats or complex values `x`.

    >>> lax.sinh(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.175], dtype=float32)
    """
    return bind(sinh_p, operand("sinh", x))


def cosh(x: Any) -> Array:
    """Elementwise hyperbolic cosine of the floats or complex values `x`.

    >>> lax.cosh(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 1.543], dtype=float32)
    """
    return bind(cosh_p, operand("cosh", x))


def asin(x: Any) -> Array:
    """Elementwise arc sine of the floats or complex values `x`.

    >>> lax.asin(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 1.571], dtype=float32)
    """
    return bind(asin_p, operand("asin", x))


def acos(x: Any) -> Array:
    """Elementwise arc cosine of the floats or complex values `x`.

    >>> lax.acos(jnp.array([1.0, 0.5])).round(3)
    Array([0.   , 1.047], dtype=float32)
    """
    return bind(acos_p, operand("acos", x))


def atan(x: Any) -> Array:
    """Elementwise arc tangent of the floats or complex values `x`.

    >>> lax.atan(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.785], dtype=float32)
    """
    return bind(atan_p, operand("atan", x))


def asinh(x: Any) -> Array:
    """Elementwise inverse of `sinh` of the floats or complex values `x`.

    >>> lax.asinh(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.881], dtype=float32)
    """
    return bind(asinh_p, operand("asinh", x))


def acosh(x: Any) -> Array:
    """Elementwise inverse of `cosh` of the floats or complex values `x`.

    >>> lax.acosh(jnp.array([1.0, 2.0])).round(3)
    Array([0.   , 1.317], dtype=float32)
    """
    return bind(acosh_p, operand("acosh", x))


def atanh(x: Any) -> Array:
    """Elementwise inverse of `tanh` of the floats or complex values `x`.

    >>> lax.atanh(jnp.array([0.0, 0.5])).round(3)
    Array([0.   , 0.549], dtype=float32)
    """
    return bind(atanh_p, operand("atanh", x))


def sqrt(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise square root of the floats or complex values `x`; NaN for negative reals. `accuracy` as for `exp`.

    >>> lax.sqrt(jnp.array([0.0, 4.0]))
    Array([0., 2.], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("sqrt", accuracy)
    return bind(sqrt_p, operand("sqrt", x))


def rsqrt(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``1 / sqrt(x)``. `accuracy` as for `exp`.

    >>> lax.rsqrt(jnp.array([1.0, 4.0]))
    Array([1. , 0.5], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("rsqrt", accuracy)
    return bind(rsqrt_p, operand("rsqrt", x))


def cbrt(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise real cube root of the floats `x`. `accuracy` as for `exp`.

    >>> lax.cbrt(jnp.array([1.0, 8.0])).round(3)
    Array([1., 2.], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("cbrt", accuracy)
    return bind(cbrt_p, operand("cbrt", x))


def logistic(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``1 / (1 + exp(-x))``, the sigmoid function. `accuracy` as for `exp`.

    >>> lax.logistic(jnp.array([0.0, 2.0])).round(3)
    Array([0.5  , 0.881], dtype=float32)
    """
    if accuracy is not None:
        check_accuracy("logistic", accuracy)
    return bind(logistic_p, operand("logistic", x))
