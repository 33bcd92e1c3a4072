"""Blocks that print: a shard_map called outside of jit shows the value that each device has.

The body is traced as ever. Only when a traced block is printed does what led to it run, once for all devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.array import ArrayImpl
from shardwise.base import config
from shardwise.ir import Array, Program, ProgramTrace, bind, eagerly, eval_program, live_equations, trace_program
from shardwise.ir.trace import ProgramTracer
from shardwise.ops.broadcast import expand_dims
from shardwise.sharding import Mesh
from shardwise.transforms.shard_map_scope import DimAxes, body_scope


class BlockTrace(ProgramTrace):
    """Records a body whose arguments have values; all axes of its mesh are manual."""

    __slots__ = ("call", "in_dims", "mesh", "values")

    def __init__(self, name: str, mesh: Mesh, values: Sequence[Array], in_dims: Sequence[DimAxes], call: Any) -> None:
        super().__init__(name)
        self.mesh = mesh
        self.values = tuple(values)
        self.in_dims = tuple(in_dims)
        self.call = call  # the op that runs a body

    def show(self, x: ProgramTracer) -> str:
        """The block of each device, in the mesh's order."""
        names = f"({', '.join(self.mesh.axis_names)},)"
        blocks = self._blocks(x)
        return "\n".join(
            f"On {device} at mesh coordinates {names} = {at}:\n{blocks[at]}\n"
            for at, device in np.ndenumerate(self.mesh.devices)
        )

    def _blocks(self, x: ProgramTracer) -> np.ndarray[Any, Any]:
        """All blocks in one array, the axes of the mesh first."""
        consts = [self.captured_vars[id(c)] for c in self.captured]
        whole = Program((*consts, *self.inputs), tuple(self.equations), (x.variable,), len(consts), self.name)
        silent = tuple(e for e in whole.equations if not e.op.has_effects(e.params))
        program = live_equations(Program(whole.inputs, silent, whole.outputs, whole.num_consts, whole.name))
        axes = self.mesh.axis_names
        manual = frozenset(axes)

        def stacked(*blocks: Any) -> list[Any]:
            return [expand_dims(eval_program(program, blocks)[0], tuple(range(len(axes))))]

        with eagerly(), body_scope(self.mesh, manual, False):
            body, _ = trace_program(stacked, [v.aval for v in program.inputs], self.name)
            captured = tuple(((),) * c.aval.ndim for c in self.captured)
            dims = (*((a,) for a in axes), *((),) * x.aval.ndim)
        with eagerly():
            out = bind(self.call, *self.captured, *self.values, program=body, mesh=self.mesh, manual=manual,
                       in_dims=(*captured, *self.in_dims), out_dims=(dims,), check=False)[0]  # fmt: skip
        return np.asarray(out)


def block_trace(name: str, mesh: Any, manual: frozenset[str], values: Sequence[Array], in_dims: Sequence[DimAxes],
                call: Any) -> ProgramTrace:  # fmt: skip
    """The trace of a body: one that can show blocks if the arguments are at hand and every axis is manual."""
    shows = isinstance(mesh, Mesh) and manual == set(mesh.axis_names) and all(type(v) is ArrayImpl for v in values)
    if not shows or config.jax_disable_jit:
        return ProgramTrace(name)
    return BlockTrace(name, mesh, values, in_dims, call)
