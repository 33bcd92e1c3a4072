"""Elementwise arithmetic of two operands, with NumPy's promotion and broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import isdtype
from shardwise.base.errors import about
from shardwise.base.renamed import rename_function
from shardwise.engine.array import ArrayImpl
from shardwise.engine.eager import run_composed
from shardwise.ir import Array, Literal, Op, Tracer, bind, is_eager
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Value,
    as_array,
    broadcast_together,
    constant,
    is_complex,
    is_inexact,
    is_integer,
    plain_number,
    promote,
    promote_numeric,
    promote_shapes,
    promote_to_inexact,
    promote_to_numeric,
    strong,
    value,
    values,
    zero_like,
)
from shardwise.numpy._ufunc_forms import binary, weak_if_scalar, where_
from shardwise.ops.control.calls import define_along
from shardwise.ops.elementwise import binary as two
from shardwise.ops.elementwise import bitwise, comparison, elementwise_ir
from shardwise.ops.elementwise import unary as one
from shardwise.ops.rules.operands import elementwise_op
from shardwise.transforms.jit.shown_calls import shown_call

add = binary("add", two.add_p, promote, "Elementwise ``x + y``; logical or of bools.")
subtract = binary("subtract", two.sub_p, promote, "Elementwise ``x - y``. TypeError for bools.")
multiply = binary("multiply", two.mul_p, promote, "Elementwise ``x * y``; logical and of bools.")
maximum = binary("maximum", two.max_p, promote, "Elementwise maximum; NaN if either is.")
minimum = binary("minimum", two.min_p, promote, "Elementwise minimum; NaN if either is.")
true_divide = binary("true_divide", two.div_p, promote_to_inexact, "Elementwise ``x / y``, as a float.")
divide = rename_function(true_divide, "divide")
arctan2 = binary("arctan2", two.atan2_p, promote_to_inexact, "Elementwise angle of the point (y, x).")
atan2 = rename_function(arctan2, "atan2")
nextafter = binary(
    "nextafter", two.nextafter_p, promote_to_inexact, "Elementwise next float after `x` in the direction of `y`."
)


@shown_call()
def floor_divide(x1: Any, x2: Any, /) -> Array:
    """Elementwise quotient ``x1 / x2`` rounded down, in the common dtype. TypeError for complex values.

    >>> jnp.floor_divide(jnp.array([7, -7]), 2)
    Array([ 3, -4], dtype=int32)
    """
    x, y = promote_to_numeric("floor_divide", x1, x2)
    if is_complex(x.dtype):
        raise TypeError("floor_divide does not support complex-valued inputs")
    if not is_integer(x.dtype):
        return _float_quotient(x, y, bind(two.rem_p, x, y))
    quotient = bind(two.div_p, x, y)  # rounded towards zero: one too much if the signs differ and there is a remainder
    if isdtype(x.dtype, "unsigned integer"):
        return quotient
    rest = bind(two.rem_p, x, y)
    if _is_positive(y):
        below = bind(comparison.lt_p, rest, zero_like(rest))
    else:
        below = bind(
            bitwise.and_p,
            bind(comparison.ne_p, bind(one.sign_p, x), bind(one.sign_p, y)),
            bind(comparison.ne_p, rest, zero_like(rest)),
        )
    return where_(below, bind(two.sub_p, quotient, constant(quotient, 1)), quotient)


def _is_positive(y: Value) -> bool:
    """Whether `y` is a positive number known while tracing."""
    return isinstance(y, Literal) and y.value.item() > 0


@shown_call()
def remainder(x1: Any, x2: Any, /) -> Array:
    """Elementwise remainder of ``x1 / x2`` with the sign of `x2`; 0 for integers divided by 0.

    >>> jnp.mod(jnp.array([7, -7]), 3)
    Array([1, 2], dtype=int32)
    """
    x, y = promote_to_numeric("remainder", x1, x2)
    if is_integer(x.dtype) and not _is_positive(y):
        y = where_(bind(comparison.eq_p, y, zero_like(y)), constant(y, 1), y)
    rest = bind(two.rem_p, x, y)
    return rest if isdtype(x.dtype, "unsigned integer") else _with_sign_of(y, rest)


def _with_sign_of(y: Value, rest: Array) -> Array:
    """A truncated remainder with the sign of the divisor `y`."""
    return where_(_on_other_side(y, rest), bind(two.add_p, rest, y), rest)


def _on_other_side(y: Value, rest: Array) -> Array:
    if _is_positive(y):
        return bind(comparison.lt_p, rest, zero_like(rest))
    some = bind(comparison.ne_p, rest, zero_like(rest))
    negative = bind(comparison.lt_p, rest, zero_like(rest))
    return bind(bitwise.and_p, bind(comparison.ne_p, negative, bind(comparison.lt_p, y, zero_like(y))), some)


mod = rename_function(remainder, "mod")


@shown_call()
def fmod(x1: Any, x2: Any, /) -> Array:
    """Elementwise remainder of ``x1 / x2`` with the sign of `x1`; 0 for integers divided by 0.

    >>> jnp.fmod(jnp.array([7, -7]), 3)
    Array([ 1, -1], dtype=int32)
    """
    x, y = promote_to_numeric("fmod", x1, x2)
    if is_integer(x.dtype):
        y = where_(bind(comparison.eq_p, y, zero_like(y)), constant(y, 1), y)
    return bind(two.rem_p, x, y)


@shown_call()
def divmod(x1: Any, x2: Any, /) -> tuple[Array, Array]:
    """Elementwise (floor_divide, remainder) of `x1` and `x2`, whose shapes broadcast.

    >>> jnp.divmod(jnp.array([7, -7]), 3)
    (Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))
    """
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
    whole = bind(two.sub_p, x, rest)
    if not _is_positive(y):
        whole = where_(bind(comparison.eq_p, y, zero_like(y)), x, whole)  # infinite, or NaN of 0
    quotient = bind(two.div_p, whole, y)
    quotient = where_(_on_other_side(y, rest), bind(two.sub_p, quotient, constant(quotient, 1)), quotient)
    return lax.round(quotient, lax.RoundingMethod.AWAY_FROM_ZERO)


def power(x1: Any, x2: Any, /) -> Array:
    """Elementwise `x1` to the power `x2`; integers to integer powers stay integers.

    TypeError for a negative power known while tracing of integers; otherwise such powers give 0, 1 or -1.

    >>> jnp.pow(2, jnp.array([3, 4]))
    Array([ 8, 16], dtype=int32)
    """
    x, y = values("power", x1, int(x2) if x2 is True or x2 is False else x2)
    exponent = _integer_constant(y)
    if exponent is not None:
        (x,) = promote_numeric(x)
        return integer_power(x, exponent)
    if is_inexact(x.dtype) and is_integer(y.dtype):
        return lax.pow(*promote_shapes("power", promote_numeric(x, y)[0], y))
    x, y = promote_shapes("power", *promote_numeric(x, y))
    if is_integer(x.dtype):
        return strong(bind(_int_pow_p, x, y))
    return lax.pow(x, y)


pow = rename_function(power, "pow")


def _integer_constant(y: Value) -> int | None:
    """The value of an integer scalar that is no traced value."""
    if y.ndim or isinstance(y, Tracer) or not is_integer(y.dtype):
        return None
    return int(y.value) if isinstance(y, Literal) else int(y)  # type: ignore[call-overload]


def integer_power(x: Value, exponent: int) -> Array:
    """`x` to the power of an int known while tracing."""
    if exponent == 2 and (x.dtype.kind == "c" or not isinstance(x, Tracer)):
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


_int_pow_p = elementwise_op("int_pow", _int_pow, "iu", "iu", emit=elementwise_ir.INTEGER_POWER)


def float_power(x: Any, y: Any, /) -> Array:
    """Elementwise `x` to the power `y`, as a float.

    >>> jnp.float_power(2, jnp.array([-1, 3]))
    Array([0.5, 8. ], dtype=float32)
    """
    return lax.pow(*promote_to_inexact("float_power", x, y))


def logaddexp(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``log(exp(x1) + exp(x2))`` without overflow, as a float.

    >>> jnp.logaddexp(jnp.array([0.0, 100.0]), 0.0).round(3)
    Array([  0.693, 100.   ], dtype=float32)
    """
    x, y = promote_to_inexact("logaddexp", x1, x2)
    result = _log_sum(x, y)
    return weak_if_scalar(result) if is_complex(x.dtype) else result


