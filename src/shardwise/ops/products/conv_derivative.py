"""The transpose rule of convolutions: both cotangents are convolutions of the cotangent of the result."""

from __future__ import annotations

from typing import Any

from shardwise.base.shapes import Ints
from shardwise.ir import Array, ShapedArray
from shardwise.ir.op import Params
from shardwise.ops.products.conv_geometry import ConvDimensionNumbers, dilated_size
from shardwise.ops.rules.derivative import cotangent_sharding, do, is_linear, with_dtype


def conv_transpose_rule(ct: Array, lhs: Any, rhs: Any, **params: Any) -> list[Any]:
    """The cotangent of lhs is a convolution with the flipped kernel, that of the kernel a convolution of lhs."""
    if is_linear(lhs):
        return [_conv_back_lhs(ct, lhs.aval, rhs, params), None]
    return [None, _conv_back_rhs(ct, lhs, rhs.aval, params)]


def _swap_roles(spec: Ints) -> Ints:
    """A layout with its first two roles exchanged."""
    return (spec[1], spec[0], *spec[2:])


def _move_groups(x: Any, source: int, target: int, groups: int) -> Any:
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


def _sides(left: Ints, right: Ints, out: Ints, params: Params) -> Any:
    """Per spatial dim the sizes of lhs, kernel and result with the gaps that dilations and strides make."""
    gaps = (params["lhs_dilation"], params["rhs_dilation"], params["window_strides"])
    specs: ConvDimensionNumbers = params["dimension_numbers"]
    sizes = [[shape[d] for d in spec[2:]] for shape, spec in zip((left, right, out), specs, strict=True)]
    return zip(*(map(dilated_size, s, g) for s, g in zip(sizes, gaps, strict=True)), strict=True)


def _conv_back_lhs(ct: Array, aval: ShapedArray, rhs: Any, params: Params) -> Any:
    lhs_spec, rhs_spec, out_spec = params["dimension_numbers"]
    batch_groups = params["batch_group_count"]
    groups = max(params["feature_group_count"], batch_groups)
    sides = zip(_sides(aval.shape, rhs.shape, ct.shape, params), params["padding"], strict=True)
    kernel = _move_groups(rhs, rhs_spec[0], rhs_spec[1], groups)
    new_params = dict(
        window_strides=params["lhs_dilation"],
        lhs_dilation=params["window_strides"],
        padding=tuple([(k - 1 - low, n + low - m) for (n, k, m), (low, _) in sides]),
        dimension_numbers=ConvDimensionNumbers(out_spec, _swap_roles(rhs_spec), lhs_spec),
        feature_group_count=groups,
        batch_group_count=1,
        preferred_element_type=None,
        out_sharding=None if batch_groups > 1 else cotangent_sharding(aval),
    )
    flipped_kernel = with_dtype(do.rev(kernel, dimensions=tuple(rhs_spec[2:])), ct.aval)
    out = do.conv_general_dilated(ct, flipped_kernel, **{**params, **new_params})
    return with_dtype(_move_groups(out, lhs_spec[1], lhs_spec[0], batch_groups), aval)


def _conv_back_rhs(ct: Array, lhs: Any, aval: ShapedArray, params: Params) -> Any:
    """Features take the place of the batch, and the batch is summed over."""
    lhs_spec, rhs_spec, out_spec = map(_swap_roles, params["dimension_numbers"])
    sides = zip(_sides(lhs.shape, aval.shape, ct.shape, params), params["padding"], strict=True)
    new_params = dict(
        window_strides=params["rhs_dilation"],
        rhs_dilation=params["window_strides"],
        padding=tuple([(low, k + m - 1 - n - low) for (n, k, m), (low, _) in sides]),
        dimension_numbers=ConvDimensionNumbers(lhs_spec, out_spec, rhs_spec),
        feature_group_count=params["batch_group_count"],
        batch_group_count=params["feature_group_count"],
        preferred_element_type=None,
        out_sharding=cotangent_sharding(aval),
    )
    out = do.conv_general_dilated(with_dtype(lhs, ct.aval), ct, **{**params, **new_params})
    return with_dtype(out, aval)
