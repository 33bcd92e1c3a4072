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
    "t": (2.5, 0.5, 2.0), "pareto": (1.5, -0.5, 1.2), "bernoulli": (0.3, 0),
    "poisson": (1.7, 0), "geom": (0.3, 0), "binom": (4, 0.3, 0), "nbinom": (3, 0.4, 0),
}  # fmt: skip
DISCRETE = ("bernoulli", "poisson", "geom", "binom", "nbinom")


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
    for function in ours.__all__:
        at = Q if function in ("ppf", "isf") else K if name in DISCRETE else X
        found = np.asarray(getattr(ours, function)(at, *args))
        np.testing.assert_allclose(found, getattr(theirs, function)(at, *args), rtol=1e-7, atol=1e-12, err_msg=function)
    if name not in DISCRETE:
        log = lambda x: ours.logpdf(x, *args)  # noqa: E731
        inside = 0.9
        slope = (np.asarray(log(inside + 1e-6)) - np.asarray(log(inside - 1e-6))) / 2e-6
        np.testing.assert_allclose(np.asarray(sw.grad(log)(inside)), slope, rtol=1e-5, atol=1e-6)


def test_of_vectors() -> None:
    rng = np.random.default_rng(0)
    factor, mean, x = rng.standard_normal((3, 3)), rng.standard_normal(3), rng.standard_normal((5, 3))
    cov = factor @ factor.T + np.eye(3)
    normal: Any = scipy.stats.multivariate_normal
    np.testing.assert_allclose(
        np.asarray(stats.multivariate_normal.logpdf(x, mean, cov)), normal.logpdf(x, mean, cov), rtol=1e-9
    )
    np.testing.assert_allclose(
        np.asarray(stats.multivariate_normal.pdf(x, mean, 2.0)), normal.pdf(x, mean, 2.0), rtol=1e-9
    )
    stacked = stats.multivariate_normal.logpdf(x[0], mean, np.stack([cov, 2 * cov]))
    np.testing.assert_allclose(np.asarray(stacked), [normal.logpdf(x[0], mean, c) for c in (cov, 2 * cov)], rtol=1e-9)
    alpha, p = np.array([1.5, 2.0, 3.0]), np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(
        np.asarray(stats.dirichlet.logpdf(p, alpha)), scipy.stats.dirichlet.logpdf(p, alpha), rtol=1e-9
    )
    np.testing.assert_allclose(
        np.asarray(stats.dirichlet.pdf(p[:2], alpha)), scipy.stats.dirichlet.pdf(p, alpha), rtol=1e-9
    )
    assert float(stats.dirichlet.logpdf(jnp.array([0.7, 0.7, 0.2]), alpha)) == -np.inf
    with pytest.raises(ValueError, match="one-dimensional"):
        stats.dirichlet.logpdf(p, alpha[None])
    with pytest.raises(ValueError, match="incompatible shapes"):
        stats.multivariate_normal.logpdf(x, mean, np.eye(2))
