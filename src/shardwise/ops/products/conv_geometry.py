"""Shapes of convolutions and windows: the meaning of dims, padding modes, and the sizes that follow.

Comes in: layouts such as ``('NCHW', 'OIHW', 'NCHW')``, padding modes, sizes. Goes out: permutations, pads, result shapes.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple, TypeAlias

from shardwise.base.shapes import Ints
from shardwise.ir.op import Params, Steps, Types

__all__ = ["ConvDimensionNumbers", "ConvGeneralDilatedDimensionNumbers", "PaddingType", "conv_dimension_numbers",
           "conv_general_permutations", "conv_general_shape_tuple", "conv_shape_tuple", "conv_transpose_shape_tuple",
           "padtype_to_pads"]  # fmt: skip

Pads = tuple[tuple[int, int], ...]


class ConvDimensionNumbers(NamedTuple):
    """The dims of a convolution's tensors, each as (batch, feature, *spatial); for the kernel (out, in, *spatial)."""

    lhs_spec: Ints
    rhs_spec: Ints
    out_spec: Ints


ConvGeneralDilatedDimensionNumbers: TypeAlias = ConvDimensionNumbers | tuple[str, str, str] | None


class PaddingType(enum.Enum):
    """How a window op pads: not at all, or to ``ceil(size / stride)`` results with the odd one at the end or the start."""

    VALID = 1
    SAME = 2
    SAME_LOWER = 3


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: Any
) -> list[tuple[int, int]]:
    """The (low, high) pads that a padding mode means for an array of `in_shape` and windows of `window_shape` in
    steps of `window_strides`.

    RuntimeError for an unknown name, TypeError for a value that is neither a name nor a `PaddingType`, ValueError for steps
    below 1.

    >>> lax.padtype_to_pads((5,), (3,), (2,), "SAME")
    [(1, 1)]
    """
    if isinstance(padding, str):
        if padding.upper() not in PaddingType.__members__:
            raise RuntimeError(f"Unrecognized padding type {padding!r}: expected 'VALID', 'SAME' or 'SAME_LOWER'.")
        padding = PaddingType[padding.upper()]
    if not isinstance(padding, PaddingType):
        raise TypeError(f"Unknown padding type {padding!r}: expected 'VALID', 'SAME', 'SAME_LOWER' or a PaddingType.")
    if padding is PaddingType.VALID:
        return [(0, 0)] * len(in_shape)
    if any(index(s) < 1 for s in window_strides):
        raise ValueError(f"window_strides must be positive, got {tuple(window_strides)}.")
    pads = []
    for sizes in zip(in_shape, window_shape, window_strides, strict=True):
        n, k, s = map(index, sizes)
        total = max((-(-n // s) - 1) * s + k - n, 0)
        small, large = total // 2, total - total // 2
        pads.append((small, large) if padding is PaddingType.SAME else (large, small))
    return pads


def explicit_pads(name: str, padding: Any) -> Pads:
    """Pads given as pairs; ValueError for anything else."""
    try:
        return tuple((index(low), index(high)) for low, high in padding)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{name}: padding should be a mode ('SAME', 'SAME_LOWER', 'VALID') or a sequence of (low, high) "
            f"pairs of ints, got {padding!r}."
        ) from error


def dilated_size(size: int, dilation: int) -> int:
    """A size with `dilation - 1` gaps between neighbours."""
    return (size - 1) * dilation + 1 if size else 0


def window_count(size: int, window: int, stride: int) -> int:
    """How many windows fit into `size`."""
    return (size - window) // stride + 1 if size >= window else 0


def conv_general_permutations(dimension_numbers: Sequence[Any]) -> tuple[Ints, Ints, Ints]:
    """The layouts `dimension_numbers`, such as ('NHWC', 'HWIO', 'NHWC'), as (batch, feature, *spatial) dims; the
    spatial letters are ordered as in the kernel's layout.

    ValueError unless they are three strings; TypeError where one lacks its letters, repeats one, or the spatial letters differ.

    >>> lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    """
    if len(dimension_numbers) != 3 or not all(isinstance(x, str) for x in dimension_numbers):
        raise ValueError(f"convolution dimension_numbers are three strings, got {dimension_numbers!r}.")
    pairs = (("N", "C"), ("O", "I"), ("N", "C"))
    for i, (layout, (a, b)) in enumerate(zip(dimension_numbers, pairs, strict=True)):
        if not layout.count(a) == layout.count(b) == 1:
            raise TypeError(
                f"convolution dimension_numbers[{i}] must contain {a!r} and {b!r} exactly once, got {layout!r}."
            )
        if len(set(layout)) != len(layout):
            raise TypeError(f"convolution dimension_numbers[{i}] cannot have duplicate letters, got {layout!r}.")
    spatial = [set(layout) - set(pair) for layout, pair in zip(dimension_numbers, pairs, strict=True)]
    if not spatial[0] == spatial[1] == spatial[2]:
        raise TypeError(
            f"convolution dimension_numbers must share one set of spatial letters, got {dimension_numbers}."
        )
    order = [c for c in dimension_numbers[1] if c not in "OI"]
    lhs, rhs, out = (
        tuple(layout.index(c) for c in (*pair, *order)) for layout, pair in zip(dimension_numbers, pairs, strict=True)
    )
    return lhs, rhs, out


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """The layouts `dimension_numbers`, or None for batch, feature and spatial dims in this order, as
    `ConvDimensionNumbers`; TypeError if unfit.

    `lhs_shape` and `rhs_shape` tell the number of dims.

    >>> lax.conv_dimension_numbers((8, 32, 32, 3), (3, 3, 3, 16), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError(f"convolution requires lhs and rhs of one rank, got shapes {lhs_shape} and {rhs_shape}.")
    if len(lhs_shape) < 2:
        raise TypeError(
            f"convolution takes arrays with a batch and a feature dim, got shapes {lhs_shape} and {rhs_shape}."
        )
    if dimension_numbers is None:
        dims = tuple(range(len(lhs_shape)))
        return ConvDimensionNumbers(dims, dims, dims)
    if not isinstance(dimension_numbers, list | tuple):
        raise TypeError(f"convolution dimension_numbers must be a tuple or None, got {type(dimension_numbers)}.")
    if len(dimension_numbers) != 3 or not all(isinstance(x, str) for x in dimension_numbers):
        raise TypeError(
            "convolution dimension_numbers are three strings such as ('NCHW', 'OIHW', 'NCHW'), got "
            f"{dimension_numbers!r}."
        )
    for i, layout in enumerate(dimension_numbers):
        if len(layout) != len(lhs_shape):
            raise TypeError(
                f"convolution dimension_numbers[{i}] is {layout!r}, but lhs and rhs have {len(lhs_shape)} dims "
                f"(shapes {lhs_shape} and {rhs_shape})."
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def conv_shape_tuple(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], strides: Sequence[int], pads: Any, batch_group_count: int = 1
) -> Ints:
    """The result's shape for operands of `lhs_shape` and `rhs_shape` in canonical order, (N, C, spatial) and (O, I,
    spatial), dilations applied.

    Args:
        strides: steps of the window, one per dim of space.
        pads: (low, high) pairs, one per dim of space, or a padding's name.
        batch_group_count: the number of groups of the batch.

    Raises:
        TypeError: there are more or fewer `pads` than dims of space. ValueError: negative ones cut more than there
            is.

    >>> lax.conv_shape_tuple((1, 1, 5), (1, 1, 3), (1,), "VALID")
    (1, 1, 3)
    """
    if isinstance(pads, str):
        pads = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    if len(pads) != len(lhs_shape) - 2:
        raise TypeError(
            f"Wrong number of explicit pads for convolution: expected {len(lhs_shape) - 2}, got {len(pads)}."
        )
    padded_sizes = [n + low + high for n, (low, high) in zip(lhs_shape[2:], pads, strict=True)]
    if any(n < 0 for n in padded_sizes):
        raise ValueError(
            f"Negative padding is larger than the dim that it cuts: padding {pads} for sizes {lhs_shape[2:]}."
        )
    space = (window_count(n, k, s) for n, k, s in zip(padded_sizes, rhs_shape[2:], strides, strict=True))
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *space)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Sequence[str],
) -> Ints:
    """The result's shape of a convolution without dilations, in its layout; the arguments are shapes, and the options
    of `conv_general_dilated`.

    Args:
        lhs_shape, rhs_shape: the operands' shapes.
        window_strides: steps of the window, one per dim of space.
        padding: 'VALID', 'SAME', 'SAME_LOWER' or (low, high) pairs.
        dimension_numbers: layouts such as ('NCHW', 'OIHW', 'NCHW'), or `ConvDimensionNumbers`.

    >>> lax.conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 16), (1, 1), "SAME", ("NHWC", "HWIO", "NHWC"))
    (1, 8, 8, 16)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple([lhs_shape[d] for d in lhs], [rhs_shape[d] for d in rhs], window_strides, padding)
    return place_dims(shape, out)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    dimension_numbers: Sequence[str],
) -> Ints:
    """The result's shape of `conv_transpose`, in its layout.

    Args:
        lhs_shape, rhs_shape: the operands' shapes.
        window_strides: the strides of the forward convolution.
        padding: 'VALID', 'SAME', 'SAME_LOWER' or (low, high) pairs.
        dimension_numbers: layouts such as ('NCHW', 'OIHW', 'NCHW'), or `ConvDimensionNumbers`.

    >>> lax.conv_transpose_shape_tuple((1, 4, 4, 16), (3, 3, 3, 16), (2, 2), "SAME", ("NHWC", "HWOI", "NHWC"))
    (1, 8, 8, 3)
    """
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    left, right = [lhs_shape[d] for d in lhs], [rhs_shape[d] for d in rhs]
    if isinstance(padding, str):
        padding = [transpose_pads(k, s, padding) for k, s in zip(right[2:], window_strides, strict=True)]
    space = (
        (n - 1) * s - k + 2 + sum(p) for n, k, s, p in zip(left[2:], right[2:], window_strides, padding, strict=True)
    )
    return place_dims((left[0], right[0], *space), out)


