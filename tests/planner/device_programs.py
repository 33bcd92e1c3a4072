"""Device programs for tests: functions traced for one device, or partitioned over the axes of a mesh by hand."""

from __future__ import annotations

import numpy as np

from shardwise.ir import ShapedArray, bind, trace_program
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.all_to_all import all_to_all_op
from shardwise.ops.devices.halo_exchange import halo_exchange
from shardwise.ops.devices.reduce_scatter import psum_scatter_op
from shardwise.ops.rules.convert import as_array
from shardwise.passes.inline import inline_calls
from shardwise.passes.live_results import live_results
from shardwise.passes.simplify import common_subexpressions
from shardwise.planner.work import DeviceProgram


def array(*shape, dtype="float32"):
    return ShapedArray(shape, np.dtype(dtype))


def program_of(f, *types):
    """`f`, a function that gives a list, as a program without equal and dead values."""
    program, _ = trace_program(f, types)
    return live_results(common_subexpressions(inline_calls(program)))


def device_program(f, *types, donated=(), sizes=None):
    program = program_of(f, *types)
    dims = [tuple(((),) * v.aval.ndim for v in vs) for vs in (program.inputs, program.outputs)]
    names = tuple(f"args[{i}]" for i in range(len(program.inputs)))
    shapes = tuple(v.aval.shape for v in program.inputs)
    return DeviceProgram(program, sizes or {}, names, dims[0], dims[1], shapes, tuple(donated))


def names(group):
    return [e.op.name for e in group.equations]


def varying(*shape, dtype="float32"):
    """The type of a value that differs along the axis 'd'."""
    return ShapedArray(shape, np.dtype(dtype), vma=frozenset({"d"}))


def gathered(x, n):
    """`x` of each of `n` devices along the axis 'd', one after the other."""
    return bind(all_gather_op, x, axes=("d",), sizes=(n,), dim=0, tiled=True, groups=None, invariant=True)


def scattered(x, n):
    """Each of `n` devices' part of the sum of `x` along the axis 'd'."""
    return bind(psum_scatter_op, x, axes=("d",), sizes=(n,), dim=0, tiled=True, groups=None)


def exchanged(x, n):
    """Columns for rows: each of `n` devices gets the others' parts of its columns."""
    return bind(all_to_all_op, x, axes=("d",), sizes=(n,), split=1, concat=0, tiled=True, groups=None)


def shifted(x, n):
    """Rows of `n` devices, each one row further round: a row comes from a neighbour."""
    rows = x.shape[0]
    total = n * rows
    pieces = ((0, total - 1, 0, 1), (0, 0, 1, total - 1))
    window = dict(dim=0, step=rows, start=0, width=rows, pieces=pieces, split=(True,))
    return bind(halo_exchange, x, as_array(np.float32(0)), axes=("d",), sizes=(n,), **window)
