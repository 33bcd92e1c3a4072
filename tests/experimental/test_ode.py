"""Differential equations with known solutions, and derivatives of what is integrated."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import enable_x64
from shardwise.experimental.ode import odeint
from shardwise.test_util import check_grads

TIMES = np.linspace(0.0, 2.0, 5)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


def test_trees_and_jit() -> None:
    turn = lambda y, t, w: {"a": w * y["b"], "b": -w * y["a"]}  # noqa: E731
    start = {"a": jnp.zeros(2), "b": jnp.ones(2)}
    ys = sw.jit(lambda w: odeint(turn, start, TIMES, w))(3.0)
    np.testing.assert_allclose(np.asarray(ys["a"]), np.sin(3 * TIMES)[:, None] * np.ones(2), atol=1e-6)
    np.testing.assert_allclose(np.asarray(ys["b"]), np.cos(3 * TIMES)[:, None] * np.ones(2), atol=1e-6)
    many = sw.vmap(lambda y: odeint(lambda y, t: -y, y, TIMES))(jnp.arange(3.0))
    np.testing.assert_allclose(np.asarray(many), np.arange(3.0)[:, None] * np.exp(-TIMES), atol=1e-6)


def test_derivatives() -> None:
    def last(y, t, damping):
        pull = lambda y, t, c: jnp.stack([y[1], -c * y[1] - jnp.sin(y[0])])  # noqa: E731
        return odeint(pull, y, t, damping, rtol=1e-10, atol=1e-10)[-1]

    check_grads(
        last, (jnp.asarray([1.0, 0.5]), jnp.asarray([0.0, 0.4, 1.0]), 0.3), 1, modes=["rev"], rtol=1e-5, atol=1e-6
    )
    closed = lambda a: odeint(lambda y, t: -a * y, jnp.asarray(1.0), jnp.asarray(TIMES))[-1]  # noqa: E731
    np.testing.assert_allclose(float(sw.grad(closed)(0.7)), -2 * np.exp(-1.4), rtol=1e-6)


def test_refuses_other_arguments() -> None:
    with pytest.raises(TypeError, match="array of floats"):
        odeint(lambda y, t: y, jnp.ones(()), np.arange(3))
    with pytest.raises(TypeError, match="must be arrays or scalars"):
        odeint(lambda y, t, a: y, jnp.ones(()), TIMES, "a")
