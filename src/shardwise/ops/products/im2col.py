"""Convolutions of blocks as matrix products over windows that are laid side by side (im2col), a cacheful at a time.

Loop dims fold as in `ops.products.gemm`: one that varies only on the left is more batch, one that varies only in the kernel is more
output features, one that varies in both is a batch of convolutions, as feature and batch groups are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ops.elementwise.casts import cast
from shardwise.ops.products.conv_geometry import ConvDimensionNumbers, Pads, dilated_size, window_count
from shardwise.ops.products.direct_conv import direct_call
from shardwise.ops.products.few_places import few_places
from shardwise.ops.products.gemm import cast_modulo, compute_dtype, exact_dtype
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.machine import helpers, run_in_parts, thread_count
from shardwise.runtime.memory import pool
from shardwise.runtime.products import matmul, threads_for
from shardwise.runtime.products.blas import library
from shardwise.runtime.strided import strided_view

CHUNK = 1 << 18  # elements of side-by-side windows made at a time: they stay in cache until the product reads them

THREADS_FROM = 1 << 20  # elements from which a second thread pays for a padded copy

_FEW = 4  # channels below which windows are copied place by place


@dataclass(frozen=True, slots=True)
class ConvWindow:
    """How a convolution's window moves: everything but the operands."""

    strides: Ints
    pads: Pads
    lhs_dilation: Ints
    rhs_dilation: Ints
    dims: ConvDimensionNumbers
    feature_groups: int = 1
    batch_groups: int = 1


def convolve(lhs: Ndarray, rhs: Ndarray, lead: int, window: ConvWindow, dtype: np.dtype[Any]) -> Ndarray:
    """The convolution of blocks with `lead` loop dims, as a block of element type `dtype`."""
    if not window.strides:  # no space at all: a matrix product, here over one place
        flat = ConvDimensionNumbers(*((*spec, 2) for spec in window.dims))
        place = replace(window, strides=(1,), pads=((0, 0),), lhs_dilation=(1,), rhs_dilation=(1,), dims=flat)
        return convolve(lhs[..., None], rhs[..., None], lead, place, dtype)[..., 0]
    compute = compute_dtype(lhs.dtype, rhs.dtype, dtype)
    depth = prod(rhs.shape[lead + d] for d in window.dims.rhs_spec[1:])
    if compute.kind in "biu":
        compute = exact_dtype(lhs, rhs, depth, compute)
    both = [i for i in range(lead) if lhs.shape[i] != 1 and rhs.shape[i] != 1]
    left = [i for i in range(lead) if lhs.shape[i] != 1 and rhs.shape[i] == 1]
    right = [i for i in range(lead) if lhs.shape[i] == 1 and rhs.shape[i] != 1]

    x = _arrange_dims(lhs, both, left, lead, window.dims.lhs_spec)  # both, left, N, C, space
    w = _arrange_dims(rhs, both, right, lead, window.dims.rhs_spec)  # both, right, O, I, window
    batch_sizes = tuple(lhs.shape[i] for i in both)
    left_sizes, right_sizes = tuple(lhs.shape[i] for i in left), tuple(rhs.shape[i] for i in right)
    groups = max(window.feature_groups, window.batch_groups)
    space = len(window.strides)
    nb, nl, nr = len(both), len(left), len(right)
    # The group becomes a dim of its own behind the common loops.
    x = _with_group(x, nb, nb + nl + (1 if window.feature_groups > 1 else 0), groups)
    w = _with_group(w, nb, nb + nr, groups)
    n, o = x.shape[nb + 1 + nl], w.shape[nb + 1 + nr]
    w = w.reshape(*w.shape[: nb + 1], prod(right_sizes) * o, *w.shape[nb + nr + 2 :])  # both, group, O, I, window

    feature, *out_space = (window.dims.out_spec[1], *window.dims.out_spec[2:])
    features_last = all(feature > d for d in out_space)
    w = w.astype(compute, copy=False)
    if (
        groups == 1
        and not left
        and compute.kind == "f"
        and has_few_places(x.shape[nb + 3 :], w.shape[nb + 3 :], window)
    ):
        x = spread_elements(
            x[(slice(None),) * nb + (0,)], nb + 2, window.pads, window.lhs_dilation, 0, compute, keep=True
        )
        counts = places_of(x.shape[nb + 2 :], w.shape[nb + 3 :], window)
        flat = w[(slice(None),) * nb + (0,)]
        out = few_places(x, flat, nb, counts, window.strides, window.rhs_dilation)  # both, N, space, O
        out = np.expand_dims(out, -2) if features_last else np.expand_dims(with_dim_at(out, -1, nb + 1), nb + 1)
    else:
        x = _pad_left_operand(x, nb + 1, nl, window, features_last, compute)  # both, group, N, then C and space as said
        out = _products(x, w, nb, window, features_last)  # both, N, (space, group, O) or (group, O, space)

    sizes = out.shape[nb + 1 : nb + 1 + space] if features_last else out.shape[-space:]
    tail = (*sizes, groups, *right_sizes, o) if features_last else (groups, *right_sizes, o, *sizes)
    out = out.reshape(*batch_sizes, *left_sizes, n, *tail)
    return _with_dtype(_in_order(out, lhs, rhs, (both, left, right), lead, window.dims.out_spec, features_last), dtype)


