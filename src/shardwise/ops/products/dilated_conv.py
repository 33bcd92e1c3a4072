"""Convolutions over an operand with holes, such as the slopes of convolutions with strides: no hole is multiplied.

    o = r + e * j reads, of elements e apart, those under the taps t0, t0 + e, ...       t0 = (low - r) mod e

The places of each remainder `r` of the dilation `e` are a convolution of their own, of the elements as they lie and every e-th tap.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ops.products.conv_geometry import dilated_size, window_count
from shardwise.ops.products.im2col import ConvWindow, convolve, spread_elements
from shardwise.runtime.memory import pool

# Multiplications by holes from which several convolutions pay: of 8 images of 32 x 32 with 32 channels (3 x 3 taps, 64 features, strides of
# 2) the slopes take 1.5 ms, and 2.8 by one; of 4 of 8 x 8 with 16 channels, 0.6 and 0.2.
_LEAST_SAVING = 1 << 24
_MOST = 16  # convolutions


def convolve_dilated(lhs: Ndarray, rhs: Ndarray, lead: int, window: ConvWindow, dtype: np.dtype[Any]) -> Ndarray:
    """The convolution of blocks with `lead` loop dims, as a block of element type `dtype`: as several where that pays."""
    if not falls_apart(lhs, rhs, lead, window):
        return convolve(lhs, rhs, lead, window, dtype)
    gaps, dims = window.lhs_dilation, window.dims
    counts = _counts(lhs, rhs, lead, window)
    shape = [*np.broadcast_shapes(lhs.shape[:lead], rhs.shape[:lead]), *[0] * len(dims.out_spec)]
    sizes = (lhs.shape[lead + dims.lhs_spec[0]] // window.batch_groups, rhs.shape[lead + dims.rhs_spec[0]], *counts)
    for d, n in zip(dims.out_spec, sizes, strict=True):
        shape[lead + d] = n
    out = pool.empty(shape, dtype)
    # By dim and remainder: where it begins and ends in `lhs`, its first tap, and how many it has.
    reach = [
        [_reach(rest, gap, pads, count, rhs.shape[lead + w]) for rest in range(gap)]
        for gap, pads, count, w in zip(gaps, window.pads, counts, dims.rhs_spec[2:], strict=True)
    ]
    around = [(0, 0)] * lhs.ndim
    for i, (gap, x) in enumerate(zip(gaps, dims.lhs_spec[2:], strict=True)):
        n = lhs.shape[lead + x]
        around[lead + x] = (
            max(0, *[-begin for begin, *_ in reach[i]]) if gap > 1 else window.pads[i][0],
            max(0, *[end - n for _, end, *_ in reach[i]]) if gap > 1 else window.pads[i][1],
        )
    padded_lhs = spread_elements(lhs, 0, tuple(around), (1,) * lhs.ndim, 0, lhs.dtype, keep=True)
    part = replace(window, pads=((0, 0),) * len(gaps), lhs_dilation=(1,) * len(gaps))
    for rests in itertools.product(*map(range, gaps)):
        own, taps, places = ([slice(None)] * a.ndim for a in (padded_lhs, rhs, out))
        for i, (rest, gap) in enumerate(zip(rests, gaps, strict=True)):
            if gap > 1:
                x, w, o = (lead + spec[2 + i] for spec in dims)
                begin, end, first = reach[i][rest]
                own[x] = slice(around[x][0] + begin, around[x][0] + end)
                taps[w], places[o] = slice(first, None, gap), slice(rest, None, gap)
        to, kernel = out[tuple(places)], rhs[tuple(taps)]
        if to.size:
            to[...] = convolve(padded_lhs[tuple(own)], kernel, lead, part, dtype) if kernel.size else 0
    return out


def _reach(rest: int, gap: int, pads: tuple[int, int], places: int, taps: int) -> tuple[int, int, int]:
    """Along a dim, the elements that the places of a remainder read, of which some may lie outside, and the first of their taps."""
    first = (pads[0] - rest) % gap
    begin = (rest + first - pads[0]) // gap
    return begin, begin + len(range(rest, places, gap)) + len(range(first, taps, gap)) - 1, first


def falls_apart(lhs: Ndarray, rhs: Ndarray, lead: int, window: ConvWindow) -> bool:
    """Whether there are holes, along dims where windows are simple, and many would be multiplied."""
    dims, gaps = window.dims, window.lhs_dilation
    simple = all(
        gap == 1 or (stride == hole == 1)
        for gap, stride, hole in zip(gaps, window.strides, window.rhs_dilation, strict=True)
    )
    if not simple or not 1 < prod(gaps) <= _MOST or not lhs.size or not rhs.size:
        return False
    samples = prod(lhs.shape[:lead]) * lhs.shape[lead + dims.lhs_spec[0]]
    return samples * prod(_counts(lhs, rhs, lead, window)) * rhs.size * (1 - 1 / prod(gaps)) >= _LEAST_SAVING


def _counts(lhs: Ndarray, rhs: Ndarray, lead: int, window: ConvWindow) -> list[int]:
    """The places of the window."""
    counts: list[int] = []
    for i, (gap, hole, stride) in enumerate(zip(window.lhs_dilation, window.rhs_dilation, window.strides, strict=True)):
        size = dilated_size(lhs.shape[lead + window.dims.lhs_spec[2 + i]], gap) + sum(window.pads[i])
        counts.append(window_count(size, dilated_size(rhs.shape[lead + window.dims.rhs_spec[2 + i]], hole), stride))
    return counts
