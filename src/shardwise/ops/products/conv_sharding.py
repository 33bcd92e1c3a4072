"""How convolutions are split over devices: over batch and features like products, over space by windows of lhs.

A device needs the window of lhs that its part of the result sees. Where space is summed over (the gradient of a kernel), it needs the
window that its part of the other image meets, and the results are parts of a sum.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shardwise.ir import Halo
from shardwise.ir.explicit import check_divisible, is_whole, type_error
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.products.conv_geometry import ConvDimensionNumbers, dilated_size, place_dims
from shardwise.ops.shapes.even_windows import Place
from shardwise.sharding.rule import Rule, make_rule


def conv_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Batch and output features pass, input features are summed; space needs windows, or is summed over."""
    lhs, rhs = in_types
    (out,) = out_types
    dims: ConvDimensionNumbers = params["dimension_numbers"]
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    left = ["n", "c", *(f"s{i}" for i in range(lhs.ndim - 2))]
    right = ["o", "c", *(f"k{i}" for i in range(lhs.ndim - 2))]
    result = ["n", "o", *left[2:]]
    if groups > 1:
        left[1], right[0], result[1] = "(g c)", "(g o)", "(g o)"
    if batch_groups > 1:
        left[0], right[0], result[1] = "(g n)", "(g o)", "(g o)"
    total = max(groups, batch_groups)
    sizes = {
        "g": total,
        "n": lhs.shape[dims.lhs_spec[0]] // batch_groups,
        "c": rhs.shape[dims.rhs_spec[1]],
        "o": rhs.shape[dims.rhs_spec[0]] // total,
    }
    permute, replicate = [], []
    for i in range(lhs.ndim - 2):
        size, window = lhs.shape[dims.lhs_spec[2 + i]], rhs.shape[dims.rhs_spec[2 + i]]
        sizes[f"s{i}"] = size
        plain = params["padding"][i] == (0, 0) and params["lhs_dilation"][i] == 1
        if plain and window == 1 and params["window_strides"][i] == 1:
            continue  # passes through
        if plain and window == size and params["rhs_dilation"][i] == 1:
            right[2 + i], result[2 + i] = left[2 + i], "1"  # one window over all: a contraction
            continue
        ways = _ways_to_sum(
            size, window, out.shape[dims.out_spec[2 + i]], params["lhs_dilation"][i], params["rhs_dilation"][i]
        )
        if ways > 1:
            right[2 + i], result[2 + i] = left[2 + i], "1"
            sizes[f"s{i}"] = ways
            continue
        permute.append(left[2 + i])
        replicate.append(right[2 + i])
    sides = (place_dims(left, dims.lhs_spec), place_dims(right, dims.rhs_spec), place_dims(result, dims.out_spec))
    signature = f"{' '.join(sides[0])}, {' '.join(sides[1])} -> {' '.join(sides[2])}"
    return make_rule(signature, [lhs.shape, rhs.shape], [out.shape], sizes=sizes, permute=permute, replicate=replicate)


