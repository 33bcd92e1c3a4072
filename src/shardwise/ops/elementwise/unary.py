"""Elementwise functions of one operand: arithmetic, exponentials, trigonometry, complex parts, bit counts."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import as_dtype
from shardwise.ir import Array, Op, ShapedArray, bind, define_op
from shardwise.ops.elementwise import complex_loops, complex_points
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.elementwise.accuracy import check_accuracy
from shardwise.ops.rules.derivative import along, back, do
from shardwise.ops.rules.operands import Block, check_kind, dtype_kind, elementwise_op, operand
from shardwise.runtime.env import Env

__all__ = [
    "RoundingMethod", "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "cbrt", "ceil", "clz", "conj",
    "cos", "cosh", "exp", "exp2", "expm1", "floor", "imag", "integer_pow", "is_finite", "log", "log1p", "logistic", "neg",
    "population_count", "real", "reciprocal", "round", "rsqrt", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip

_BOOL = np.dtype(np.bool_)
_PARTS = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}


def real_part_dtype(dtype: Any) -> Any:
    """The dtype of the absolute value and of the parts: that of a complex type's parts, a real type itself."""
    return _PARTS.get(dtype.name, dtype)


def _complex_dtype(dtype: Any) -> Any:
    return as_dtype("complex128" if dtype.name in ("float64", "complex128") else "complex64")


# -- kernels ---------------------------------------------------------------------------------------------------------


def _in_float32(x: Block) -> bool:
    """Whether a kernel of several steps should compute in float32, because the dtype is narrower."""
    return x.dtype.itemsize < 4


def _sign(x: Block) -> Block:
    if x.dtype.kind == "c":
        return complex_points.sign(x)
    out = np.asarray(np.sign(x))
    return out if x.dtype.kind in "iub" else np.copysign(out, x, out=out)  # np.sign(-0.0) is 0.0


def _round_away(x: Block) -> Block:
    # The number below one half: just enough to carry halves, and only them, to the next integer.
    return np.trunc(x + np.copysign(_below_half(x.dtype), x))


@functools.cache
def _below_half(dtype: Any) -> Any:
    half = np.array(0.5, dtype)
    return np.nextafter(half, np.zeros_like(half))


def _rsqrt(x: Block) -> Block:
    if _in_float32(x):
        return _rsqrt(x.astype(np.float32)).astype(x.dtype)
    if x.dtype.kind == "c":
        return complex_points.divide(x.dtype.type(1), np.sqrt(x))
    return np.reciprocal(np.sqrt(x))


def _logistic(x: Block) -> Block:
    if x.dtype.kind == "c":
        return complex_points.divide(x.dtype.type(1), complex_loops.exp(-x) + 1)
    if _in_float32(x):
        return _logistic(x.astype(np.float32)).astype(x.dtype)
    out = np.empty_like(x)
    np.negative(x, out=out)
    np.exp(out, out=out)  # overflows to inf below -88: the result is 0 there
    np.add(out, 1, out=out)
    return np.reciprocal(out, out=out)


def _conj(x: Block) -> Block:
    return np.conjugate(x) if x.dtype.kind == "c" else x.astype(_complex_dtype(x.dtype))


def _conj_type(x: ShapedArray) -> ShapedArray:
    if x.dtype.name not in ("float32", "float64", "complex64", "complex128"):
        raise TypeError(f"conj does not accept dtype {x.dtype.name}; expected float32, float64 or complex floating.")
    return ShapedArray(x.shape, _complex_dtype(x.dtype), x.weak_type)


def _unsigned(x: Block) -> Block:
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def _population_count(x: Block) -> Block:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _clz(x: Block) -> Block:
    bits = 8 * x.dtype.itemsize
    u = _unsigned(x)
    if bits == 64:
        high, low = (u >> np.uint64(32)), (u & np.uint64(0xFFFFFFFF))
        used = np.where(high != 0, _used_bits(high) + 32, _used_bits(low))
    else:
        used = _used_bits(u)
    return (bits - used).astype(x.dtype)