def _log_sum_body(x: Value, y: Value) -> Array:
    if is_complex(x.dtype):
        return _complex_log_sum(x, y, lax.exp, 1.0)
    difference = lax.sub(x, y)
    sum_ = lax.add(lax.max(x, y), lax.log1p(lax.exp(lax.neg(lax.abs(difference)))))
    return where_(lax.ne(difference, difference), lax.add(x, y), sum_)  # NaN, and infinities of one sign


def _complex_log_sum(x: Value, y: Value, exp: Any, unit: float) -> Array:
    """The logarithm, in units of `unit`, of the sum of two powers."""
    high = lax.max(x, y)
    delta = lax.sub(lax.add(x, y), lax.mul(high, constant(high, 2)))
    total = lax.add(high, lax.mul(lax.log1p(exp(delta)), constant(high, 1 / unit)))
    # The phase is given up to full turns: bring it into (-pi, pi].
    phase, turn = lax.imag(total), 2 * np.pi / unit
    turns = lax.round(lax.div(phase, constant(phase, turn)), lax.RoundingMethod.TO_NEAREST_EVEN)
    return lax.complex(lax.real(total), lax.sub(phase, lax.mul(turns, constant(phase, turn))))


def _log_sum_pushes(exp: Any) -> Any:
    """Each tangent counts by its share of the sum: all of an infinite one."""

    def share(x: Value, out: Value) -> Array:
        return exp(where_(lax.eq(x, constant(x, np.inf)), zero_like(x), lax.sub(x, out)))

    return (lambda t, out, x, y: lax.mul(t, share(x, out))), (lambda t, out, x, y: lax.mul(t, share(y, out)))


