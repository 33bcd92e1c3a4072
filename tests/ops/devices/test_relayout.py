"""Layouts of axes that change places: one exchange of what each device lacks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shardwise as sw
from shardwise.base import config
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

X = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)


def layouts(names):
    """All layouts of a matrix over these axes."""
    choices = [(), *[(a,) for a in names], *itertools.permutations(names, 2)]
    return [pair for pair in itertools.product(choices, repeat=2) if not set(pair[0]) & set(pair[1])]


@pytest.mark.parametrize("shape, names", [((4, 2), "xy"), ((2, 4), "xy"), ((2, 2, 2), "xyz")])
def test_values_of_all_pairs_of_layouts(shape, names):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(shape), tuple(names))
    pairs = list(itertools.permutations(layouts(names), 2))
    chosen = np.random.default_rng(0).permutation(len(pairs))[:40]
    kinds = set()
    for i in chosen:
        before, after = (NamedSharding(mesh, P(*spec)) for spec in pairs[i])
        placed, double = sw.device_put(X, before), sw.jit(lambda x: 2 * x, out_shardings=after)
        for shard in double(placed).addressable_shards:
            np.testing.assert_array_equal(shard.data, 2 * X[shard.index])
        kinds |= {t.kind for t in double.lower(placed).compile().runtime_executable().transfers}
    assert "relayout" in kinds


def test_bytes_of_axes_that_change_places():
    """A device has a half of what it shall have at most: no one sends more than a block."""
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    placed = sw.device_put(X, NamedSharding(mesh, P("x", "y")))
    changed = sw.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, P("y", "x")))
    (sent,) = changed.lower(placed).compile().runtime_executable().transfers
    assert (sent.kind, sent.bytes) == ("relayout", X.nbytes // 8)


def test_under_vmap_and_grad():
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    swap = lambda x: sw.lax.with_sharding_constraint(x * x, NamedSharding(mesh, P("y", "x")))  # noqa: E731
    placed = sw.device_put(X, NamedSharding(mesh, P("x", "y")))
    np.testing.assert_array_equal(sw.jit(sw.grad(lambda x: swap(x).sum()))(placed), 2 * X)
    many = np.stack([X, -X])
    got = sw.jit(sw.vmap(swap))(sw.device_put(many, NamedSharding(mesh, P(None, "x", "y"))))
    np.testing.assert_array_equal(got, many * many)


def test_device_by_device():
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    swap = sw.jit(lambda x: x + 1, out_shardings=NamedSharding(mesh, P("y", "x")))
    with config.override("shardwise_stepped", True):
        np.testing.assert_array_equal(swap(sw.device_put(X, NamedSharding(mesh, P("x", "y")))), X + 1)