def _used_bits(u: Block) -> Block:
    return np.frexp(u.astype(np.float64))[1]  # exact for up to 53 bits; 0 has exponent 0


def _through_double(ufunc: np.ufunc) -> Callable[[Block], Block]:
    """`ufunc` of float32 blocks, rounded once: NumPy's float32 loops are off by an ulp where printed digits show it."""

    def narrow(x: Block) -> Block:
        return ufunc(x.astype(np.float64)).astype(np.float32)

    narrow.__name__ = ufunc.__name__
    return narrow


def _by_dtype(ufunc: np.ufunc, complex_function: Callable[[Block], Block], single: Any = None) -> tuple[Any, Any]:
    """`ufunc`, but for complex blocks that function, and for float32 blocks `single` if that is given; and the choice by dtype."""
    narrow = np.dtype(np.float32)

    def choose(dtype: Any) -> Any:
        if dtype.kind == "c":
            return complex_function
        return ufunc if single is None or dtype != narrow else single

    def function(x: Block) -> Block:
        return choose(x.dtype)(x)

    function.__name__ = ufunc.__name__
    return function, choose


_exp, _exp_of = _by_dtype(np.exp, complex_loops.exp)
_sqrt, _sqrt_of = _by_dtype(np.sqrt, complex_loops.sqrt)
_exp2, _exp2_of = _by_dtype(np.exp2, complex_points.exp2)
_expm1, _expm1_of = _by_dtype(np.expm1, complex_points.expm1)
_log, _log_of = _by_dtype(np.log, complex_points.log)
_log1p, _log1p_of = _by_dtype(np.log1p, complex_points.log1p)
_tan, _tan_of = _by_dtype(np.tan, complex_points.tan)
_tanh, _tanh_of = _by_dtype(np.tanh, complex_points.tanh)
_sinh, _sinh_of = _by_dtype(np.sinh, complex_points.sinh)
_cosh, _cosh_of = _by_dtype(np.cosh, complex_points.cosh)
_asin, _asin_of = _by_dtype(np.arcsin, complex_points.asin)
_acos, _acos_of = _by_dtype(np.arccos, complex_points.acos)
_asinh, _asinh_of = _by_dtype(np.arcsinh, complex_points.asinh)
_square, _square_of = _by_dtype(np.square, complex_points.square)
_acosh, _acosh_of = _by_dtype(np.arccosh, complex_points.acosh)
_abs, _abs_of = _by_dtype(np.absolute, complex_points.absolute)
_sin, _sin_of = _by_dtype(np.sin, complex_points.sin, _through_double(np.sin))
_cos, _cos_of = _by_dtype(np.cos, complex_points.cos, _through_double(np.cos))


# -- derivatives -----------------------------------------------------------------------------------------------------


def _abs_push(t: Any, y: Any, x: Any) -> Any:
    """The tangent, negated unless ``x >= 0``; of a modulus, its part in the direction of `x`, which is zero at zero."""
    if t.dtype.kind != "c":
        return do.select_n(do.ge(x, 0), do.neg(t), t)
    size = do.select_n(do.eq(y, 0), y, 1)
    direction = do.complex(do.div(do.real(x), size), do.div(do.neg(do.imag(x)), size))
    return do.real(do.mul(t, direction))


def _conj_pull(ct: Any, x: Any) -> Any:
    return do.conj(ct) if x.aval.dtype.kind == "c" else do.real(ct)


def _integer_pow_push(t: Any, z: Any, x: Any, *, y: int) -> Any:
    if y in (0, 1):
        return t if y else do.mul(t, 0)
    if y == 2:
        return do.mul(t, do.add(x, x))  # a product with a complex 2 would meet 0 times infinity
    return do.mul(t, do.mul(y, do.integer_pow(x, y=y - 1)))


# -- ops -------------------------------------------------------------------------------------------------------------