_log_sum = define_along("logaddexp", _log_sum_body, *_log_sum_pushes(lax.exp))


def logaddexp2(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``log2(2**x1 + 2**x2)`` without overflow, as a float.

    >>> jnp.logaddexp2(jnp.array([3.0, 1000.0]), 3.0).round(3)
    Array([   4., 1000.], dtype=float32)
    """
    return weak_if_scalar(_log2_sum(*promote_to_inexact("logaddexp2", x1, x2)))


def _log2_sum_body(x: Value, y: Value) -> Array:
    if is_complex(x.dtype):
        return _complex_log_sum(x, y, lax.exp2, math.log(2))
    difference = lax.sub(x, y)
    log = lax.log1p(lax.exp2(lax.neg(lax.abs(difference))))
    sum_ = lax.add(lax.max(x, y), lax.mul(log, constant(log, 1 / math.log(2))))
    return where_(lax.ne(difference, difference), lax.add(x, y), sum_)


_log2_sum = define_along("logaddexp2", _log2_sum_body, *_log_sum_pushes(lax.exp2))


@shown_call()
def hypot(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``sqrt(x1**2 + x2**2)`` without overflow. ValueError for complex values.

    >>> jnp.hypot(3.0, jnp.array([4.0]))
    Array([5.], dtype=float32)
    """
    x, y = promote_to_inexact("hypot", x1, x2)
    if is_complex(x.dtype):
        raise ValueError("hypot takes real numbers, got complex values. Take abs(x) of them first.")
    x, y = lax.abs(x), lax.abs(y)
    infinite = lax.bitwise_or(lax.eq(x, constant(x, np.inf)), lax.eq(y, constant(y, np.inf)))
    high, low = lax.max(x, y), lax.min(x, y)
    divisor = where_(lax.eq(high, zero_like(high)), constant(high, 1), high)
    root = lax.mul(high, lax.sqrt(lax.add(constant(high, 1), lax.square(lax.div(low, divisor)))))
    root = where_(lax.eq(high, zero_like(high)), high, root)
    return weak_if_scalar(where_(infinite, constant(root, np.inf), root))


@shown_call()
def heaviside(x1: Any, x2: Any, /) -> Array:
    """Elementwise step: 0 for negative `x1`, 1 for positive, `x2` at 0.

    >>> jnp.heaviside(jnp.array([-1.0, 0.0, 1.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    x, y = broadcast_together("heaviside", *promote_to_inexact("heaviside", x1, x2), same=True)
    step = where_(lax.lt(x, zero_like(x)), zero_like(x), where_(lax.gt(x, zero_like(x)), constant(x, 1), y))
    result = where_(lax.ne(x, x), x, step)
    return strong(result) if x.ndim else result


@shown_call()
def fmin(x1: Any, x2: Any) -> Array:
    """Elementwise minimum of `x1` and `x2`, in the common dtype; of a number and NaN the number.

    >>> jnp.fmin(jnp.array([1.0, jnp.nan]), 0.0)
    Array([0., 0.], dtype=float32)
    """
    return _number_of("fmin", two.min_p, x1, x2)


@shown_call()
def fmax(x1: Any, x2: Any) -> Array:
    """Elementwise maximum of `x1` and `x2`, in the common dtype; of a number and NaN the number.

    >>> jnp.fmax(jnp.array([1.0, jnp.nan]), 0.0)
    Array([1., 0.], dtype=float32)
    """
    return _number_of("fmax", two.max_p, x1, x2)


def _number_of(name: str, op: Op, x1: Any, x2: Any) -> Array:
    x, y = promote(name, x1, x2)
    if not is_inexact(x.dtype):
        return bind(op, x, y)
    if is_complex(x.dtype):  # complex numbers are ordered by both parts
        first = lax.bitwise_and(lax.ne(bind(op, x, y), y), lax.eq(x, x))
    else:
        first = lax.gt(x, y) if op is two.max_p else lax.lt(x, y)
    return where_(lax.bitwise_or(first, lax.ne(y, y)), x, y)  # of equal ones the second


@shown_call()
def clip(
    arr: Any = None, /, min: Any = None, max: Any = None, *, a: Any = None, a_min: Any = None, a_max: Any = None
) -> Array:
    """Elementwise `arr` clamped to the range from `min` to `max`; None leaves that side open.

    `a`, `a_min` and `a_max` are names of the seed era, which JAX 0.10 refuses with TypeError. ValueError for complex values.

    >>> jnp.clip(jnp.array([-3, 1, 9]), 0, 5)
    Array([0, 1, 5], dtype=int32)
    """
    if not (a is a_min is a_max is None) and not config.dialect.functions.keeps_removed:
        for old, given, name in (("a", a, "arr"), ("a_min", a_min, "min"), ("a_max", a_max, "max")):
            if given is not None:
                raise about(
                    "dialect",
                    TypeError(
                        f"clip() got an unexpected keyword argument {old!r}. Its name is {name} now. {config.dialect.switch}"
                    ),
                )
    arr = a if arr is None else arr
    min = a_min if min is None else min
    max = a_max if max is None else max
    if arr is None:
        raise ValueError("No input was provided to the clip function.")
    if type(arr) is ArrayImpl and is_eager():
        low, high = plain_number(min, arr), plain_number(max, arr)
        if low is not None and high is not None:
            return run_composed(_clip, None, arr, low, high)
    x = value("clip", arr)
    # Python numbers stay as they are: next to an array they need no promotion.
    low = min if min is None or min.__class__ in (int, float) else value("clip", min, 1)
    high = max if max is None or max.__class__ in (int, float) else value("clip", max, 2)
    for v in (x, low, high):
        if isinstance(v, (Array, Literal)) and is_complex(v.dtype):
            raise ValueError(
                "clip takes real numbers, got complex values, which have no order. Clip real and imag apart."
            )
    if low is not None:
        x = maximum(low, x)
    if high is not None:
        x = minimum(high, x)
    return as_array(x)


def _clip(_: None, x: Array, low: Literal, high: Literal) -> Array:
    return bind(two.min_p, high, bind(two.max_p, low, x))


__all__ = [
    "arctan2",
    "atan2",
    "clip",
    "divide",
    "divmod",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "heaviside",
    "hypot",
    "mod",
    "nextafter",
    "pow",
    "power",
    "remainder",
    "true_divide",
]
