"""The op 'computed_window': a window of an array overwritten with what a group of elementwise equations makes of it and of other values.

    x.at[1:, :-1].add(a * b)      one loop reads the window, adds to it and writes it where it lies

Comes in: blocks of the array, and of the group's other operands. Goes out: a block with the window written, in the array's own memory if
the call is its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Equation, Literal, Program, ShapedArray, define_op
from shardwise.ir.op import Params, Types
from shardwise.ops.indexing.slice_updates import clamp_start
from shardwise.ops.indexing.windows import OverwritingKernel
from shardwise.runtime.address import address
from shardwise.runtime.copies import copy_dense
from shardwise.runtime.env import Env


def known_places(update: Equation) -> Shape | None:
    """Where the window of a `dynamic_update_slice` begins; None where that is not known, or devices have parts of the window."""
    array, window, *starts = update.inputs
    if any(update.params["operand_axes"] or ()) or not all(isinstance(s, Literal) for s in starts):
        return None
    sizes = zip(array.aval.shape, window.aval.shape, update.params["wrap"], strict=True)
    first = [int(s.value) for s in starts if isinstance(s, Literal)]
    return tuple(clamp_start(at, n, n - m, wrap) for at, (n, m, wrap) in zip(first, sizes, strict=True))


class GroupWindowKernel(OverwritingKernel):
    """The kernel of a program: slices that read the array's window, a group, and the update with its result. The array is the first input,
    the others are operands of the group.
    """

    def __init__(self, env: Env, program: Program) -> None:
        from shardwise.runtime.fused import GroupKernel  # start-up time: the compiler of loops

        *slices, group, update = program.equations
        starts, sizes = known_places(update), update.inputs[1].aval.shape
        assert starts is not None
        windows = {e.outputs[0] for e in slices}
        self._lead = env.lead
        # For each of the group's inputs the number of the operand, or None for the window.
        self._inputs = [None if v in windows else program.inputs.index(v) - 1 for v in group.inputs]  # type: ignore[arg-type]
        self._group = GroupKernel(env, group.params["program"])
        self._window = (..., *[slice(at, at + n) for at, n in zip(starts, sizes, strict=True)])
        # By how the blocks lie: what computes the window in place, or None.
        self._calls = Bounded[tuple[tuple[Shape, Shape], ...], Callable[..., None] | None](LAYOUTS)

    def run(self, blocks: tuple[Ndarray, ...], owned: bool) -> Ndarray:
        """`owned`: the kernel may overwrite the array."""
        lead, (array, *operands) = self._lead, blocks
        loops = np.broadcast_shapes(*[b.shape[:lead] for b in blocks])
        alike = loops == array.shape[:lead]
        whole = array if alike else np.broadcast_to(array, loops + array.shape[lead:])
        out = whole if owned and alike else copy_dense(whole)
        here = out[self._window]
        # Operands may be other parts of the array, which must not meet the window's new elements.
        apart = not any(np.may_share_memory(x, here) for x in operands)
        values = [here if i is None else operands[i] for i in self._inputs]
        call = self._in_place(values, here) if apart else None
        if call is None:
            (here[...],) = self._group(*values)
        else:
            call(*map(address, values), address(here))
        return out

    def _in_place(self, values: Sequence[Ndarray], here: Ndarray) -> Callable[..., None] | None:
        key = tuple([(x.shape, x.strides) for x in (*values, here)])
        if key not in self._calls:
            native = all(x.dtype.isnative for x in (*values, here))
            self._calls[key] = self._group.call_into(values, here, over=None in self._inputs) if native else None
        return self._calls[key]


def _type(*_: ShapedArray, program: Program) -> ShapedArray:
    return program.out_types[0]


def _compile(env: Env, in_types: Types, out_types: Types, params: Params) -> GroupWindowKernel:
    return GroupWindowKernel(env, params["program"])


# A pass inserts it in per-device programs.
computed_window_p = define_op("computed_window", type_rule=_type, compile=_compile, updates=True, local=True)
