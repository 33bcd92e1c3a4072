"""Convolutions with large windows at few places, as derivatives by a kernel are: sums over places of windows times numbers.

    out[n, place, o] = sum over channels, taps of  x[n, channel, place + tap] * w[o, channel, tap]

Channels and taps are the depth of one matrix product. A cacheful of it at a time is laid out as the operand lies in memory, and the
pieces' products are added up in an order that does not depend on threads.
"""

from __future__ import annotations

from math import prod

import numpy as np

from shardwise.base.shapes import Ints, Ndarray
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.machine import helpers
from shardwise.runtime.products import matmul, threads_for
from shardwise.runtime.products.blas import library
from shardwise.runtime.strided import strided_view

_CHUNK = 1 << 18  # elements of side-by-side windows made at a time
_SEGMENTS = 8  # sums that are made apart from each other, by threads
_ROWS = 64  # of depth, at least, where one piece is more than a cacheful


def few_places(x: Ndarray, w: Ndarray, nb: int, counts: Ints, strides: Ints, dilations: Ints) -> Ndarray:
    """``batch + (n,) + counts + (o,)`` of `x`, ``batch + (n, channels) + space``, and `w`, ``batch + (o, channels) + taps``.

    `x` has its pads and gaps; `nb` dims of batch lead both. `strides` are steps between places, `dilations` between taps.
    """
    batch, n, channels, features, taps = x.shape[:nb], x.shape[nb], x.shape[nb + 1], w.shape[nb], w.shape[nb + 2 :]
    space, first = len(counts), nb + 2
    window_steps = tuple(x.strides[first + i] * strides[i] for i in range(space))
    inner = tuple(x.strides[first + i] * dilations[i] for i in range(space))
    columns = prod(counts) * n
    deep = x.strides[nb] < x.strides[-1]  # n lies innermost: then a row of the copy holds one place of the depth
    sizes, steps = (
        ((*counts, n), (*window_steps, x.strides[nb])) if deep else ((n, *counts), (x.strides[nb], *window_steps))
    )
    depth_sizes, depth_steps = (channels, *taps), (x.strides[nb + 1], *inner)
    view = strided_view(x, (*batch, *depth_sizes, *sizes), (*x.strides[:nb], *depth_steps, *steps))
    if not deep:
        view = view.transpose(*range(nb), *range(nb + 1 + space, view.ndim), *range(nb, nb + 1 + space))
    numbers = w.transpose(*range(nb), *range(nb + 1, w.ndim), nb)  # batch, channels, taps, o

    each = prod(taps) * columns  # elements per channel
    some = max(1, _CHUNK // each)
    rows = taps[0] if some > 1 else max(1, -(-_ROWS * taps[0] // prod(taps)), _CHUNK * taps[0] // each)
    pieces = [(c, r) for c in range(0, channels, some) for r in range(0, taps[0], rows)]
    length = -(-len(pieces) // _SEGMENTS)
    segments = [pieces[i : i + length] for i in range(0, len(pieces), length)]
    sums = np.empty((len(segments), *batch, columns, features), x.dtype)

    def add(i: int, place: Ints) -> None:
        out, part = sums[(i, *place)], np.empty((columns, features), x.dtype)
        for number, (c, r) in enumerate(segments[i]):
            cut = slice(c, c + some), slice(r, r + rows)
            factor = numbers[(*place, *cut)].reshape(-1, features)
            if deep:
                windows = view[(*place, *cut)].reshape(-1, columns).T
            else:
                windows = view[(*place, *(slice(None),) * (space + 1), *cut)].reshape(columns, -1)
            matmul(windows, factor, part if number else out, 1)
            if number:
                np.add(out, part, out=out)

    threads = threads_for(prod(batch) * channels * each * features)
    tasks = iter([(i, place) for place in np.ndindex(*batch) for i in range(len(segments))])
    helpers.run(lambda: [add(*task) for task in tasks], threads if library() is not None else 1)
    total = np.add.reduce(sums, axis=0).reshape(*batch, *sizes, features)
    return with_dim_at(total, nb + space, nb) if deep else total
