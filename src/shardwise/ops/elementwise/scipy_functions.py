"""Elementwise SciPy functions without a name in `lax`: exponential integrals, Dawson's, hypergeometric, ..."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.scipy_extensions import special_ufunc
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Equation, Op, ShapedArray, SmallForm, bind, define_op
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise import normal_slopes, scipy_ir
from shardwise.ops.elementwise.casts import strong
from shardwise.ops.elementwise.parameter_slopes import hyp1f1_slope, hyp2f1_slope
from shardwise.ops.rules.derivative import Pushes, do, later, unknown_derivative
from shardwise.ops.rules.operands import align_blocks, broadcast_shape, check_kind, check_same_dtype, elementwise_op
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Rule, pointwise_rule

__all__: list[str] = []


def _function(name: str) -> Any:
    """SciPy's ufunc in the operands' precision, or in double if it has no other loop."""

    def function(*blocks: Ndarray) -> Ndarray:
        dtype = blocks[0].dtype
        if dtype.itemsize < 4:
            blocks = tuple(b.astype(np.float32) for b in blocks)
        with np.errstate(all="ignore"):
            out = np.asarray(special_ufunc(name)(*blocks)).astype(dtype, copy=False)
        if len(blocks) > 1:  # at a pole of one operand some functions ignore the others
            np.copyto(out, np.array(np.nan, dtype), where=functools.reduce(np.logical_or, map(np.isnan, blocks)))
        return out

    return function


def _owens_t(h: Ndarray, a: Ndarray) -> Ndarray:
    """Odd in `a`, also at -0.0."""
    return np.copysign(_function("owens_t")(h, a), a)


def _hyp1f1(a: Ndarray, b: Ndarray, x: Ndarray) -> Ndarray:
    """SciPy's function does not return at infinity: the result there is infinite with the sign for large x, or 1 for a = 0."""
    far = x == np.inf
    values = _function("hyp1f1")(a, b, np.where(far, x.dtype.type(1000), x))
    with np.errstate(all="ignore"):
        values = _hyp1f1_poles(a, b, x, np.where(far & (a != 0), values * x, values))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(x), np.nan, values).astype(x.dtype, copy=False)


def _hyp1f1_poles(a: Ndarray, b: Ndarray, x: Ndarray, found: Ndarray) -> Ndarray:
    """`found`, but JAX's values for a = 0 (1) and where b is a negative integer.

    There exp(x) belongs to a = b. The series ends before its pole for integers a from b to 0. For other a it is infinite,
    with the sign of the factors of the first term that is.
    """
    below = np.minimum(np.maximum(-np.floor(a), 0), 1 - b)
    power = below - b + np.where(x < 0, 1 - b, 0)
    infinite = np.where(x == 0, 1, np.where(power % 2 == 0, np.inf, -np.inf))
    ends = (b <= a) & (a <= 0) & (a == np.floor(a))
    equal = np.exp(x.astype(np.float64)).astype(x.dtype)  # rounded once, as in compiled loops
    there = np.where(a == b, equal, np.where(ends, found, infinite))
    is_pole = (b < 0) & (b > -np.inf) & (b == np.floor(b))
    return np.where(a == 0, 1, np.where(is_pole, there, found))


# name: (number of operands, accepted kinds)
_TABLE = {
    "expi": (1, "f"), "psi": (1, "c"), "expn": (2, "f"), "spence": (1, "f"), "ndtri": (1, "f"), "log_ndtr": (1, "f"),
    "erfcx": (1, "fc"), "dawsn": (1, "f"), "wofz": (1, "c"), "loggamma": (1, "c"), "gamma": (1, "fc"), "poch": (2, "f"),
    "hyp1f1": (3, "f"), "hyp2f1": (4, "f"), "owens_t": (2, "f"), "rgamma": (1, "c"), "jv": (2, "f"), "betaln": (2, "f"),
    "log_ndtr_slope": (1, "f"), "log_ndtr_curvature": (1, "f"), "hyp1f1_slope_a": (3, "f"), "hyp1f1_slope_b": (3, "f"),
    "hyp2f1_slope_a": (4, "f"), "hyp2f1_slope_b": (4, "f"), "hyp2f1_slope_c": (4, "f"),
}  # fmt: skip

_DAWSN_TERMS = 9

# -- derivatives: the push of each operand's tangent; None where the derivative is not known ------------------------------------


def _bell(x: Any) -> Any:
    """The normal distribution's density."""
    return do.mul(1 / math.sqrt(2 * math.pi), do.exp(do.mul(-0.5, do.square(x))))


def _call(name: str, *args: Any) -> Any:
    return getattr(do, f"scipy_{name}")(*args)


def _slope(name: str) -> Any:
    """The push of an operand whose derivative is the function `name` of all operands."""
    return lambda t, y, *args: do.mul(t, _call(name, *args))


