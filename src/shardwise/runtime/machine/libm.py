"""Mathematical functions on vectors: range reduction and polynomials, written with `Lanes`.

Each function holds for all arguments, subnormal and infinite ones and NaN included. Errors against exact values, in units of
the last place: float32 sin and cos 0.501 (computed in float64), tanh and logistic 2.3, erfc 3.0, the others at most 1.8, float64 alike
(its erf and erfc are the C library's). Coefficients are near-minimax fits (Chebyshev interpolation in 40 digits) of the functions named
beside them.
"""

from __future__ import annotations

import math
import struct

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.runtime.machine.lane import Lane
from shardwise.runtime.machine.lanes import Lanes


@dataclass(frozen=True)
class _Format:
    """A float format and the constants that depend on it."""

    dtype: str
    ints: str
    mantissa: int
    bias: int
    magic: float  # adding it leaves the nearest integer in the lowest bits
    ln2: tuple[float, float]  # high part with trailing zeros, and the rest
    lowest: float  # exp is 0 below
    highest: float  # exp is infinite above
    exp: tuple[float, ...]  # (exp(r) - 1 - r) / r**2 for abs(r) <= ln2 / 2


_F32 = _Format(
    "float32",
    "int32",
    23,
    127,
    12582912.0,
    (0.693359375, -2.12194440e-4),
    -105.0,
    89.5,
    (
        0.00019891981313977690,
        0.0013934541928270264,
        0.0083333100242252924,
        0.041666456809677876,
        0.16666666682534356,
        0.50000000142862234,
    ),
)
_F64 = _Format(
    "float64",
    "int64",
    52,
    1023,
    6755399441055744.0,
    (6.93147180369123816490e-01, 1.90821492927058770002e-10),
    -750.0,
    710.5,
    (
        2.0915442297780115e-9,
        2.5106274733573295e-8,
        2.7557271810219799e-7,
        2.7557252833516910e-6,
        0.000024801587327007187,
        0.00019841269876864355,
        0.0013888888888883327,
        0.0083333333333255447,
        0.041666666666666670,
        0.16666666666666671,
        0.5,
    ),
)
# (log1p(f) - f + f**2 / 2) / f**3 for 1 + f from sqrt(1/2) to sqrt(2)
_LOG_32 = (
    -0.062015001190183343, 0.10530864738938345, -0.10646191638199634, 0.11037783359050280, -0.12450743320911726,
    0.14286524547786643, -0.16668001523071928, 0.20000010039684972, -0.24999990275042185, 0.33333333281199244,
)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2, for the same range
_LOG_64 = (
    0.13087236196659622, 0.13268714792348097, 0.15386241881938596, 0.18181795600060792, 0.22222222392089008,
    0.28571428570801957, 0.40000000000000880, 0.66666666666666666,
)  # fmt: skip
# (sin(r) - r) / r**3 in r**2 for abs(r) <= pi / 2, to round to float32, and for abs(r) <= pi / 4; then
# (cos(r) - 1 + r**2 / 2) / r**4 there
_SIN_SINGLE = (
    -7.4078194340738445e-13, 1.6050956257033142e-10, -2.5051972517833036e-8, 2.7557318051033773e-6, -0.00019841269836445092,
    0.0083333333333258883, -0.16666666666666648,
)  # fmt: skip
_SIN_DOUBLE = (
    1.5917988979397433e-10, -2.5051129896450186e-8, 2.7557316093198405e-6, -0.00019841269836740532, 0.0083333333333309366,
    -0.16666666666666665,
)  # fmt: skip
_COS_DOUBLE = (
    -1.1382544645349250e-11, 2.0876145049413179e-9, -2.7557317265878080e-7, 0.000024801587298754401, -0.0013888888888887390,
    0.041666666666666665,
)  # fmt: skip
_PI = (3.141592653589793116, 1.2246467991473531772e-16, -2.9947698097183396659e-33)
# erf(x) / x - 1 in x**2 for abs(x) <= 1, and (1 - erf(x))**(1/4) in x - 2 for x from 1 to 4
_ERF_NEAR = (
    0.000078758750626854883, -0.00080168642871658695, 0.0051890874234339740, -0.026854212010626412, 0.11283594715160218,
    -0.37612626666720331, 0.12837916584835095,
)  # fmt: skip
_ERF_FAR = (
    1.134204608e-05, -2.020420372e-05, -0.0002156134606, 0.0007547450112, 0.001563288928, -0.01222830759, 0.006896826322,
    0.09913475192, -0.2888619702, 0.2615224029,
)  # fmt: skip
# (exp(-x**2) / erfc(x) - sqrt(pi) * x - 1) / v in v = x / (x + 3) for x from 0 to 10.3, with the root rounded to float32
_ERFC = (
    1.159626274, -4.308074772, 5.746862589, -2.521402616, -0.6218788901, -0.2116858078, 1.1630391, 0.5266068946, -1.932219668,
)  # fmt: skip