def _transcendental(name: str, *args: Any, **fields: Any) -> Op:
    return elementwise_op(name, *args, transcendental=True, **fields)


neg_p = elementwise_op(
    "neg",
    np.negative,
    "iufc",
    emit=ir.NEG,
    additive=True,
    push=lambda t, y, x: do.neg(t),
    pull=lambda ct, x: do.neg(ct),
)
sign_p = elementwise_op("sign", _sign, "iufc", emit=ir.SIGN, push=())
floor_p = elementwise_op("floor", np.floor, "f", emit=ir.FLOOR, push=())
ceil_p = elementwise_op("ceil", np.ceil, "f", emit=ir.CEIL, push=())
is_finite_p = elementwise_op("is_finite", np.isfinite, "f", emit=ir.IS_FINITE, result=lambda d: _BOOL)
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
    "tan", _tan, "fc", ufunc_of=_tan_of, emit=ir.TAN, push=lambda t, y, x: do.mul(t, do.add(do.square(y), 1))
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
    push=lambda t, y, x: do.mul(t, do.rsqrt(do.sub(1, do.square(x)))),
)
acos_p = _transcendental(
    "acos",
    _acos,
    "fc",
    ufunc_of=_acos_of,
    emit=ir.ACOS,
    push=lambda t, y, x: do.mul(t, do.neg(do.rsqrt(do.sub(1, do.square(x))))),
)
atan_p = _transcendental("atan", np.arctan, "fc", emit=ir.ATAN, push=lambda t, y, x: do.div(t, do.add(do.square(x), 1)))
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
    "sqrt", _sqrt, "fc", ufunc_of=_sqrt_of, emit=ir.SQRT, push=lambda t, y, x: do.mul(t, do.div(0.5, y))
)
rsqrt_p = _transcendental(
    "rsqrt", _rsqrt, "fc", emit=ir.RSQRT, push=lambda t, y, x: do.mul(t, do.mul(-0.5, do.div(y, x)))
)
cbrt_p = _transcendental(
    "cbrt", np.cbrt, "f", emit=ir.CBRT, push=lambda t, y, x: do.mul(t, do.div(1 / 3, do.square(y)))
)
logistic_p = _transcendental(
    "logistic", _logistic, "fc", emit=ir.LOGISTIC, push=lambda t, y, x: do.mul(t, do.mul(y, do.sub(1, y)))
)
abs_p = elementwise_op("abs", _abs, "ifc", ufunc_of=_abs_of, emit=ir.ABS, result=real_part_dtype, push=_abs_push)
square_p = elementwise_op(
    "square", _square, "iufc", ufunc_of=_square_of, emit=ir.SQUARE, push=lambda t, y, x: do.mul(t, do.add(x, x))
)
real_p = elementwise_op(
    "real", np.real, "c", result=real_part_dtype, push=lambda t, y, x: do.real(t), pull=lambda ct, x: do.complex(ct, 0)
)
imag_p = elementwise_op(
    "imag",
    np.imag,
    "c",
    result=real_part_dtype,
    push=lambda t, y, x: do.imag(t),
    pull=lambda ct, x: do.complex(0, do.neg(ct)),
)
conj_p = define_op(
    "conj",
    type_rule=_conj_type,
    kernel=lambda env, x: _conj(x),
    ufunc=_conj,
    jvp=along("conj", lambda t, y, x: do.conj(t)),
    transpose=back(_conj_pull),
)
not_p = elementwise_op("not", np.invert, "biu", emit=ir.NOT)
population_count_p = elementwise_op("population_count", _population_count, "iu", emit=ir.POPULATION_COUNT)
clz_p = elementwise_op("clz", _clz, "iu", emit=ir.CLZ)


