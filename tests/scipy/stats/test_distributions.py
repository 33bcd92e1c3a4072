"""Every distribution beside SciPy's, inside and outside of what it is defined on, and derivatives of its log."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import scipy.stats

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import enable_x64
from shardwise.scipy import stats

X = np.array([-1.5, 0.0, 0.2, 0.7, 1.0, 1.6, 3.0])
Q = np.array([0.05, 0.3, 0.5, 0.9])
K = np.array([-1.0, 0, 1, 2, 5, 1.5])
CASES: dict[str, tuple[Any, ...]] = {
    "uniform": (0.5, 2.0), "laplace": (0.5, 2.0), "logistic": (0.5, 2.0), "cauchy": (0.5, 2.0),
    "expon": (0.3, 2.0), "gamma": (2.5, 0.3, 2.0),
    "beta": (1.5, 2.5, -0.2, 2.0), "chi2": (3.0, 0.1, 2.0),
    "t": (2.5, 0.5, 2.0), "pareto": (1.5, -0.5, 1.2), "bernoulli": (0.3,),
    "poisson": (1.7, 0), "geom": (0.3, 0), "binom": (4, 0.3, 0), "nbinom": (3, 0.4, 0),
    "gennorm": (1.5,), "gumbel_l": (0.5, 2.0), "gumbel_r": (0.5, 2.0), "truncnorm": (-1.2, 1.1, 0.3, 1.2), "vonmises": (1.5,),
    "wrapcauchy": (0.4,), "betabinom": (4, 1.5, 2.5, 0),
}  # fmt: skip
DISCRETE = ("bernoulli", "poisson", "geom", "binom", "nbinom", "betabinom")


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_as_scipy(name: str) -> None:
    ours, theirs, args = (
        importlib.import_module(f"shardwise.scipy.stats.{name}"),
        getattr(scipy.stats, name),
        CASES[name],
    )
    for function in set(ours.__all__) - {"entropy"}:
        at = Q if function in ("ppf", "isf") else K if name in DISCRETE else X
        at = at[:-1] if name == "betabinom" else at  # it floors its argument, as JAX's does
        found = np.asarray(getattr(ours, function)(at, *args))
        np.testing.assert_allclose(
            found, getattr(theirs, function)(at, *args), rtol=1e-12, atol=1e-12, err_msg=function
        )
    if name not in DISCRETE:
        log = lambda x: ours.logpdf(x, *args)  # noqa: E731
        inside = 0.9
        slope = (np.asarray(log(inside + 1e-6)) - np.asarray(log(inside - 1e-6))) / 2e-6
        np.testing.assert_allclose(np.asarray(sw.grad(log)(inside)), slope, rtol=2e-8, atol=2e-9)


def test_entropy_of_counts() -> None:
    mu = np.array([0.0, 1e-3, 0.5, 3.0, 9.9, 50.0, 99.9, 100.0, 400.0])
    np.testing.assert_allclose(stats.poisson.entropy(mu, 0.5), scipy.stats.poisson.entropy(mu), rtol=5e-9, atol=1e-12)
    assert stats.poisson.entropy(np.ones((2, 1)), np.zeros(3)).shape == (2, 3)
    assert np.isnan(stats.poisson.entropy(-1.0))
    slope = (stats.poisson.entropy(2.0 + 1e-5) - stats.poisson.entropy(2.0 - 1e-5)) / 2e-5
    np.testing.assert_allclose(sw.grad(stats.poisson.entropy)(2.0), slope, rtol=2e-9)


def test_of_vectors() -> None:
    rng = np.random.default_rng(0)
    factor, mean, x = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal((5, 3))
    cov = factor @ factor.T + np.eye(3)
    normal: Any = scipy.stats.multivariate_normal
    np.testing.assert_allclose(
        np.asarray(stats.multivariate_normal.logpdf(x, mean, cov)), normal.logpdf(x, mean, cov), rtol=1e-12
    )
    np.testing.assert_allclose(
        np.asarray(stats.multivariate_normal.pdf(x, mean, 2.0)), normal.pdf(x, mean, 2.0), rtol=1e-12
    )
    stacked = stats.multivariate_normal.logpdf(x[0], mean, np.stack([cov, 2 * cov]))
    np.testing.assert_allclose(np.asarray(stacked), [normal.logpdf(x[0], mean, c) for c in (cov, 2 * cov)], rtol=1e-12)
    alpha, p = np.array([1.5, 2.0, 3.0]), np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(
        np.asarray(stats.dirichlet.logpdf(p, alpha)), scipy.stats.dirichlet.logpdf(p, alpha), rtol=1e-12
    )
    np.testing.assert_allclose(
        np.asarray(stats.dirichlet.pdf(p[:2], alpha)), scipy.stats.dirichlet.pdf(p, alpha), rtol=1e-12
    )
    assert float(stats.dirichlet.logpdf(jnp.array([0.7, 0.7, 0.2]), alpha)) == -np.inf
    with pytest.raises(ValueError, match="one-dimensional"):
        stats.dirichlet.logpdf(p, alpha[None])
    with pytest.raises(ValueError, match="incompatible shapes"):
        stats.multivariate_normal.logpdf(x, mean, np.eye(2))
    found = stats.multinomial.pmf(np.array([1, 2, 3]), 6, p)
    np.testing.assert_allclose(float(found), scipy.stats.multinomial.pmf([1, 2, 3], 6, p), rtol=1e-12)
    with pytest.raises(ValueError, match="integer type"):
        stats.multinomial.pmf(np.ones(3), 3, p)


def test_expon_near_its_end() -> None:
    x = np.array([1e-6, 1e-2, 0.5, 1.0, 20.0], np.float32)
    np.testing.assert_allclose(stats.expon.logcdf(x), scipy.stats.expon.logcdf(x.astype(np.float64)), rtol=1e-6)
    assert stats.expon.logcdf(-1.0) == -np.inf


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_ranks_of_nothing(method: str) -> None:
    assert stats.rankdata(np.zeros((0, 3)), method, axis=0).shape == (0, 3)


def test_truncated_far_out() -> None:
    x = np.array([5.9, 6.0, 6.3, 7.9])
    for function in ("logpdf", "logcdf", "logsf"):
        for sign in (1, -1):
            a, b = sorted((sign * 6.0, sign * 8.0))
            found = getattr(stats.truncnorm, function)(sign * x, a, b)
            expected = getattr(scipy.stats.truncnorm, function)(sign * x, a, b)
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_summaries(axis: Any) -> None:
    x = np.random.default_rng(1).integers(0, 4, (6, 5))
    ours, theirs = stats.mode(x, axis), scipy.stats.mode(x, axis)
    np.testing.assert_array_equal(np.asarray(ours.mode), theirs.mode)
    np.testing.assert_array_equal(np.asarray(ours.count), theirs.count)
    for method in ("average", "min", "max", "dense", "ordinal"):
        ranks = scipy.stats.rankdata(x, method, axis=axis)
        np.testing.assert_array_equal(np.asarray(stats.rankdata(x, method, axis=axis)), ranks)
    np.testing.assert_allclose(np.asarray(stats.sem(x, axis)), scipy.stats.sem(x, axis), rtol=1e-12)
    gaps = np.where(x == 1, np.nan, x)
    theirs = scipy.stats.sem(gaps, axis, nan_policy="omit")
    np.testing.assert_allclose(np.asarray(stats.sem(gaps, axis, nan_policy="omit")), np.asarray(theirs), rtol=1e-12)
    with pytest.raises(NotImplementedError, match="isnan"):
        stats.rankdata(x, nan_policy="omit")


@pytest.mark.parametrize("shape", [(9,), (2, 9)])
def test_kernel_density(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    samples, weights, points = rng.standard_normal(shape), rng.random(9), rng.standard_normal((*shape[:-1], 4))
    for method in (None, "silverman", 0.4):
        theirs, ours = scipy.stats.gaussian_kde(samples, method, weights), stats.gaussian_kde(samples, method, weights)
        np.testing.assert_allclose(np.asarray(sw.jit(lambda k, x: k(x))(ours, points)), theirs(points), rtol=1e-12)
        np.testing.assert_allclose(np.asarray(ours.logpdf(points)), theirs.logpdf(points), rtol=1e-12)
        other = stats.gaussian_kde(samples * 2), scipy.stats.gaussian_kde(samples * 2)
        np.testing.assert_allclose(float(ours.integrate_kde(other[0])), theirs.integrate_kde(other[1]), rtol=1e-12)
        mean, cov = np.ones(theirs.d), 0.3 * np.eye(theirs.d)
        np.testing.assert_allclose(
            float(ours.integrate_gaussian(mean, cov)), theirs.integrate_gaussian(mean, cov), rtol=1e-12
        )
    drawn = stats.gaussian_kde(samples).resample(sw.random.key(0), (4000,))
    assert drawn.shape == (theirs.d, 4000)
    np.testing.assert_allclose(drawn.mean(1), np.atleast_2d(samples).mean(1), atol=0.1)  # of 4,000 samples
    if theirs.d == 1:
        np.testing.assert_allclose(
            float(ours.integrate_box_1d(-1.0, 0.5)), theirs.integrate_box_1d(-1, 0.5), rtol=1e-12
        )
    else:
        with pytest.raises(ValueError, match="1D pdfs"):
            ours.integrate_box_1d(-1.0, 0.5)


def test_quantiles_of_arrays_are_not_weak() -> None:
    q = jnp.asarray(Q, jnp.float32)
    assert not stats.bernoulli.ppf(q, 0.3).weak_type
    assert stats.bernoulli.ppf(0.5, 0.3).weak_type


@pytest.mark.parametrize("function", [stats.multinomial.logpmf, stats.multinomial.pmf], ids=lambda f: f.__name__)
def test_multinomial_takes_arrays(function: Any) -> None:
    p = jnp.array([0.5, 0.5])
    for x, n in (((1, 2), 3), (jnp.array([1, 2]), [3])):
        with pytest.raises(TypeError, match="requires ndarray or scalar arguments"):
            function(x, n, p)
