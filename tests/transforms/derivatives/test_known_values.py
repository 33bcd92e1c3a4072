"""Functions whose result's shape depends on values, in eager code that is differentiated: the values are known there."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp

X = [1.0, 3.0, 2.0, 0.0, 1.0]
# A function of X, and its gradient.
FUNCTIONS = {
    "nonzero": (lambda x: (x[jnp.nonzero(x)] ** 2).sum(), [2, 6, 4, 0, 2]),
    "where": (lambda x: (x[jnp.where(x)] ** 3).sum(), [3, 27, 12, 0, 3]),
    "flatnonzero": (lambda x: x[jnp.flatnonzero(x)].sum(), [1, 1, 1, 0, 1]),
    "argwhere": (lambda x: jnp.argwhere(x).sum() * x.sum(), [7, 7, 7, 7, 7]),
    "mask": (lambda x: (x[x > 1] ** 2).sum(), [0, 6, 4, 0, 0]),
    "extract": (lambda x: (jnp.extract(x > 1, x) ** 2).sum(), [0, 6, 4, 0, 0]),
    "trim_zeros": (lambda x: (jnp.trim_zeros(x[:4]) ** 2).sum(), [2, 6, 4, 0, 0]),
    "unique": (lambda x: (jnp.unique(x) ** 2).sum(), [2, 6, 4, 0, 0]),
    "union1d": (lambda x: (jnp.union1d(x, jnp.arange(6.0)) ** 2).sum(), [2, 6, 4, 0, 0]),
    "setdiff1d": (lambda x: (jnp.setdiff1d(x, jnp.arange(2.0)) ** 2).sum(), [0, 6, 4, 0, 0]),
    "arange": (lambda x: (jnp.arange(x[0], x[1] + 2) * x[1]).sum(), [0, 10, 0, 0, 0]),
    "roots": (lambda x: jnp.roots(x[:2]).real.sum(), [3, -1, 0, 0, 0]),
    "bincount": (lambda x: (jnp.bincount(jnp.array([0, 1, 1, 2, 2]), x) ** 2).sum(), [2, 10, 10, 2, 2]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_known_while_eager_code_is_differentiated(name):
    fun, want = FUNCTIONS[name]
    x = jnp.array(X)
    np.testing.assert_allclose(jax.grad(fun)(x), want, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(fun, (x,), (x,))[1], np.dot(want, X), rtol=1e-6)
    assert jax.linearize(fun, x)[0] == fun(x)


def test_they_are_not_known_in_compiled_code():
    with pytest.raises(jax.errors.ConcretizationTypeError, match="unique's result"):
        jax.grad(jax.jit(lambda x: jnp.unique(x).sum()))(jnp.array(X))
