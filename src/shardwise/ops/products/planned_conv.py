"""Convolutions whose way through `direct_conv` is found once: a call only pads the operand and runs the loop.

Comes in: the params and types of a convolution. Goes out: its kernel, which keeps a plan for each way in which blocks lie. Small
convolutions take a fifth of the time so; convolutions without a plan are left to `im2col`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ops.products.conv_geometry import Pads, dilated_size
from shardwise.ops.products.dilated_conv import convolve_dilated, falls_apart
from shardwise.ops.products.direct_conv import DirectCall, direct_call
from shardwise.ops.products.im2col import THREADS_FROM, ConvWindow, has_few_places, places_of
from shardwise.ops.products.split_products import by_algorithm
from shardwise.ops.rules.precision import CanonicalPrecision
from shardwise.runtime.memory import pool

Convolution = Callable[[Ndarray, Ndarray], Ndarray]


def planned_kernel(
    lead: int, window: ConvWindow, precision: CanonicalPrecision, preferred: np.dtype[Any] | None
) -> Convolution:
    """The kernel of a convolution of blocks with `lead` loop dims."""
    plans = Bounded[Any, Convolution | None](LAYOUTS)

    def convolve(lhs: Ndarray, rhs: Ndarray, dtype: np.dtype[Any]) -> Ndarray:
        key = lhs.shape, lhs.strides, rhs.shape, lhs.dtype, rhs.dtype, dtype
        try:
            plan = plans[key]
        except KeyError:
            same = lhs.dtype == rhs.dtype == dtype
            plan = plans[key] = _plan(lhs, rhs, lead, window) if same else None
        return convolve_dilated(lhs, rhs, lead, window, dtype) if plan is None else plan(lhs, rhs)

    def run(lhs: Ndarray, rhs: Ndarray) -> Ndarray:
        return by_algorithm(precision, convolve, lhs, rhs, lhs.dtype if preferred is None else preferred)

    return run


def _plan(lhs: Ndarray, rhs: Ndarray, lead: int, window: ConvWindow) -> Convolution | None:
    """How to convolve operands that lie like this; None where `im2col` has to."""
    dims, pads, space = window.dims, window.pads, len(window.strides)
    loops = lhs.shape[:lead], rhs.shape[:lead]
    has_groups = max(window.feature_groups, window.batch_groups) > 1
    if not space or has_groups or any(n != 1 for own in loops for n in own):
        return None
    if any(low < 0 or high < 0 for low, high in pads) or not lhs.size or not rhs.size:
        return None
    if falls_apart(lhs, rhs, lead, window):
        return None
    feature, *out_space = dims.out_spec[1:]
    last = all(feature > d for d in out_space)
    order = (dims.lhs_spec[0], *((*dims.lhs_spec[2:], dims.lhs_spec[1]) if last else dims.lhs_spec[1:]))
    x, first = _canonical(lhs, lead, order), 1 if last else 2
    taps = tuple(rhs.shape[lead + d] for d in dims.rhs_spec)
    gaps, given = window.lhs_dilation, x.shape[first : first + space]
    sizes = tuple(dilated_size(n, gap) + low + high for n, gap, (low, high) in zip(given, gaps, pads, strict=True))
    counts = places_of(sizes, taps[2:], window)
    shape = (*x.shape[:first], *sizes, *x.shape[first + space :])
    if not prod(counts) or prod(taps[2:]) == 1 or has_few_places(given, taps[2:], window):
        return None
    padding = _Padding(x.shape, shape, first, pads, gaps) if shape != x.shape else None
    if padding is not None:
        if prod(shape) >= THREADS_FROM:
            return None
        x = padding(x)
    window_steps = [s * n for s, n in zip(x.strides[first:], window.strides, strict=False)]
    inner = [s * n for s, n in zip(x.strides[first:], window.rhs_dilation, strict=False)]
    call = direct_call(x, taps, counts, window_steps, inner, last)
    if call is None:
        return None
    out = (shape[0], *counts, taps[0]) if last else (shape[0], taps[0], *counts)
    memory = (dims.out_spec[0], *((*out_space, feature) if last else (feature, *out_space)))
    return _runner(lead, order, (*dims.rhs_spec,), padding, call, out, tuple(int(i) for i in np.argsort(memory)))


def _runner(
    lead: int, order: Ints, kernel: Ints, padding: _Padding | None, call: DirectCall, out: Ints, back: Ints
) -> Convolution:
    """`order` and `kernel`: the operands' dims as `call` takes them; `out`: the shape that it writes; `back`: the result's dims in it."""
    ones = (1,) * lead

    def run(lhs: Ndarray, rhs: Ndarray) -> Ndarray:
        x = _canonical(lhs, lead, order)
        result = pool.empty(out, lhs.dtype)
        call(x if padding is None else padding(x), _canonical(rhs, lead, kernel), result)
        result = result.transpose(back)
        return result.reshape(ones + result.shape) if lead else result

    return run


def _canonical(x: Ndarray, lead: int, order: Ints) -> Ndarray:
    return (x.reshape(x.shape[lead:]) if lead else x).transpose(order)


class _Padding:
    """A C-contiguous copy of an array with zeros around it, and between its elements."""

    def __init__(self, given: Ints, shape: Ints, first: int, pads: Pads, gaps: Ints) -> None:
        self._shape = shape
        inside = [slice(0, n) for n in given]
        for d, (gap, (low, _)) in enumerate(zip(gaps, pads, strict=True), first):
            inside[d] = slice(low, low + dilated_size(given[d], gap), gap)
        self._inside = tuple(inside)
        # Single elements at the ends of rows in memory take longer to write than all.
        self._around: list[Any] = [...]
        if given[-1] == shape[-1] and max(gaps) == 1:
            sides = [
                (*inside[:d], side)
                for d in range(first, len(shape))
                for side in (slice(0, inside[d].start), slice(inside[d].stop, shape[d]))
            ]
            self._around = [side for side in sides if side[-1].start < side[-1].stop]

    def __call__(self, x: Ndarray) -> Ndarray:
        full = pool.empty(self._shape, x.dtype)
        for part in self._around:
            full[part] = 0
        full[self._inside] = x
        return full
