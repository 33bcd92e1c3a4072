"""Reshapes that share out a split dim over two dims: the axis is cut in two, and nothing moves."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("d", "m"))
X = np.arange(4 * 8 * 16, dtype=np.float32).reshape(4, 8, 16)


def kinds(f, *args):
    return [t.kind for t in sw.jit(f).lower(*args).compile().runtime_executable().transfers]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.reshape(4, 2, 4, 16) * 2,
        lambda x: (x.reshape(4, 2, 4, 16) * 2).reshape(4, 8, 16),
        lambda x: sw.vmap(lambda r: r.reshape(2, 4, 16) + 1)(x),
    ],
)
def test_groups_of_heads_stay_where_they_are(f):
    split = sw.device_put(X, NamedSharding(MESH, P("d", "m")))
    np.testing.assert_array_equal(sw.jit(f)(split), f(sw.numpy.asarray(X)))
    assert kinds(f, split) == []


def test_a_derivative_through_groups():
    def loss(x):
        grouped = x.reshape(4, 2, 4, 16)
        return (grouped.sum(2) ** 2).sum()

    split = sw.device_put(X, NamedSharding(MESH, P("d", "m")))
    np.testing.assert_allclose(sw.jit(sw.grad(loss))(split), sw.grad(loss)(X), rtol=1e-6)
    assert set(kinds(sw.grad(loss), split)) == {"all_reduce"}


def test_dims_that_share_no_part_with_the_axis_are_gathered():
    x = np.arange(12 * 5, dtype=np.float32).reshape(12, 5)
    split = sw.device_put(x, NamedSharding(MESH, P("m")))
    f = lambda x: x.reshape(3, 4, 5) + 1  # noqa: E731  3 takes no part of 4
    np.testing.assert_array_equal(sw.jit(f)(split), x.reshape(3, 4, 5) + 1)


def test_constraints_on_other_values_name_whole_axes():
    def f(x):
        y = x.reshape(4, 2, 4, 16).transpose(1, 0, 2, 3)
        return sw.lax.with_sharding_constraint(y * 2, NamedSharding(MESH, P(None, None, "m")))

    split = sw.device_put(X, NamedSharding(MESH, P("d", "m")))
    out = sw.jit(f)(split)
    np.testing.assert_array_equal(out, X.reshape(4, 2, 4, 16).transpose(1, 0, 2, 3) * 2)
    assert out.sharding.is_equivalent_to(NamedSharding(MESH, P(None, None, "m")), 4)
