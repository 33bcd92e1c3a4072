"""One window of updates, put or combined into an operand: `x.at[i].set(v)`, `x.at[0, :, i].add(v)`, as writes into caches are.

Comes in: the numbers of the only position. Goes out: the operand with a slice of it written; nothing else is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ops.indexing.window_numbers import ScatterDimensionNumbers, scatter_window_dims
from shardwise.runtime.copies import copy_dense

Ints = tuple[int, ...]


class OneWindow:
    """Writes of a window of `update` shape into operands of `shape`, with `lead` loop dims in front, along which positions are the same."""

    def __init__(
        self,
        lead: int,
        shape: Ints,
        update: Ints,
        numbers: ScatterDimensionNumbers,
        *,
        wrap: bool,
        clip: bool,
        combine: Callable[..., Any] | None,
    ) -> None:
        """`wrap`: negative numbers count from the end. `clip`: windows out of bounds are moved inside, else dropped."""
        sizes = [1] * len(shape)
        for d, u in zip(scatter_window_dims(numbers, len(shape)), numbers.update_window_dims, strict=True):
            sizes[d] = update[u]
        self._lead, self._shape, self._wrap, self._clip, self._combine = lead, shape, wrap, clip, combine
        self._sizes = tuple(sizes)
        self._starts = [(lead + d, shape[d], shape[d] - sizes[d]) for d in numbers.scatter_dims_to_operand_dims]
        self._window = [*(slice(None) for _ in range(lead)), *(slice(0, n) for n in sizes)]

    def write_window(self, operand: Ndarray, numbers: Sequence[int], update: Ndarray, owned: bool) -> Ndarray:
        """The operand, written over if `owned`, or a copy of it, with the window at these numbers of the position."""
        lead, window = self._lead, self._window.copy()
        loops = operand.shape[:lead]
        if update.shape[:lead] != loops:
            loops = np.broadcast_shapes(loops, update.shape[:lead])
            if operand.shape[:lead] != loops:
                owned, operand = False, np.broadcast_to(operand, loops + self._shape)
        for start, (axis, n, last) in zip(numbers, self._starts, strict=True):
            if self._wrap and start < 0:
                start += n
            if not 0 <= start <= last:
                if not self._clip:
                    return operand
                start = min(max(start, 0), last)
            window[axis] = slice(start, start + window[axis].stop)
        out = operand if owned else copy_dense(operand)
        at = tuple(window)
        update = update.reshape(update.shape[:lead] + self._sizes)
        out[at] = update if self._combine is None else self._combine(out[at], update)
        return out