def _format(x: Lane) -> _Format:
    return _F64 if x.type == "double" else _F32


def _power_of_two(w: Lanes, n: Lane, f: _Format) -> Lane:
    """2**n of integers within the exponent's range."""
    biased = w.add(n, w.like(f.bias, n))
    return w.bitcast(w.binary("shl", biased, w.like(f.mantissa, n)), f.dtype)


def _scale_by_power(w: Lanes, x: Lane, n: Lane, whole: Lane, f: _Format) -> Lane:
    """``x * 2**n`` for n as an integer and as a float, in two steps: the result may be subnormal or infinite."""
    if w.scales(x):
        return w.scale_by_power(x, whole)
    half = w.binary("ashr", n, w.like(1, n))
    return w.mul(w.mul(x, _power_of_two(w, half, f)), _power_of_two(w, w.sub(n, half), f))


def _clip(w: Lanes, x: Lane, low: float, high: float) -> Lane:
    """`x` between the bounds; NaN stays."""
    x = w.select(w.compare("lt", x, w.like(low, x)), w.like(low, x), x)
    return w.select(w.compare("gt", x, w.like(high, x)), w.like(high, x), x)


def _reduce_exponent(w: Lanes, x: Lane, f: _Format) -> tuple[Lane, Lane, Lane]:
    """n and q with ``exp(x) = 2**n * (1 + q)``: n as an integer and as a float, q = expm1 of at most ln2 / 2."""
    n, whole, r = _divide_by_ln2(w, x, f)
    return n, whole, _expm1_near(w, r, f)


def _divide_by_ln2(w: Lanes, x: Lane, f: _Format) -> tuple[Lane, Lane, Lane]:
    """n and r with ``x = n * ln2 + r``: n as an integer and as a float, r at most ln2 / 2."""
    shifted = w.fma(x, w.like(1 / math.log(2), x), w.like(f.magic, x))
    n = w.sub(shifted, w.like(f.magic, x))
    r = w.fma(n, w.like(-f.ln2[0], x), x)
    r = w.fma(n, w.like(-f.ln2[1], x), r)
    return _low_bits(w, shifted, f), n, r


def _low_bits(w: Lanes, shifted: Lane, f: _Format) -> Lane:
    """The integer that adding `magic` has left in the lowest bits."""
    return w.sub(w.bitcast(shifted, f.ints), w.bitcast(w.constant(f.magic, f.dtype), f.ints))


def _expm1_near(w: Lanes, r: Lane, f: _Format) -> Lane:
    return w.fma(w.poly(r, f.exp), w.mul(r, r), r)


def exp(w: Lanes, x: Lane) -> Lane:
    """e to the power x."""
    f = _format(x)
    # Where nothing is left, the scaled lane is replaced: to scale until nothing is left takes many times as long.
    nothing, most, zero = w.compare("lt", x, w.like(f.lowest, x)), w.like(f.highest, x), w.like(0, x)
    x = w.select(nothing, zero, w.select(w.compare("gt", x, most), most, x))
    n, whole, r = _divide_by_ln2(w, x, f)
    return w.select(nothing, zero, _scale_by_power(w, w.poly(r, (*f.exp, 1.0, 1.0)), n, whole, f))


