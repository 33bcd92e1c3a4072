"""Emitters: elementwise ops as vector code, with the semantics of their NumPy kernels.

Each is an `Emit` that the op's definition names. Plain instructions are methods of `Lanes`, polynomials are functions of
`runtime.libm`; this file has the emitters that choose by dtype or params. Ops without an emitter are never fused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.ir import Emit
from shardwise.runtime.machine import RARE, Lane, Lanes, libm, libm_angles, libm_powers

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
        return (complex_quotient if x.dtype == "complex64" else Lanes.div)(w, w.like(1, x), _power(w, x, y=-y))
    result: Lane | None = None
    while y:
        if y & 1:
            result = x if result is None else w.narrowed(_product(w, result, x))
        y >>= 1
        if y:
            x = w.narrowed(_product(w, x, x))
    return w.like(1, x) if result is None else result


def _round(w: Lanes, x: Lane, *, rounding_method: int) -> Lane:
    if rounding_method == 1:
        return w.call("rint", x)
    # Adding the largest float below one half, not one half, keeps numbers just below a half from rounding up.
    half = math.nextafter(0.5, 0.0) if x.type == "double" else 0.5 - 2.0**-25
    return w.call("trunc", w.add(x, w.copysign(w.like(half, x), x)))


def _is_finite(w: Lanes, x: Lane) -> Lane:
    return w.compare("lt", w.abs(x), w.like(math.inf, x))


# -- complex values -------------------------------------------------------------------------------------------------


def _by_part(write: Callable[..., Lane]) -> Callable[..., Lane]:
    """`write`; of complex values, of their real parts and of their imaginary ones."""

    def emit(w: Lanes, *operands: Lane) -> Lane:
        if operands[0].dtype != "complex64":
            return write(w, *operands)
        real, imag = zip(*map(w.parts_of, operands), strict=True)
        return w.complex_of(write(w, *real), write(w, *imag))

    return emit


def _of_parts(condition: str, joined: str) -> Callable[..., Lane]:
    """A comparison; of complex values, that of each part, joined."""

    def emit(w: Lanes, x: Lane, y: Lane) -> Lane:
        if x.dtype != "complex64":
            return w.compare(condition, x, y)
        real, imag = (w.compare(condition, a, b) for a, b in zip(w.parts_of(x), w.parts_of(y), strict=True))
        return w.binary(joined, real, imag)

    return emit


def _product(w: Lanes, x: Lane, y: Lane) -> Lane:
    """Of complex values with NumPy's roundings: in each part, the second product is rounded by itself."""
    if x.dtype != "complex64":
        return w.mul(x, y)
    (a, b), (c, d) = w.parts_of(x), w.parts_of(y)
    return w.complex_of(w.fma(a, c, w.neg(w.mul(b, d))), w.fma(a, d, w.mul(b, c)))


def _abs(w: Lanes, x: Lane) -> Lane:
    """Of complex values their modulus, whose squares neither overflow nor vanish in float64."""
    if x.dtype != "complex64":
        return w.abs(x)
    real, imag = (w.convert(part, "float64") for part in w.parts_of(x))
    return w.convert(w.call("sqrt", w.fma(real, real, w.mul(imag, imag))), "float32")


def _square(w: Lanes, x: Lane) -> Lane:
    """`x` times itself; where squares of parts overflow, their difference is (real - imag) * (real + imag)."""
    out = _product(w, x, x)
    if x.dtype != "complex64":
        return out
    (real, imag), (first, second) = w.parts_of(x), w.parts_of(out)
    usual = w.binary("and", _is_finite(w, first), _is_finite(w, second))
    far = w.mul(w.sub(real, imag), w.add(real, imag))
    twice = w.mul(w.like(2, real), w.mul(real, imag))
    return w.complex_of(w.select(usual, first, far), w.select(usual, second, twice))


def _conjugate(w: Lanes, x: Lane) -> Lane:
    if x.dtype != "complex64":
        return w.convert(x, "complex64")
    real, imag = w.parts_of(x)
    return w.complex_of(real, w.neg(imag))


