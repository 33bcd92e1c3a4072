"""Samples differentiate by the parameters of their distribution as JAX's do."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.numpy
import shardwise.random

SHAPE = (7,)
SAMPLERS = {
    "uniform": (lambda r, k, lo, hi: r.uniform(k, SHAPE, minval=lo, maxval=hi), (-0.5, 2.5)),
    "truncated_normal": (lambda r, k, lo, hi: r.truncated_normal(k, lo, hi, SHAPE), (-0.5, 1.5)),
    "gamma": (lambda r, k, a: r.gamma(k, a, SHAPE), (1.7,)),
    "gamma of a small shape": (lambda r, k, a: r.gamma(k, a, SHAPE), (0.3,)),
    "loggamma": (lambda r, k, a: r.loggamma(k, a, SHAPE), (0.3,)),
    "beta": (lambda r, k, a, b: r.beta(k, a, b, SHAPE), (0.7, 2.0)),
    "chisquare": (lambda r, k, a: r.chisquare(k, a, shape=SHAPE), (3.0,)),
    "t": (lambda r, k, a: r.t(k, a, SHAPE), (4.0,)),
    "pareto": (lambda r, k, a: r.pareto(k, a, SHAPE), (1.5,)),
    "rayleigh": (lambda r, k, a: r.rayleigh(k, a, SHAPE), (1.5,)),
    "lognormal": (lambda r, k, a: r.lognormal(k, a, SHAPE), (0.5,)),
    "weibull_min": (lambda r, k, a, b: r.weibull_min(k, a, b, SHAPE), (2.0, 1.5)),
}


def slopes(jax, name):
    """Tangents along each parameter, and the gradient of a weighted sum by all of them."""
    draw, given = SAMPLERS[name]
    jnp = jax.numpy
    parameters = tuple(jnp.float32(p) for p in given)
    function = lambda *p: draw(jax.random, jax.random.key(3), *p)  # noqa: E731
    weights = np.linspace(0.5, 1.5, *SHAPE).astype(np.float32)

    def both(*parameters):
        forward = [jax.jvp(function, parameters, unit)[1] for unit in units]
        return forward, jax.grad(lambda p: (function(*p) * weights).sum())(parameters)

    count = range(len(given))
    units = [tuple(jnp.float32(i == j) for j in count) for i in count]
    forward, backward = jax.jit(both)(*parameters)
    return [np.asarray(f) for f in (*forward, *backward)]


@pytest.mark.parametrize("name", SAMPLERS)
def test_as_jax(name):
    jax = pytest.importorskip("jax")
    for ours, theirs in zip(slopes(shardwise, name), slopes(jax, name), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)
