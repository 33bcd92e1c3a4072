"""Arrays whose elements are all one scalar are made where they are needed, whatever moves or computes with them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + jnp.roll(jnp.zeros_like(x), 1, 0),
        lambda x: x + jnp.roll(jnp.exp(-jnp.ones_like(x)), (1, 1), (0, 1)),
        lambda x: (x[1:-1] + jnp.zeros_like(x)[2:]).sum(),
        lambda x: x + jnp.pad(jnp.zeros((14, 8), x.dtype), ((1, 1), (0, 0))),
        lambda x: x + jnp.concatenate([jnp.ones((4, 8)), jnp.ones((12, 8))]).astype(x.dtype),
        lambda x: x.T @ lax.stop_gradient(jnp.full_like(x, 0.5)),
        lambda x: x * jnp.full_like(x, x.sum())[::-1][3],
        lambda x: x + lax.fori_loop(0, 3, lambda i, s: s + jnp.roll(jnp.full_like(x, 2.0), 1, 0), jnp.zeros_like(x)),
        lambda x: x + jnp.zeros_like(x).at[1:].set(jnp.zeros_like(x)[:-1]),
        sw.grad(lambda x: (x * jnp.roll(jnp.ones_like(x), 1, 0)).sum()),
    ],
)  # fmt: skip
def test_no_gather(f):
    split = sw.device_put(X, NamedSharding(MESH, P("x", "y")))
    np.testing.assert_allclose(sw.jit(f)(split), sw.jit(f)(X), rtol=1e-5)
    kinds = {t.kind for t in sw.jit(f).lower(split).compile().runtime_executable().transfers}
    assert kinds <= {"all_reduce"}


def test_different_scalars_side_by_side():
    """Two fills joined are computed where the program joins them: a choice by position would cost more."""
    f = lambda x: x + jnp.concatenate([jnp.zeros((4, 8)), -jnp.zeros((4, 8)), jnp.ones((8, 8))]).astype(x.dtype)  # noqa: E731
    split = sw.device_put(X, NamedSharding(MESH, P("x", "y")))
    np.testing.assert_array_equal(sw.jit(f)(split), sw.jit(f)(X))


def test_signs_of_zeros_and_empty_arrays():
    def f(x):
        zeros = -jnp.zeros_like(x)
        return zeros[1:], jnp.zeros_like(x)[3:3] + x[3:3], jnp.roll(zeros, 1, 0)

    got = sw.jit(f)(sw.device_put(X, NamedSharding(MESH, P("x", "y"))))
    for g, w in zip(got, sw.jit(f)(X), strict=True):
        assert g.shape == w.shape
        np.testing.assert_array_equal(np.signbit(g), np.signbit(w))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pads", [(0, 0), (2, 1), (0, -2), (-2, 0), (-1, -1), (-8, 0)])
def test_windows_larger_than_their_array_need_nothing(stride, pads):
    x = np.arange(24, dtype=np.float32).reshape(3, 1, 8)

    def f(v):
        return lax.conv_general_dilated(v, v, (stride,), [pads], rhs_dilation=(2,))

    split = sw.device_put(x, NamedSharding(MESH, P(None, None, ("x", "y"))))
    found, slope = sw.jit(f)(split), sw.jit(sw.grad(lambda v: f(v).sum() + v.sum()))(split)
    assert found.shape == f(x).shape == (3, 3, 0)
    np.testing.assert_array_equal(slope, np.ones_like(x))


def test_branches_and_loops_over_no_elements_are_run_for_their_effects():
    printed = []
    empty = sw.device_put(np.zeros((0, 8), np.float32), NamedSharding(MESH, P("x", "y")))

    def step(i, v):
        sw.debug.callback(lambda i: printed.append(int(i)), i)
        return v + 1

    assert sw.jit(lambda v: lax.fori_loop(0, 3, step, v))(empty).shape == (0, 8)
    assert printed == [0, 1, 2]
