"""Elementwise arithmetic and mathematics, with NumPy's promotion and broadcasting.

In: arrays and scalars of any dtypes. Out: arrays; integers become floats where the result is not an integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import lax
from shardwise.base.dtypes import default_dtype, finfo, is_weak, isdtype
from shardwise.ir import Array, Literal, Op, Tracer, bind
from shardwise.numpy._promote import (
    Value,
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
    promote,
    promote_inexact,
    promote_numeric,
    promote_shapes,
    promote_to_inexact,
    promote_to_numeric,
    value,
    values,
    zero_like,
)
from shardwise.ops import binary as two
from shardwise.ops import unary as one
from shardwise.ops.operands import elementwise_op
from shardwise.ops.select import select_n_p

_FLOATING = frozenset(np.dtype(t) for t in (np.float16, np.float32, np.float64, np.complex64, np.complex128))

Promotion = Callable[..., Any]


def _unary(name: str, op: Op, doc: str) -> Callable[[Any], Array]:
    """A function of one operand that computes in floats."""

    def function(x: Any, /) -> Array:
        if isinstance(x, Array) and x.aval.dtype in _FLOATING:  # the everyday case
            return bind(op, x)
        return bind(op, *promote_inexact(value(name, x)))

    return _named(function, name, doc)


def _binary(name: str, op: Op, promotion: Promotion, doc: str) -> Callable[[Any, Any], Array]:
    """A function of two operands, promoted together."""

    def function(x: Any, y: Any, /) -> Array:
        return bind(op, *promotion(name, x, y))

    return _named(function, name, doc)


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = "shardwise.numpy"
    return function


def where_(condition: Value, x: Value, y: Value) -> Array:
    """`x` where `condition` holds, else `y`; for operands whose dtypes and ranks fit already."""
    return bind(select_n_p, condition, y, x)


# -- one operand: exponentials, trigonometry -------------------------------------------------------------------

exp = _unary("exp", one.exp_p, "Elementwise e to the power `x`.")
expm1 = _unary("expm1", one.expm1_p, "Elementwise ``exp(x) - 1``, exact near 0.")
log = _unary("log", one.log_p, "Elementwise natural logarithm.")
log1p = _unary("log1p", one.log1p_p, "Elementwise ``log(1 + x)``, exact near 0.")
exp2 = _unary("exp2", one.exp2_p, "Elementwise 2 to the power `x`.")
sqrt = _unary("sqrt", one.sqrt_p, "Elementwise square root; NaN for negative reals.")
cbrt = _unary("cbrt", one.cbrt_p, "Elementwise cube root.")
sin = _unary("sin", one.sin_p, "Elementwise sine.")
cos = _unary("cos", one.cos_p, "Elementwise cosine.")
tan = _unary("tan", one.tan_p, "Elementwise tangent.")
arcsin = _unary("arcsin", one.asin_p, "Elementwise arc sine.")
arccos = _unary("arccos", one.acos_p, "Elementwise arc cosine.")
arctan = _unary("arctan", one.atan_p, "Elementwise arc tangent.")
sinh = _unary("sinh", one.sinh_p, "Elementwise hyperbolic sine.")
cosh = _unary("cosh", one.cosh_p, "Elementwise hyperbolic cosine.")
tanh = _unary("tanh", one.tanh_p, "Elementwise hyperbolic tangent.")
arcsinh = _unary("arcsinh", one.asinh_p, "Elementwise inverse of `sinh`.")
arccosh = _unary("arccosh", one.acosh_p, "Elementwise inverse of `cosh`; NaN for reals below 1.")
arctanh = _unary("arctanh", one.atanh_p, "Elementwise inverse of `tanh`.")
asin, acos, atan, asinh, acosh, atanh = arcsin, arccos, arctan, arcsinh, arccosh, arctanh


def log2(x: Any, /) -> Array:
    """Elementwise logarithm to the base 2."""
    (v,) = promote_inexact(value("log2", x))
    v = astype(v, v.dtype)
    if is_complex(v.dtype):
        return lax.div(lax.log(v), math.log(2) + 0j)
    return lax.div(lax.log(v), math.log(2))


def log10(x: Any, /) -> Array:
    """Elementwise logarithm to the base 10."""
    (v,) = promote_inexact(value("log10", x))
    v = astype(v, v.dtype)
    if is_complex(v.dtype):
        return lax.div(lax.log(v), math.log(10) + 0j)
    return lax.div(lax.log(v), math.log(10))


def degrees(x: Any, /) -> Array:
    """Elementwise radians to degrees."""
    (v,) = promote_inexact(value("degrees", x))
    return lax.mul(v, constant(v, 180 / np.pi))


def radians(x: Any, /) -> Array:
    """Elementwise degrees to radians."""
    (v,) = promote_inexact(value("radians", x))
    return lax.mul(v, constant(v, np.pi / 180))


rad2deg, deg2rad = degrees, radians


def sinc(x: Any, /) -> Array:
    """Elementwise ``sin(pi x) / (pi x)``; 1 at 0."""
    (v,) = promote_inexact(value("sinc", x))
    zero = lax.eq(v, zero_like(v))
    angle = where_(zero, constant(v, 1), lax.mul(v, constant(v, np.pi)))
    return where_(zero, constant(v, 1), lax.div(lax.sin(angle), angle))


def i0(x: Any) -> Array:
    """Elementwise modified Bessel function of the first kind, order 0. ValueError unless `x` is real."""
    (v,) = promote_inexact(value("i0", x))
    if not is_float(v.dtype):
        raise ValueError(f"i0 takes real numbers, got {v.dtype}.")
    v = lax.abs(v)
    return lax.mul(lax.exp(v), lax.bessel_i0e(v))


# -- one operand: arithmetic -----------------------------------------------------------------------------------


def _negative(x: Any, /) -> Array:
    """Elementwise ``-x``; wraps for unsigned integers. TypeError for bools."""
    return bind(one.neg_p, value("negative", x))


def positive(x: Any, /) -> Array:
    """Elementwise ``+x``: the array itself."""
    return array("positive", x)


def sign(x: Any, /) -> Array:
    """Elementwise -1, 0 or 1; for complex values ``x / abs(x)``."""
    return bind(one.sign_p, value("sign", x))


def absolute(x: Any, /) -> Array:
    """Elementwise absolute value; the modulus of complex values."""
    v = value("absolute", x)
    if is_bool(v.dtype) or isdtype(v.dtype, "unsigned integer"):
        return as_array(v)
    return bind(one.abs_p, v)


abs = absolute


def fabs(x: Any, /) -> Array:
    """Elementwise absolute value as a float. TypeError for complex values."""
    (v,) = promote_inexact(value("fabs", x))
    if is_complex(v.dtype):
        raise TypeError(f"fabs does not take complex values, got {v.dtype}. Use jnp.abs.")
    return bind(one.abs_p, v)


def square(x: Any, /) -> Array:
    """Elementwise ``x * x``."""
    v = value("square", x)
    if is_bool(v.dtype):
        v = astype(v, default_dtype("i"))
    return bind(one.square_p, v)


def reciprocal(x: Any, /) -> Array:
    """Elementwise ``1 / x``, as a float."""
    (v,) = promote_inexact(value("reciprocal", x))
    return lax.div(constant(v, 1), v)


def floor(x: Any, /) -> Array:
    """Elementwise greatest integer not above `x`; integers and bools stay."""
    v = value("floor", x)
    return as_array(v) if not is_inexact(v.dtype) else bind(one.floor_p, v)


def ceil(x: Any, /) -> Array:
    """Elementwise least integer not below `x`; integers and bools stay."""
    v = value("ceil", x)
    return as_array(v) if not is_inexact(v.dtype) else bind(one.ceil_p, v)


def trunc(x: Any) -> Array:
    """Elementwise `x` without its fraction; integers and bools stay."""
    v = value("trunc", x)
    if not is_inexact(v.dtype):
        return as_array(v)
    return where_(lax.lt(v, zero_like(v)), lax.ceil(v), lax.floor(v))


def fix(x: Any, out: None = None) -> Array:
    """Elementwise `x` without its fraction; the old name of `trunc`."""
    no_out("fix", out)
    return trunc(x)


def rint(x: Any, /) -> Array:
    """Elementwise nearest integer, as a float; halves go to the even neighbour."""
    v = value("rint", x)
    if not is_inexact(v.dtype):
        return as_array(astype(v, default_dtype("f")))
    return round(v)


def round(a: Any, decimals: int = 0, out: None = None) -> Array:
    """Elementwise `a` rounded to this number of decimals, halves to even.

    NotImplementedError for integers and negative `decimals`, ValueError for bools.
    """
    no_out("round", out)
    v = value("round", a)
    if is_bool(v.dtype):
        raise ValueError("round takes numbers, got bools. Cast them first.")
    if is_integer(v.dtype):
        if decimals < 0:
            raise NotImplementedError(f"round of integers to {decimals} decimals; cast to a float first.")
        return as_array(v)
    if is_complex(v.dtype):
        return lax.complex(round(lax.real(v), decimals), round(lax.imag(v), decimals))
    if decimals == 0:
        return lax.round(v, lax.RoundingMethod.TO_NEAREST_EVEN)
    narrow = finfo(v.dtype).bits < 32
    x = convert(v, np.dtype(np.float32), v.weak_type) if narrow else v
    factor = constant(x, 10.0 ** (decimals if decimals > 0 else -decimals))
    if decimals > 0:
        rounded = lax.div(lax.round(lax.mul(x, factor), lax.RoundingMethod.TO_NEAREST_EVEN), factor)
    else:
        rounded = lax.mul(lax.round(lax.div(x, factor), lax.RoundingMethod.TO_NEAREST_EVEN), factor)
    return convert(rounded, v.dtype, v.weak_type)  # type: ignore[return-value]


around = round


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """Elementwise `x` with NaN and the infinities replaced: by 0 and by the largest and least finite value, if not given."""
    del copy  # arrays are immutable
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
    mask, new, x = promote_shapes("nan_to_num", mask, astype(value("nan_to_num", new), x.dtype), x)
    return where_(mask, new, x)


def real(val: Any, /) -> Array:
    """Elementwise real part."""
    v = value("real", val)
    return lax.real(v) if is_complex(v.dtype) else as_array(v)


def imag(val: Any, /) -> Array:
    """Elementwise imaginary part; zeros for reals."""
    v = value("imag", val)
    if is_complex(v.dtype):
        return lax.imag(v)
    return lax.full(v.shape, 0, v.dtype) if v.aval.mesh is None else lax.full_like(v, 0)  # depends on nothing of `val`


def conjugate(x: Any, /) -> Array:
    """Elementwise complex conjugate; reals stay."""
    v = value("conjugate", x)
    return bind(one.conj_p, v) if is_complex(v.dtype) else as_array(v)


conj = conjugate


def angle(z: Any, deg: bool = False) -> Array:
    """Elementwise angle of a complex value, in radians or degrees; 0 or pi for reals."""
    v = value("angle", z)
    if is_complex(v.dtype):
        result = lax.atan2(lax.imag(v), lax.real(v))
    else:
        (v,) = promote_inexact(v)
        v = astype(v, v.dtype)
        negative = where_(lax.lt(v, zero_like(v)), constant(v, np.pi), constant(v, 0.0))
        result = where_(lax.ne(v, v), v, negative)
    return lax.mul(result, 180 / np.pi) if deg else result


def bitwise_count(x: Any, /) -> Array:
    """Elementwise number of bits set in the absolute value, as uint8."""
    v = value("bitwise_count", x)
    if is_bool(v.dtype):
        return as_array(astype(v, np.dtype(np.uint8)))
    return lax.convert_element_type(lax.population_count(absolute(v)), np.uint8)


def invert(x: Any, /) -> Array:
    """Elementwise complement of the bits; logical not of bools."""
    return bind(one.not_p, value("invert", x))


bitwise_not = bitwise_invert = invert


# -- two operands: arithmetic ----------------------------------------------------------------------------------

_add = _binary("add", two.add_p, promote, "Elementwise ``x + y``; logical or of bools.")
_subtract = _binary("subtract", two.sub_p, promote, "Elementwise ``x - y``. TypeError for bools.")
_multiply = _binary("multiply", two.mul_p, promote, "Elementwise ``x * y``; logical and of bools.")
_maximum = _binary("maximum", two.max_p, promote, "Elementwise maximum; NaN if either is.")
_minimum = _binary("minimum", two.min_p, promote, "Elementwise minimum; NaN if either is.")
true_divide = _binary("true_divide", two.div_p, promote_to_inexact, "Elementwise ``x / y``, as a float.")
divide = true_divide
arctan2 = _binary("arctan2", two.atan2_p, promote_to_inexact, "Elementwise angle of the point (y, x).")
atan2 = arctan2
nextafter = _binary("nextafter", two.nextafter_p, promote_to_inexact,
                    "Elementwise next float after `x` in the direction of `y`.")  # fmt: skip


def floor_divide(x1: Any, x2: Any, /) -> Array:
    """Elementwise quotient rounded down. TypeError for complex values."""
    x, y = promote_to_numeric("floor_divide", x1, x2)
    if is_complex(x.dtype):
        raise TypeError("floor_divide does not support complex-valued inputs")
    if not is_integer(x.dtype):
        return _float_quotient(x, y, bind(two.rem_p, x, y))
    quotient = bind(two.div_p, x, y)  # towards zero: one too much where the signs differ and a remainder is left
    if isdtype(x.dtype, "unsigned integer"):
        return quotient
    rest = bind(two.rem_p, x, y)
    if _is_positive(y):
        below = bind(two.lt_p, rest, zero_like(rest))
    else:
        below = bind(
            two.and_p, bind(two.ne_p, bind(one.sign_p, x), bind(one.sign_p, y)), bind(two.ne_p, rest, zero_like(rest))
        )
    return where_(below, bind(two.sub_p, quotient, constant(quotient, 1)), quotient)


def _is_positive(y: Value) -> bool:
    """Whether `y` is a positive number known while tracing."""
    return isinstance(y, Literal) and y.value.item() > 0


def remainder(x1: Any, x2: Any, /) -> Array:
    """Elementwise remainder with the sign of the divisor; 0 for integers divided by 0."""
    x, y = promote_to_numeric("remainder", x1, x2)
    if is_integer(x.dtype) and not _is_positive(y):
        y = where_(bind(two.eq_p, y, zero_like(y)), constant(y, 1), y)
    return _with_sign_of(y, bind(two.rem_p, x, y))


def _with_sign_of(y: Value, rest: Array) -> Array:
    """A truncated remainder moved to the side of zero where the divisor `y` lies."""
    return where_(_on_other_side(y, rest), bind(two.add_p, rest, y), rest)


def _on_other_side(y: Value, rest: Array) -> Array:
    negative = bind(two.lt_p, rest, zero_like(rest))
    if _is_positive(y):
        return negative
    return bind(
        two.and_p, bind(two.ne_p, negative, bind(two.lt_p, y, zero_like(y))), bind(two.ne_p, rest, zero_like(rest))
    )


mod = remainder


def fmod(x1: Any, x2: Any, /) -> Array:
    """Elementwise remainder with the sign of the dividend; 0 for integers divided by 0."""
    x, y = promote_to_numeric("fmod", x1, x2)
    if is_integer(x.dtype):
        y = where_(bind(two.eq_p, y, zero_like(y)), constant(y, 1), y)
    return bind(two.rem_p, x, y)


def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:
    """Elementwise (floor_divide, remainder)."""
    x, y = promote_to_numeric("divmod", x1, x2)
    if is_integer(x.dtype):
        return floor_divide(x, y), remainder(x, y)
    return _float_divmod(x, y)


def _float_divmod(x: Value, y: Value) -> tuple[Array, Array]:
    if is_complex(x.dtype):
        raise TypeError("floor_divide and divmod do not support complex-valued inputs")
    rest = bind(two.rem_p, x, y)
    return _float_quotient(x, y, rest), _with_sign_of(y, rest)


def _float_quotient(x: Value, y: Value, rest: Array) -> Array:
    quotient = bind(two.div_p, bind(two.sub_p, x, rest), y)
    quotient = where_(_on_other_side(y, rest), bind(two.sub_p, quotient, constant(quotient, 1)), quotient)
    quotient = lax.round(quotient, lax.RoundingMethod.AWAY_FROM_ZERO)
    return quotient if _is_positive(y) else where_(bind(two.eq_p, y, zero_like(y)), bind(two.div_p, x, y), quotient)


def power(x1: Any, x2: Any, /) -> Array:
    """Elementwise `x1` to the power `x2`; integers to integer powers stay integers.

    TypeError for a negative power known while tracing of integers; otherwise such powers give 0, 1 or -1.
    """
    x, y = values("power", x1, x2)
    exponent = _integer_constant(y)
    if exponent is not None:
        (x,) = promote_numeric(x)
        return integer_power(x, exponent)
    if is_inexact(x.dtype) and is_integer(y.dtype):
        base, _ = promote_numeric(x, y)
        return lax.pow(*promote_shapes("power", base, astype(y, y.dtype)))
    x, y = promote_shapes("power", *promote_numeric(x, y))
    if is_integer(x.dtype):
        return bind(_int_pow_p, x, y)
    return lax.pow(x, y)


pow = power


def _weak_if_all_are(result: Array, *operands: Any) -> Array:
    """`result`, weakly typed only if all operands are, also where an integer met a Python float."""
    weak = all(is_weak(x) for x in operands)
    return convert(result, result.dtype, weak)  # type: ignore[return-value]


def _integer_constant(y: Value) -> int | None:
    """The value of an integer scalar that is no traced value."""
    if y.ndim or isinstance(y, Tracer) or not is_integer(y.dtype):
        return None
    return int(y.value) if isinstance(y, Literal) else int(y)  # type: ignore[call-overload]


def integer_power(x: Value, exponent: int) -> Array:
    """`x` to the power of an int known while tracing."""
    if exponent == 2:
        return bind(one.square_p, x)
    if exponent == 1:
        return as_array(x)
    return lax.integer_pow(x, exponent)


def _int_pow(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Integer powers that wrap; 1 / x for negative powers is 0 but for x = 1 and -1."""
    result = np.power(x, np.maximum(y, 0))
    negative = y < 0
    if negative.any():
        odd = np.where(y & 1, x, np.ones_like(x))
        result = np.where(negative, np.where(np.abs(x) == 1, odd, np.zeros_like(x)), result)
    return np.asarray(result, x.dtype)


