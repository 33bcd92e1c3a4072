"""Special functions in machine code: the bits of the ops' kernels, at their special points too."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.ir import bind
from shardwise.ops.elementwise import normal_slopes, scipy_functions, scipy_ir, special
from shardwise.runtime.machine.outside import outside_address

NAMED = {
    "lgamma": 1, "digamma": 1, "igamma": 2, "igammac": 2, "bessel_i0e": 1, "bessel_i1e": 1, "erf_inv": 1,
    "regularized_incomplete_beta": 3,
}  # fmt: skip
OPS = [(getattr(special, f"{name}_p"), arity) for name, arity in NAMED.items()] + [
    (scipy_functions.OPS[name], arity)
    for name, arity in (
        *scipy_ir._IN_DOUBLE.items(),
        ("log_ndtr", 1),
        ("ndtri", 1),
        ("log_ndtr_slope", 1),
        ("hyp1f1", 3),
    )
    if name in scipy_functions.OPS and name != "psi"
]
POINTS = (-np.inf, -3, -2.5, -1, -0.5, -0.0, 0.0, 1e-30, 0.3, 0.9, 1, 1.5, 3.7, 50, 1e4, np.inf, np.nan)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op", "arity"), OPS, ids=lambda x: getattr(x, "name", None))
def test_as_numpy_computes_them(op, arity, dtype):
    points = POINTS if arity < 3 else POINTS[::3]
    grid = np.stack([g.reshape(-1) for g in np.meshgrid(*[points] * arity)]).astype(dtype)
    assert op.emit is not None

    def looped(*xs):
        step = lambda i, c: jnp.where(i < 5, bind(op, *[x + i.astype(dtype) * 0 for x in xs]), c)  # noqa: E731
        return lax.fori_loop(0, jnp.int32(2), step, jnp.zeros(len(xs[0]), dtype))

    found = []
    with sw.enable_x64(dtype == "float64"):
        for choice in ("auto", "off"):
            with config.override("shardwise_fused", choice):
                found.append(np.asarray(sw.jit(looped)(*map(jnp.asarray, grid))))
    bits = [np.where(np.isnan(x), 0, x).view(f"u{x.itemsize}") for x in found]
    fused, alone = found
    np.testing.assert_array_equal(np.isnan(fused), np.isnan(alone))
    np.testing.assert_array_equal(bits[0], bits[1])


def test_every_function_has_an_address():
    for name, arity in scipy_ir._IN_DOUBLE.items():
        assert outside_address(f"ufunc.{scipy_ir._UFUNCS}{name}.{'d' * arity}_d")
    with pytest.raises(OSError, match="nothing_such"):
        outside_address("nothing_such")


IN_VECTORS = {
    scipy_functions.OPS["log_ndtr"]: scipy.special.log_ndtr,
    scipy_functions.OPS["ndtri"]: scipy.special.ndtri,
    special.erf_inv_p: scipy.special.erfinv,
    scipy_functions.OPS["log_ndtr_slope"]: normal_slopes.slope,
    special.lgamma_p: scipy.special.gammaln,
    special.bessel_i0e_p: scipy.special.i0e,
    special.bessel_i1e_p: scipy.special.i1e,
}


@pytest.mark.parametrize("op", IN_VECTORS, ids=lambda op: op.name)
@pytest.mark.parametrize("size", [64, 100_000])
def test_single_values_are_rounded_from_double(op, size):
    """However many there are; SciPy computes the same in float64."""
    rng = np.random.default_rng(size)
    around = [(0.5, 0.2), (1e-9, 1e-9), (0, 1e-8), (1, 1e-5), (2, 1e-5), (0, 0.1), (0, 1), (0, 3), (0, 15), (0, 1e3), (0, 1e20),
              (-2.457, 1e-3)]  # fmt: skip
    for middle, scale in around:
        x = (middle + rng.normal(size=size) * scale).astype(np.float32)
        with np.errstate(all="ignore"):
            want = IN_VECTORS[op](x.astype(np.float64)).astype(np.float32)
        got = np.asarray(sw.jit(lambda x: bind(op, x))(jnp.asarray(x)))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        got, want = (np.where(np.isnan(v), np.float32(0), v).view(np.int32).astype(np.int64) for v in (got, want))
        far = np.abs(got - want)
        assert far.max() <= 1, (middle, scale)  # units of the last place
        assert np.count_nonzero(far) <= size // 1000, (middle, scale)
