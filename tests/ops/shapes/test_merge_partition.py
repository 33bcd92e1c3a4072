"""Reshapes of split arrays, every one of a table: dims that are merged, cut, or both, split over one axis of a mesh or over two."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

SHAPES = [(2, 8), (4, 4), (8, 2), (16,), (2, 4, 2), (2, 2, 4), (4, 2, 2), (1, 8, 2), (2, 1, 8), (1, 2, 8, 1)]
GRIDS = {"y": (1, 4), "x, y": (2, 4)}


def splits(shape, sizes):
    """The specs that divide `shape`: each axis, or both, on one dim."""
    for axes in (("x",), ("y",), ("x", "y"), ("y", "x")):
        ways = int(np.prod([sizes[a] for a in axes]))
        for d, n in enumerate(shape):
            if n % ways == 0:
                yield P(*[None] * d, axes)


@pytest.mark.parametrize("grid", GRIDS.values(), ids=list(GRIDS))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reshapes_of_split_arrays(shape, grid):
    sizes = dict(zip("xy", grid, strict=True))
    mesh = Mesh(np.array(sw.devices()[: grid[0] * grid[1]]).reshape(grid), ("x", "y"))
    x = np.arange(16, dtype=np.float32).reshape(shape)
    reshapes = [lambda x, s=s: 2 * x.reshape(s) for s in SHAPES]
    for spec in splits(shape, sizes):
        found = sw.jit(lambda x: [f(x) for f in reshapes])(sw.device_put(x, NamedSharding(mesh, spec)))
        for got, wanted in zip(found, SHAPES, strict=True):
            np.testing.assert_array_equal(got, 2 * x.reshape(wanted))


def test_a_constrained_result_of_two_dims_that_a_split_one_is_cut_into():
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(1, 4), ("x", "y"))
    for shape, wanted in itertools.permutations([(2, 8), (4, 4), (2, 4, 2)], 2):
        x = np.arange(16, dtype=np.float32).reshape(shape)
        d, e = (next(d for d, n in enumerate(s) if n % 4 == 0) for s in (shape, wanted))
        ins, outs = (NamedSharding(mesh, P(*[None] * d, "y")) for d in (d, e))
        found = sw.jit(lambda x, wanted=wanted: x.reshape(wanted), in_shardings=ins, out_shardings=outs)(x)
        np.testing.assert_array_equal(found, x.reshape(wanted))


@pytest.mark.parametrize(("along", "gathers"), [(True, [("all_gather", 8 * 32 * 64 * 4 * 7 // 8)]), (False, [])])
def test_merged_dims_that_are_wanted_whole_are_gathered_once(along, gathers):
    """A value in pieces is of use to who takes it in pieces; who needs all of it gets it as it lies."""
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    x = sw.ShapeDtypeStruct((8, 32, 64), np.float32, sharding=NamedSharding(mesh, P(None, None, "x")))

    def heads(x):
        merged = x.reshape(8, 32, 8, 8).transpose(0, 2, 1, 3).reshape(64, 32, 8)
        changed = jnp.cumsum(merged, 0) if along else 2 * merged
        return changed.reshape(8, 8, 32, 8).transpose(0, 2, 1, 3).reshape(8, 32, 64) + x

    transfers = sw.jit(heads).lower(x).compile().runtime_executable().transfers
    assert [(t.kind, t.bytes) for t in transfers] == gathers
