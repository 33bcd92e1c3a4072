"""Special functions as instructions: each element in double by SciPy's function, with the special points of the ops' kernels."""

from __future__ import annotations

import math
from collections.abc import Callable

from shardwise.ir import Emit
from shardwise.ops.elementwise.normal_slopes import FACTOR, HALF
from shardwise.runtime.machine import Lane, Lanes, each_by_ufunc, libm_special

_COST = 150  # of a call, in additions
_UFUNCS = "scipy.special._ufuncs."
_POLES_COST = 300
_IN_DOUBLE = {  # functions without a name in `lax` whose elements are computed in double, with the number of their operands
    "betaln": 2, "dawsn": 1, "erfcx": 1, "expi": 1, "gamma": 1, "owens_t": 2, "poch": 2, "psi": 1,
    "spence": 1,
}  # fmt: skip
Write = Callable[..., Lane]


def by_ufunc(w: Lanes, name: str, *operands: Lane, results: int = 1) -> list[Lane]:
    """The results of SciPy's ufunc, in the operands' precision."""
    x = operands[0]
    kind = "float32" if x.type == "float" else x.dtype
    return each_by_ufunc(w, _UFUNCS + name, *operands, results=[kind] * results)


def by_scipy(name: str, special: Write | None = None) -> Emit:
    """SciPy's function; ``special(w, result, *operands)`` corrects its result where ours differs."""

    def write(w: Lanes, *operands: Lane) -> Lane:
        wide = [w.convert(x, "float64") for x in operands]
        value = w.convert(by_ufunc(w, name, *wide)[0], operands[0].dtype)
        return value if special is None else special(w, value, *operands)

    return Emit(write, "w", cost=_COST)


def nan_of_nans(w: Lanes, value: Lane, *operands: Lane) -> Lane:
    """NaN where an operand is; some functions ignore the others at a pole of one."""
    for x in operands:
        value = w.select(w.isnan(x), x, value)
    return value


def odd(w: Lanes, found: Lane, *operands: Lane) -> Lane:
    """The sign of the last operand, also at -0.0."""
    return w.copysign(found, operands[-1])


def _infinite_at_both_ends(w: Lanes, found: Lane, x: Lane) -> Lane:
    size = w.abs(x)
    return w.select(w.compare("eq", size, w.like(math.inf, x)), size, found)


def _nan_at_poles(w: Lanes, found: Lane, x: Lane) -> Lane:
    whole = w.compare("eq", x, w.call("floor", x))
    return w.select(w.binary("and", w.compare("le", x, w.like(0, x)), whole), w.like(math.nan, x), found)


def _at_infinity(limit: float) -> Write:
    def special(w: Lanes, found: Lane, a: Lane, x: Lane) -> Lane:
        far = w.binary("and", w.compare("eq", x, w.like(math.inf, x)), w.compare("ge", a, w.like(0, a)))
        return w.select(far, w.like(limit, x), found)

    return special


def _in_vectors(write: Write, doubles: Emit, cost: int) -> Emit:
    """`write` for float32 values, `doubles` for others."""
    return Emit(lambda w, x: doubles.write(w, x) if x.dtype == "float64" else write(w, x), "w", cost=cost)


def _lgamma(w: Lanes, x: Lane) -> Lane:
    return _infinite_at_both_ends(w, libm_special.lgamma(w, x), x)


LGAMMA = _in_vectors(_lgamma, by_scipy("gammaln", _infinite_at_both_ends), 100)
DIGAMMA = by_scipy("psi", _nan_at_poles)
IGAMMA = by_scipy("gammainc", _at_infinity(1))
IGAMMAC = by_scipy("gammaincc", _at_infinity(0))
I0E = _in_vectors(libm_special.i0e, by_scipy("i0e"), 60)
I1E = _in_vectors(libm_special.i1e, by_scipy("i1e", odd), 60)
BETAINC = by_scipy("betainc")
_ERF_INV_OF_DOUBLES = by_scipy("erfinv", odd)


def _erf_inv(w: Lanes, x: Lane) -> Lane:
    return _ERF_INV_OF_DOUBLES.write(w, x) if x.dtype == "float64" else libm_special.erf_inv(w, x)


ERF_INV = Emit(_erf_inv, "f", cost=60)


# -- functions with several results, or loops of their own -----------------------------------------------------------------


def _whole(w: Lanes, x: Lane) -> Lane:
    return w.compare("eq", x, w.call("floor", x))


def _is_even(w: Lanes, x: Lane) -> Lane:
    half = w.mul(x, w.like(0.5, x))
    return w.binary("and", _whole(w, half), w.compare("lt", w.abs(x), w.like(math.inf, x)))


def _zeta(w: Lanes, x: Lane, q: Lane) -> Lane:
    """Infinity or NaN at the poles, where `q` is 0 or a negative integer."""
    (value,) = by_ufunc(w, "_zeta", x, q)
    poles = w.binary("and", w.compare("le", q, w.like(0, q)), _whole(w, q))
    infinite = w.binary("or", _is_even(w, x), w.compare("eq", x, w.like(1, x)))
    return w.select(poles, w.select(infinite, w.like(math.inf, x), w.like(math.nan, x)), value)