def divided_parts(w: Lanes, a: Lane, b: Lane, c: Lane, d: Lane) -> tuple[Lane, Lane]:
    """The parts of (a + b i) / (c + d i), of floats, as NumPy divides: by the ratio of the divisor's parts."""
    first = w.compare("ge", w.abs(c), w.abs(d))
    large, small = w.select(first, c, d), w.select(first, d, c)
    ratio = w.div(small, large)
    scale = w.div(w.like(1, a), w.add(large, w.mul(small, ratio)))
    near, far = w.select(first, a, b), w.select(first, b, a)
    after, before = w.select(first, b, w.mul(b, ratio)), w.select(first, w.mul(a, ratio), a)
    return w.mul(w.add(near, w.mul(far, ratio)), scale), w.mul(w.sub(after, before), scale)


def complex_quotient(w: Lanes, x: Lane, y: Lane) -> Lane:
    """Of complex values, x times conj(y) over the square of y's modulus, in float64, where squares neither overflow nor vanish. Quotients
    over zero, of infinite values and over them are those of `complex_points.divide`.

    All terms take the sign of the divisor's larger part first: zeros get their signs as by the ratio of the parts.
    """
    parts = a, b, c, d = (*w.parts_of(x), *w.parts_of(y))
    larger = w.bits_of(w.select(w.compare("ge", w.abs(c), w.abs(d)), c, d))
    sign = w.binary("and", larger, w.like(-(2**31), larger))

    def turned(v: Lane) -> Lane:
        return w.floats_of(w.binary("xor", w.bits_of(v), sign), "float32")

    a, b, c, d = (w.convert(v, "float64") for v in (a, b, turned(c), turned(d)))
    scale = w.div(w.like(1, a), w.fma(c, c, w.mul(d, d)))
    real, imag = w.fma(a, c, w.mul(b, d)), w.fma(b, c, w.neg(w.mul(a, d)))
    usual = [turned(w.convert(w.mul(v, scale), "float32")) for v in (real, imag)]
    lost = w.binary("and", w.isnan(usual[0]), w.isnan(usual[1]))

    def found() -> list[str]:
        made = divided_parts(w, *(w.convert(v, "float64") for v in parts))
        narrow = [w.convert(v, "float32") for v in _lost_quotient(w, parts, lost, made)]
        return [w.select(lost, new, old).ref for new, old in zip(narrow, usual, strict=True)]

    refs = w.branch(w.some(lost), found, [v.ref for v in usual], [w.vector("float")] * 2, RARE)
    return w.complex_of(*[Lane(ref, "float32") for ref in refs])


def _lost_quotient(w: Lanes, parts: Sequence[Lane], lost: Lane, quotient: tuple[Lane, Lane]) -> tuple[Lane, Lane]:
    """The parts of a `quotient` that are `lost` as NaN: over zero, of infinite values, or over infinite ones."""
    infinite = [w.compare("eq", w.abs(v), w.like(math.inf, v)) for v in parts]
    far, away = (w.binary("or", x, y) for x, y in (infinite[:2], infinite[2:]))
    given, over = (w.binary("and", _is_finite(w, x), _is_finite(w, y)) for x, y in (parts[:2], parts[2:]))
    a, b, c, d = (w.convert(v, "float64") for v in parts)
    zero, one, inf = (w.like(v, a) for v in (0, 1, math.inf))
    nothing = w.binary("and", w.compare("eq", c, zero), w.compare("eq", d, zero))
    limit = w.copysign(inf, c)
    real, imag = (w.select(nothing, w.mul(limit, v), old) for v, old in zip((a, b), quotient, strict=True))
    lost = w.binary("and", lost, w.binary("and", w.isnan(real), w.isnan(imag)))
    of, by = w.binary("and", far, over), w.binary("and", away, given)
    lost = w.binary("and", lost, w.binary("or", of, by))
    a, b, c, d = (
        w.select(where, w.copysign(w.select(at, one, zero), v), v)
        for v, at, where in zip((a, b, c, d), infinite, (of, of, by, by), strict=True)
    )
    factor = w.select(of, inf, zero)
    real = w.select(lost, w.mul(factor, w.add(w.mul(a, c), w.mul(b, d))), real)
    return real, w.select(lost, w.mul(factor, w.sub(w.mul(b, c), w.mul(a, d))), imag)


