"""Hyperbolic functions and their inverses, powers, roots and remainders on vectors, written with `Lanes` as those of `libm`.

Errors in units of the last place, for all arguments: at most 3.5. What is not said to be otherwise is computed in float64 for
float32 values, and is the C library's for float64 values.
"""

from __future__ import annotations

import math

from shardwise.runtime.machine import libm
from shardwise.runtime.machine.flow import RARE
from shardwise.runtime.machine.lane import Lane
from shardwise.runtime.machine.lanes import Lanes
from shardwise.runtime.machine.libm_angles import in_double

_TINY = 2.0**-12  # below, two terms of a series are enough for float32


# -- hyperbolic functions ----------------------------------------------------------------------------------------------


def sinh(w: Lanes, x: Lane) -> Lane:
    """Hyperbolic sine, in the type of `x`."""
    size = w.abs(x)
    t = libm.expm1(w, size)
    near = w.mul(w.like(0.5, x), w.add(t, w.div(t, w.add(t, w.like(1, x)))))
    return w.copysign(_or_huge(w, size, near), x)


def cosh(w: Lanes, x: Lane) -> Lane:
    """Hyperbolic cosine, in the type of `x`."""
    size = w.abs(x)
    e = libm.exp(w, size)
    return _or_huge(w, size, w.fma(e, w.like(0.5, x), w.div(w.like(0.5, x), e)))


def _or_huge(w: Lanes, size: Lane, near: Lane) -> Lane:
    """`near`, but ``exp(size) / 2`` where the exponential itself may overflow."""
    root = libm.exp(w, w.mul(size, w.like(0.5, size)))
    far = w.mul(w.mul(root, w.like(0.5, size)), root)
    return w.select(w.compare("gt", size, w.like(80.0 if size.type == "float" else 700.0, size)), far, near)


def asinh(w: Lanes, x: Lane) -> Lane:
    """The inverse of the hyperbolic sine."""
    if x.type == "double":
        return w.each("asinh", x)
    wide = in_double(w, x)
    size = w.abs(wide)
    root = w.call("sqrt", w.fma(size, size, w.like(1, size)))
    y = libm.log(w, w.add(size, root))
    return w.convert(w.copysign(_or_series(w, size, y, -1 / 6), wide), "float32")


def _or_series(w: Lanes, size: Lane, y: Lane, cubic: float) -> Lane:
    """`y`, but ``size + cubic * size**3`` where that is exact enough."""
    series = w.fma(w.mul(w.mul(size, size), size), w.like(cubic, size), size)
    return w.select(w.compare("lt", size, w.like(_TINY, size)), series, y)


def acosh(w: Lanes, x: Lane) -> Lane:
    """The inverse of the hyperbolic cosine; NaN below 1."""
    if x.type == "double":
        return w.each("acosh", x)
    wide = in_double(w, x)
    root = w.call("sqrt", w.fma(wide, wide, w.like(-1, wide)))
    y = libm.log(w, w.add(wide, root))
    return w.convert(w.select(w.compare("lt", wide, w.like(1, wide)), w.like(math.nan, y), y), "float32")


def atanh(w: Lanes, x: Lane) -> Lane:
    """The inverse of the hyperbolic tangent; NaN beyond 1."""
    if x.type == "double":
        return w.each("atanh", x)
    wide = in_double(w, x)
    size, one = w.abs(wide), w.like(1, wide)
    y = w.mul(w.like(0.5, size), libm.log(w, w.div(w.add(one, size), w.sub(one, size))))
    return w.convert(w.copysign(_or_series(w, size, y, 1 / 3), wide), "float32")


# -- powers, roots, remainders ---------------------------------------------------------------------------------------


def power(w: Lanes, x: Lane, y: Lane) -> Lane:
    """x to the power y, with the cases of IEEE 754."""
    if x.type == "double":
        return w.each("pow", x, y)
    base, exponent = in_double(w, x), in_double(w, y)
    one, zero = w.like(1, base), w.like(0, base)
    size = w.abs(base)
    out = libm.exp(w, w.mul(exponent, libm.log(w, size)))
    whole = w.compare("eq", w.call("rint", exponent), exponent)
    half = w.mul(exponent, w.like(0.5, exponent))
    odd = w.binary("and", whole, w.compare("ne", w.call("rint", half), half))
    negative = w.compare("lt", w.copysign(one, base), zero)
    out = w.select(w.binary("and", negative, odd), w.neg(out), out)
    below = w.binary("and", w.compare("lt", base, zero), w.compare("gt", base, w.like(-math.inf, base)))
    undefined = w.binary("and", below, w.binary("xor", whole, w.constant(True, "bool")))
    out = w.select(undefined, w.like(math.nan, out), out)
    endless = w.compare("eq", w.abs(exponent), w.like(math.inf, exponent))
    out = w.select(w.binary("and", w.compare("eq", size, one), endless), one, out)
    sure = w.binary("or", w.compare("eq", exponent, zero), w.compare("eq", base, one))
    return w.convert(w.select(sure, one, out), "float32")


def cbrt(w: Lanes, x: Lane) -> Lane:
    """The real cube root: an estimate by a third of the exponent, made exact in two steps of Halley's."""
    if x.type == "double":
        return w.each("cbrt", x)
    size = w.abs(x)
    tiny = w.compare("lt", size, w.like(2.0**-126, x))
    normal = w.select(tiny, w.mul(size, w.like(2.0**24, x)), size)
    bits = Lane(w.bitcast(Lane(normal.ref, "float32"), "uint32").ref, "uint32")
    third = w.add(w.binary("udiv", bits, w.like(3, bits)), w.like(709958130, bits))
    y, a = w.convert(w.bitcast(third, "float32"), "float64"), in_double(w, normal)
    for _ in range(2):
        cube = w.mul(w.mul(y, y), y)
        y = w.mul(y, w.div(w.add(cube, w.add(a, a)), w.add(w.add(cube, cube), a)))
    y = w.mul(y, w.select(tiny, w.like(2.0**-8, y), w.like(1, y)))
    root = w.copysign(w.convert(y, "float32"), Lane(x.ref, "float32"))
    same = w.binary(
        "or",
        w.compare("eq", x, w.like(0, x)),
        w.binary("xor", w.compare("lt", size, w.like(math.inf, x)), w.constant(True, "bool")),
    )
    return w.select(same, Lane(x.ref, "float32"), root)


def remainder(w: Lanes, x: Lane, y: Lane) -> Lane:
    """The exact remainder of a division, with the sign of x.

    A quotient that is short enough may be one too large by rounding, no more, and the remainder by it is exact. Long ones are left to the C
    library, as are divisions by zero and of or by infinity.
    """
    wide, by = (x, y) if x.type == "double" else (in_double(w, x), in_double(w, y))
    quotient = w.call("trunc", w.div(wide, by))
    left = w.fma(w.neg(quotient), by, wide)
    below = w.compare("lt", w.mul(w.copysign(w.like(1, left), wide), left), w.like(0, left))
    usual = w.copysign(w.add(left, w.select(below, w.copysign(by, wide), w.like(0, left))), wide)
    short = w.compare("lt", w.abs(quotient), w.like(2.0**52 if x.type == "double" else 2.0**29, wide))
    sure = w.binary("and", short, w.compare("lt", w.abs(by), w.like(math.inf, by)))
    rare = w.binary("xor", sure, w.constant(True, "bool"))
    found = w.branch(w.some(rare), lambda: [w.each("fmod", wide, by).ref], [usual.ref], [w.vector("double")], RARE)
    out = Lane(found[0], "float64")
    return out if x.type == "double" else w.convert(out, "float32")
