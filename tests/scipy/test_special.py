"""scipy.special: values of SciPy's, types of the oracle's."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import scipy.special

import shardwise as sw
from shardwise.scipy import special
from shardwise.sharding import NamedSharding, PartitionSpec

theirs: Any = scipy.special

RNG = np.random.default_rng(0)
ANY = np.r_[RNG.normal(size=40) * 3, 0.0, 1.0, -1.5].astype("f")
POSITIVE = np.abs(ANY) + 0.1
UNIT = RNG.uniform(0.05, 0.95, ANY.shape).astype("f")

CASES = {
    "gammaln": (POSITIVE,),
    "gammasgn": (ANY,),
    "loggamma": (POSITIVE,),
    "gamma": (POSITIVE,),
    "betaln": (POSITIVE, UNIT),
    "beta": (POSITIVE, UNIT),
    "betainc": (POSITIVE, UNIT * 3, UNIT),
    "gammainc": (POSITIVE, UNIT),
    "gammaincc": (POSITIVE, UNIT),
    "digamma": (POSITIVE,),
    "zeta": (POSITIVE + 1, POSITIVE),
    "factorial": (POSITIVE,),
    "comb": (np.round(POSITIVE * 3), np.round(POSITIVE)),
    "poch": (POSITIVE, UNIT),
    "erf": (ANY,),
    "erfc": (ANY,),
    "erfinv": (UNIT,),
    "erfcx": (UNIT,),
    "dawsn": (ANY,),
    "ndtr": (ANY,),
    "ndtri": (UNIT,),
    "log_ndtr": (ANY * 3,),
    "logit": (UNIT,),
    "expit": (ANY,),
    "xlogy": (np.r_[ANY], POSITIVE),
    "xlog1py": (ANY, POSITIVE),
    "entr": (ANY,),
    "rel_entr": (POSITIVE, UNIT),
    "kl_div": (ANY, UNIT),
    "boxcox": (POSITIVE, ANY),
    "boxcox1p": (POSITIVE, ANY),
    "i0": (ANY,),
    "i0e": (ANY,),
    "i1": (ANY,),
    "i1e": (ANY,),
    "expi": (ANY,),
    "exp1": (POSITIVE,),
    "expn": (np.round(POSITIVE), POSITIVE),
    "sici": (ANY,),
    "fresnel": (ANY,),
    "spence": (POSITIVE,),
    "hyp1f1": (POSITIVE, UNIT, ANY),
    "hyp2f1": (POSITIVE, UNIT, POSITIVE, UNIT - 0.5),
    "owens_t": (ANY, UNIT),
    "wofz": (ANY + 1j * UNIT,),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_scipy(name):
    xs = CASES[name]
    wide = [x.astype("c16" if x.dtype.kind == "c" else "d") for x in xs]
    got, want = getattr(special, name)(*xs), getattr(theirs, name)(*wide)
    for g, w in zip(
        got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,), strict=True
    ):
        assert g.dtype == ("complex64" if w.dtype.kind == "c" else "float32")
        np.testing.assert_allclose(np.asarray(g), w, rtol=5e-5, atol=5e-6)


def test_a_few_more():
    np.testing.assert_allclose(
        np.asarray(special.multigammaln(POSITIVE + 3, 3)),
        [theirs.multigammaln(float(a), 3) for a in POSITIVE + 3],
        rtol=2e-6,
    )
    np.testing.assert_allclose(
        np.asarray(special.polygamma(np.int32(2), POSITIVE)), theirs.polygamma(2, POSITIVE.astype("d")), rtol=1e-6
    )
    np.testing.assert_allclose(np.asarray(special.bernoulli(8)), theirs.bernoulli(8), rtol=1e-6)
    assert special.bernoulli(1).shape == (2,)
    np.testing.assert_allclose(
        np.asarray(special.bessel_jn(POSITIVE, v=3)),
        [theirs.jv(n, POSITIVE.astype("d")) for n in range(4)],
        rtol=1e-6,
        atol=1e-6,
    )
    np.testing.assert_allclose(
        np.asarray(special.comb(5, 2, repetition=True)), theirs.comb(5, 2, repetition=True), rtol=5e-6
    )
    z = (ANY + 1j * UNIT).astype("c8")
    for name in ("gamma", "loggamma", "erfcx"):
        np.testing.assert_allclose(
            np.asarray(getattr(special, name)(z)), getattr(theirs, name)(z.astype("c16")), rtol=1e-6, atol=1e-6
        )
    assert float(special.xlogy(0.0, 0.0)) == 0 and np.isnan(special.xlogy(0.0, np.nan))
    np.testing.assert_array_equal(
        np.asarray(special.gammasgn(np.array([-0.0, 0.0, -1.0, -0.5], "f"))), [-1, 1, np.nan, -1]
    )


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
def test_sums_of_exponentials(axis):
    x = (RNG.normal(size=(3, 4, 5)) * 50).astype("f")
    b = RNG.normal(size=(4, 5)).astype("f")
    wide = x.astype("d")
    close = lambda g, w: np.testing.assert_allclose(np.asarray(g), w, rtol=1e-5, atol=1e-6)  # noqa: E731
    for keepdims in (False, True):
        close(special.logsumexp(x, axis, keepdims=keepdims), theirs.logsumexp(wide, axis, keepdims=keepdims))
        got, sign = special.logsumexp(x, axis, b, keepdims, return_sign=True)
        want, want_sign = theirs.logsumexp(wide, axis, b.astype("d"), keepdims, return_sign=True)
        close(got, want)
        close(sign, want_sign)
    close(special.softmax(x, axis=axis), theirs.softmax(wide, axis=axis))
    close(special.log_softmax(x, axis=axis), theirs.log_softmax(wide, axis=axis))
    mask = x > 0
    with np.errstate(divide="ignore"):
        close(special.logsumexp(x, axis, where=mask), np.log(np.sum(np.exp(wide), axis=axis, where=mask)))
    z = (x / 50 + 1j * x / 60).astype("c8")
    close(np.exp(np.asarray(special.logsumexp(z, axis))), np.sum(np.exp(z.astype("c16")), axis=axis))
    assert float(special.logsumexp(np.full(3, -np.inf, "f"))) == -np.inf


def test_types_and_weakness_are_the_oracles():
    jax = pytest.importorskip("jax")
    for name in ("gammaln", "digamma", "erf", "expit", "logit", "i0", "entr", "logsumexp", "gamma", "factorial"):
        for x in (np.ones(3, "int32"), np.ones(3, "float16"), 2, 0.5, np.float32(0.5)):
            want = jax.eval_shape(getattr(jax.scipy.special, name), x)
            got = getattr(special, name)(x)
            assert (got.shape, got.dtype) == (want.shape, want.dtype), (name, x)
    for name in ("xlogy", "betaln", "gammainc"):
        want = jax.eval_shape(getattr(jax.scipy.special, name), np.ones((3, 1), "int8"), np.ones(4, "float16"))
        got = getattr(special, name)(np.ones((3, 1), "int8"), np.ones(4, "float16"))
        assert (got.shape, got.dtype) == (want.shape, want.dtype)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: special.ndtr(np.ones(3, "int32")), TypeError),
        (lambda: special.log_ndtr(np.ones(3, "f"), 31), ValueError),
        (lambda: special.log_ndtr(np.ones(3, "f"), 1.5), TypeError),
        (lambda: special.polygamma(1.0, 2.0), ValueError),
        (lambda: special.zeta(2.0), NotImplementedError),
        (lambda: special.factorial(3, exact=True), NotImplementedError),
        (lambda: special.beta(1j, 1.0), TypeError),
        (lambda: special.bernoulli(-1), ValueError),
        (lambda: special.erf([1.0]), TypeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_sharding_never_changes_values():
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    x = RNG.uniform(0.1, 2, (8, 8)).astype("f")
    split = sw.device_put(x, NamedSharding(mesh, PartitionSpec("x", "y")))
    functions: list[Any] = [
        special.logsumexp,
        lambda v: special.softmax(v, axis=1),
        special.expi,
        lambda v: special.sici(v)[1],
    ]
    for f in functions:
        np.testing.assert_allclose(np.asarray(sw.jit(f)(split)), np.asarray(f(x)), rtol=1e-5, atol=1e-5)


def test_hyp1f1_at_infinity_returns():
    """SciPy's function does not, for some orders."""
    a, b = np.array([0.5, 2.0, -1.0, 0.0], np.float32), np.array([1.0, 0.5, 2.0, 1.0], np.float32)
    got = special.hyp1f1(a, b, np.full(4, np.inf, np.float32))
    np.testing.assert_array_equal(got, [np.inf, np.inf, -np.inf, 1])