def _in_order(
    out: Ndarray,
    lhs: Ndarray,
    rhs: Ndarray,
    loops: tuple[list[int], list[int], list[int]],
    lead: int,
    out_spec: Ints,
    features_last: bool,
) -> Ndarray:
    """Loop dims back in their places, then the dims of the result; groups are the major part of its features.

    `loops` are the loop dims of both operands, of the left one and of the right one; `out` has those of both and the left one, N, then
    the space behind or before the group, the right one's loop dims and the features of a group.
    """
    both, left, right = loops
    nb, nl, nr, space = len(both), len(left), len(right), len(out_spec) - 2
    at_n = nb + nl
    at_space = at_n + 1 if features_last else at_n + 1 + 1 + nr + 1
    at_group = at_n + 1 + (space if features_last else 0)
    position = {i: p for p, i in enumerate(both)} | {i: nb + p for p, i in enumerate(left)}
    position |= {i: at_group + 1 + p for p, i in enumerate(right)}
    dims: list[Ints] = [()] * (space + 2)
    for where, d in zip(
        [(at_n,), (at_group, at_group + 1 + nr), *((at_space + i,) for i in range(space))],
        out_spec,
        strict=True,
    ):
        dims[d] = where
    shape = [max(lhs.shape[i], rhs.shape[i]) for i in range(lead)] + [prod(out.shape[p] for p in d) for d in dims]
    order = [*(position[i] for i in range(lead) if i in position), *(p for d in dims for p in d)]
    return out.transpose(order).reshape(shape)


def _with_dtype(out: Ndarray, dtype: np.dtype[Any]) -> Ndarray:
    if dtype.kind == "b":
        return out != 0
    if out.dtype == dtype:
        return out
    return cast_modulo(out, dtype) if issubdtype(dtype, np.integer) else cast(out, dtype)


def _arrange_dims(x: Ndarray, both: list[int], own: list[int], lead: int, spec: Ints) -> Ndarray:
    """`x` with its varying loop dims, those common to both operands first, then its dims in canonical order."""
    ones = [i for i in range(lead) if i not in both and i not in own]
    x = x.transpose(*ones, *both, *own, *(lead + d for d in spec))
    return x.reshape(x.shape[len(ones) :])


def _with_group(x: Ndarray, front: int, dim: int, groups: int) -> Ndarray:
    """Split the groups off `dim` and move them to `front`."""
    if groups == 1:
        return x[(slice(None),) * front + (None,)]
    return with_dim_at(x.reshape(*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :]), dim, front)


