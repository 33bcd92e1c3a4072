"""Collectives that move elements within a process give the same block by one turn as axis by axis."""

import itertools
import math

import numpy as np
import pytest

from shardwise.ops.devices import all_gather, all_to_all
from shardwise.runtime.env import Env

GRID = {"x": 2, "y": 3, "z": 2}
ENV = Env(tuple(GRID), tuple(GRID.values()), 1)  # in a vmap
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axes", [axes for n in (1, 2, 3) for axes in itertools.permutations(GRID, n)])
def test_turns(axes):
    sizes = tuple(GRID[a] for a in axes)
    many = math.prod(sizes)
    lead = (*(n if a in axes or a == "x" else 1 for a, n in GRID.items()), 2)
    for tiled, one, other in itertools.product((True, False), range(3), range(3)):
        given = {"axes": axes, "sizes": sizes, "tiled": tiled}
        shape = [2, 3, 4]
        check(all_gather.all_gather_op, all_gather, {**given, "dim": one}, (*lead, *shape))
        shape[one] = many * (1 + tiled)
        check(all_to_all.all_to_all_op, all_to_all, {**given, "split": one, "concat": other}, (*lead, *shape))


def check(op, module, params, shape):
    x = RNG.integers(0, 1 << 30, shape)
    np.testing.assert_array_equal(op.compile(ENV, (), (), params)(x), module._kernel(ENV, x, **params))
