"""Tangent and the inverse circular functions on vectors, written with `Lanes` as those of `libm`.

Errors in units of the last place, for all arguments: at most 2.5. Tangent and the angle of two float32 values are computed in
float64; of float64 values they are the C library's.
"""

from __future__ import annotations

import math

from shardwise.runtime.machine.lane import Lane
from shardwise.runtime.machine.lanes import Lanes

# (tan(r) - r) / r**3 in r**2 for abs(r) <= pi / 4, to round to float32
_TAN = (
    0.00083302194665123535, -0.00025692490692860231, 0.0020404841145469173, 0.003366645968696419, 0.008913217834869684,
    0.021863346763201725, 0.053968628565409667, 0.13333332459981665, 0.3333333333666395,
)  # fmt: skip
# (atan(t) - t) / t**3 in t**2 for abs(t) <= tan(pi / 8)
_ATAN_32 = (
    0.050481385120797444, -0.086246761452494937, 0.11071365021884794, -0.14284151193628614, 0.19999977258688386,
    -0.333333332792548,
)  # fmt: skip
_ATAN_64 = (
    -0.013918229291024428, 0.030635704112969497, -0.04104436265755082, 0.04719395030027433, -0.052580415542977796,
    0.058819252531928636, -0.066666420200551662, 0.076923067360001735, -0.090909090670099901, 0.11111111110754729,
    -0.14285714285711519, 0.19999999999999992, -0.33333333333333333,
)  # fmt: skip
# (asin(x) - x) / x**3 in x**2 for abs(x) <= 1 / 2
_ASIN_32 = (
    0.03369084720283012, 0.017149238357677253, 0.031100662735494568, 0.044599401528512184, 0.075000945434974235,
    0.16666666337430907,
)  # fmt: skip
_ASIN_64 = (
    0.028757851367421565, -0.014851887071247203, 0.017400879442694022, 0.0054575067186403583, 0.010322814350185779,
    0.011479177415184906, 0.013971212973552933, 0.017352392720869973, 0.022372172942149888, 0.030381944138531247,
    0.04464285714635543, 0.074999999999984329, 0.16666666666666668,
)  # fmt: skip
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_MAGIC = 6755399441055744.0  # adding it leaves the nearest integer in the lowest bits of a float64
_EIGHTH, _THREE_EIGHTHS = math.tan(math.pi / 8), math.tan(3 * math.pi / 8)


def in_double(w: Lanes, x: Lane) -> Lane:
    """float32 lanes, whatever narrow type they hold, as float64."""
    return w.convert(Lane(x.ref, "float32"), "float64")


def tan(w: Lanes, x: Lane) -> Lane:
    """Tangent."""
    if x.type == "double":
        return w.each("tan", x)
    far = w.compare("gt", w.abs(x), w.like(2.0**40, x))
    wide = in_double(w, x)
    shifted = w.fma(wide, w.like(2 / math.pi, wide), w.like(_MAGIC, wide))
    n = w.sub(shifted, w.like(_MAGIC, wide))
    r = w.fma(n, w.like(-_HALF_PI[1], wide), w.fma(n, w.like(-_HALF_PI[0], wide), wide))
    z = w.mul(r, r)
    y = w.fma(w.mul(r, z), w.poly(z, _TAN), r)
    quadrant = w.bitcast(shifted, "int64")
    odd = w.compare("ne", w.binary("and", quadrant, w.like(1, quadrant)), w.like(0, quadrant))
    one = w.like(1, y)
    y = w.div(w.select(odd, w.like(-1, y), y), w.select(odd, y, one))
    return w.convert(w.unless(far, wide, y, "tan"), "float32")


def atan(w: Lanes, x: Lane) -> Lane:
    """Arc tangent."""
    size, one = w.abs(x), w.like(1, x)
    steep = w.compare("gt", size, w.like(_THREE_EIGHTHS, x))
    middle = w.compare("gt", size, w.like(_EIGHTH, x))
    above = w.select(middle, w.sub(size, one), size)
    below = w.select(middle, w.add(size, one), one)
    t = w.div(w.select(steep, w.like(-1, x), above), w.select(steep, size, below))
    return w.copysign(_angle(w, t, middle, steep), x)