def _spence_push(t: Any, y: Any, x: Any) -> Any:
    one = do.eq(x, 1)
    return do.mul(t, do.select_n(one, do.div(do.log(x), do.sub(1, do.select_n(one, x, 0))), -1))


def _gamma_push(t: Any, y: Any, x: Any) -> Any:
    slope = _call("psi", x) if x.dtype.kind == "c" else do.digamma(x)
    return do.mul(t, do.mul(y, slope))


def _wofz_push(t: Any, y: Any, z: Any) -> Any:
    return do.mul(t, do.add(do.mul(z, do.mul(-2, y)), 2j / math.sqrt(math.pi)))


def _owens_h(t: Any, y: Any, h: Any, a: Any) -> Any:
    return do.mul(t, do.mul(do.mul(-0.5, _bell(h)), do.erf(do.mul(do.mul(a, h), math.sqrt(0.5)))))


def _owens_a(t: Any, y: Any, h: Any, a: Any) -> Any:
    spread = do.add(do.square(a), 1)
    return do.mul(t, do.div(do.exp(do.mul(-0.5, do.mul(do.square(h), spread))), do.mul(2 * math.pi, spread)))


def _erfcx_push(t: Any, y: Any, x: Any) -> Any:
    slope = do.sub(do.mul(x, do.mul(2, y)), 2 / math.sqrt(math.pi))
    if x.dtype.kind == "c":
        return do.mul(t, slope)
    right = do.max(x, 1)  # where the two terms are large and nearly equal
    curvature = do.mul(-math.sqrt(math.pi), _call("log_ndtr_curvature", do.mul(right, -math.sqrt(2))))
    return do.mul(t, do.select_n(do.gt(x, 1), slope, do.mul(curvature, do.square(_call("erfcx", right)))))


def _dawsn_push(t: Any, y: Any, x: Any) -> Any:
    """``1 - 2 x y``; far out, where that cancels, by the asymptotic series in ``1 / (2 x**2)``."""
    far = 25 if x.dtype.itemsize == 8 else 7
    size = do.abs(x)
    u = do.div(0.5, do.square(do.max(size, far)))
    series: Any = 1
    for factor in range(2 * _DAWSN_TERMS + 1, 1, -2):
        series = do.add(1, do.mul(series, do.mul(u, factor)))
    near = do.sub(1, do.mul(x, do.mul(2, y)))
    return do.mul(t, do.select_n(do.gt(size, far), near, do.neg(do.mul(u, series))))


def _log_ndtr_third(t: Any, y: Any, x: Any) -> Any:
    h = _call("log_ndtr_slope", x)
    return do.mul(t, do.sub(do.mul(h, do.sub(1, y)), do.mul(y, do.add(h, x))))


def _betaln_slope(a: Any, b: Any) -> Any:
    """The derivative in `a`."""
    return do.sub(do.digamma(a), do.digamma(do.add(a, b)))


_PUSHES: dict[str, Pushes] = {
    "betaln": (lambda t, y, a, b: do.mul(t, _betaln_slope(a, b)), lambda t, y, a, b: do.mul(t, _betaln_slope(b, a))),
    "expi": lambda t, y, x: do.mul(t, do.div(do.exp(x), x)),
    "loggamma": lambda t, y, x: do.mul(t, _call("psi", x)),
    "expn": (unknown_derivative("expn", "its order"), lambda t, y, n, x: do.mul(t, do.neg(_call("expn", do.sub(n, 1), x)))),
    "spence": _spence_push,
    "ndtri": lambda t, y, x: do.mul(t, do.div(1, _bell(y))),
    "log_ndtr": _slope("log_ndtr_slope"),
    "log_ndtr_slope": lambda t, y, x: do.mul(t, do.neg(_call("log_ndtr_curvature", x))),
    "log_ndtr_curvature": _log_ndtr_third,
    "erfcx": _erfcx_push,
    "dawsn": _dawsn_push,
    "wofz": _wofz_push,
    "gamma": _gamma_push,
    "poch": (lambda t, y, z, m: do.mul(t, do.mul(y, do.sub(do.digamma(do.add(z, m)), do.digamma(z)))),
             lambda t, y, z, m: do.mul(t, do.mul(y, do.digamma(do.add(z, m))))),
    "hyp1f1": (_slope("hyp1f1_slope_a"), _slope("hyp1f1_slope_b"),
               lambda t, y, a, b, x: do.mul(t, do.mul(do.div(a, b), _call("hyp1f1", do.add(a, 1), do.add(b, 1), x)))),
    "hyp2f1": (_slope("hyp2f1_slope_a"), _slope("hyp2f1_slope_b"), _slope("hyp2f1_slope_c"),
               lambda t, y, a, b, c, x: do.mul(t, do.mul(do.div(do.mul(a, b), c),
                                                         _call("hyp2f1", do.add(a, 1), do.add(b, 1), do.add(c, 1), x)))),
    "owens_t": (_owens_h, _owens_a),
    "jv": (unknown_derivative("jv", "its order"),
           lambda t, y, n, x: do.mul(t, do.mul(0.5, do.sub(_call("jv", do.sub(n, 1), x), _call("jv", do.add(n, 1), x))))),
}  # fmt: skip