@pytest.mark.parametrize("compiled", [False, True])
def test_hyp1f1_at_poles_is_that_of_jax(compiled: bool) -> None:
    inf, nan = np.inf, np.nan
    b, x = [-2.0, -1.0, 0.0], [-0.5, 0.0, 1.0]
    rows = {
        -3.0: [inf, 1, -inf, -inf, 1, -inf, inf, inf, inf],
        -2.0: [np.exp(-0.5), 1, np.e, -inf, 1, -inf, inf, inf, inf],
        -1.0: [0.75, 1, 1.5, np.exp(-0.5), 1, np.e, inf, inf, inf],
        -0.5: [inf, 1, -inf, inf, 1, inf, inf, inf, inf],
        0.0: [1] * 9,
        0.5: [-inf, 1, inf, -inf, 1, -inf, inf, inf, inf],
        nan: [nan] * 9,
    }
    operands = [g.ravel().astype(np.float32) for g in np.meshgrid([*rows], b, x, indexing="ij")]
    got = (sw.jit(special.hyp1f1) if compiled else special.hyp1f1)(*operands)
    np.testing.assert_allclose(got, np.concatenate([*rows.values()]), rtol=1e-6)
    slope = sw.grad(special.hyp1f1, 2)(np.float32(-1.0), np.float32(-2.0), np.float32(0.5))
    assert float(slope) == 0.5


WIDE = {  # functions of floats take whole numbers that no integer type holds
    "expit": lambda lib, n: lib.scipy.special.expit(n),
    "gammainc": lambda lib, n: lib.scipy.special.gammainc(np.ones(3, "f"), n),
    "gammaln": lambda lib, n: lib.scipy.special.gammaln(n),
    "logsumexp": lambda lib, n: lib.scipy.special.logsumexp(n),
    "multigammaln": lambda lib, n: lib.scipy.special.multigammaln(n, 2),
    "norm.pdf": lambda lib, n: lib.scipy.stats.norm.pdf(n),
    "gamma.logpdf": lambda lib, n: lib.scipy.stats.gamma.logpdf(np.ones(3, "f"), n),
    "zeros_like": lambda lib, n: lib.numpy.zeros_like(n),
    "ones_like": lambda lib, n: lib.numpy.ones_like(n),
}


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63, 10**30], ids=str)
@pytest.mark.parametrize("name", WIDE)
def test_whole_numbers_of_any_size(name, number):
    jax = pytest.importorskip("jax")
    importlib.import_module("jax.scipy.stats")
    ours, theirs = (WIDE[name](lib, number) for lib in (sw, jax))
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
