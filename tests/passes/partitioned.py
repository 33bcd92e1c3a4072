"""Functions partitioned over a grid of eight devices, as the tests of the partitioner look at them."""

from __future__ import annotations

import shardwise as sw
from shardwise.ir import verify
from shardwise.passes.grid import make_grid
from shardwise.passes.partition import partition
from shardwise.passes.transfers import transfers_of
from tests.passes.layouts import layout, run_propagation

GRID = make_grid(sw.devices(), [(("x", "y"), (2, 4))])


def parts(f, args, outs=None):
    """The per-device program of `f` for arguments like ``8,8 xy``, and its transfers."""
    program, layouts = run_propagation(f, args, outs, dict(GRID.axis_sizes))
    in_dims = [layouts[v] for v in program.inputs]
    wanted = [None] * len(program.outputs) if outs is None else [None if o is None else layout(o) for o in outs]
    local, out_dims, _ = partition(program, GRID, layouts, in_dims, wanted)
    return verify(local), out_dims, transfers_of(local, GRID.axis_sizes)


def names(program):
    return [e.op.name for e in program.equations]