def exp2(w: Lanes, x: Lane) -> Lane:
    """2 to the power x."""
    f = _format(x)
    x = _clip(w, x, -1080.0 if f is _F64 else -152.0, 1025.0 if f is _F64 else 129.0)
    shifted = w.add(x, w.like(f.magic, x))
    whole = w.sub(shifted, w.like(f.magic, x))
    r = w.sub(x, whole)
    low = math.log(2) - _single(math.log(2)) if f is _F32 else 2.3190468138462996e-17
    exact = w.mul(r, w.like(math.log(2), x))
    rest = w.fma(r, w.like(math.log(2), x), w.neg(exact))
    q = _expm1_near(w, w.add(exact, w.fma(r, w.like(low, x), rest)), f)
    return _scale_by_power(w, w.add(q, w.like(1, q)), _low_bits(w, shifted, f), whole, f)


def _single(x: float) -> float:
    return struct.unpack("f", struct.pack("f", x))[0]


def expm1(w: Lanes, x: Lane) -> Lane:
    """e to the power x, less 1."""
    f = _format(x)
    held = _clip(w, x, -40.0, 88.8 if f is _F32 else 709.9)
    n, _, q = _reduce_exponent(w, held, f)
    half = _power_of_two(w, w.sub(n, w.like(1, n)), f)  # 2**(n - 1): 2**n itself may be infinite
    far = w.fma(half, q, w.sub(half, w.like(0.5, q)))
    return w.copysign(w.select(w.compare("eq", n, w.like(0, n)), q, w.add(far, far)), x)  # of -0.0, too


def _log_parts(w: Lanes, x: Lane, f: _Format) -> tuple[Lane, Lane]:
    """k and m with ``x = 2**k * m`` for normal x, sqrt(1/2) <= m < sqrt(2)."""
    bits = w.bitcast(x, f.ints)
    root = w.bitcast(w.constant(math.sqrt(0.5), f.dtype), f.ints)
    k = w.binary("ashr", w.sub(bits, root), w.like(f.mantissa, bits))
    return k, w.bitcast(w.sub(bits, w.binary("shl", k, w.like(f.mantissa, k))), f.dtype)


def _log_of(w: Lanes, k: Lane, m: Lane, more: Lane | None, f: _Format) -> Lane:
    """``log(2**k * m) + more``."""
    k = w.convert(k, f.dtype)
    r = w.sub(m, w.like(1, m))
    square = w.mul(r, r)
    small = w.mul(k, w.like(f.ln2[1], m))
    if more is not None:
        small = w.add(small, more)
    if f is _F32:
        small = w.fma(w.mul(square, r), w.poly(r, _LOG_32), small)
        small = w.fma(square, w.like(-0.5, m), small)
    else:
        s = w.div(r, w.add(r, w.like(2, r)))
        z = w.mul(s, s)
        half = w.mul(square, w.like(0.5, m))
        small = w.fma(s, w.fma(w.poly(z, _LOG_64), z, half), small)
        small = w.sub(small, half)
    return w.fma(k, w.like(f.ln2[0], m), w.add(r, small))


def log(w: Lanes, x: Lane) -> Lane:
    """The natural logarithm."""
    f = _format(x)
    lift = float(f.mantissa + 2)
    tiny = w.compare("lt", x, w.like(2.0 ** (1 - f.bias), x))
    k, m = _log_parts(w, w.select(tiny, w.mul(x, w.like(2.0**lift, x)), x), f)
    k = w.select(tiny, w.sub(k, w.like(int(lift), k)), k)
    return _log_edges(w, x, x, _log_of(w, k, m, None, f))


def _log_edges(w: Lanes, x: Lane, u: Lane, y: Lane) -> Lane:
    """The logarithm `y` put right where its argument `u` is 0, negative, infinite or NaN."""
    y = w.select(w.compare("lt", u, w.like(math.inf, u)), y, x)
    y = w.select(w.compare("lt", u, w.like(0, u)), w.like(math.nan, u), y)
    return w.select(w.compare("eq", u, w.like(0, u)), w.like(-math.inf, u), y)