FEW = 64  # pairs of channels up to which a convolution is computed in another way


def conv_algorithm(ins: Types, outs: Types, params: Params) -> Steps:
    """Multiplications: each element of the result takes one element of the kernel after the other, but for its output channels."""
    kernel, (to, of, *_) = ins[1], params["dimension_numbers"].rhs_spec
    name = "convolution" if kernel.shape[to] * kernel.shape[of] >= FEW else "convolution_few"
    if max(params["feature_group_count"], params["batch_group_count"]) > 1:
        name = "convolution/groups"
    elif any(n > 1 for dims in ("window_strides", "lhs_dilation", "rhs_dilation") for n in params[dims]):
        name += "/strides"
    return Steps(name, outs[0].size * kernel.size / kernel.shape[to], size=kernel.size)


def place_dims(canonical: Sequence[Any], spec: Ints) -> tuple[Any, ...]:
    """Entries given in canonical order, put at the dims that `spec` names."""
    out = [None] * len(spec)
    for entry, d in zip(canonical, spec, strict=True):
        out[d] = entry
    return tuple(out)


def transpose_pads(window: int, stride: int, padding: Any) -> tuple[int, int]:
    """The pads of a transposed convolution from those of the forward one; ValueError for an unknown mode."""
    if padding == "SAME":
        total = window + stride - 2
        low = window - 1 if stride > window - 1 else -(-total // 2)
        return low, total - low
    if padding == "VALID":
        total = window + stride - 2 + max(window - stride, 0)
        return window - 1, total - (window - 1)
    if isinstance(padding, tuple):
        return window - padding[0] - 1, window - padding[1] - 1
    raise ValueError(f"Invalid padding mode: {padding!r}; expected 'SAME', 'VALID' or a (low, high) tuple.")