_OWN = {
    "log_ndtr_slope": normal_slopes.slope, "log_ndtr_curvature": normal_slopes.curvature,
    "hyp1f1": _hyp1f1, "owens_t": _owens_t, "hyp1f1_slope_a": hyp1f1_slope(0), "hyp1f1_slope_b": hyp1f1_slope(1),
    "hyp2f1_slope_a": hyp2f1_slope(0), "hyp2f1_slope_b": hyp2f1_slope(1), "hyp2f1_slope_c": hyp2f1_slope(2),
}  # fmt: skip
# Those that compute in Python, and one whose ufunc warns in Python.
_IN_PYTHON = {"expn", "log_ndtr_curvature", *(name for name in _OWN if "slope_" in name)}
OPS: dict[str, Op] = {
    name: elementwise_op(
        f"scipy_{name}",
        _OWN.get(name) or _function(name),
        *(kinds,) * arity,
        push=_PUSHES.get(name),
        emit=None if name in _IN_PYTHON else scipy_ir.emit_of(name, arity, kinds),
        makes_nan=True,
        rounds_alike=name not in scipy_ir.IN_VECTORS,
    )
    for name, (arity, kinds) in _TABLE.items()
}


def apply(name: str, *values: Any) -> Array:
    """SciPy's function `name` of values with the same dtype; strongly typed."""
    return bind(OPS[name], *[strong(v) for v in values])


# -- functions with two results ------------------------------------------------------------------------------------------------


def _pair_type(name: str) -> Any:
    def rule(x: ShapedArray) -> tuple[ShapedArray, ShapedArray]:
        check_kind(name, x, "f")
        check_same_dtype(name, [x])
        out = ShapedArray(broadcast_shape(name, [x.shape]), x.dtype, x.weak_type)
        return out, out

    return rule


def _pair_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    return pointwise_rule((in_types[0].shape,), tuple(t.shape for t in out_types))


def _square_in_fours(x: Any) -> Any:
    """``x ** 2`` modulo 4: for x = 2 m + f with integer m the square is 4 m (m + f) + f ** 2."""
    m = do.round(do.mul(x, 0.5), rounding_method=1)
    f = do.sub(x, do.mul(m, 2))
    turn = do.mul(m, f)
    return do.add(do.mul(4, do.sub(turn, do.round(turn, rounding_method=1))), do.square(f))


_several_pointwise = later("shardwise.runtime.small", "several_pointwise")


def _pair(name: str) -> Op:
    def kernel(env: Env, x: Ndarray) -> tuple[Ndarray, ...]:
        (block,) = align_blocks([x])
        wide = block.astype(np.float32) if x.dtype.itemsize < 4 else block
        with np.errstate(all="ignore"):
            results = [np.asarray(v).astype(x.dtype, copy=False) for v in special_ufunc(name)(wide)]
        results[0] = np.copysign(results[0], x.dtype.type(1) * block)  # odd, also at -0.0
        return tuple(results)

    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, list[Any]]:
        (x,), (t,) = primals, tangents
        if name == "fresnel":
            angle = do.mul(math.pi / 2, _square_in_fours(x))
            slopes = [do.sin(angle), do.cos(angle)]
        else:
            zero = do.eq(x, 0)
            sinc = do.select_n(zero, do.div(do.sin(x), do.select_n(zero, x, 1)), 1)
            slopes = [sinc, do.div(do.cos(x), x)]
        return _call(name, x), [do.mul(t, s) for s in slopes]

    def write(body: Any, eqn: Equation, values: Any, wanted: Any) -> Any:
        dtype = eqn.outputs[0].aval.dtype.name
        return _several_pointwise(body.code, values, lambda lanes: scipy_ir.pair(body.code, name, *lanes), [dtype] * 2)

    return define_op(
        f"scipy_{name}",
        makes_nan=True,
        small=SmallForm(write, lambda eqn, spread: eqn.inputs[0].aval.dtype.name in ("float32", "float64")),
        type_rule=_pair_type(name),
        kernel=kernel,
        rule=_pair_rule,
        multiple_results=True,
        jvp=jvp,
    )


PAIRS = {name: _pair(name) for name in ("sici", "fresnel")}


def apply_pair(name: str, x: Any) -> tuple[Array, Array]:
    """SciPy's function `name`, which has two results; strongly typed."""
    first, second = bind(PAIRS[name], strong(x))
    return first, second