def log1p(w: Lanes, x: Lane) -> Lane:
    """The natural logarithm of 1 + x."""
    f = _format(x)
    one = w.like(1, x)
    u = w.add(x, one)
    # What the addition lost: exact, from the smaller operand.
    lost = w.select(w.compare("gt", x, one), w.sub(one, w.sub(u, x)), w.sub(x, w.sub(u, one)))
    k, m = _log_parts(w, u, f)
    y = _log_edges(w, x, u, _log_of(w, k, m, w.div(lost, u), f))
    return w.select(w.compare("lt", w.abs(x), w.like(2.0 ** (-f.mantissa - 2), x)), x, y)


def sin(w: Lanes, x: Lane) -> Lane:
    """Sine; of float32 rounded from float64."""
    return _circular(w, x, "sin") if x.type == "double" else _circular_single(w, x, "sin")


def cos(w: Lanes, x: Lane) -> Lane:
    """Cosine; of float32 rounded from float64."""
    return _circular(w, x, "cos") if x.type == "double" else _circular_single(w, x, "cos")


def _circular_single(w: Lanes, x: Lane, function: str) -> Lane:
    """By one polynomial for sin(r), abs(r) <= pi / 2, in float64."""
    x = Lane(x.ref, "float32")
    far = w.compare("gt", w.abs(x), w.like(2.0**40, x))  # n * pi needs more digits there
    x = w.convert(x, "float64")
    if function == "sin":  # x = n * pi + r
        shifted = w.fma(x, w.like(1 / math.pi, x), w.like(_F64.magic, x))
        n = w.sub(shifted, w.like(_F64.magic, x))
    else:  # x = (n - 1/2) * pi + r
        shifted = w.add(w.fma(x, w.like(1 / math.pi, x), w.like(0.5, x)), w.like(_F64.magic, x))
        n = w.sub(w.sub(shifted, w.like(_F64.magic, x)), w.like(0.5, x))
    r = w.fma(n, w.like(-_PI[1], x), w.fma(n, w.like(-_PI[0], x), x))
    z = w.mul(r, r)
    y = w.fma(w.mul(r, z), w.poly(z, _SIN_SINGLE), r)
    negated = w.bitcast(shifted, "int64")  # in the lowest bit: where n is odd
    y = _with_sign_flipped(w, y, w.binary("shl", negated, w.like(63, negated)))
    if function == "sin":
        y = w.select(w.compare("eq", x, w.like(0, x)), x, y)  # -0.0 stays
    return w.convert(w.unless(far, x, y, function), "float32")


def _circular(w: Lanes, x: Lane, function: str) -> Lane:
    """By quadrants: polynomials for sin(r) and cos(r), abs(r) <= pi / 4, with what r has lost by rounding."""
    shifted = w.fma(x, w.like(2 / math.pi, x), w.like(_F64.magic, x))
    n = w.sub(shifted, w.like(_F64.magic, x))
    head = w.fma(n, w.like(-_PI[0] / 2, x), x)
    # Near multiples of pi / 2 the second part cancels too: r + lost is head - n * PI[1] / 2, all of it.
    product = w.mul(n, w.like(_PI[1] / 2, x))
    rest = w.fma(n, w.like(_PI[1] / 2, x), w.neg(product))
    r = w.sub(head, product)
    lost = w.sub(w.sub(w.sub(head, r), product), rest)
    lost = w.fma(n, w.like(-_PI[2] / 2, x), lost)
    z = w.mul(r, r)
    sine = w.add(r, w.fma(w.mul(r, z), w.poly(z, _SIN_DOUBLE), lost))
    half = w.mul(z, w.like(0.5, z))
    near = w.sub(w.like(1, z), half)
    more = w.sub(w.sub(w.like(1, z), near), half)  # exact: what the subtraction has lost
    more = w.fma(w.mul(z, z), w.poly(z, _COS_DOUBLE), w.fma(w.neg(r), lost, more))
    cosine = w.add(near, more)
    quadrant = w.bitcast(shifted, "int64")
    if function == "cos":
        quadrant = w.add(quadrant, w.like(1, quadrant))
    odd = w.binary("and", quadrant, w.like(1, quadrant))
    y = w.select(w.compare("ne", odd, w.like(0, odd)), cosine, sine)
    y = _with_sign_flipped(w, y, w.binary("shl", quadrant, w.like(62, quadrant)))
    if function == "sin":
        y = w.select(w.compare("eq", x, w.like(0, x)), x, y)
    return w.unless(w.compare("gt", w.abs(x), w.like(2.0**28, x)), x, y, function)