# -- whole numbers ---------------------------------------------------------------------------------------------------


def _divided(w: Lanes, x: Lane, y: Lane) -> tuple[Lane, Lane, Lane]:
    """A safe divisor, and masks for `y` equal to 0 or -1 (the least integer over -1 overflows)."""
    zero = w.compare("eq", y, w.like(0, y))
    minus = w.compare("eq", y, w.like(-1, y)) if y.signed else w.constant(False, "bool")
    return w.select(w.binary("or", zero, minus), w.like(1, y), y), zero, minus


def _quotient(w: Lanes, x: Lane, y: Lane) -> Lane:
    if x.dtype == "complex64":
        return complex_quotient(w, x, y)
    if x.floating:
        return w.div(x, y)
    safe, zero, minus = _divided(w, x, y)
    out = w.binary("sdiv" if x.signed else "udiv", x, safe)
    out = w.select(minus, w.neg(x), out) if x.signed else out
    return w.select(zero, w.like(-1, x), out)


def _rem(w: Lanes, x: Lane, y: Lane) -> Lane:
    if x.floating:
        return libm_powers.remainder(w, x, y)
    safe, zero, minus = _divided(w, x, y)
    out = w.binary("srem" if x.signed else "urem", x, safe)
    out = w.select(minus, w.like(0, x), out) if x.signed else out
    return w.select(zero, x, out)


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
    moved = w.select(outward, w.add(bits, one), w.sub(bits, one))
    least = w.copysign(w.bitcast(one, x.dtype), y)
    out = w.select(w.compare("eq", x, zero), least, w.bitcast(moved, x.dtype))
    out = w.select(w.compare("eq", x, y), y, out)
    return w.select(w.isnan(x), x, w.select(w.isnan(y), y, out))


# -- bits ------------------------------------------------------------------------------------------------------------


def _not(w: Lanes, x: Lane) -> Lane:
    return w.binary("xor", x, w.like(1 if x.type == "i1" else -1, x))


def _shift(instruction: str) -> Callable[[Lanes, Lane, Lane], Lane]:
    """Shifts; by the number of bits or more, the result is 0, or copies of the sign bit."""

    def write(w: Lanes, x: Lane, y: Lane) -> Lane:
        last = w.like(x.bits - 1, x)
        unsigned = Lane(y.ref, f"uint{x.bits}")
        inside = w.compare("le", unsigned, Lane(last.ref, unsigned.dtype))
        if instruction == "ashr":
            return w.binary("ashr", x, w.select(inside, y, last))
        return w.select(inside, w.binary(instruction, x, w.select(inside, y, last)), w.like(0, x))

    return write


# -- choices and casts -----------------------------------------------------------------------------------------------


def _select(w: Lanes, which: Lane, *cases: Lane) -> Lane:
    if which.type == "i1":
        if cases[0].dtype == "complex64":  # arithmetic takes parts: it need not take apart what is chosen
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


# -- the table -------------------------------------------------------------------------------------------------------

ADD = Emit(_by_part(Lanes.add), "biufc")
SUB = Emit(_by_part(Lanes.sub), "iufc")
MUL = Emit(_product, "biufc")
DIV = Emit(_quotient, "iufc", cost=4)
MAX = Emit(Lanes.maximum, exact=True)
MIN = Emit(Lanes.minimum, exact=True)
EQ = Emit(_of_parts("eq", "and"), "biufc", exact=True)
NE = Emit(_of_parts("ne", "or"), "biufc", exact=True)
LT, LE, GT, GE = map(_compare, ("lt", "le", "gt", "ge"))
AND = Emit(lambda w, x, y: w.binary("and", x, y), "biu")
OR = Emit(lambda w, x, y: w.binary("or", x, y), "biu")
XOR = Emit(lambda w, x, y: w.binary("xor", x, y), "biu")
NOT = Emit(_not, "biu")
SHIFT_LEFT = Emit(_shift("shl"), "iu")
SHIFT_RIGHT_LOGICAL = Emit(_shift("lshr"), "iu")
SHIFT_RIGHT_ARITHMETIC = Emit(_shift("ashr"), "iu")

