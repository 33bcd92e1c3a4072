"""Emitters: elementwise ops as vector code, with the semantics of their NumPy kernels.

Each is an `Emit` that the op's definition names. Plain instructions are methods of `Lanes`, polynomials are functions of
`runtime.libm`; this file has the emitters that choose by dtype or params. Ops without an emitter are never fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shardwise.ir import Emit
from shardwise.ops.elementwise import complex_ir
from shardwise.runtime.machine import Lane, Lanes, each_by_ufunc, libm, libm_angles, libm_powers

# -- arithmetic ------------------------------------------------------------------------------------------------------


def _compare(condition: str) -> Emit:
    return Emit(lambda w, x, y: w.compare(condition, x, y), exact=True)


def _sign(w: Lanes, x: Lane) -> Lane:
    zero, one = w.like(0, x), w.like(1, x)
    if x.floating:
        size = w.select(w.compare("eq", x, zero), zero, one)
        return w.select(w.isnan(x), x, w.copysign(size, x))
    if not x.signed:
        return w.select(w.compare("ne", x, zero), one, zero)
    return w.select(w.compare("gt", x, zero), one, w.binary("ashr", x, w.like(x.bits - 1, x)))


def _rsqrt(w: Lanes, x: Lane) -> Lane:
    return w.div(w.like(1, x), w.call("sqrt", x))


def _power(w: Lanes, x: Lane, *, y: int) -> Lane:
    """Repeated squaring with the NumPy kernel's roundings: one per product, also for narrow floats."""
    if y < 0:
        return (complex_ir.quotient if x.complex else Lanes.div)(w, w.like(1, x), _power(w, x, y=-y))
    result: Lane | None = None
    while y:
        if y & 1:
            result = x if result is None else w.round_narrow(complex_ir.product(w, result, x))
        y >>= 1
        if y:
            x = w.round_narrow(complex_ir.product(w, x, x))
    return w.like(1, x) if result is None else result


def _round(w: Lanes, x: Lane, *, rounding_method: int) -> Lane:
    if rounding_method == 1:
        return w.call("rint", x)
    # Adding the largest float below one half, not one half, keeps numbers just below a half from rounding up.
    half = math.nextafter(0.5, 0.0) if x.type == "double" else 0.5 - 2.0**-25
    return w.call("trunc", w.add(x, w.copysign(w.like(half, x), x)))


# -- whole numbers ---------------------------------------------------------------------------------------------------


def _safe_divisor(w: Lanes, y: Lane) -> tuple[Lane, Lane, Lane]:
    """A safe divisor, and masks for `y` equal to 0 or -1 (the least integer over -1 overflows)."""
    zero = w.compare("eq", y, w.like(0, y))
    minus = w.compare("eq", y, w.like(-1, y)) if y.signed else w.constant(False, "bool")
    return w.select(w.binary("or", zero, minus), w.like(1, y), y), zero, minus


def _quotient(w: Lanes, x: Lane, y: Lane) -> Lane:
    if x.complex:
        return complex_ir.quotient(w, x, y)
    if x.floating:
        return w.div(x, y)
    safe, zero, minus = _safe_divisor(w, y)
    out = w.binary("sdiv" if x.signed else "udiv", x, safe)
    out = w.select(minus, w.neg(x), out) if x.signed else out
    return w.select(zero, w.like(-1, x), out)


def _rem(w: Lanes, x: Lane, y: Lane) -> Lane:
    if x.floating:
        return libm_powers.remainder(w, x, y)
    safe, zero, minus = _safe_divisor(w, y)
    out = w.binary("srem" if x.signed else "urem", x, safe)
    out = w.select(minus, w.like(0, x), out) if x.signed else out
    return w.select(zero, x, out)


def _integer_power(w: Lanes, x: Lane, y: Lane) -> Lane:
    """With negative powers 0, but for 1 and -1."""
    zero, one = w.like(0, x), w.like(1, x)
    (out,) = each_by_ufunc(w, "numpy.power", x, w.maximum(y, zero))
    if not x.signed:
        return out
    unit = w.compare("eq", w.abs(x), one)
    odd = w.compare("ne", w.binary("and", y, one), zero)
    return w.select(w.compare("lt", y, zero), w.select(unit, w.select(odd, x, one), zero), out)


def _reduced_precision(w: Lanes, x: Lane, *, exponent_bits: int, mantissa_bits: int) -> Lane:
    """Rounded to nearest, halves to even; too large values become infinite, too small ones zeros."""
    bits, (mantissa, exponent) = w.bits_of(x), (52, 11) if x.type == "double" else (23, 8)
    drop = mantissa - mantissa_bits
    out = x
    if drop > 0:
        odd = w.binary("and", w.binary("lshr", bits, w.like(drop, bits)), w.like(1, bits))
        rounded_bits = w.add(bits, w.add(odd, w.like((1 << (drop - 1)) - 1, bits)))
        out = w.floats_of(w.binary("and", rounded_bits, w.like(-1 << drop, bits)), x.dtype)
    if exponent_bits < exponent:
        bias, size = (1 << (exponent_bits - 1)) - 1, w.abs(out)
        infinite, nothing = (
            w.compare("ge", size, w.like(2.0 ** (bias + 1), x)),
            w.compare("lt", size, w.like(2.0 ** (1 - bias), x)),
        )
        out = w.select(infinite, w.copysign(w.like(math.inf, x), x), out)
        out = w.select(nothing, w.copysign(w.like(0, x), x), out)
    return w.select(w.isnan(x), x, out)