def _with_sign_flipped(w: Lanes, y: Lane, bits: Lane) -> Lane:
    """`y` negated where the highest of `bits` is set."""
    sign = w.binary("and", bits, w.like(-(2**63), bits))
    return w.bitcast(w.binary("xor", w.bitcast(y, "int64"), sign), y.dtype)


def tanh(w: Lanes, x: Lane) -> Lane:
    """Hyperbolic tangent: ``t / (t + 2)`` with t = expm1(2 abs(x))."""
    f = _format(x)
    size = w.abs(x)
    doubled = w.add(size, size)
    top = w.like(20.0 if f is _F32 else 40.0, x)
    doubled = w.select(w.compare("gt", doubled, top), top, doubled)
    n, _, q = _reduce_exponent(w, doubled, f)
    power = _power_of_two(w, n, f)
    t = w.fma(power, q, w.sub(power, w.like(1, q)))
    return w.copysign(w.div(t, w.add(t, w.like(2, t))), x)


def logistic(w: Lanes, x: Lane) -> Lane:
    """``1 / (1 + exp(-x))``, by the exponential that does not overflow."""
    e = exp(w, w.neg(w.abs(x)))
    one = w.like(1, x)
    return w.div(w.select(w.compare("lt", x, w.like(0, x)), e, one), w.add(e, one))


def erf(w: Lanes, x: Lane) -> Lane:
    """The error function."""
    if x.type == "double":
        return w.each("erf", x)
    size, one = w.abs(x), w.like(1, x)
    held = w.select(w.compare("gt", size, w.like(4, x)), w.like(4, x), size)
    near = w.fma(w.poly(w.mul(x, x), _ERF_NEAR), x, x)
    root = w.poly(w.sub(held, w.like(2, x)), _ERF_FAR)  # its fourth power takes no exponential
    square = w.mul(root, root)
    far = w.fma(w.neg(square), square, one)
    return w.select(w.compare("lt", size, one), near, w.copysign(far, x))


def erfc(w: Lanes, x: Lane) -> Lane:
    """One less the error function, exact also where that is near 1.

    For positive x: exp(-x**2) by a quotient that a product and a small correction make, so that few roundings count. What the square
    loses by rounding goes into the exponent.
    """
    if x.type == "double":
        return w.each("erfc", x)
    size, zero, one = w.abs(x), w.like(0, x), w.like(1, x)
    nothing = w.compare("gt", size, w.like(10.06, x))
    held = w.select(nothing, zero, size)  # to scale until nothing is left takes many times as long
    square = w.mul(held, held)
    lost = w.fma(held, held, w.neg(square))
    n, whole, r = _divide_by_ln2(w, w.neg(square), _F32)
    bell = w.poly(w.sub(r, lost), (*_F32.exp, 1.0, 1.0))
    v = w.div(held, w.add(held, w.like(3, x)))
    quotient = w.fma(held, w.like(math.sqrt(math.pi), x), w.fma(v, w.poly(v, _ERFC), one))
    y = w.select(nothing, zero, _scale_by_power(w, w.div(bell, quotient), n, whole, _F32))
    return w.select(w.compare("lt", x, zero), w.sub(w.like(2, x), y), y)