def _angle(w: Lanes, t: Lane, middle: Lane, steep: Lane) -> Lane:
    """``atan(t)`` plus a quarter of pi where `middle`, or half of it where `steep`."""
    z = w.mul(t, t)
    cube = w.mul(w.mul(t, z), w.poly(z, _ATAN_64 if t.type == "double" else _ATAN_32))
    zero = w.like(0, t)
    high, low = _halves(t)
    rest = w.select(steep, w.like(low, t), w.select(middle, w.like(low / 2, t), zero))
    base = w.select(steep, w.like(high, t), w.select(middle, w.like(high / 2, t), zero))
    return w.add(base, w.add(t, w.add(cube, rest)))


def _halves(x: Lane) -> tuple[float, float]:
    """Half of pi in the format of `x`, and the rest that this format cannot hold."""
    return _HALF_PI if x.type == "double" else (1.5707963705062866, -4.371139000186241e-08)


def _asin_parts(w: Lanes, x: Lane) -> tuple[Lane, Lane, Lane]:
    """Whether abs(x) is small, and s, p with ``asin(s) = s + p``: s is abs(x), else ``sqrt((1 - abs(x)) / 2)``."""
    size = w.abs(x)
    small = w.compare("le", size, w.like(0.5, x))
    z = w.select(small, w.mul(size, size), w.mul(w.sub(w.like(1, x), size), w.like(0.5, x)))
    s = w.select(small, size, w.call("sqrt", z))
    p = w.mul(w.mul(s, z), w.poly(z, _ASIN_64 if x.type == "double" else _ASIN_32))
    return small, s, p


def asin(w: Lanes, x: Lane) -> Lane:
    """Arc sine; NaN beyond 1."""
    small, s, p = _asin_parts(w, x)
    high, low = _halves(x)
    # pi / 2 - 2 * (s + p)
    large = w.sub(w.like(high, x), w.sub(w.add(s, s), w.sub(w.like(low, x), w.add(p, p))))
    return w.copysign(w.select(small, w.add(s, p), large), x)


def acos(w: Lanes, x: Lane) -> Lane:
    """Arc cosine; NaN beyond 1."""
    small, s, p = _asin_parts(w, x)
    high, low = _halves(x)
    near = w.sub(w.like(high, x), w.sub(w.copysign(s, x), w.sub(w.like(low, x), w.copysign(p, x))))
    twice = w.add(w.add(s, s), w.add(p, p))
    across = w.sub(w.like(2 * high, x), w.sub(twice, w.like(2 * low, x)))
    negative = w.compare("lt", x, w.like(0, x))
    return w.select(small, near, w.select(negative, across, twice))


def atan2(w: Lanes, y: Lane, x: Lane) -> Lane:
    """The angle of the point (x, y)."""
    if x.type == "double":
        return w.each("atan2", y, x)
    up, right = in_double(w, y), in_double(w, x)
    height, length = w.abs(up), w.abs(right)
    swapped = w.compare("gt", height, length)
    less, more = w.select(swapped, length, height), w.select(swapped, height, length)
    one, zero = w.like(1, less), w.like(0, less)
    # 0 / 0 and inf / inf stand for 0 and 1.
    equal = w.compare("eq", less, w.like(math.inf, less))
    less, more = w.select(equal, one, less), w.select(equal, one, more)
    more = w.select(w.compare("eq", more, zero), one, more)
    middle = w.compare("gt", less, w.mul(more, w.like(_EIGHTH, more)))
    never = w.compare("lt", one, zero)
    endless = w.compare("eq", more, w.like(math.inf, more))
    above = w.select(middle, w.sub(less, more), w.select(endless, w.mul(less, zero), less))
    below = w.select(middle, w.add(less, more), w.select(endless, one, more))
    angle = _angle(w, w.div(above, below), middle, never)
    angle = w.select(swapped, w.sub(w.like(_HALF_PI[0], angle), angle), angle)
    behind = w.compare("lt", w.copysign(one, right), zero)
    angle = w.select(behind, w.sub(w.like(math.pi, angle), angle), angle)
    undefined = w.binary("or", w.isnan(up), w.isnan(right))
    angle = w.select(undefined, w.like(math.nan, angle), angle)
    return w.convert(w.copysign(angle, up), "float32")
