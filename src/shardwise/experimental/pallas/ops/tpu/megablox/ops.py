"""`gmm` with its derivatives, which are such products, too.

In: f[m, k] whose rows are in groups, and f[g, k, n]. Out: f[m, n].
"""

from __future__ import annotations

from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.custom_derivatives import custom_vjp
from shardwise.experimental.pallas.ops.tpu.megablox.gmm import Tiling
from shardwise.experimental.pallas.ops.tpu.megablox.gmm import gmm as grouped_product
from shardwise.experimental.pallas.ops.tpu.megablox.gmm import tgmm as product_of_groups
from shardwise.ir import Array

__all__ = ["gmm"]


def _forward(
    lhs: Any, rhs: Any, group_sizes: Any, dtype: Any, tiling: Tiling, group_offset: Any, *options: Any
) -> tuple[Array, tuple[Any, ...]]:
    out = grouped_product(lhs, rhs, group_sizes, dtype, tiling, group_offset, *options)
    return out, (lhs, rhs, group_sizes, group_offset)


def _backward(
    preferred_element_type: Any,
    tiling: Tiling,
    transpose_rhs: bool,
    interpret: bool,
    kept: tuple[Any, ...],
    ct: Array,
) -> tuple[Array, Array, None, None, Array]:
    lhs, rhs, group_sizes, offset = kept
    of_lhs = grouped_product(
        ct, rhs, group_sizes, lhs.dtype, tiling, offset, None, transpose_rhs=not transpose_rhs, interpret=interpret
    )
    of_rhs = product_of_groups(
        lhs.swapaxes(0, 1), ct, group_sizes, rhs.dtype, tiling, offset, rhs.shape[0], interpret=interpret
    )
    return of_lhs, of_rhs.swapaxes(1, 2) if transpose_rhs else of_rhs, None, None, ct


gmm = custom_vjp(grouped_product, nondiff_argnums=(3, 4, 7, 8))
gmm.defvjp(_forward, _backward)

__dir__ = _listing(__name__)
