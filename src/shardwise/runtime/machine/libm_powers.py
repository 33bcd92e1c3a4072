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

# erfc(x) * exp(x**2) / t in t = 1 / (1 + x / 2) for x from 0 to 10.2
_ERFC = (
    0.035767002695212206, -0.19103273811328686, 0.38141786433467345, -0.2895891544302622, -0.02196306074456218,
    0.03540773210304684, 0.05487714999934293, 0.18559516073790475, 0.24517912573767028, 0.28225240033845417, 0.2820885208365016,
)  # fmt: skip
# erf(x) / x - 1 in x**2 for abs(x) <= 1 / 2
_ERF_SMALL = (
    -0.00076623889807596721, 0.0051985677998996591, -0.02686277648107458, 0.11283771087395731, -0.37612638445533737,
    0.12837916707899379,
)  # fmt: skip
# M. Giles' approximation of erf_inv(x) / x: in v - 2.5 and in sqrt(v) - 3, where v = -log(1 - x**2) is below 5 and above
_ERF_INV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727,
    1.50140941,
)  # fmt: skip
_ERF_INV_TAILS = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406,
    2.83297682,
)  # fmt: skip
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


def _erfc_of_size(w: Lanes, size: Lane) -> Lane:
    """erfc of positive float64, good enough to round to float32."""
    one = w.like(1, size)
    held = w.select(w.compare("gt", size, w.like(10.7, size)), w.like(10.7, size), size)
    t = w.div(one, w.fma(held, w.like(0.5, held), one))
    return w.mul(w.mul(t, w.poly(t, _ERFC)), libm.exp_of_doubles(w, w.mul(w.neg(held), held)))


def erf_inv(w: Lanes, x: Lane) -> Lane:
    """The inverse error function of float32 values: a polynomial's estimate, and one step of Newton's in float64."""
    wide = in_double(w, x)
    size, one = w.abs(wide), w.like(1, wide)
    v = w.neg(libm.log(w, w.fma(w.neg(wide), wide, one)))
    centre = w.poly(w.sub(v, w.like(2.5, v)), _ERF_INV_CENTRE)
    tails = w.poly(w.sub(w.call("sqrt", v), w.like(3, v)), _ERF_INV_TAILS)
    y = w.mul(w.select(w.compare("lt", v, w.like(5, v)), centre, tails), size)
    near = w.fma(w.poly(w.mul(y, y), _ERF_SMALL), y, y)
    over = w.select(w.compare("lt", y, w.like(0.5, y)), w.sub(near, size), w.sub(w.sub(one, size), _erfc_of_size(w, y)))
    slope = w.mul(w.like(math.sqrt(math.pi) / 2, y), libm.exp(w, w.mul(y, y)))
    exact = w.fma(w.neg(over), slope, y)
    end = w.select(w.compare("eq", size, one), w.like(math.inf, y), exact)
    return w.convert(w.copysign(end, wide), "float32")
