"""A convolution in small programs: the elements under each tap of the kernel, side by side, times the kernel as one product."""

from __future__ import annotations

import itertools
import math
from typing import Any

from shardwise.ir import Equation
from shardwise.ops.products.conv_geometry import dilated_size
from shardwise.ops.rules.derivative import do

_TAPS = 32  # of a kernel: each is a slice


def has_few_taps(eqn: Equation) -> bool:
    """Whether the kernel has so few taps that a slice for each is no long program."""
    spec = eqn.params["dimension_numbers"].rhs_spec
    return 0 < math.prod(eqn.inputs[1].aval.shape[d] for d in spec[2:]) <= _TAPS


def small_conv(lhs: Any, rhs: Any, **params: Any) -> Any:
    """``lhs`` (N, C, *places) and ``rhs`` (O, I, *taps), each in the order of `dimension_numbers`."""
    dims, strides, gaps = params["dimension_numbers"], params["window_strides"], params["rhs_dilation"]
    features, batches = params["feature_group_count"], params["batch_group_count"]
    groups = features * batches
    pads = [(low, high, n - 1) for (low, high), n in zip(params["padding"], params["lhs_dilation"], strict=True)]
    x = _transpose_if_needed(lhs, dims.lhs_spec)
    x = do.pad(x, 0, padding_config=((0, 0, 0), (0, 0, 0), *pads))
    kernel = _transpose_if_needed(rhs, dims.rhs_spec)
    outs, ins, *taps = kernel.shape
    reach = [dilated_size(n, gap) for n, gap in zip(taps, gaps, strict=True)]
    counts = [(n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    samples, channels = x.shape[0] // batches, x.shape[1] // features
    # Each as (1, groups or 1, samples, groups or 1, channels, *places), of which one of the groups is 1.
    whole = (1, batches, samples, features, channels, *counts)
    parts = [
        _reshape_if_needed(_under(x, tap, strides, gaps, counts), whole) for tap in itertools.product(*map(range, taps))
    ]
    patches = parts[0] if len(parts) == 1 else do.concatenate(*parts, dimension=0)
    patches = _reshape_if_needed(
        patches, (len(parts), *((groups, samples) if batches > 1 else (samples, groups)), channels, *counts)
    )
    group_at = 1 if batches > 1 else 2
    kernel = _reshape_if_needed(kernel, (groups, outs // groups, ins, math.prod(taps)))
    # Its dims: groups, samples, places, outs of a group.
    product = do.dot_general(
        patches,
        kernel,
        dimension_numbers=(((0, 3), (3, 2)), ((group_at,), (0,))),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
        out_sharding=None,
    )
    last = product.ndim - 1
    product = do.transpose(product, permutation=(1, 0, last, *range(2, last)))
    product = _reshape_if_needed(product, (samples, outs, *counts))
    back = [0] * product.ndim
    for i, d in enumerate(dims.out_spec):
        back[d] = i
    return product if back == sorted(back) else do.transpose(product, permutation=tuple(back))


def _transpose_if_needed(x: Any, order: tuple[int, ...]) -> Any:
    return x if list(order) == sorted(order) else do.transpose(x, permutation=tuple(order))


def _reshape_if_needed(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else do.reshape(x, new_sizes=shape)


def _under(x: Any, tap: tuple[int, ...], strides: Any, gaps: Any, counts: Any) -> Any:
    """The elements under one tap, for all places of the kernel."""
    first = [t * gap for t, gap in zip(tap, gaps, strict=True)]
    limits = [f + (n - 1) * s + 1 for f, n, s in zip(first, counts, strides, strict=True)]
    start, limit = (0, 0, *first), (*x.shape[:2], *limits)
    return do.slice(x, start_indices=start, limit_indices=limit, strides=(1, 1, *strides))
