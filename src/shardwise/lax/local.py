"""Convolutions that have a kernel of their own at each place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.ir import Array
from shardwise.ops.products.contract import dot_general
from shardwise.ops.products.conv import conv_dimension_numbers, conv_general_dilated_patches
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.transpose import transpose

__all__ = ["conv_general_dilated_local"]


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Array:
    """A convolution whose kernels are not shared: `rhs` has one for each place of the result.

    `lhs` is as of `conv_general_dilated`. `rhs` has three kinds of dims, in the order of `dimension_numbers`' kernel: features
    of the result, ``channels * prod(filter_shape)`` weights with channels major, and the result's spatial dims.
    TypeError where shapes do not fit.

    Args:
        window_strides: steps of the window, one per dim of space.
        padding: 'VALID', 'SAME', 'SAME_LOWER' or (low, high) pairs.
        lhs_dilation: gaps between elements of `lhs`, one number per dim of space; 1 for none.
        rhs_dilation: gaps between elements of the kernel, likewise.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.

    >>> x, w = jnp.arange(4.0).reshape(1, 1, 4), jnp.ones((1, 2, 3))
    >>> lax.conv_general_dilated_local(x, w, (1,), "VALID", (2,))
    Array([[[1., 3., 5.]]], dtype=float32)
    """
    x, kernels = as_array(lhs), as_array(rhs)
    windows = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision
    )
    dims = conv_dimension_numbers(x.shape, (1, 1, *filter_shape), dimension_numbers)
    batch, features, *places = dims.out_spec
    _, weights, *kernel_places = dims.rhs_spec
    # Batch dims of the product come first, in the order in which they are given: that of the result.
    order = sorted(range(len(places)), key=places.__getitem__)
    pairs = [places[i] for i in order], [kernel_places[i] for i in order]
    product = dot_general(windows, kernels, (((features,), (weights,)), pairs), precision=precision)
    n = product.ndim
    target = [0] * n
    target[batch], target[features] = n - 2, n - 1
    for source, i in enumerate(order):
        target[places[i]] = source
    return transpose(product, target)