def _ways_to_sum(size: int, window: int, out: int, spread: int, gap: int) -> int:
    """The number of parts in which a spatial dim can be summed over, where that is better than to keep it; else 1.

    The kernel is an image then, as in a kernel's gradient: larger than the result, or spread over all of lhs beside a small result, as in
    the gradient of a convolution that cuts an image into patches. Each device has a part of the kernel, and sums the products with its
    window of lhs. Every part begins at an element of a dilated lhs, or all at the same place behind one.
    """
    image = dilated_size(size, spread)
    spans = gap > 1 and 2 * dilated_size(window, gap) > image >= 4 * out
    if gap * window % spread or not (window > out or spans):
        return 1
    return math.gcd(size, window, gap * window // spread)


def conv_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """Groups that are split over devices: each device has its part of them."""
    dims: ConvDimensionNumbers = params["dimension_numbers"]
    lhs, rhs = in_types
    new_params = {**params, "out_sharding": None}
    if params["feature_group_count"] > 1:
        new_params["feature_group_count"] = lhs.shape[dims.lhs_spec[1]] // rhs.shape[dims.rhs_spec[1]]
    if params["batch_group_count"] > 1:
        new_params["batch_group_count"] = lhs.shape[dims.lhs_spec[0]] // out_types[0].shape[dims.out_spec[0]]
    return new_params


def conv_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    """The kernel must be whole and lhs whole along its features; batch and space stay split as they are."""
    lhs, rhs = in_types
    (out,) = out_types
    if params["out_sharding"] is not None:
        return (((),) * out.ndim,)
    dims: ConvDimensionNumbers = params["dimension_numbers"]
    if not is_whole(rhs) or lhs.spec[dims.lhs_spec[1]]:
        raise type_error(
            f"conv_general_dilated of {lhs.str_short()} and {rhs.str_short()}: the kernel and the features of lhs "
            "must not be split for the result's sharding to be clear. Please specify it via the `out_sharding` "
            "parameter, or reshard."
        )
    spec = place_dims([lhs.spec[dims.lhs_spec[0]], (), *(lhs.spec[d] for d in dims.lhs_spec[2:])], dims.out_spec)
    for d, axes in enumerate(spec):
        if axes:
            check_divisible("conv_general_dilated", in_types, out, d, axes)
    return (spec,)


def conv_halo(params: Params, dim: int, in_types: Types, part: int) -> Halo | None:
    """Part i of the result sees the positions from ``i * part * stride - low`` of lhs; beyond the ends are zeros.

    Where space is summed over, `part` is that of the kernel, whose part i meets positions from ``i * part * gap - low``.
    """
    dims: ConvDimensionNumbers = params["dimension_numbers"]
    lhs, rhs = in_types
    i = dims.lhs_spec.index(dim) - 2
    if i < 0:
        return None
    size, taps = lhs.shape[dim], rhs.shape[dims.rhs_spec[2 + i]]
    stride, (low, high), gap = params["window_strides"][i], params["padding"][i], params["rhs_dilation"][i]
    spread, window = params["lhs_dilation"][i], dilated_size(taps, gap)
    out = max(dilated_size(size, spread) + low + high - window, -stride) // stride + 1
    plain = (low, high) == (0, 0) and spread == 1
    if plain and taps == size and gap == 1:
        return None  # a contraction: a part of lhs meets the same part of the kernel
    if _ways_to_sum(size, taps, out, spread, gap) > 1:
        step, width, unit = gap * part, stride * (out - 1) + dilated_size(part, gap), 1
    else:
        step, width = stride * part, stride * (part - 1) + window
        unit = spread // math.gcd(spread, stride)  # parts begin at the same place between two elements of lhs
        if part % unit:
            return None
    first, last = -(low // spread), (width - 1 - low) // spread
    last = max(first, last)  # of a window between two elements, negative padding cuts off the one that follows
    before = first * spread + low
    after = width - before - dilated_size(last - first + 1, spread)
    return _at_window(params, i, Halo(step // spread, first, last - first + 1, params, unit=unit), (before, after))


def conv_places(params: Params, ndim: int) -> list[Place]:
    """The spatial dims."""
    dims: ConvDimensionNumbers = params["dimension_numbers"]
    return [
        Place(
            i,
            dims.lhs_spec[2 + i],
            dims.out_spec[2 + i],
            params["window_strides"][i],
            dims.rhs_spec[2 + i],
            params["rhs_dilation"][i],
            params["lhs_dilation"][i] // math.gcd(params["lhs_dilation"][i], params["window_strides"][i]),
        )
        for i in range(ndim - 2)
    ]


def _at_window(params: Params, i: int, halo: Halo, pads: tuple[int, int]) -> Halo:
    """The halo with the params of the convolution of a window, of which `pads` stand outside along spatial dim `i`."""
    return replace(halo, params={**params, "padding": (*params["padding"][:i], pads, *params["padding"][i + 1 :])})