class RoundingMethod(enum.IntEnum):
    """Where `round` moves a value halfway between two integers."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def _round_type(x: ShapedArray, *, rounding_method: RoundingMethod) -> ShapedArray:
    check_kind("round", x, "f")
    return x


def _round_kernel(env: Env, x: Block, *, rounding_method: RoundingMethod) -> Block:
    return _round_away(x) if rounding_method is RoundingMethod.AWAY_FROM_ZERO else np.rint(x)


round_p = define_op("round", type_rule=_round_type, kernel=_round_kernel, emit=ir.ROUND, jvp=along("round", ()))


def _integer_pow_type(x: ShapedArray, *, y: int) -> ShapedArray:
    check_kind("integer_pow", x, "iufc")
    if y < 0 and dtype_kind(x.dtype) in "iu":
        raise TypeError(
            f"integers have no negative powers, got integer_pow({x.str_short(False)}, {y}). Cast to a float first."
        )
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _integer_pow_kernel(env: Env, x: Block, *, y: int) -> Block:
    if y < 0:
        power = _integer_pow_kernel(env, x, y=-y)
        return complex_points.divide(x.dtype.type(1), power) if x.dtype.kind == "c" else np.reciprocal(power)
    if y == 0:
        return np.ones_like(x)
    result: Block | None = None
    while True:  # repeated squaring
        if y & 1:
            result = x if result is None else np.multiply(result, x)
        y >>= 1
        if not y:
            assert result is not None
            return result
        x = np.multiply(x, x)


integer_pow_p = define_op(
    "integer_pow",
    type_rule=_integer_pow_type,
    kernel=_integer_pow_kernel,
    emit=ir.INTEGER_POW,
    jvp=along("integer_pow", _integer_pow_push),
    makes_nan=True,
)


# -- functions -------------------------------------------------------------------------------------------------------


def neg(x: Any) -> Array:
    """Elementwise ``-x``; wraps for unsigned integers. TypeError for bools."""
    return bind(neg_p, operand("neg", x))


def sign(x: Any) -> Array:
    """Elementwise -1, 0 or 1; zeros keep their sign, NaN stays NaN, complex values are divided by their modulus."""
    return bind(sign_p, operand("sign", x))


def floor(x: Any) -> Array:
    """Elementwise greatest integer not above the float `x`."""
    return bind(floor_p, operand("floor", x))


def ceil(x: Any) -> Array:
    """Elementwise least integer not below the float `x`."""
    return bind(ceil_p, operand("ceil", x))


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Elementwise nearest integer of the float `x`; halves go where `rounding_method` says."""
    return bind(round_p, operand("round", x), rounding_method=RoundingMethod(rounding_method))


def is_finite(x: Any) -> Array:
    """Elementwise bool: neither infinite nor NaN. TypeError unless `x` is a real float."""
    return bind(is_finite_p, operand("is_finite", x))