_int_pow_p = elementwise_op("int_pow", _int_pow, "iu", "iu")


def float_power(x: Any, y: Any, /) -> Array:
    """Elementwise `x` to the power `y`, as a float."""
    return lax.pow(*promote_to_inexact("float_power", x, y))


def _logaddexp(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``log(exp(x1) + exp(x2))`` without overflow."""
    x, y = promote_to_inexact("logaddexp", x1, x2)
    if is_complex(x.dtype):
        return _weak_if_all_are(_complex_logaddexp(x, y), x1, x2)
    difference = lax.sub(x, y)
    sum_ = lax.add(lax.max(x, y), lax.log1p(lax.exp(lax.neg(lax.abs(difference)))))
    return where_(lax.ne(difference, difference), lax.add(x, y), sum_)


def _complex_logaddexp(x: Value, y: Value) -> Array:
    x_larger = lax.gt(lax.real(x), lax.real(y))
    high, low = where_(x_larger, x, y), where_(x_larger, y, x)
    same = lax.eq(x, y)  # so that infinities do not cancel
    delta = where_(same, zero_like(x), lax.sub(low, high))
    total = lax.add(high, lax.log1p(lax.exp(delta)))
    # The phase is given up to full turns: bring it into (-pi, pi].
    phase = lax.imag(total)
    turns = lax.round(lax.div(phase, constant(phase, 2 * np.pi)), lax.RoundingMethod.TO_NEAREST_EVEN)
    return lax.complex(lax.real(total), lax.sub(phase, lax.mul(turns, constant(phase, 2 * np.pi))))


def _logaddexp2(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``log2(2**x1 + 2**x2)`` without overflow."""
    x, y = promote_to_inexact("logaddexp2", x1, x2)
    if is_complex(x.dtype):
        log2 = constant(x, math.log(2))
        return lax.div(_complex_logaddexp(lax.mul(x, log2), lax.mul(y, log2)), log2)
    difference = lax.sub(x, y)
    log = lax.log1p(lax.exp2(lax.neg(lax.abs(difference))))
    sum_ = lax.add(lax.max(x, y), lax.div(log, constant(log, math.log(2))))
    return _weak_if_all_are(where_(lax.ne(difference, difference), lax.add(x, y), sum_), x1, x2)


def hypot(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``sqrt(x1**2 + x2**2)`` without overflow. ValueError for complex values."""
    x, y = promote_to_inexact("hypot", x1, x2)
    if is_complex(x.dtype):
        raise ValueError("hypot takes real numbers, got complex values. Take abs(x) of them first.")
    x, y = lax.abs(x), lax.abs(y)
    infinite = lax.bitwise_or(lax.eq(x, constant(x, np.inf)), lax.eq(y, constant(y, np.inf)))
    high, low = lax.max(x, y), lax.min(x, y)
    divisor = where_(lax.eq(high, zero_like(high)), constant(high, 1), high)
    root = lax.mul(high, lax.sqrt(lax.add(constant(high, 1), lax.square(lax.div(low, divisor)))))
    return _weak_if_all_are(where_(infinite, constant(root, np.inf), root), x1, x2)


def heaviside(x1: Any, x2: Any, /) -> Array:
    """Elementwise step: 0 for negative `x1`, 1 for positive, `x2` at 0."""
    x, y = promote_to_inexact("heaviside", x1, x2)
    step = where_(lax.lt(x, zero_like(x)), zero_like(x), where_(lax.gt(x, zero_like(x)), constant(x, 1), y))
    return _weak_if_all_are(where_(lax.ne(x, x), x, step), x1, x2)


def fmin(x1: Any, x2: Any) -> Array:
    """Elementwise minimum; of a number and NaN the number."""
    return _number_of("fmin", two.min_p, x1, x2)


def fmax(x1: Any, x2: Any) -> Array:
    """Elementwise maximum; of a number and NaN the number."""
    return _number_of("fmax", two.max_p, x1, x2)


def _number_of(name: str, op: Op, x1: Any, x2: Any) -> Array:
    x, y = promote(name, x1, x2)
    if not is_inexact(x.dtype):
        return bind(op, x, y)
    return where_(lax.ne(y, y), x, where_(lax.ne(x, x), y, bind(op, x, y)))


def clip(arr: Any = None, /, min: Any = None, max: Any = None, *, a: Any = None, a_min: Any = None,
         a_max: Any = None) -> Array:  # fmt: skip
    """Elementwise `arr` moved into the range from `min` to `max`, either of which may be None.

    `a`, `a_min` and `a_max` are older names. ValueError for complex values.
    """
    arr = a if arr is None else arr
    min = a_min if min is None else min
    max = a_max if max is None else max
    if arr is None:
        raise ValueError("No input was provided to the clip function.")
    x = value("clip", arr)
    # Python numbers stay as they are: next to an array they need no promotion.
    low, high = (
        b if b is None or b.__class__ in (int, float) else value("clip", b, i + 1) for i, b in enumerate((min, max))
    )
    if any(is_complex(v.dtype) for v in (x, low, high) if isinstance(v, Array | Literal)):
        raise ValueError("clip takes real numbers, got complex values, which have no order. Clip real and imag apart.")
    if low is not None:
        x = _maximum(low, x)
    if high is not None:
        x = _minimum(high, x)
    return as_array(x)


# -- integers and bits -----------------------------------------------------------------------------------------

_bitwise_and = _binary("bitwise_and", two.and_p, promote, "Elementwise and of integers' bits or of bools.")
_bitwise_or = _binary("bitwise_or", two.or_p, promote, "Elementwise or of integers' bits or of bools.")
_bitwise_xor = _binary("bitwise_xor", two.xor_p, promote, "Elementwise exclusive or of integers' bits or of bools.")
left_shift = _binary("left_shift", two.shift_left_p, promote_to_numeric, "Elementwise ``x << y`` of integers.")
bitwise_left_shift = left_shift


def right_shift(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``x1 >> x2`` of integers; signed ones keep their sign."""
    x, y = promote_to_numeric("right_shift", x1, x2)
    logical = isdtype(x.dtype, "unsigned integer")
    return lax.shift_right_logical(x, y) if logical else lax.shift_right_arithmetic(x, y)


bitwise_right_shift = right_shift

_gcd_p = elementwise_op("gcd", np.gcd, "iu", "iu")


def gcd(x1: Any, x2: Any) -> Array:
    """Elementwise greatest common divisor of integers; gcd(0, x) is abs(x). ValueError unless both are integers."""
    return _weak_if_all_are(bind(_gcd_p, *_two_integers("gcd", x1, x2)), x1, x2)


def lcm(x1: Any, x2: Any) -> Array:
    """Elementwise least common multiple of integers; 0 if either is. ValueError unless both are integers."""
    x, y = _two_integers("lcm", x1, x2)
    x, y = absolute(x), absolute(y)
    divisor = bind(_gcd_p, x, y)
    quotient = lax.div(y, where_(lax.eq(divisor, zero_like(divisor)), constant(divisor, 1), divisor))
    return _weak_if_all_are(lax.mul(x, quotient), x1, x2)


def _two_integers(name: str, x1: Any, x2: Any) -> Any:
    x, y = promote(name, x1, x2)
    if not is_integer(x.dtype):
        raise ValueError(f"{name} takes integers, got {x.dtype}.")
    return x, y


__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "around",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_right_shift",
    "cbrt",
    "ceil",
    "clip",
    "conj",
    "conjugate",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "divide",
    "divmod",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "fix",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "hypot",
    "i0",
    "imag",
    "invert",
    "lcm",
    "left_shift",
    "log",
    "log1p",
    "log2",
    "log10",
    "mod",
    "nan_to_num",
    "nextafter",
    "positive",
    "pow",
    "power",
    "rad2deg",
    "radians",
    "real",
    "reciprocal",
    "remainder",
    "right_shift",
    "rint",
    "round",
    "sign",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
]  # fmt: skip