def _high_product(w: Lanes, x: Lane, y: Lane) -> Lane:
    """The upper half of the product's bits."""
    kind = "int" if x.signed else "uint"
    if x.bits < 64:
        wide = f"{kind}{2 * x.bits}"
        product = w.mul(w.convert(x, wide), w.convert(y, wide))
        return w.convert(w.binary("ashr" if x.signed else "lshr", product, w.like(x.bits, product)), x.dtype)
    shift = "ashr" if x.signed else "lshr"
    mask, half = w.like(0xFFFFFFFF, x), w.like(32, x)
    x_high, x_low = w.binary(shift, x, half), w.binary("and", x, mask)
    y_high, y_low = w.binary(shift, y, half), w.binary("and", y, mask)
    low = w.binary("lshr", w.mul(x_low, y_low), half)
    cross = w.add(w.mul(x_high, y_low), low)
    other = w.add(w.mul(x_low, y_high), w.binary("and", cross, mask))
    return w.add(w.add(w.mul(x_high, y_high), w.binary(shift, cross, half)), w.binary(shift, other, half))


def _next_after(w: Lanes, x: Lane, y: Lane) -> Lane:
    """The next float after `x` towards `y`, computed on the bits."""
    name = f"uint{x.bits}"
    bits = Lane(w.bitcast(x, name).ref, name)
    zero, one = w.like(0, x), w.like(1, bits)
    outward = w.binary("xor", w.compare("lt", x, y), w.compare("lt", x, zero))
    neighbor = w.select(outward, w.add(bits, one), w.sub(bits, one))
    least = w.copysign(w.bitcast(one, x.dtype), y)
    out = w.select(w.compare("eq", x, zero), least, w.bitcast(neighbor, x.dtype))
    out = w.select(w.compare("eq", x, y), y, out)
    return w.select(w.isnan(x), x, w.select(w.isnan(y), y, out))


# -- bits ------------------------------------------------------------------------------------------------------------


def _not(w: Lanes, x: Lane) -> Lane:
    return w.binary("xor", x, w.like(1 if x.type == "i1" else -1, x))


def _shift(instruction: str) -> Callable[[Lanes, Lane, Lane], Lane]:
    """Shifts; by the number of bits or more, the result is 0, or copies of the sign bit."""

    def write(w: Lanes, x: Lane, y: Lane) -> Lane:
        last = w.like(x.bits - 1, x)
        shift_count = Lane(y.ref, f"uint{x.bits}")
        inside = w.compare("le", shift_count, Lane(last.ref, shift_count.dtype))
        if instruction == "ashr":
            return w.binary("ashr", x, w.select(inside, y, last))
        return w.select(inside, w.binary(instruction, x, w.select(inside, y, last)), w.like(0, x))

    return write


# -- choices and casts -----------------------------------------------------------------------------------------------


def _select(w: Lanes, which: Lane, *cases: Lane) -> Lane:
    if which.type == "i1":
        if cases[0].complex:  # arithmetic takes parts: it need not take the chosen value apart
            parts = zip(w.parts_of(cases[-1]), w.parts_of(cases[0]), strict=True)
            return w.complex_of(*[w.select(which, yes, no) for yes, no in parts])
        return w.select(which, cases[-1], cases[0])
    out = cases[0]
    for i, case in enumerate(cases[1:], 1):  # an index out of range selects the nearest case
        out = w.select(w.compare("ge", which, w.like(i, which)), case, out)
    return out


def _clamp(w: Lanes, low: Lane, x: Lane, high: Lane) -> Lane:
    return w.minimum(high, w.maximum(low, x))


def _convert(w: Lanes, x: Lane, *, new_dtype: Any, weak_type: bool) -> Lane:
    return w.convert(x, new_dtype.name)


def _real_power(w: Lanes, x: Lane, y: Lane) -> Lane:
    return libm_powers.power(w, x, w.convert(y, x.dtype))


# -- functions of floats and complex values --------------------------------------------------------------------------


def _function(name: str, real: Callable[..., Lane], **fields: Any) -> Emit:
    return Emit(complex_ir.or_complex(real, complex_ir.FUNCTIONS[name]), "fc", **fields)


# -- the table -------------------------------------------------------------------------------------------------------