NEG = Emit(_by_part(Lanes.neg), "iufc", exact=True)
ABS = Emit(_abs, "ifc", exact=True)
SIGN = Emit(_sign, "iuf", exact=True, spared=0.9)
FLOOR = Emit(lambda w, x: w.call("floor", x), "f")
CEIL = Emit(lambda w, x: w.call("ceil", x), "f")
ROUND = Emit(_round, "f", spared=0.8)
IS_FINITE = Emit(_is_finite, "f", exact=True)
SQUARE = Emit(_square, "iufc")
SQRT = Emit(lambda w, x: w.call("sqrt", x), "f", cost=5)
RSQRT = Emit(_rsqrt, "f", cost=8)
INTEGER_POW = Emit(_power, "iufc", cost=3)

EXP = Emit(libm.exp, "f", cost=10)
EXP2 = Emit(libm.exp2, "f", cost=12)
EXPM1 = Emit(libm.expm1, "f", cost=12)
LOG = Emit(libm.log, "f", cost=12)
LOG1P = Emit(libm.log1p, "f", cost=18)
SIN = Emit(libm.sin, "f", cost=24, spared=4.5)
COS = Emit(libm.cos, "f", cost=26, spared=4.5)
TANH = Emit(libm.tanh, "f", cost=16)
LOGISTIC = Emit(libm.logistic, "f", cost=15)
ERF = Emit(libm.erf, "f", cost=24, spared=3.0)
ERFC = Emit(libm_powers.erfc, "f", cost=50)
TAN = Emit(libm_angles.tan, "f", cost=40)
ASIN = Emit(libm_angles.asin, "f", cost=20)
ACOS = Emit(libm_angles.acos, "f", cost=22)
ATAN = Emit(libm_angles.atan, "f", cost=20)
ATAN2 = Emit(libm_angles.atan2, "f", cost=60)
SINH = Emit(libm_powers.sinh, "f", cost=40)
COSH = Emit(libm_powers.cosh, "f", cost=35)
ASINH = Emit(libm_powers.asinh, "f", cost=50)
ACOSH = Emit(libm_powers.acosh, "f", cost=50)
ATANH = Emit(libm_powers.atanh, "f", cost=60)
CBRT = Emit(libm_powers.cbrt, "f", cost=60)
POW = Emit(libm_powers.power, "f", cost=70)
REM = Emit(_rem, cost=40, kinds="iuf")
NEXTAFTER = Emit(_next_after, "w", exact=True, cost=6, spared=2.0)
POPULATION_COUNT = Emit(lambda w, x: w.call("ctpop", x), "iu", cost=4)
CLZ = Emit(lambda w, x: w.call("ctlz", x, more=", i1 false"), "iu", cost=4)
MULHI = Emit(_high_product, "iu", cost=4)

SELECT_N = Emit(_select, "biufck", exact=True)
CLAMP = Emit(_clamp, exact=True)
CONVERT = Emit(_convert, "biufc", exact=True)
IDENTITY = Emit(lambda w, x: x, "biufc", exact=True, cost=0)
MOVE = Emit(lambda w, x: x, "biufc", exact=True, cost=0, moves=True)

REAL = Emit(lambda w, x: w.parts_of(x)[0], "c", exact=True)
IMAG = Emit(lambda w, x: w.parts_of(x)[1], "c", exact=True)
COMPLEX = Emit(Lanes.complex_of, "w", exact=True)
CONJ = Emit(_conjugate, "wc", exact=True)