def exp(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise e to the power `x`, for floats and complex values."""
    if accuracy is not None:
        check_accuracy("exp", accuracy)
    return bind(exp_p, operand("exp", x))


def exp2(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise 2 to the power `x`, for floats and complex values."""
    if accuracy is not None:
        check_accuracy("exp2", accuracy)
    return bind(exp2_p, operand("exp2", x))


def expm1(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``exp(x) - 1``, exact near 0."""
    if accuracy is not None:
        check_accuracy("expm1", accuracy)
    return bind(expm1_p, operand("expm1", x))


def log(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise natural logarithm; NaN for negative reals."""
    if accuracy is not None:
        check_accuracy("log", accuracy)
    return bind(log_p, operand("log", x))


def log1p(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``log(1 + x)``, exact near 0."""
    if accuracy is not None:
        check_accuracy("log1p", accuracy)
    return bind(log1p_p, operand("log1p", x))


def sin(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise sine."""
    if accuracy is not None:
        check_accuracy("sin", accuracy)
    return bind(sin_p, operand("sin", x))


def cos(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise cosine."""
    if accuracy is not None:
        check_accuracy("cos", accuracy)
    return bind(cos_p, operand("cos", x))


def tan(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise tangent."""
    if accuracy is not None:
        check_accuracy("tan", accuracy)
    return bind(tan_p, operand("tan", x))


def tanh(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise hyperbolic tangent."""
    if accuracy is not None:
        check_accuracy("tanh", accuracy)
    return bind(tanh_p, operand("tanh", x))


def sinh(x: Any) -> Array:
    """Elementwise hyperbolic sine."""
    return bind(sinh_p, operand("sinh", x))


def cosh(x: Any) -> Array:
    """Elementwise hyperbolic cosine."""
    return bind(cosh_p, operand("cosh", x))


def asin(x: Any) -> Array:
    """Elementwise arc sine."""
    return bind(asin_p, operand("asin", x))


def acos(x: Any) -> Array:
    """Elementwise arc cosine."""
    return bind(acos_p, operand("acos", x))


def atan(x: Any) -> Array:
    """Elementwise arc tangent."""
    return bind(atan_p, operand("atan", x))


def asinh(x: Any) -> Array:
    """Elementwise inverse of `sinh`."""
    return bind(asinh_p, operand("asinh", x))


def acosh(x: Any) -> Array:
    """Elementwise inverse of `cosh`."""
    return bind(acosh_p, operand("acosh", x))


def atanh(x: Any) -> Array:
    """Elementwise inverse of `tanh`."""
    return bind(atanh_p, operand("atanh", x))


def sqrt(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise square root; NaN for negative reals."""
    if accuracy is not None:
        check_accuracy("sqrt", accuracy)
    return bind(sqrt_p, operand("sqrt", x))


def rsqrt(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``1 / sqrt(x)``."""
    if accuracy is not None:
        check_accuracy("rsqrt", accuracy)
    return bind(rsqrt_p, operand("rsqrt", x))


def cbrt(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise real cube root."""
    if accuracy is not None:
        check_accuracy("cbrt", accuracy)
    return bind(cbrt_p, operand("cbrt", x))


def logistic(x: Any, *, accuracy: Any = None) -> Array:
    """Elementwise ``1 / (1 + exp(-x))``, the sigmoid function."""
    if accuracy is not None:
        check_accuracy("logistic", accuracy)
    return bind(logistic_p, operand("logistic", x))


def abs(x: Any) -> Array:
    """Elementwise absolute value; for complex values their modulus, a real. TypeError for unsigned integers and bools."""
    return bind(abs_p, operand("abs", x))


def square(x: Any) -> Array:
    """Elementwise ``x * x``."""
    return bind(square_p, operand("square", x))


def integer_pow(x: Any, y: int) -> Array:
    """Elementwise `x` to the power of the static Python int `y`. TypeError for negative powers of integers."""
    return bind(integer_pow_p, operand("integer_pow", x), y=int(y) if y == int(y) else _refuse_power(y))


def _refuse_power(y: Any) -> int:
    raise TypeError(f"lax.integer_pow takes an int as power, got {y!r}. Use lax.pow for others.")


def reciprocal(x: Any) -> Array:
    """Elementwise ``1 / x``, for floats and complex values."""
    return integer_pow(x, -1)


def real(x: Any) -> Array:
    """Real parts: complex64[...] -> float32[...]. TypeError unless `x` is complex."""
    return bind(real_p, operand("real", x))


def imag(x: Any) -> Array:
    """Imaginary parts: complex64[...] -> float32[...]. TypeError unless `x` is complex."""
    return bind(imag_p, operand("imag", x))


def conj(x: Any) -> Array:
    """Elementwise complex conjugate; floats become complex."""
    return bind(conj_p, operand("conj", x))


def bitwise_not(x: Any) -> Array:
    """Elementwise complement of the bits, or logical not of bools."""
    return bind(not_p, operand("bitwise_not", x))


def population_count(x: Any) -> Array:
    """Elementwise number of bits that are set, in the integer dtype of `x`."""
    return bind(population_count_p, operand("population_count", x))


def clz(x: Any) -> Array:
    """Elementwise number of zero bits above the highest set one, in the integer dtype of `x`."""
    return bind(clz_p, operand("clz", x))