ADD = Emit(complex_ir.by_part(Lanes.add), "biufc")
SUB = Emit(complex_ir.by_part(Lanes.sub), "iufc")
MUL = Emit(complex_ir.product, "biufc")
DIV = Emit(_quotient, "iufc", cost=4)
MAX = Emit(complex_ir.or_complex(Lanes.maximum, complex_ir.by_ufunc("numpy.maximum")), "biufc", exact=True)
MIN = Emit(complex_ir.or_complex(Lanes.minimum, complex_ir.by_ufunc("numpy.minimum")), "biufc", exact=True)
EQ = Emit(complex_ir.of_parts("eq", "and"), "biufc", exact=True)
NE = Emit(complex_ir.of_parts("ne", "or"), "biufc", exact=True)
LT, LE, GT, GE = map(_compare, ("lt", "le", "gt", "ge"))
AND = Emit(lambda w, x, y: w.binary("and", x, y), "biu")
OR = Emit(lambda w, x, y: w.binary("or", x, y), "biu")
XOR = Emit(lambda w, x, y: w.binary("xor", x, y), "biu")
NOT = Emit(_not, "biu")
SHIFT_LEFT = Emit(_shift("shl"), "iu")
SHIFT_RIGHT_LOGICAL = Emit(_shift("lshr"), "iu")
SHIFT_RIGHT_ARITHMETIC = Emit(_shift("ashr"), "iu")

NEG = Emit(complex_ir.by_part(Lanes.neg), "iufc", exact=True)
ABS = Emit(complex_ir.absolute, "ifc", exact=True)
SIGN = Emit(complex_ir.or_complex(_sign, complex_ir.sign), "iufc", exact=True, spared=0.9)
FLOOR = Emit(lambda w, x: w.call("floor", x), "f")
CEIL = Emit(lambda w, x: w.call("ceil", x), "f")
ROUND = Emit(_round, "f", spared=0.8)
IS_FINITE = Emit(complex_ir.is_finite, "f", exact=True)
SQUARE = Emit(complex_ir.square, "iufc")
SQRT = _function("sqrt", lambda w, x: w.call("sqrt", x), cost=5)
RSQRT = _function("rsqrt", _rsqrt, cost=8)
INTEGER_POW = Emit(_power, "iufc", cost=3)

EXP = _function("exp", libm.exp, cost=10)
EXP2 = _function("exp2", libm.exp2, cost=12)
EXPM1 = _function("expm1", libm.expm1, cost=12)
LOG = _function("log", libm.log, cost=12)
LOG1P = _function("log1p", libm.log1p, cost=18)
SIN = _function("sin", libm.sin, cost=24, spared=4.5)
COS = _function("cos", libm.cos, cost=26, spared=4.5)
TANH = _function("tanh", libm.tanh, cost=16)
LOGISTIC = _function("logistic", libm.logistic, cost=15)
ERF = Emit(libm.erf, "f", cost=24, spared=3.0)
ERFC = Emit(libm.erfc, "f", cost=50)
TAN = _function("tan", libm_angles.tan, cost=40)
ASIN = _function("asin", libm_angles.asin, cost=20)
ACOS = _function("acos", libm_angles.acos, cost=22)
ATAN = _function("atan", libm_angles.atan, cost=20)
ATAN2 = Emit(libm_angles.atan2, "f", cost=60)
SINH = _function("sinh", libm_powers.sinh, cost=40)
COSH = _function("cosh", libm_powers.cosh, cost=35)
ASINH = _function("asinh", libm_powers.asinh, cost=50)
ACOSH = _function("acosh", libm_powers.acosh, cost=50)
ATANH = _function("atanh", libm_powers.atanh, cost=60)
CBRT = Emit(libm_powers.cbrt, "f", cost=60)
POW = Emit(complex_ir.or_complex(_real_power, complex_ir.power), "iufc", cost=70)
REM = Emit(_rem, cost=40, kinds="iuf")
NEXTAFTER = Emit(_next_after, "w", exact=True, cost=6, spared=2.0)
POPULATION_COUNT = Emit(lambda w, x: w.call("ctpop", x), "iu", cost=4)
CLZ = Emit(lambda w, x: w.call("ctlz", x, more=", i1 false"), "iu", cost=4)
GCD = Emit(lambda w, x, y: each_by_ufunc(w, "numpy.gcd", x, y)[0], "iu", cost=40)
INTEGER_POWER = Emit(_integer_power, "iu", cost=30)
REDUCE_PRECISION = Emit(_reduced_precision, "w", exact=True, cost=8)
MULHI = Emit(_high_product, "iu", cost=4)

SELECT_N = Emit(_select, "biufck", exact=True)
CLAMP = Emit(_clamp, exact=True)
CONVERT = Emit(_convert, "biufc", exact=True)
IDENTITY = Emit(lambda w, x: x, "biufc", exact=True, cost=0)
MOVE = Emit(lambda w, x: x, "biufc", exact=True, cost=0, moves=True)

REAL = Emit(lambda w, x: w.parts_of(x)[0], "c", exact=True)
IMAG = Emit(lambda w, x: w.parts_of(x)[1], "c", exact=True)
COMPLEX = Emit(Lanes.complex_of, "w", exact=True)
CONJ = Emit(complex_ir.conjugate, "wc", exact=True)
