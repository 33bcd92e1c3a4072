"""Ops that do less on whole values than on parts: one process runs them on whole values; what separate devices would run is on record."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.ir import verify
from shardwise.passes.partition import partition
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.passes.layouts import run_propagation
from tests.passes.partitioned import GRID

X = np.random.default_rng(0).normal(size=(8, 256)).astype(np.float32)
CASES = [
    (lambda x: tuple(lax.top_k(x, 4)), "top_k", 2),
    (lambda x: jnp.argmax(x, 1), "argmax", 1),
    (lambda x: jnp.argmin(x, 1), "argmin", 1),
    (lambda x: jnp.cumsum(x, 1), "cumsum", 2),
    (lambda x: lax.cumlogsumexp(x, 1, reverse=True), "cumlogsumexp", 2),
]


def programs(f, spec):
    program, layouts = run_propagation(f, [f"8,256 {spec}"], None, dict(GRID.axis_sizes))
    in_dims = [layouts[v] for v in program.inputs]
    return partition(program, GRID, layouts, in_dims, [None] * len(program.outputs))


@pytest.mark.parametrize("f, name, times", CASES)
def test_both_programs(f, name, times):
    """Devices apart compute with their parts, then with what they have exchanged; together, with whole rows."""
    device_program, local, _ = programs(f, "-y")
    sizes = [
        [e.inputs[0].aval.shape[1] for e in verify(p).equations if e.op.name == name] for p in (device_program, local)
    ]
    assert sizes[0][0] == 64 and len(sizes[0]) == times
    assert sizes[1] == [256]
    assert [v.aval.shape for v in local.outputs] == [v.aval.shape for v in device_program.outputs]


@pytest.mark.parametrize("spec", ["--", "x-"])
def test_mostly_both_are_one(spec):
    device_program, local, _ = programs(lambda x: (*lax.top_k(x, 4), jnp.cumsum(x, 1)), spec)
    assert local is device_program


@pytest.mark.parametrize("f, name, times", CASES)
@pytest.mark.parametrize("spec", [P(None, "x"), P("y", "x"), P(None, ("y", "x"))])
def test_both_compute_the_same(f, name, times, spec):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    x = sw.device_put(X, NamedSharding(mesh, spec))
    in_a_loop = lambda x: lax.scan(lambda x, _: (x * 0.9, f(x)), x, None, 3)[1]  # noqa: E731
    for g in (f, in_a_loop):
        found = sw.jit(g)(x)
        with config.override("shardwise_stepped", True):
            stepped = sw.jit(g)(x)
        for one, other, want in zip(*map(sw.tree.leaves, (found, stepped, g(X))), strict=True):
            assert one.sharding == other.sharding
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(other, want, rtol=1e-5, atol=1e-5)
