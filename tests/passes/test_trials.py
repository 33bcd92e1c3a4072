"""Of the ways to partition an equation the one that sends the fewest bytes is taken, and only its equations are there."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.ir import ShapedArray, Var, verify
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.passes.grid import make_grid
from shardwise.passes.partition import Region
from shardwise.passes.split import Known
from shardwise.runtime import costs


def region(takes_seconds=False):
    grid = make_grid(tuple(sw.devices()[:8]), [(("x",), (8,))])
    return Region(grid, {}, known=Known(takes_seconds=takes_seconds))


def gathering(name, rows):
    """A way that gathers so many rows on each device, under a name of its own."""

    def way(region):
        x = Var(ShapedArray((rows, 16), np.dtype("float32")))
        region.values[name] = region.collective(
            all_gather_op, [x], ("x",), x.aval, {"sizes": (8,), "dim": 0, "tiled": True, "invariant": True}
        )

    return way


@pytest.mark.parametrize("order", [(4, 1, 2), (1, 2, 4), (2, 4, 1)])
def test_the_least_is_taken(order):
    found = region()
    found.cheapest(*[gathering(f"{n} rows", n) for n in order])
    (eqn,) = found.equations
    assert eqn.inputs[0].aval.shape == (1, 16) and set(found.values) == {"1 rows"}


def test_the_first_of_equals_is_taken():
    found = region()
    found.cheapest(gathering("first", 2), gathering("second", 2))
    assert set(found.values) == {"first"} and not found.known.close_calls


def test_close_calls_are_counted_and_the_second_best_taken_if_asked_for():
    rows = 64
    more = rows + 1
    assert more <= costs.CLOSE_CALL * rows
    for seconds, taken in ((False, "best"), (True, "next")):
        found = region(seconds)
        found.cheapest(gathering("best", rows), gathering("next", more))
        assert found.known.close_calls == 1 and set(found.values) == {taken}


def test_one_way_is_no_trial():
    found = region()
    found.cheapest(gathering("only", 3))
    assert set(found.values) == {"only"} and len(found.equations) == 1


def test_in_programs():
    x = sw.device_put(
        np.arange(64, dtype=np.float32)[::-1].copy(),
        sw.sharding.NamedSharding(sw.make_mesh((8,), ("x",)), sw.sharding.PartitionSpec("x")),
    )
    compiled = sw.jit(lambda x: lax.sort(x)).lower(x).compile()
    verify(compiled.runtime_executable().device_program)
    np.testing.assert_array_equal(compiled(x), np.arange(64))
