"""Convolutions: `conv_general_dilated` and the functions built on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import check_requested, issubdtype
from shardwise.base.shapes import Ints, Ndarray
from shardwise.ir import Array, Equation, ShapedArray, Shown, bind, define_op
from shardwise.ir.explicit import complete_types
from shardwise.ir.op import Params, Types
from shardwise.ops.products import conv_geometry
from shardwise.ops.products.conv_derivative import conv_transpose_rule
from shardwise.ops.products.conv_geometry import *  # noqa: F403
from shardwise.ops.products.conv_geometry import (
    ConvDimensionNumbers,
    ConvGeneralDilatedDimensionNumbers,
    Pads,
    conv_algorithm,
    conv_dimension_numbers,
    conv_shape_tuple,
    dilated_size,
    explicit_pads,
    padtype_to_pads,
    place_dims,
    transpose_pads,
)
from shardwise.ops.products.conv_sharding import conv_explicit, conv_halo, conv_localize, conv_places, conv_rule
from shardwise.ops.products.direct_conv import pays
from shardwise.ops.products.im2col import ConvWindow, cut_windows
from shardwise.ops.products.planned_conv import planned_kernel
from shardwise.ops.products.split_products import check_algorithm
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import later, multilinear_jvp
from shardwise.ops.rules.out_sharding import resolve_out_sharding, with_out_sharding
from shardwise.ops.rules.precision import CanonicalPrecision, PrecisionLike, canonicalize_precision
from shardwise.ops.rules.small_programs import as_program
from shardwise.ops.shapes import rev, transpose
from shardwise.ops.shapes.even_windows import even_windows
from shardwise.runtime.env import Env
from shardwise.sharding import NamedSharding

__all__ = ["conv", "conv_general_dilated", "conv_general_dilated_p", "conv_general_dilated_patches", "conv_transpose",
           "conv_with_general_padding"]  # fmt: skip
__all__ += conv_geometry.__all__


# -- type ------------------------------------------------------------------------------------------------------------------


def _conv_type(
    lhs: ShapedArray,
    rhs: ShapedArray,
    *,
    window_strides: Ints,
    padding: Pads,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    dimension_numbers: ConvDimensionNumbers,
    feature_group_count: int,
    batch_group_count: int,
    precision: CanonicalPrecision,
    preferred_element_type: np.dtype[Any] | None,
    out_sharding: NamedSharding | None = None,
) -> ShapedArray:
    check_algorithm(precision, lhs.dtype, rhs.dtype)
    dims = dimension_numbers
    if lhs.ndim != rhs.ndim:
        raise ValueError(f"conv_general_dilated takes operands of one rank, got shapes {lhs.shape} and {rhs.shape}.")
    left, right = [lhs.shape[d] for d in dims.lhs_spec], [rhs.shape[d] for d in dims.rhs_spec]
    _check_groups(left, right, feature_group_count, batch_group_count)
    for name, entries in (
        ("window_strides", window_strides),
        ("lhs_dilation", lhs_dilation),
        ("rhs_dilation", rhs_dilation),
    ):
        if len(entries) != lhs.ndim - 2:
            raise ValueError(
                f"conv_general_dilated window and {name} must have the same number of dimensions, but got "
                f"{lhs.ndim - 2} and {len(entries)}."
            )
        if any(n < 1 for n in entries):
            raise ValueError(f"conv_general_dilated {name} must be positive, got {entries}.")
    left[2:] = map(dilated_size, left[2:], lhs_dilation)
    right[2:] = map(dilated_size, right[2:], rhs_dilation)
    shape = place_dims(conv_shape_tuple(left, right, window_strides, padding, batch_group_count), dims.out_spec)
    dtype = _conv_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    out = ShapedArray(shape, dtype, lhs.weak_type and rhs.weak_type)
    params = dict(
        dimension_numbers=dims,
        out_sharding=out_sharding,
        window_strides=window_strides,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
    )
    (out,) = complete_types(conv_general_dilated_p, (lhs, rhs), (out,), params)
    return with_out_sharding(out, out_sharding)


def _check_groups(left: list[int], right: list[int], feature_groups: int, batch_groups: int) -> None:
    """ValueError unless the groups divide what they group; `left` is (N, C, ...), `right` (O, I, ...)."""
    name = "conv_general_dilated"
    for what, groups in (("feature_group_count", feature_groups), ("batch_group_count", batch_groups)):
        if groups < 1:
            raise ValueError(f"{name} {what} must be a positive integer, got {groups}.")
        if right[0] % groups:
            raise ValueError(
                f"{name} rhs output feature dimension size must be a multiple of {what}, but {right[0]} is not "
                f"a multiple of {groups}."
            )
    if left[1] % feature_groups:
        raise ValueError(
            f"{name} feature_group_count must divide lhs feature dimension size, but {feature_groups} does not "
            f"divide {left[1]}."
        )
    if left[1] // feature_groups != right[1]:
        raise ValueError(
            f"{name} lhs feature dimension size divided by feature_group_count must equal the rhs input feature "
            f"dimension size, but {left[1]} // {feature_groups} != {right[1]}."
        )
    if left[0] % batch_groups:
        raise ValueError(
            f"{name} batch_group_count must divide lhs batch dimension size, but {batch_groups} does not divide "
            f"{left[0]}."
        )
    if batch_groups > 1 and feature_groups > 1:
        raise ValueError(
            f"At most one of batch_group_count and feature_group_count may be > 1, got {batch_groups} and "
            f"{feature_groups}."
        )


def _conv_dtype(lhs: np.dtype[Any], rhs: np.dtype[Any], preferred: np.dtype[Any] | None) -> np.dtype[Any]:
    if lhs != rhs:
        raise TypeError(
            f"conv_general_dilated requires operands of one dtype, got {lhs.name} and {rhs.name}. "
            "Cast one with lax.convert_element_type."
        )
    if preferred is None or preferred == lhs:
        return lhs
    to_float = issubdtype(lhs, np.integer) and issubdtype(preferred, np.floating)
    for kind in (np.integer, np.floating, np.complexfloating):
        if issubdtype(lhs, kind) and not issubdtype(preferred, kind) and not to_float:
            raise TypeError(
                f"conv_general_dilated of {lhs.name} cannot give preferred_element_type {preferred.name}: integers "
                "give integers or floats, floats floats, complex complex."
            )
    if issubdtype(lhs, np.signedinteger) and not issubdtype(preferred, np.signedinteger) and not to_float:
        raise TypeError(
            f"preferred_element_type must have the same signedness as the operands, got {preferred.name} for "
            f"{lhs.name}."
        )
    if preferred.itemsize < lhs.itemsize:
        raise TypeError(
            f"preferred_element_type must not be narrower than the type of the operands, got {preferred.name} for "
            f"{lhs.name}."
        )
    return preferred


# -- kernel ----------------------------------------------------------------------------------------------------------------


def _conv_kernel(env: Env, lhs: Ndarray, rhs: Ndarray, **params: Any) -> Ndarray:
    return _kernel_of(env, params)(lhs, rhs)


def _conv_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[[Ndarray, Ndarray], Ndarray]:
    del in_types, out_types
    return _kernel_of(env, params)


def _kernel_of(env: Env, params: Params) -> Callable[[Ndarray, Ndarray], Ndarray]:
    names = "window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers", "feature_group_count"
    window = ConvWindow(*[params[name] for name in (*names, "batch_group_count")])
    return planned_kernel(env.lead, window, params["precision"], params["preferred_element_type"])


def _conv_workspace(in_types: Types, out_types: Types, params: Params) -> tuple[int, ...]:
    """The padded operand; the kernel as machine code reads it, or for two threads the windows that they lay out."""
    (lhs, rhs), out, dims = in_types, out_types[0], params["dimension_numbers"]
    kernel = tuple(rhs.shape[d] for d in dims.rhs_spec)
    counts = [out.shape[d] for d in dims.out_spec[2:]]
    buffers: list[int] = []
    if any(map(any, params["padding"])) or set(params["lhs_dilation"]) - {1}:
        size = math.prod(lhs.shape[d] for d in dims.lhs_spec[:2])
        for d, gap, (low, high) in zip(dims.lhs_spec[2:], params["lhs_dilation"], params["padding"], strict=True):
            size *= max(dilated_size(lhs.shape[d], gap) + low + high, 0)
        buffers.append(size * lhs.itemsize)
    if math.prod(kernel[2:]) > 1:
        n, groups = out.shape[dims.out_spec[0]], params["feature_group_count"] * params["batch_group_count"]
        last = dims.out_spec[1] == out.ndim - 1
        if groups == 1 and pays(out.dtype, kernel, n * math.prod(counts), counts[-1], last):
            buffers.append(rhs.nbytes)
        else:
            each = groups * math.prod(kernel[1:]) * math.prod(counts)
            samples, rows = cut_windows(n, max(each, 1), counts[0], 2)
            buffers += [4 * samples * each * rows // max(counts[0], 1)] * 2
    return tuple(buffers)


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    return {**shown, **({"out_sharding": None} if config.dialect.jaxprs.reduction_shows_out_sharding else {})}


conv_general_dilated_p = define_op(
    "conv_general_dilated",
    type_rule=_conv_type,
    kernel=_conv_kernel,
    compile=_conv_compile,
    rule=conv_rule,
    workspace=_conv_workspace,
    algorithm=conv_algorithm,
    explicit=conv_explicit,
    localize=conv_localize,
    halo=conv_halo,
    partition=even_windows(conv_places),
    typed=True,
    jvp=multilinear_jvp("conv_general_dilated", (0, 1)),
    transpose=conv_transpose_rule,
    makes_nan=True,
    product=True,
    small=as_program(
        later("shardwise.ops.products.small_conv", "small_conv"),
        later("shardwise.ops.products.small_conv", "has_few_taps"),
    ),
    shown=Shown(empty=("precision", "preferred_element_type"), change=_shown_params),
)


# -- public ------------------------------------------------------------------------------------------------------------------


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """The n-dimensional convolution (a correlation: the kernel is not flipped) of `lhs` with the kernel `rhs`.

    `dimension_numbers` are layouts such as ``('NHWC', 'HWIO', 'NHWC')``; by default batch and features come first. `padding`
    is 'VALID', 'SAME', 'SAME_LOWER' or (low, high) pairs, which may be negative. `lhs_dilation` puts gaps between the
    elements of lhs (transposed convolution), `rhs_dilation` between those of the kernel. Features, or the batch, may be
    convolved in groups. Both operands have one dtype; the result has it, too, or `preferred_element_type`.

    Raises ValueError for sizes that do not fit, TypeError for dtypes and layouts, RuntimeError for an unknown padding mode.

    Args:
        window_strides: steps of the window, one per dim of space.
        feature_group_count: the number of groups of features: each group of results sees only its group of `lhs`.
        batch_group_count: likewise the number of groups of the batch.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> lax.conv_general_dilated(jnp.ones((1, 4, 3)), jnp.ones((2, 3, 5)), (1,), 'SAME', dimension_numbers=('NWC', 'WIO', 'NWC')).shape
    (1, 4, 5)
    """
    x, w = as_array(lhs), as_array(rhs)
    dims = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    space = len(dims.lhs_spec) - 2
    strides = tuple(index(s) for s in window_strides)
    gaps = (1,) * space if lhs_dilation is None else tuple(index(d) for d in lhs_dilation)
    spread = (1,) * space if rhs_dilation is None else tuple(index(d) for d in rhs_dilation)
    if isinstance(padding, str):
        if any(d != 1 for d in gaps):
            raise ValueError(
                "String padding is not implemented for transposed convolution using this op. Give (low, high) pairs, "
                "or use conv_transpose."
            )
        if len(strides) != space:
            raise ValueError(
                f"conv_general_dilated window and window_strides must have the same number of dimensions, but got "
                f"{space} and {len(strides)}."
            )
        window = [dilated_size(w.shape[d], r) for d, r in zip(dims.rhs_spec[2:], spread, strict=True)]
        pads: Pads = tuple(padtype_to_pads([x.shape[d] for d in dims.lhs_spec[2:]], window, strides, padding))
    else:
        pads = explicit_pads("conv_general_dilated", padding)
    dtype = None if preferred_element_type is None else check_requested(preferred_element_type, "conv_general_dilated")
    sharding = resolve_out_sharding(out_sharding, "conv_general_dilated", x.ndim)
    return bind(
        conv_general_dilated_p,
        x,
        w,
        window_strides=strides,
        padding=pads,
        lhs_dilation=gaps,
        rhs_dilation=spread,
        dimension_numbers=dims,
        feature_group_count=index(feature_group_count),
        batch_group_count=index(batch_group_count),
        precision=canonicalize_precision(precision),
        preferred_element_type=dtype,
        out_sharding=sharding,
    )


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """`conv_general_dilated` of `lhs` (N, C, space...) with the kernel `rhs` (O, I, space...), without dilations.

    Args:
        window_strides: steps of the window, one per dim of space.
        padding: 'VALID', 'SAME', 'SAME_LOWER' or (low, high) pairs.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.

    >>> lax.conv(jnp.ones((1, 1, 3, 3)), jnp.ones((1, 1, 2, 2)), (1, 1), 'VALID').shape
    (1, 1, 2, 2)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """`conv_general_dilated` of `lhs` (N, C, space...) with the kernel `rhs` (O, I, space...).

    Args:
        window_strides: steps of the window, one per dim of space.
        padding: (low, high) pairs, or a name.
        lhs_dilation: gaps between elements of `lhs`, one number per dim of space; 1 for none.
        rhs_dilation: gaps between elements of the kernel, likewise.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.

    >>> lax.conv_with_general_padding(jnp.ones((1, 1, 4)), jnp.ones((1, 1, 2)), (1,), [(0, 0)], (1,), (1,))
    Array([[[2., 2., 2.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_TRANSPOSE_LAYOUTS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Array:
    """The transposed convolution: `lhs` spread out by `strides`, then convolved with the kernel `rhs`. Features are
    last by default.

    'SAME' and 'VALID' name the padding of the forward convolution; pairs are applied as they are unless
    `use_consistent_padding` says that they are the forward one's, too. `transpose_kernel` flips the kernel in space
    and swaps its features, which makes this the gradient of a forward convolution with it.

    Args:
        rhs_dilation: gaps between elements of the kernel, likewise.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.

    Raises:
        ValueError: there is no default layout for this number of dims.

    >>> lax.conv_transpose(jnp.ones((1, 4, 1)), jnp.ones((2, 1, 1)), (2,), 'VALID', dimension_numbers=('NWC', 'WIO', 'NWC')).shape
    (1, 8, 1)
    """
    x, w = as_array(lhs), as_array(rhs)
    if dimension_numbers is None:
        if x.ndim not in _TRANSPOSE_LAYOUTS:
            raise ValueError(
                f"conv_transpose has no default layout for {x.ndim - 2} dims of space; give dimension_numbers."
            )
        dimension_numbers = _TRANSPOSE_LAYOUTS[x.ndim]  # type: ignore[assignment]
    dims = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    space = len(strides)
    spread = (1,) * space if rhs_dilation is None else tuple(rhs_dilation)
    pads: Any = padding
    if use_consistent_padding or (isinstance(padding, str) and padding in ("SAME", "VALID")):
        window = [dilated_size(w.shape[d], r) for d, r in zip(dims.rhs_spec[2:], spread, strict=True)]
        forward = [padding] * space if isinstance(padding, str) else padding
        pads = tuple(transpose_pads(k, s, p) for k, s, p in zip(window, strides, forward, strict=True))
    if transpose_kernel:
        perm = list(range(w.ndim))
        perm[dims.rhs_spec[0]], perm[dims.rhs_spec[1]] = dims.rhs_spec[1], dims.rhs_spec[0]
        w = transpose(rev(w, dims.rhs_spec[2:]), perm)
    return conv_general_dilated(
        x,
        w,
        (1,) * space,
        pads,
        strides,
        spread,
        dims,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
) -> Array:
    """The windows of `lhs` as features: the result has ``C * prod(filter_shape)`` of them, channels major.

    Args:
        window_strides: steps of the window, one per dim of space.
        padding: 'VALID', 'SAME', 'SAME_LOWER' or (low, high) pairs.
        lhs_dilation: gaps between elements of `lhs`, one number per dim of space; 1 for none.
        rhs_dilation: gaps between elements of the kernel, likewise.
        dimension_numbers: layouts such as ('NCHW', 'OIHW', 'NCHW'), or `ConvDimensionNumbers`.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.

    >>> lax.conv_general_dilated_patches(jnp.arange(4.0).reshape(1, 1, 4), (2,), (1,), "VALID")[0]
    Array([[0., 1., 2.],
           [1., 2., 3.]], dtype=float32)
    """
    x = as_array(lhs)
    filter_shape = tuple(filter_shape)
    dims = conv_dimension_numbers(x.shape, (1, 1, *filter_shape), dimension_numbers)
    channels = x.shape[dims.lhs_spec[1]]
    size = int(np.prod(filter_shape))
    # A convolution per channel with every kernel that picks one element.
    picks = np.eye(size, dtype=x.dtype).reshape(size, 1, *filter_shape)
    kernel = np.tile(picks, (channels, 1, *(1,) * len(filter_shape))).transpose(np.argsort(dims.rhs_spec))
    return conv_general_dilated(
        x,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dims,
        channels,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
