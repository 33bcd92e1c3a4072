"""Blocks with values: in a shard_map called outside of jit, the body can print blocks and branch on values that all devices share.

The body is traced as usual. When a traced block is printed, or converted to a bool or number, the equations that compute it
run, once for all devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.shapes import DimAxes
from shardwise.engine.array import ArrayImpl
from shardwise.ir import (
    Array,
    Literal,
    Program,
    ProgramTrace,
    ProgramTracer,
    ShapedArray,
    Tracer,
    bind,
    eagerly,
    eval_program,
    live_equations,
    recording_trace,
    trace_program,
)
from shardwise.ir.op import Op
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.sharding import Mesh
from shardwise.transforms.manual.shard_map_marks import Marks
from shardwise.transforms.manual.shard_map_scope import body_scope


class BlockTracer(ProgramTracer):
    """A traced block. If its checked type says that it is the same on all devices, Python can get its value."""

    __slots__ = ()

    def _agreed(self) -> Any:
        trace = self.owner
        assert isinstance(trace, BlockTrace)
        return trace.agreed(self)

    def __bool__(self) -> bool:
        value = self._agreed()
        return super().__bool__() if value is None else bool(value)

    def __int__(self) -> int:
        value = self._agreed()
        return super().__int__() if value is None else int(value)

    def __float__(self) -> float:
        value = self._agreed()
        return super().__float__() if value is None else float(value)

    def __complex__(self) -> complex:
        value = self._agreed()
        return super().__complex__() if value is None else complex(value)

    def __index__(self) -> int:
        value = self._agreed()
        return super().__index__() if value is None else value.__index__()

    def item(self, *args: Any) -> Any:
        """The Python number of a block that is the same on all devices."""
        value = self._agreed()
        return super().item(*args) if value is None else value.item(*args)


class BlockTrace(ProgramTrace):
    """The trace of a body whose arguments have values and whose mesh axes are all manual. `check`: whether types are checked."""

    __slots__ = ("call", "check", "in_dims", "mesh", "values")

    def __init__(
        self, name: str, mesh: Mesh, values: Sequence[Array], in_dims: Sequence[DimAxes], call: Any, check: bool
    ) -> None:
        super().__init__(name)
        self.check = check
        self.mesh = mesh
        self.values = tuple(values)
        self.in_dims = tuple(in_dims)
        self.call = call  # the op that runs a body

    def new_arg(self, aval: ShapedArray, name: str = "") -> BlockTracer:
        """A fresh input of the program."""
        return BlockTracer(self, super().new_arg(aval, name).variable)

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        outs = [BlockTracer(self, v) for v in self.emit(op, tuple(self.atom(a) for a in args), params)]
        return outs if op.multiple_results else outs[0]

    def constant(self, value: Array | Literal) -> Array:
        """A value known now as one of the body."""
        return value if isinstance(value, Tracer) else BlockTracer(self, self.atom(value))

    def agreed(self, x: ProgramTracer) -> np.ndarray[Any, Any] | None:
        """The value that all devices share; None if their values may differ or the body has ended."""
        if x.aval.vma or not self.check or self.closed:
            return None
        return next(block for _, block in self._blocks(x))

    def show(self, x: ProgramTracer) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The block of each device of this process, in the mesh's order."""
        names = f"({', '.join(self.mesh.axis_names)},)"
        return "\n".join(
            f"On {self.mesh.devices[at]} at mesh coordinates {names} = {at}:\n{block}\n"
            for at, block in self._blocks(x)
        )

    def _blocks(self, x: ProgramTracer) -> Iterator[tuple[tuple[int, ...], np.ndarray[Any, Any]]]:
        """The blocks of this process's devices, with their places on the mesh, in its order."""
        consts = [self.captured_vars[id(c)] for c in self.captured]
        whole = Program((*consts, *self.inputs), tuple(self.equations), (x.variable,), len(consts), self.name)
        silent = tuple(e for e in whole.equations if not e.op.has_effects(e.params))
        program = live_equations(Program(whole.inputs, silent, whole.outputs, whole.num_consts, whole.name))
        axes = self.mesh.axis_names
        manual = frozenset(axes)

        def stack_blocks(*blocks: Any) -> list[Any]:
            return [expand_dims(eval_program(program, blocks)[0], tuple(range(len(axes))))]

        with eagerly(), body_scope(self.mesh, manual, False):
            body, _ = trace_program(stack_blocks, [v.aval for v in program.inputs], self.name)
            captured_dims = tuple(((),) * c.aval.ndim for c in self.captured)
            dims = (*((a,) for a in axes), *((),) * x.aval.ndim)
        with eagerly():
            out = bind(
                self.call,
                *self.captured,
                *self.values,
                program=body,
                mesh=self.mesh,
                manual=manual,
                in_dims=(*captured_dims, *self.in_dims),
                out_dims=(dims,),
                out_marks=(Marks(),),
                check=False,
                era=None,
            )[0]
        first = (0,) * len(axes)
        shards = {tuple(s.start or 0 for s in shard.index[: len(axes)]): shard for shard in out.addressable_shards}
        for at in sorted(shards):
            yield at, np.asarray(shards[at].data)[first]


def block_trace(
    name: str,
    mesh: Any,
    manual: frozenset[str],
    values: Sequence[Array],
    in_dims: Sequence[DimAxes],
    call: Any,
    check: bool,
) -> ProgramTrace:
    """The trace of a body; its blocks have values if the arguments are concrete and every axis is manual."""
    shows = (
        isinstance(mesh, Mesh) and manual == frozenset(mesh.axis_names) and all(type(v) is ArrayImpl for v in values)
    )
    if not shows or config.jax_disable_jit:
        return recording_trace(name)
    return BlockTrace(name, mesh, values, in_dims, call, check)
