"""`gmm` and `tgmm`: the products of groups of rows without rules for derivatives, as formulas with the kernels' values.

In: f[m, k] whose rows are in groups, one after the other, and f[g, k, n]; or f[k, m] and f[m, n]. Out: f[m, n]; or f[g, k, n].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.dtypes import bfloat16
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.ops.rules.convert import as_array, as_value

__all__ = ["gmm", "tgmm"]

Tiling = tuple[int, int, int] | Callable[[int, int, int], tuple[int, int, int] | None] | None


class _Rows(NamedTuple):
    """The groups that are computed: their sizes, and the first row of the first one (None: row 0)."""

    sizes: Array
    start: Array | None


def gmm(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    preferred_element_type: Any = np.float32,
    tiling: Tiling = (128, 128, 128),
    group_offset: Any = None,
    existing_out: Any = None,
    transpose_rhs: bool = False,
    interpret: bool = False,
) -> Array:
    """Rows of `lhs` in groups, each group times its own matrix of `rhs`.

    Args:
        lhs: float32 or bfloat16 [m, k].
        rhs: the same [g, k, n], or [g, n, k] if `transpose_rhs`.
        group_sizes: int32, the rows of each group; of more groups than `rhs` has matrices if `group_offset` says which it has.
        preferred_element_type: the result's dtype. Products add up in float32.
        tiling: the kernel's blocks of m, k and n, or a function of these that gives them; m has to be a multiple of its block.
            Values do not depend on it.
        group_offset: int32 [], the group of the first matrix.
        existing_out: [m, n] of the result's dtype: the rows of no computed group. They are zeros if it is not given.
        transpose_rhs: whether matrices of `rhs` are transposed.
        interpret: changes nothing here: nothing is compiled for a TPU.

    Raises:
        ValueError: ranks, dtypes, sizes or blocks that do not fit.

    >>> gmm(jnp.ones((4, 2)), jnp.ones((2, 2, 3)), jnp.array([1, 3]), tiling=(4, 2, 3)).shape
    (4, 3)
    """
    a, b, sizes = _operands(lhs, rhs, group_sizes, 3)
    m, k = a.shape
    n, depth = (b.shape[1], b.shape[2]) if transpose_rhs else (b.shape[2], b.shape[1])
    if k != depth:
        raise ValueError(f"gmm: the rows of lhs have {k} elements, the matrices of rhs take {depth}.")
    old = None if existing_out is None else as_array(as_value(existing_out))
    if old is not None and old.dtype != preferred_element_type:
        raise ValueError("Existing output dtype must match preferred_element_type.")
    if old is not None and old.shape != (m, n):
        raise ValueError(f"gmm: existing_out has shape {old.shape}, the result {(m, n)}.")
    rows = _rows(sizes, group_offset, b.shape[0])
    _check_tiling(tiling, m, k, n)
    dims = (((1,), (2 if transpose_rhs else 1,)), ((), ()))
    numbers = lax.RaggedDotDimensionNumbers(dims, (0,), (0,))
    out = _product(_to_front(a, rows), b, rows, numbers, preferred_element_type).astype(preferred_element_type)
    if rows.start is not None:
        out = jnp.roll(out, rows.start, 0)
    if old is None:
        return out
    place = lax.broadcasted_iota(np.int32, (m, 1), 0)
    start = 0 if rows.start is None else rows.start
    return jnp.where((place >= start) & (place < start + rows.sizes.sum()), out, old)


def tgmm(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    preferred_element_type: Any = np.float32,
    tiling: Tiling = (128, 128, 128),
    group_offset: Any = None,
    num_actual_groups: int | None = None,
    existing_out: Any = None,
    interpret: bool = False,
) -> Array:
    """For each group, the columns of `lhs` times the rows of `rhs` that are in it; zeros for a group without rows.

    Args:
        lhs: float32 or bfloat16 [k, m].
        rhs: the same [m, n].
        group_sizes: int32, the rows of each group.
        preferred_element_type: the result's dtype. Products add up in float32.
        tiling: the kernel's blocks of m, k and n, as in `gmm`.
        group_offset: int32 [], the first group that is computed.
        num_actual_groups: how many groups are computed; all by default.
        existing_out: [g, k, n], added to the result.
        interpret: changes nothing here.

    Raises:
        ValueError: ranks, dtypes, sizes or blocks that do not fit.

    >>> tgmm(jnp.ones((2, 4)), jnp.ones((4, 3)), jnp.array([1, 3]), tiling=(4, 2, 3))[:, 0, 0]
    Array([1., 3.], dtype=float32)
    """
    a, b, sizes = _operands(lhs, rhs, group_sizes, 2)
    (k, m), n = a.shape, b.shape[1]
    if m != b.shape[0]:
        raise ValueError(f"tgmm: lhs has {m} columns, rhs {b.shape[0]} rows.")
    count = sizes.shape[0] if num_actual_groups is None else num_actual_groups
    rows = _rows(sizes, group_offset, count)
    _check_tiling(tiling, m, k, n)
    a, b = _to_front(a.swapaxes(0, 1), rows), _to_front(b, rows)
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    out = _product(a, b, rows, numbers, preferred_element_type if existing_out is None else np.float32)
    if existing_out is not None:
        out = out + as_array(as_value(existing_out)).astype(np.float32)
    return out.astype(preferred_element_type)


def _operands(lhs: Any, rhs: Any, group_sizes: Any, rank: int) -> tuple[Array, Array, Array]:
    a, b, sizes = (as_array(as_value(x)) for x in (lhs, rhs, group_sizes))
    for name, x, ndim in (("lhs", a, 2), ("rhs", b, rank)):
        if x.ndim != ndim:
            raise ValueError(f"Expected {ndim}-tensor for '{name}' but got {x.ndim}-tensor.")
        if x.dtype not in (bfloat16, np.float32):
            raise ValueError(f"Expected bfloat16 or float32 array but got {x.dtype}.")
    if sizes.dtype != np.int32:
        raise ValueError(f"Expected 32-bit integer 'group_sizes' but got {sizes.dtype}.")
    return a, b, sizes


def _check_tiling(tiling: Tiling, m: int, k: int, n: int) -> None:
    tile_sizes = tiling(m, k, n) if callable(tiling) else tiling
    if tile_sizes is None:
        raise ValueError(f"No tuned tiling found for (m, k, n) = ({m}, {k}, {n})")
    block: Sequence[int] = tile_sizes
    if m % block[0]:
        raise ValueError(f"{m} must be divisible by x-dimension tile size ({block[0]}).")


def _rows(sizes: Array, group_offset: Any, count: int) -> _Rows:
    if group_offset is None:
        return _Rows(sizes[:count], None)
    offset = as_array(as_value(group_offset))
    if offset.ndim:
        raise ValueError(f"group_offset must be a ()-shaped array. Got: {offset.shape}.")
    before = jnp.where(jnp.arange(sizes.shape[0]) < offset, sizes, 0).sum()
    return _Rows(lax.dynamic_slice_in_dim(sizes, offset, count), before)


def _to_front(rows: Array, groups: _Rows) -> Array:
    """The rows with those of the first computed group first."""
    return rows if groups.start is None else jnp.roll(rows, -groups.start, 0)


def _product(a: Array, b: Array, rows: _Rows, numbers: lax.RaggedDotDimensionNumbers, dtype: Any) -> Array:
    """The products, of this dtype if it is the operands' own, else float32; they add up in float32."""
    if a.dtype != b.dtype:  # a TPU multiplies in float32 unless both are bfloat16
        a, b = a.astype(np.float32), b.astype(np.float32)
    to = a.dtype if a.dtype == dtype else np.float32
    return lax.ragged_dot_general(a, b, rows.sizes, numbers, preferred_element_type=to)


__dir__ = _listing(__name__)