def _pad_left_operand(
    x: Ndarray, nb: int, nl: int, window: ConvWindow, features_last: bool, dtype: np.dtype[Any]
) -> Ndarray:
    """The left operand with pads and gaps, its batch loops merged, and features last or in front of space."""
    space = len(window.strides)
    if features_last:
        x = with_dim_at(x, nb + nl + 1, -1)
    first = x.ndim - space - (1 if features_last else 0)
    x = spread_elements(x, first, window.pads, window.lhs_dilation, 0, dtype)
    return x.reshape(*x.shape[:nb], prod(x.shape[nb : nb + nl + 1]), *x.shape[nb + nl + 1 :])


def places_of(sizes: Ints, taps: Ints, window: ConvWindow) -> Ints:
    """The places of the window in space of these sizes, pads and gaps included."""
    return tuple(
        window_count(s, dilated_size(k, r), t)
        for s, k, r, t in zip(sizes, taps, window.rhs_dilation, window.strides, strict=True)
    )


def has_few_places(sizes: Ints, taps: Ints, window: ConvWindow) -> bool:
    """Whether the window is large beside the number of its places."""
    spread = [
        dilated_size(n, d) + low + high
        for n, d, (low, high) in zip(sizes, window.lhs_dilation, window.pads, strict=True)
    ]
    return 0 < prod(places_of(tuple(spread), taps, window)) * 2 <= prod(taps)