def _polygamma(w: Lanes, m: Lane, x: Lane) -> Lane:
    n, y = (w.convert(v, "float64") for v in (m, x))
    above = w.add(n, w.like(1, n))
    size = w.mul(by_ufunc(w, "gamma", above)[0], _zeta(w, above, y))
    even = _whole(w, w.mul(n, w.like(0.5, n)))
    value = w.select(even, w.neg(size), size)
    value = w.select(w.compare("eq", n, w.like(0, n)), _nan_at_poles(w, by_ufunc(w, "psi", y)[0], y), value)
    is_defined = w.binary("and", w.compare("ge", n, w.like(0, n)), _whole(w, n))
    return w.convert(w.select(is_defined, value, w.like(math.nan, value)), x.dtype)


def _hyp1f1(w: Lanes, a: Lane, b: Lane, x: Lane) -> Lane:
    """SciPy's function does not return at infinity."""
    far = w.compare("eq", x, w.like(math.inf, x))
    near = w.select(far, w.like(1000, x), x)
    value = by_ufunc(w, "hyp1f1", a, b, near)[0]
    grows = w.binary("and", far, w.compare("ne", a, w.like(0, a)))
    value = w.select(grows, w.mul(value, x), value)
    return nan_of_nans(w, _hyp1f1_poles(w, a, b, x, value), a, b, x)


def _hyp1f1_poles(w: Lanes, a: Lane, b: Lane, x: Lane, found: Lane) -> Lane:
    """`found`, but JAX's values for a = 0 and where b is a negative integer, as `scipy_functions` has them."""
    zero, one = w.like(0, x), w.like(1, x)
    above = w.sub(one, b)
    below = w.neg(w.call("floor", a))  # factors of a, a + 1, ... that are negative, if there are so many
    below = w.select(w.compare("lt", below, zero), zero, below)
    below = w.select(w.compare("lt", above, below), above, below)
    power = w.sub(below, b)
    power = w.select(w.compare("lt", x, zero), w.add(power, above), power)
    infinite = w.select(_whole(w, w.mul(power, w.like(0.5, x))), w.like(math.inf, x), w.like(-math.inf, x))
    infinite = w.select(w.compare("eq", x, zero), one, infinite)
    ends = w.binary("and", w.binary("and", w.compare("le", b, a), w.compare("le", a, zero)), _whole(w, a))
    equal = w.convert(w.call("exp", w.convert(x, "float64")), x.dtype)
    there = w.select(w.compare("eq", a, b), equal, w.select(ends, found, infinite))
    is_finite = w.compare("gt", b, w.like(-math.inf, b))
    pole = w.binary("and", w.binary("and", w.compare("lt", b, zero), is_finite), _whole(w, b))
    return w.select(w.compare("eq", a, zero), one, w.select(pole, there, found))


def pair(w: Lanes, name: str, x: Lane) -> list[Lane]:
    """A function with two results, of which the first is odd, also at -0.0."""
    first, second = by_ufunc(w, name, x, results=2)
    return [w.copysign(first, x), second]


ZETA = Emit(_zeta, "f", cost=_POLES_COST)
POLYGAMMA = Emit(_polygamma, "f", cost=2 * _POLES_COST)


def _log_ndtr(w: Lanes, x: Lane) -> Lane:
    return by_ufunc(w, "log_ndtr", x)[0] if x.dtype == "float64" else libm_special.log_ndtr(w, x)


def _log_ndtr_slope(w: Lanes, x: Lane) -> Lane:
    if x.dtype != "float64":
        return libm_special.log_ndtr_slope(w, x)
    (tail,) = by_ufunc(w, "erfcx", w.mul(x, w.like(HALF, x)))
    return w.div(w.like(FACTOR, x), tail)


# Functions whose float32 values are computed in vectors: their emitters, whose roundings are not always SciPy's.
IN_VECTORS = {
    "log_ndtr": Emit(_log_ndtr, "w", cost=100),
    "log_ndtr_slope": Emit(_log_ndtr_slope, "w", cost=80),
    "ndtri": _in_vectors(libm_special.ndtri, by_scipy("ndtri"), 60),
}


def emit_of(name: str, arity: int, kinds: str) -> Emit | None:
    """The emitter of a function that has no name in `lax`, for floats of 32 and 64 bits or complex values."""
    if name == "hyp1f1":
        return Emit(_hyp1f1, "w", cost=_COST)
    if name in IN_VECTORS:
        return IN_VECTORS[name]
    scipy_writer = by_scipy(name, odd if name == "owens_t" else nan_of_nans if arity > 1 else None)

    def write(w: Lanes, *operands: Lane) -> Lane:
        if _IN_DOUBLE.get(name) == arity and not operands[0].complex:
            return scipy_writer.write(w, *operands)
        (value,) = by_ufunc(w, name, *operands)
        return nan_of_nans(w, value, *operands) if arity > 1 else value

    return Emit(write, kinds.replace("f", "w"), cost=_COST)
