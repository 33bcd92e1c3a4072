"""`StepStack`: the outputs of a loop's steps, in one array.

In: a block per step. Out: one block with the steps along its first dim.
"""

from __future__ import annotations

import numpy as np

from shardwise.base.dtypes import physical
from shardwise.base.shapes import Ndarray
from shardwise.ir import ShapedArray
from shardwise.runtime.blocks import with_dim_at


class StepStack:
    """One output of each step, in an array whose first dim in memory is the step."""

    __slots__ = ("length", "steps")

    def __init__(self, length: int) -> None:
        self.length = length
        self.steps: Ndarray | None = None

    def put(self, i: int, block: Ndarray) -> None:
        """Write the output of step `i`."""
        steps = self.steps
        if steps is None:
            steps = self.steps = _rows_like(block, self.length)
        elif steps.shape[1:] != block.shape:
            steps = self._grow(np.broadcast_shapes(steps.shape[1:], block.shape))
        steps[i] = block

    def _grow(self, shape: tuple[int, ...]) -> Ndarray:
        """From some step on the output varies over more devices."""
        assert self.steps is not None
        if self.steps.shape[1:] != shape:
            wider = np.empty((self.length, *shape), self.steps.dtype)
            wider[...] = self.steps
            self.steps = wider
        return self.steps

    def block(self, lead: int, aval: ShapedArray) -> Ndarray:
        """All steps, the step being the first dim behind the leading dims."""
        if self.steps is None:
            return np.empty((1,) * lead + aval.shape, physical(aval.dtype))
        return with_dim_at(self.steps, 0, lead)


def _rows_like(block: Ndarray, length: int) -> Ndarray:
    """An empty array of `length` blocks, each in the memory order of this one."""
    order = sorted(range(block.ndim), key=lambda d: -block.strides[d])
    rows = np.empty((length, *[block.shape[d] for d in order]), block.dtype)
    back = [0] * block.ndim
    for position, d in enumerate(order):
        back[d] = position
    return rows.transpose(0, *[b + 1 for b in back])
