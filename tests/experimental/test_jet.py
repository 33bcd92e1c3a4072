"""Taylor coefficients along curves."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental.jet import jet


def test_coefficients() -> None:
    value, series = jet(jnp.sin, (0.5,), ((1.0, 0.0, 0.0),))
    np.testing.assert_allclose(value, math.sin(0.5), rtol=1e-6)
    np.testing.assert_allclose(np.array(series), [math.cos(0.5), -math.sin(0.5), -math.cos(0.5)], rtol=1e-6)


def test_trees_under_jit_and_vmap() -> None:
    f = lambda a, b: {"product": a * b, "exp": jnp.exp(a)}  # noqa: E731
    run = lambda a: jet(f, (a, 2.0), ([1.0, 0.0], [1.0, 0.5]))  # noqa: E731
    value, series = sw.jit(sw.vmap(run))(np.ones(2, np.float32))
    np.testing.assert_array_equal(value["product"], [2, 2])
    np.testing.assert_array_equal(np.array(series["product"]), [[3, 3], [2.5, 2.5]])
    np.testing.assert_allclose(np.array(series["exp"]), np.full((2, 2), math.e), rtol=1e-6)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="lengths"):
        jet(jnp.add, (1.0, 2.0), ([1.0], [1.0, 0.0]))
    with pytest.raises(ValueError, match="shape"):
        jet(jnp.sin, (1.0,), ([np.ones(3)],))
    with pytest.raises(ValueError, match="series for each"):
        jet(jnp.sin, (1.0,), ())


def test_taylor_coefficients():
    f = lambda x, y: jnp.sin(x) * jnp.exp(y)  # noqa: E731
    derivatives = ((1.0, 0.5, 0.6), (0.7, 0.1, 0.3))
    coefficients = tuple(tuple(d / math.factorial(k) for k, d in enumerate(s, start=1)) for s in derivatives)
    value, series = jet(f, (0.3, 0.2), derivatives)
    same, scaled = jet(f, (0.3, 0.2), coefficients, factorial_scaled=False)
    assert float(value) == float(same)
    np.testing.assert_allclose([d / math.factorial(k) for k, d in enumerate(series, start=1)], scaled, rtol=1e-6)
