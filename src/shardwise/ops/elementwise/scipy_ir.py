"""Special functions as instructions: each element in double by SciPy's function, with the special points of the ops' kernels."""

from __future__ import annotations

import math
from collections.abc import Callable

from shardwise.ir import Emit
from shardwise.runtime.machine import Lane, Lanes, libm_powers
from shardwise.runtime.machine.outside import PREFIX, SCIPY

_COST = 150  # of a call, in additions
Write = Callable[..., Lane]


def by_scipy(name: str, special: Write | None = None, kinds: str = "w") -> Emit:
    """SciPy's function; ``special(w, result, *operands)`` gives what differs from it."""

    def write(w: Lanes, *operands: Lane) -> Lane:
        wide = [w.convert(x, "float64") for x in operands]
        found = w.convert(w.each(PREFIX + name, *wide), operands[0].dtype)
        return found if special is None else special(w, found, *operands)

    return Emit(write, kinds, cost=_COST)


def nan_of_nans(w: Lanes, found: Lane, *operands: Lane) -> Lane:
    """NaN where an operand is; some functions ignore the others at a pole of one."""
    for x in operands:
        found = w.select(w.isnan(x), x, found)
    return found


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


LGAMMA = by_scipy("gammaln", _infinite_at_both_ends)
DIGAMMA = by_scipy("psi", _nan_at_poles)
IGAMMA = by_scipy("gammainc", _at_infinity(1))
IGAMMAC = by_scipy("gammaincc", _at_infinity(0))
I0E = by_scipy("i0e")
I1E = by_scipy("i1e", odd)
BETAINC = by_scipy("betainc")
_ERF_INV_OF_DOUBLES = by_scipy("erfinv", odd)


def _erf_inv(w: Lanes, x: Lane) -> Lane:
    return _ERF_INV_OF_DOUBLES.write(w, x) if x.dtype == "float64" else libm_powers.erf_inv(w, x)


ERF_INV = Emit(_erf_inv, "f", cost=120)


def emit_of(name: str, arity: int) -> Emit | None:
    """The emitter of a function that has no name in `lax`; None if it has no function of doubles."""
    if SCIPY.get(name) != arity:
        return None
    return by_scipy(name, odd if name == "owens_t" else nan_of_nans if arity > 1 else None)
