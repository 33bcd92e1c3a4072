"""Where sorted runs are cut so that their pieces, merged, are equal parts of the whole: found without merging anything.

    runs      [1 4 7 9]  [2 2 8 8]  [3 5 6 6]
    cuts      [1|4 7|9]  [2 2|8 8]  [3|5 6 6]      -> 1 2 2 3, then 4 5 6 6 7 ... as many in each part

All cuts are searched together. In each round every run shows a few evenly spaced elements of the window in which its cut lies; the
order of all that are shown narrows the windows to about an eighth, whatever the elements are. Of equal elements those of earlier
runs come first, so that the merged pieces are what a stable sort of everything gives.

Comes in: the runs of this process, and a function that gathers what all processes show. Goes out: the cuts of all runs, the same on
all processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Block = np.ndarray[Any, Any]

FIRST = 128  # elements that a run shows in the first round, for all cuts together
LATER = 32  # and for each cut in a later one


def even_cuts(keys: Sequence[Block], count: int, mine: Sequence[int], gather: Callable[[Block], Block]) -> Block:
    """The cuts of `count` sorted runs into as many parts of the size of a run: int [run, row, cut], 0 and the size included.

    `keys` are what the runs of this process are sorted by, the most significant first, each [run, row, position]; these are the runs
    `mine`. ``gather`` brings together an array [own run, ...] of each process as [run, ...].
    """
    rows, size = keys[0].shape[1:]
    wanted = np.arange(1, count) * size  # elements in front of each inner cut
    low = np.zeros((count, rows, 1), np.intp)
    high = np.full_like(low, size)
    most = FIRST
    while (high > low).any():
        step = np.maximum(-(-(high - low) // most), 1)
        at = low[..., None] + np.arange(1, most + 1) * step[..., None] - 1
        shown = np.minimum(at[mine], size - 1).reshape(len(mine), rows, -1)
        samples = [gather(np.take_along_axis(k, shown, 2)).reshape(at.shape) for k in keys]
        low, high = _narrowed(samples, at < high[..., None], step, low, high, wanted)
        most = LATER
    ends = np.zeros((count, rows, 1), np.intp)
    return np.concatenate([ends, low, ends + size], axis=2)


def _narrowed(
    samples: Sequence[Block], valid: Block, step: Block, low: Block, high: Block, wanted: Block
) -> tuple[Block, Block]:
    """The windows [run, row, cut] that follow from samples [run, row, cut, place], every `step` elements of the windows before."""
    count, rows, cuts, most = valid.shape
    together = lambda x: np.moveaxis(x, 0, 2).reshape(rows, cuts, count * most)  # noqa: E731
    order = np.lexsort([*[together(k) for k in samples[::-1]], ~together(valid)])
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(count * most), 2)
    place = np.where(valid, np.moveaxis(place.reshape(rows, cuts, count, most), 2, 0), count * most)

    def sorted_along(x: Block) -> Block:
        return np.take_along_axis(together(np.broadcast_to(x, valid.shape)), order, 2)

    # Up to a sample, itself included, come at least the elements that samples stand for, and at most one less than a step of each other
    # run besides.
    known = sorted_along(valid)
    least = low.sum(0)[..., None] + np.cumsum(sorted_along(step[..., None] * valid), 2)
    most_of = least + (step - 1).sum(0)[..., None] - sorted_along(step[..., None] - 1)
    before = _last(
        known & (most_of <= wanted[:, None])
    )  # [row, cut]: the last sample that is certainly in front of the cut
    behind = _first(~known | (least > wanted[:, None]))  # and the first one that is certainly not
    passed = step * (place <= before[..., None]).sum(3)
    ahead = (place < behind[..., None]).sum(3)
    more = ahead < valid.sum(3)
    return low + passed, np.where(more, low + step * (ahead + 1) - 1, np.broadcast_to(high, ahead.shape))


def _last(true: Block) -> Block:
    """The last place where it is true along the last dim, or -1."""
    n = true.shape[-1]
    return np.where(true.any(-1), n - 1 - np.argmax(true[..., ::-1], -1), -1)


def _first(true: Block) -> Block:
    """The first place where it is true along the last dim, or its size."""
    return np.where(true.any(-1), np.argmax(true, -1), true.shape[-1])


def bytes_shown(count: int, rows: int, size: int, key_bytes: int) -> int:
    """About what a run shows to each other one while `count` runs of this size are cut."""
    rounds = max(0, math.ceil(math.log(max(size / FIRST, 1), LATER / 4)))
    return rows * key_bytes * (min(FIRST, size) + rounds * (count - 1) * LATER)
