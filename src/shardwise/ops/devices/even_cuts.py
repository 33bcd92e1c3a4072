"""Find cuts of sorted runs such that the merged pieces are equal parts of the whole, without merging the runs.

    runs      [1 4 7 9]  [2 2 8 8]  [3 5 6 6]
    cuts      [1|4 7|9]  [2 2|8 8]  [3|5 6 6]      -> 1 2 2 3, then 4 5 6 6 7 ... the same number in each part

All cuts are searched together. In each round every run contributes samples: a few evenly spaced elements of the window that holds
its cut. The sorted samples narrow the windows to about an eighth, independent of the data. Equal elements are ordered by run, so
that the merged pieces equal a stable sort of everything.

Comes in: the runs of this process, and a function that gathers the samples of all processes. Goes out: the cuts of all runs, the
same on all processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.runtime.blocks import with_dim_at

FIRST = 128  # samples per run in the first round, for all cuts together
LATER = 32  # samples per run and cut in later rounds


def even_cuts(
    keys: Sequence[Ndarray], count: int, mine: Sequence[int], gather: Callable[[Ndarray], Ndarray]
) -> Ndarray:
    """The cuts of `count` sorted runs into `count` parts of a run's size: int [run, row, cut], with 0 and the size as outer cuts.

    `keys` are the sort keys of this process's runs, numbered `mine`: most significant first, each [run, row, position]. ``gather``
    joins the arrays [own run, ...] of all processes to [run, ...].
    """
    rows, size = keys[0].shape[1:]
    counts_before = np.arange(1, count) * size  # number of elements before each inner cut
    low = np.zeros((count, rows, 1), np.intp)
    high = np.full_like(low, size)
    most = FIRST
    while (high > low).any():
        step = np.maximum(-(-(high - low) // most), 1)
        at = low[..., None] + np.arange(1, most + 1) * step[..., None] - 1
        sample_places = np.minimum(at[mine], size - 1).reshape(len(mine), rows, -1)
        samples = [gather(np.take_along_axis(k, sample_places, 2)).reshape(at.shape) for k in keys]
        low, high = _narrow_windows(samples, at < high[..., None], step, low, high, counts_before)
        most = LATER
    ends = np.zeros((count, rows, 1), np.intp)
    return np.concatenate([ends, low, ends + size], axis=2)


def _narrow_windows(
    samples: Sequence[Ndarray], valid: Ndarray, step: Ndarray, low: Ndarray, high: Ndarray, wanted: Ndarray
) -> tuple[Ndarray, Ndarray]:
    """The new windows [run, row, cut], from samples [run, row, cut, place] taken every `step` elements of the old windows."""
    count, rows, cuts, most = valid.shape
    together = lambda x: with_dim_at(x, 0, 2).reshape(rows, cuts, count * most)  # noqa: E731
    order = np.lexsort([*[together(k) for k in samples[::-1]], ~together(valid)])
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(count * most), 2)
    place = np.where(valid, with_dim_at(place.reshape(rows, cuts, count, most), 2, 0), count * most)

    def sort_along(x: Ndarray) -> Ndarray:
        return np.take_along_axis(together(np.broadcast_to(x, valid.shape)), order, 2)

    # Bounds on the rank of a sample, itself included: at least the elements that the samples up to it stand for; at most these and one
    # less than a step more from each other run.
    sorted_valid = sort_along(valid)
    least = low.sum(0)[..., None] + np.cumsum(sort_along(step[..., None] * valid), 2)
    most_of = least + (step - 1).sum(0)[..., None] - sort_along(step[..., None] - 1)
    before = _last(sorted_valid & (most_of <= wanted[:, None]))  # [row, cut]: the last sample certainly before the cut
    behind = _first(~sorted_valid | (least > wanted[:, None]))  # and the first one certainly after it
    elements_below = step * (place <= before[..., None]).sum(3)
    ahead = (place < behind[..., None]).sum(3)
    more = ahead < valid.sum(3)
    return low + elements_below, np.where(more, low + step * (ahead + 1) - 1, np.broadcast_to(high, ahead.shape))


def _last(true: Ndarray) -> Ndarray:
    """The last index along the last dim with a true value, or -1."""
    n = true.shape[-1]
    return np.where(true.any(-1), n - 1 - np.argmax(true[..., ::-1], -1), -1)


def _first(true: Ndarray) -> Ndarray:
    """The first index along the last dim with a true value, or its size."""
    return np.where(true.any(-1), np.argmax(true, -1), true.shape[-1])


def bytes_shown(count: int, rows: int, size: int, key_bytes: int) -> int:
    """The approximate bytes of samples that a run sends to each other run while `count` runs of this size are cut."""
    rounds = max(0, math.ceil(math.log(max(size / FIRST, 1), LATER / 4)))
    return rows * key_bytes * (min(FIRST, size) + rounds * (count - 1) * LATER)