def spread_elements(
    x: Ndarray, first: int, pads: Pads, dilations: Ints, fill: Any, dtype: np.dtype[Any], keep: bool = False
) -> Ndarray:
    """`x` as `dtype`, its dims from `first` on padded (or cut, where pads are negative) and with gaps between elements.

    A new array is C-contiguous or, with `keep`, has its dims in memory in the order that they have in `x`.
    """
    if all(p == (0, 0) for p in pads) and all(d == 1 for d in dilations):
        return x if x.dtype == dtype else x.astype(dtype, order="K" if keep else "C")
    shape, source, target = list(x.shape), [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for d, ((low, high), step) in enumerate(zip(pads, dilations, strict=True), first):
        size = max(dilated_size(x.shape[d], step) + low + high, 0)
        begin = -(min(low, 0) // step)  # the first element that a negative pad leaves
        end = max(min(x.shape[d], -(-(size - low) // step)), begin)
        source[d] = slice(begin, end)
        target[d] = slice(low + begin * step, low + (end - 1) * step + 1 if end > begin else 0, step)
        shape[d] = size
    order = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d])) if keep else list(range(x.ndim))
    full = pool.empty([shape[d] for d in order], dtype)
    # Threads share the outermost dim in memory of more than one element.
    outer = next((d for d in order if shape[d] != 1), order[0])
    before = order.index(outer)
    into, given = full.transpose(np.argsort(order)), x[tuple(source)]

    # Single elements at the ends of rows in memory take longer to write than all.
    everywhere = any(d > 1 for d in dilations) or shape[order[-1]] != x.shape[order[-1]]

    def copy(run: slice) -> None:
        """Some of what lies outermost in memory: `fill` first, everywhere or around the elements, then these."""
        inside = [*target[:outer], run, *target[outer + 1 :]]
        if everywhere:
            full[(slice(None),) * before + (run,)] = fill
        else:
            _fill_around(into, inside, first, fill)
        into[tuple(inside)] = given[(slice(None),) * outer + (run,)]

    if not full.size:
        return into
    if outer < first:
        rows = shape[outer]
        run_in_parts(copy, rows, max(1, CHUNK * rows // full.size), thread_count() if full.size >= THREADS_FROM else 1)
    else:
        if everywhere:
            full[...] = fill
        else:
            _fill_around(into, target, first, fill)
        into[tuple(target)] = given
    return into


def _fill_around(x: Ndarray, inside: Sequence[slice], first: int, fill: Any) -> None:
    """Write `fill` into `x` before and behind a box along its dims from `first` on; in front of those it has the length of the box."""
    for d in range(first, x.ndim):
        begin, end, _ = inside[d].indices(x.shape[d])
        for side in (slice(0, begin), slice(max(begin, end), None)):
            x[(*inside[:d], side)] = fill


def _products(x: Ndarray, w: Ndarray, nb: int, window: ConvWindow, features_last: bool) -> Ndarray:
    """Products of windows of `x` with `w`, laid out as the result is: both, N, (space, group, O) or (group, O, space)."""
    space = len(window.strides)
    batch, n, groups = x.shape[:nb], x.shape[nb + 1], x.shape[nb]
    first = nb + 2 + (0 if features_last else 1)  # of the dims of space in x
    sizes = x.shape[first : first + space]
    taps = w.shape[nb + 3 :]
    counts = places_of(sizes, taps, window)
    channels, features = w.shape[nb + 2], w.shape[nb + 1]
    shape = (*batch, n, *counts, groups, features) if features_last else (*batch, n, groups, features, *counts)
    if not prod(shape) or not channels or not prod(taps):
        return np.zeros(shape, x.dtype)
    window_steps = [x.strides[first + i] * window.strides[i] for i in range(space)]
    inner = [x.strides[first + i] * window.rhs_dilation[i] for i in range(space)]
    out = pool.empty(shape, x.dtype)
    if channels == 1 and window.feature_groups > 1:
        windows = strided_view(x, (*x.shape[: nb + 2], *counts, *taps), (*x.strides[: nb + 2], *window_steps, *inner))
        return _by_taps(windows, w, out, nb, features_last)
    if not batch and groups == 1 and prod(taps) > 1:
        to = out[..., 0, :] if features_last else out[:, 0]
        if (call := direct_call(x[0], w.shape[1:], counts, window_steps, inner, features_last)) is not None:
            call(x[0], w[0], to)
            return out
    depth = channels * prod(taps)
    if features_last:  # batch, group, N, counts | taps, C
        strides = (*x.strides[: nb + 2], *window_steps, *inner, x.strides[-1])
        view = strided_view(x, (*x.shape[: nb + 2], *counts, *taps, channels), strides)
        weights = w.transpose(*range(nb + 1), *range(nb + 3, w.ndim), nb + 2, nb + 1)
        weights = weights.reshape(*batch, groups, depth, features)
        target = with_dim_at(out, out.ndim - 2, nb)  # batch, group, N, counts, O
    else:  # batch, group, N | C, taps | counts
        view = strided_view(x, (*x.shape[: nb + 3], *taps, *counts), (*x.strides[: nb + 3], *inner, *window_steps))
        weights = w.reshape(*batch, groups, 1, features, depth)
        target = with_dim_at(out, nb + 1, nb)  # batch, group, N, O, counts
    each = prod(batch) * groups * depth * prod(counts)  # elements per sample
    threads = threads_for(each * n * features) if x.dtype.kind in "fc" else 1
    if threads > 1 and library() is None:
        threads = 1  # NumPy's library has threads of its own
    whole = prod(taps) == 1  # nothing is repeated: the windows may be a view
    samples, rows = (n, counts[0]) if whole else cut_windows(n, each, counts[0], threads)
    row_dim = nb + 2 + (0 if features_last else 1 + space)

    def multiply(i: int, r: int) -> None:
        """Samples from `i` and rows from `r` on."""
        part: list[Any] = [slice(None)] * (nb + 1) + [slice(i, i + samples)]
        piece = view[(*part, *[slice(None)] * (row_dim - nb - 2), slice(r, r + rows))]
        to = target[(*part, *([] if features_last else [slice(None)]), slice(r, r + rows))]
        if features_last:
            columns = _rows(piece, nb + 1, space, depth, whole or space == 1)
            to = to.reshape(*to.shape[: nb + 1], columns.shape[-2], features)
            apart = _rows_apart(columns)
            for k in range(min(apart, columns.shape[-2])):
                matmul(columns[..., k::apart, :], weights, to[..., k::apart, :], 1)
        else:
            form = (*piece.shape[: nb + 2], depth, prod(piece.shape[row_dim:]))
            columns = _reshape_windows(piece, form, whole or space == 1)
            matmul(weights, columns, to.reshape(*to.shape[: nb + 2], features, columns.shape[-1]), 1)

    places = iter([(i, r) for i in range(0, n, samples) for r in range(0, counts[0], rows)])
    helpers.run(lambda: [multiply(*place) for place in places], threads)  # each takes the next place that is left
    return out


def _rows_apart(columns: Ndarray) -> int:
    """How many rows of overlapping windows lie between two that do not overlap: every so many are a matrix. Else 1."""
    step, size = columns.strides[-2:]
    count, depth = columns.shape[-2:]
    return -(-depth * size // step) if size == columns.itemsize and step > 0 and count > 1 else 1


def cut_windows(n: int, each: int, rows: int, threads: int) -> tuple[int, int]:
    """How many of n samples, and of their rows, have their windows side by side at a time; `each`: elements of a sample's windows."""
    samples = max(1, CHUNK // each)
    samples = min(samples, -(-n // (2 * threads))) if threads > 1 else samples
    return samples, rows if samples > 1 else -(-rows // -(-each // CHUNK))  # equal parts


def _rows(piece: Ndarray, front: int, space: int, depth: int, may_view: bool) -> Ndarray:
    """Windows (front dims, N, counts, taps, C) as matrices with a window per row."""
    rows = prod(piece.shape[front : front + 1 + space])
    if piece.shape[-1] >= _FEW or depth == piece.shape[-1]:
        return _reshape_windows(piece, (*piece.shape[:front], rows, depth), may_view)
    # Few channels make short runs to copy: then copy with the places innermost, and let BLAS read it transposed.
    last = (*range(front + 1 + space, piece.ndim), *range(front, front + 1 + space))
    return _reshape_windows(
        piece.transpose(*range(front), *last), (*piece.shape[:front], depth, rows), may_view
    ).swapaxes(-1, -2)


def _reshape_windows(windows: Ndarray, shape: Ints, may_view: bool) -> Ndarray:
    """`windows` with another shape: a view, if there may be one, or a copy in memory of the pool, which costs no page faults."""
    if may_view:
        return windows.reshape(shape)
    out = pool.empty(shape, windows.dtype)
    np.copyto(out.reshape(windows.shape), windows)
    return out


def _by_taps(view: Ndarray, w: Ndarray, out: Ndarray, nb: int, features_last: bool) -> Ndarray:
    """Depthwise: the sum over the window of shifted inputs times one number per channel, sample by sample.

    `view` is (batch, group, N, counts, taps), `w` (batch, group, O, 1, taps); `out` is laid out as the result is.
    """
    taps = w.shape[nb + 3 :]
    space = len(taps)
    for i in range(view.shape[nb + 1]):
        to = out[(slice(None),) * nb + (i,)]
        product = np.empty_like(to)
        for number, tap in enumerate(np.ndindex(*taps)):
            here = view[(*[slice(None)] * (nb + 1), i, Ellipsis, *tap)]  # batch, group, counts
            factor = w[(*[slice(None)] * (nb + 2), 0, *tap)]  # batch, group, O
            if features_last:
                here = with_dim_at(here, nb, -1)[..., None]
                factor = factor.reshape(*factor.shape[:nb], *(1,) * space, *factor.shape[nb:])
            else:
                here = np.expand_dims(here, nb + 1)
                factor = factor.reshape(*factor.shape, *(1,) * space)
            if number == 0:
                np.multiply(here, factor, out=to)
            else:
                np.multiply(here, factor, out=product)
                to += product
    return out
