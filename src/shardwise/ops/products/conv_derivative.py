"""The transpose rule of convolutions: both cotangents are convolutions of the cotangent of the result."""

from __future__ import annotations

from typing import Any

from shardwise.ir import Array, ShapedArray
from shardwise.ops.products.conv_geometry import (
    ConvDimensionNumbers,
    Pads,
    dilated,
)
from shardwise.ops.rules.derivative import cotangent_sharding, do, is_linear, with_dtype
from shardwise.ops.rules.precision import (
    CanonicalPrecision,
)

Ints = tuple[int, ...]


def conv_transpose_rule(ct: Array, lhs: Any, rhs: Any, **params: Any) -> list[Any]:
    """Both cotangents are convolutions of the result's cotangent: with the kernel turned round, and with lhs."""
    if is_linear(lhs):
        return [_conv_back_lhs(ct, lhs.aval, rhs, **params), None]
    return [None, _conv_back_rhs(ct, lhs, rhs.aval, **params)]


def _swapped(spec: Ints) -> Ints:
    """A layout with its first two roles exchanged."""
    return (spec[1], spec[0], *spec[2:])


def _grouped(x: Any, source: int, target: int, groups: int) -> Any:
    """The groups that lead dim `source` moved to lead dim `target`."""
    if groups == 1:
        return x
    shape = x.shape
    x = do.reshape(
        x, new_sizes=(*shape[:source], groups, shape[source] // groups, *shape[source + 1 :]), out_sharding=None
    )
    order = [d for d in range(x.ndim) if d != source]
    order.insert(target, source)
    sizes = list(shape)
    sizes[source] //= groups
    sizes[target] *= groups
    return do.reshape(do.transpose(x, permutation=tuple(order)), new_sizes=tuple(sizes), out_sharding=None)


def _sides(
    dims: ConvDimensionNumbers, left: Ints, right: Ints, out: Ints, strides: Ints, lhs_gaps: Ints, rhs_gaps: Ints
) -> Any:
    """Per spatial dim the sizes of lhs, kernel and result with the gaps that dilations and strides make."""
    sizes = [[shape[d] for d in spec[2:]] for shape, spec in zip((left, right, out), dims, strict=True)]
    return zip(*(map(dilated, s, g) for s, g in zip(sizes, (lhs_gaps, rhs_gaps, strides), strict=True)), strict=True)


def _conv_back_lhs(
    ct: Array,
    aval: ShapedArray,
    rhs: Any,
    *,
    window_strides: Ints,
    padding: Pads,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    dimension_numbers: ConvDimensionNumbers,
    feature_group_count: int,
    batch_group_count: int,
    precision: CanonicalPrecision,
    **_: Any,
) -> Any:
    dims = dimension_numbers
    lhs_spec, rhs_spec, out_spec = dims
    sides = _sides(dims, aval.shape, rhs.shape, ct.shape, window_strides, lhs_dilation, rhs_dilation)
    pads = [(k - 1 - low, n + low - m) for (n, k, m), (low, _) in zip(sides, padding, strict=True)]
    kernel = _grouped(rhs, rhs_spec[0], rhs_spec[1], max(feature_group_count, batch_group_count))
    out = do.conv_general_dilated(
        ct,
        with_dtype(do.rev(kernel, dimensions=tuple(rhs_spec[2:])), ct.aval),
        window_strides=lhs_dilation,
        padding=tuple(pads),
        lhs_dilation=window_strides,
        rhs_dilation=rhs_dilation,
        dimension_numbers=ConvDimensionNumbers(out_spec, _swapped(rhs_spec), lhs_spec),
        feature_group_count=max(feature_group_count, batch_group_count),
        batch_group_count=1,
        precision=precision,
        preferred_element_type=None,
        out_sharding=None if batch_group_count > 1 else cotangent_sharding(aval),
    )
    return with_dtype(_grouped(out, lhs_spec[1], lhs_spec[0], batch_group_count), aval)


def _conv_back_rhs(
    ct: Array,
    lhs: Any,
    aval: ShapedArray,
    *,
    window_strides: Ints,
    padding: Pads,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    dimension_numbers: ConvDimensionNumbers,
    feature_group_count: int,
    batch_group_count: int,
    precision: CanonicalPrecision,
    **_: Any,
) -> Any:
    """Features are the batch here, and the batch is what is summed over."""
    dims = dimension_numbers
    sides = _sides(dims, lhs.shape, aval.shape, ct.shape, window_strides, lhs_dilation, rhs_dilation)
    pads = [(low, k + m - 1 - n - low) for (n, k, m), (low, _) in zip(sides, padding, strict=True)]
    lhs_spec, rhs_spec, out_spec = map(_swapped, dims)
    out = do.conv_general_dilated(
        with_dtype(lhs, ct.aval),
        ct,
        window_strides=rhs_dilation,
        padding=tuple(pads),
        lhs_dilation=lhs_dilation,
        rhs_dilation=window_strides,
        dimension_numbers=ConvDimensionNumbers(lhs_spec, out_spec, rhs_spec),
        feature_group_count=batch_group_count,
        batch_group_count=feature_group_count,
        precision=precision,
        preferred_element_type=None,
        out_sharding=cotangent_sharding(aval),
    )
    return with_dtype(out, aval)
