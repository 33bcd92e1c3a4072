"""Pieces of `BCOO` arrays: cut, put together, repeated, turned around, and read at the places of others.

In: arrays and static or, for `bcoo_dynamic_slice`, traced positions. Out: arrays with the same batch and dense dims, if not said otherwise.
Elements that a piece leaves out stay, at places outside of its shape, so that shapes do not depend on values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise import random
from shardwise.base.dtypes import default_dtype
from shardwise.base.listing import listing as _listing
from shardwise.experimental.sparse.batches import are_inside, over_batches, per_dim, read_places
from shardwise.experimental.sparse.bcoo import BCOO
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.transforms.interpreters.vmap import vmap

__all__ = ["bcoo_broadcast_in_dim", "bcoo_concatenate", "bcoo_dynamic_slice", "bcoo_extract", "bcoo_gather", "bcoo_multiply_sparse",
           "bcoo_rev", "bcoo_slice", "bcoo_squeeze", "random_bcoo"]  # fmt: skip


def _ends(mat: BCOO) -> tuple[int, int]:
    """The first sparse and the first dense dim."""
    return mat.n_batch, mat.n_batch + mat.n_sparse


def _check_rank(name: str, mat: BCOO, **given: Sequence[Any]) -> None:
    for argument, values in given.items():
        if len(values) != mat.ndim:
            raise TypeError(f"{name}: {argument} has one entry per dim of shape {mat.shape}, got {tuple(values)}.")


# -- cuts --------------------------------------------------------------------------------------------------------------------------


def bcoo_slice(
    mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> BCOO:
    """The elements of `mat` from `start_indices` up to `limit_indices`, every `strides`-th of a dim.

    Raises:
        TypeError: there is not one position per dim, or positions are out of bounds or out of order.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_slice(m, start_indices=(1, 0), limit_indices=(2, 2)).todense()
    Array([[2., 3.]], dtype=float32)
    """
    steps = (1,) * mat.ndim if strides is None else tuple(map(operator.index, strides))
    starts, limits = tuple(map(operator.index, start_indices)), tuple(map(operator.index, limit_indices))
    _check_rank("bcoo_slice", mat, start_indices=starts, limit_indices=limits, strides=steps)
    if any(not 0 <= a <= b <= n or s < 1 for a, b, s, n in zip(starts, limits, steps, mat.shape, strict=True)):
        raise TypeError(
            f"bcoo_slice of shape {mat.shape} needs 0 <= start <= limit <= size and strides from 1 on, got {starts}, {limits} and {steps}."
        )
    shape = tuple(-(-(b - a) // s) for a, b, s in zip(starts, limits, steps, strict=True))
    cut = lambda x, n, d: slice(None) if n == 1 else slice(starts[d], limits[d], steps[d])  # noqa: E731
    data, indices = _cut_arrays(mat, lambda x, axis, d: x[(slice(None),) * axis + (cut(x, x.shape[axis], d),)])
    first, end = _ends(mat)
    step_sizes = per_dim(steps[first:end], indices)
    new_indices = indices - per_dim(starts[first:end], indices)
    is_kept = (new_indices >= 0) & (new_indices % step_sizes == 0) & (indices < per_dim(limits[first:end], indices))
    return _place_elements(mat, data, new_indices // step_sizes, is_kept, shape)


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """The elements of a window of `mat`, of `slice_sizes` at `start_indices`: clamped so that it fits, negative ones from the end.

    TypeError where positions or sizes do not fit the shape.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_dynamic_slice(m, (-1, 0), (1, 2)).todense()
    Array([[2., 3.]], dtype=float32)
    """
    sizes = tuple(map(operator.index, slice_sizes))
    starts = [jnp.asarray(s) for s in start_indices]
    _check_rank("bcoo_dynamic_slice", mat, start_indices=starts, slice_sizes=sizes)
    if any(not 0 <= size <= n for size, n in zip(sizes, mat.shape, strict=True)):
        raise TypeError(f"bcoo_dynamic_slice: slice_sizes {sizes} do not fit an array of shape {mat.shape}.")
    begins = [
        jnp.clip(jnp.where(s < 0, s + n, s), 0, n - size) for s, n, size in zip(starts, mat.shape, sizes, strict=True)
    ]

    def window(x: Array, axis: int, d: int) -> Array:
        return x if x.shape[axis] == 1 else lax.dynamic_slice_in_dim(x, begins[d], sizes[d], axis)

    data, indices = _cut_arrays(mat, window)
    first, end = _ends(mat)
    offsets = [b.astype(indices.dtype) for b in begins[first:end]]
    new_indices = indices - per_dim(jnp.stack(offsets) if offsets else (), indices)
    is_kept = (new_indices >= 0) & (new_indices < per_dim(sizes[first:end], indices))
    return _place_elements(mat, data, new_indices, is_kept & (indices < per_dim(mat.shape[first:end], indices)), sizes)


def bcoo_gather(
    operand: BCOO,
    start_indices: Any,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> BCOO:
    """`lax.gather` of `operand`: its windows of `slice_sizes` at `start_indices`, moved inside where they do not fit; all dims are sparse.

    `dimension_numbers` as there. Each window has as many elements as the array, those that lie elsewhere outside of it.
    `unique_indices` and `indices_are_sorted` promise what makes no difference here.

    Raises:
        NotImplementedError: `mode` or `fill_value` asks for other values beyond the end; there are operand batching dims.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> rows = jax.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> sparse.bcoo_gather(m, jnp.array([[1], [1]]), rows, (1, 2)).todense()
    Array([[2., 3.],
           [2., 3.]], dtype=float32)
    """
    del unique_indices, indices_are_sorted
    inside = (None, lax.GatherScatterMode.CLIP, lax.GatherScatterMode.PROMISE_IN_BOUNDS)
    if (mode if mode is None else lax.GatherScatterMode.from_any(mode)) not in inside or fill_value is not None:
        raise NotImplementedError(
            f"bcoo_gather moves windows inside, got mode={mode}. Use mode='clip' or 'promise_in_bounds', or todense()."
        )
    if dimension_numbers.operand_batching_dims:
        raise NotImplementedError("bcoo_gather with operand batching dims; map it with vmap, or use todense().")
    starts = jnp.asarray(start_indices)
    own, sizes = operand.all_sparse(), tuple(map(operator.index, slice_sizes))
    batch, first = starts.shape[:-1], jnp.zeros((), starts.dtype)

    def window(places: Array) -> BCOO:
        at = [first] * own.ndim
        for k, d in enumerate(dimension_numbers.start_index_map):
            at[d] = jnp.maximum(places[k], 0)
        return bcoo_squeeze(bcoo_dynamic_slice(own, at, sizes), dimensions=dimension_numbers.collapsed_slice_dims)

    windows = vmap(window)(starts.reshape(-1, starts.shape[-1])).all_sparse()
    windows = windows.reshape(*batch, *windows.shape[1:])
    offsets = tuple(dimension_numbers.offset_dims)
    order = [d for d in range(windows.ndim) if d not in offsets] + list(offsets)
    return windows.transpose([order.index(d) for d in range(windows.ndim)])


def _inside(mat: BCOO) -> Array:
    """A mask of the elements inside the shape: bool of the indices' shape without its last dim."""
    first, end = _ends(mat)
    flat = (
        mat.indices.reshape(-1, mat.n_sparse)
        if mat.n_sparse
        else mat.indices.reshape(math.prod(mat.indices.shape[:-1]), 0)
    )
    return are_inside(flat, mat.shape[first:end]).reshape(mat.indices.shape[:-1])


def _cut_arrays(mat: BCOO, cut: Callable[[Array, int, int], Array]) -> tuple[Array, Array]:
    """Data and indices with ``cut(array, axis, dim)`` along batch and dense dims. A batch dim of size 1 in an array of more is kept."""
    data, indices = mat.data, mat.indices
    first, end = _ends(mat)
    for d in range(first):
        data, indices = (
            cut(x, d, d) if x.shape[d] == mat.shape[d] and mat.shape[d] != 1 else x for x in (data, indices)
        )
        if mat.shape[d] == 1:
            data = cut(data, d, d)
    for d in range(end, mat.ndim):
        data = cut(data, d - end + first + 1, d)
    return data, indices


def _place_elements(mat: BCOO, data: Array, indices: Array, kept: Array, shape: Sequence[int]) -> BCOO:
    """The elements at new indices; those that are not `kept` are put outside."""
    first, end = _ends(mat)
    inside = jnp.all(kept, axis=-1, keepdims=True)
    outside = np.asarray(shape[first:end], indices.dtype)
    return BCOO((data, jnp.where(inside, indices, outside)), shape=tuple(shape), unique_indices=mat.unique_indices)


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """`arr` without `dimensions`, which have size 1. ValueError for others.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_squeeze(m[1:], dimensions=(0,)).todense()
    Array([2., 3.], dtype=float32)
    """
    squeezed_dims = sorted({d % arr.ndim if arr.ndim else d for d in dimensions})
    if any(arr.shape[d] != 1 for d in squeezed_dims):
        raise ValueError(f"bcoo_squeeze takes dims of size 1 away, got {tuple(dimensions)} of shape {arr.shape}.")
    first, end = _ends(arr)
    left = [d for d in range(first, end) if d not in squeezed_dims]
    batch = tuple(d for d in squeezed_dims if d < first)
    inside = _inside(arr)[..., None]
    shape = tuple(n for d, n in enumerate(arr.shape) if d not in squeezed_dims)
    outside = np.asarray([arr.shape[d] for d in left], arr.indices.dtype)
    places = arr.indices[..., [d - first for d in left]]
    data = arr.data if left else jnp.where(_beside(inside[..., 0], arr.data), arr.data, 0)
    indices = jnp.where(inside, places, outside)
    dense = tuple(d - end + first + 1 for d in squeezed_dims if d >= end)
    return BCOO((lax.squeeze(data, (*batch, *dense)), lax.squeeze(indices, batch)), shape=shape)


def _beside(mask: Array, data: Array) -> Array:
    """A mask of elements with dims for those of each element."""
    return mask.reshape(*mask.shape, *(1,) * (data.ndim - mask.ndim))


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """`operand` with the order of its elements along `dimensions` reversed. ValueError for dims that are named twice.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_rev(m, (0,)).todense()
    Array([[2., 3.],
           [1., 0.]], dtype=float32)
    """
    reversed_dims = {d % operand.ndim for d in dimensions}
    if len(reversed_dims) != len(tuple(dimensions)):
        raise ValueError(f"bcoo_rev: dimensions must be unique, got {tuple(dimensions)}.")
    data, indices = _cut_arrays(operand, lambda x, axis, d: lax.rev(x, (axis,)) if d in reversed_dims else x)
    first, end = _ends(operand)
    sizes = per_dim(operand.shape[first:end], indices)
    flips = np.asarray([d in reversed_dims for d in range(first, end)], bool)
    is_kept = indices < sizes
    return _place_elements(operand, data, jnp.where(flips, sizes - 1 - indices, indices), is_kept, operand.shape)


# -- put together ------------------------------------------------------------------------------------------------------------------


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """The arrays `operands` one after the other along `dimension`. Different layouts, and a dense dim, give an array of sparse dims.

    Raises:
        ValueError: there are none.
        TypeError: shapes differ in another dim.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_concatenate([m, m], dimension=1).todense()
    Array([[1., 0., 1., 0.],
           [2., 3., 2., 3.]], dtype=float32)
    """
    if not operands:
        raise ValueError("bcoo_concatenate takes at least one array.")
    rest = {m.shape[:dimension] + m.shape[dimension + 1 :] for m in operands}
    if len(rest) > 1 or any(m.ndim <= dimension for m in operands):
        raise TypeError(f"bcoo_concatenate: shapes differ only in dim {dimension}, got {[m.shape for m in operands]}.")
    layouts = {(m.n_batch, m.n_dense) for m in operands}
    first, end = _ends(operands[0])
    mats = list(operands) if len(layouts) == 1 and dimension < end else [m.all_sparse() for m in operands]
    first, end = _ends(mats[0])
    if dimension < first:
        return _concatenated_batches(mats, dimension)
    sizes = [m.shape[dimension] for m in mats]
    shape = (*mats[0].shape[:dimension], sum(sizes), *mats[0].shape[dimension + 1 :])
    dtype = np.result_type(*[m.indices.dtype for m in mats])
    column = np.arange(end - first) == dimension - first
    outside = np.asarray(shape[first:end], dtype)
    parts, places, begin = [], [], 0
    for m, size in zip(mats, sizes, strict=True):
        new_indices = m.indices.astype(dtype)
        new_indices = new_indices + per_dim(np.where(column, begin, 0), new_indices)
        places.append(jnp.where(_inside(m)[..., None], new_indices, outside))
        parts.append(m.data)
        begin += size
    batch = [np.broadcast_shapes(*[x.shape[:first] for x in xs]) for xs in (parts, places)]
    wide = lambda xs, lead: [jnp.broadcast_to(x, (*lead, *x.shape[first:])) for x in xs]  # noqa: E731
    data, indices = (jnp.concatenate(wide(xs, lead), first) for xs, lead in zip((parts, places), batch, strict=True))
    return BCOO((data, indices), shape=shape, unique_indices=all(m.unique_indices for m in mats))


def _concatenated_batches(mats: Sequence[BCOO], dimension: int) -> BCOO:
    """Arrays of one layout, one after the other along a batch dim. Those with fewer elements get some outside of the shape."""
    shape = list(mats[0].shape)
    shape[dimension] = sum(m.shape[dimension] for m in mats)
    first, end = _ends(mats[0])
    nse = max(m.nse for m in mats)
    dtype = np.result_type(*[m.indices.dtype for m in mats])
    parts: list[Array] = []
    places: list[Array] = []
    for m in mats:
        batch = m.shape[:first]
        more = nse - m.nse
        outside = jnp.broadcast_to(np.asarray(shape[first:end], dtype), (*batch, more, m.n_sparse))
        given = jnp.broadcast_to(m.indices.astype(dtype), (*batch, *m.indices.shape[first:]))
        data = jnp.broadcast_to(m.data, (*batch, *m.data.shape[first:]))
        places.append(jnp.concatenate([given, outside], first))
        parts.append(jnp.concatenate([data, jnp.zeros((*batch, more, *data.shape[first + 1 :]), data.dtype)], first))
    data, indices = jnp.concatenate(parts, dimension), jnp.concatenate(places, dimension)
    known_flags = {k: all(getattr(m, k) for m in mats) for k in ("indices_sorted", "unique_indices")}
    return BCOO((data, indices), shape=shape, **known_flags)


def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """`mat` repeated along the dims of `shape` that are not among `broadcast_dimensions`, and those of size 1.

    New dims before the first dim that is no batch dim are batch dims, those behind the first dense dim dense ones, those between
    sparse. Where sparse dims are repeated, or new ones of more than one element, all dims of the result are sparse.

    Raises:
        TypeError: the dims do not fit.
        NotImplementedError: `sharding` is given; sparse arrays are not split.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 1.0]))
    >>> sparse.bcoo_broadcast_in_dim(m, shape=(2, 2), broadcast_dimensions=(1,)).todense()
    Array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    if sharding is not None:
        raise NotImplementedError("bcoo_broadcast_in_dim gives an array that is not split; leave sharding out.")
    target, dims = tuple(shape), tuple(broadcast_dimensions)
    fits = len(dims) == mat.ndim and list(dims) == sorted(set(dims)) and all(0 <= d < len(target) for d in dims)
    if not fits or any(n not in (1, target[d]) for n, d in zip(mat.shape, dims, strict=True)):
        raise TypeError(f"bcoo_broadcast_in_dim of shape {mat.shape} to {target} along dims {dims} is not possible.")
    first, end = _ends(mat)
    column_of = {d: k for k, d in enumerate(dims)}
    lead, last = dims[first] if first < mat.ndim else len(target), dims[end] if mat.n_dense else len(target)
    sparse = [column_of.get(d) for d in range(lead, last)]
    if all((1 if k is None else mat.shape[k]) == n for k, n in zip(sparse, target[lead:last], strict=True)):
        return _repeat_around(_with_columns(mat, sparse), target, (*dims[:first], *range(lead, last), *dims[end:]))
    own = mat.all_sparse()
    repeats = [1 if d in column_of and mat.shape[column_of[d]] == n else n for d, n in enumerate(target)]
    full = (own.nse, *repeats)
    inside = _inside(own)
    columns = []
    for d in range(len(target)):
        if repeats[d] != 1 or d not in column_of:
            columns.append(lax.broadcasted_iota(own.indices.dtype, full, d + 1))
        else:
            values = own.indices[:, column_of[d]]
            columns.append(jnp.broadcast_to(values.reshape(-1, *(1,) * len(target)), full))
    places = jnp.stack([c.reshape(-1) for c in columns], axis=-1) if columns else jnp.zeros((own.nse, 0), np.int32)
    is_inside = jnp.repeat(inside, math.prod(repeats), total_repeat_length=own.nse * math.prod(repeats))
    indices = jnp.where(is_inside[:, None], places, np.asarray(target, places.dtype))
    data = jnp.repeat(jnp.where(inside, own.data, 0), math.prod(repeats), total_repeat_length=is_inside.shape[0])
    return BCOO((data, indices), shape=target, unique_indices=own.unique_indices)


def _with_columns(mat: BCOO, columns: Sequence[int | None]) -> BCOO:
    """`mat` with the sparse dims `columns`, dims of `mat` or None for a new one of size 1."""
    first, end = _ends(mat)
    if list(columns) == list(range(first, end)):
        return mat
    places = [mat.indices[..., 0] * 0 if k is None else mat.indices[..., k - first] for k in columns]
    indices = jnp.stack(places, axis=-1)
    shape = (*mat.shape[:first], *(1 if k is None else mat.shape[k] for k in columns), *mat.shape[end:])
    return BCOO((mat.data, indices), shape=shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def _repeat_around(mat: BCOO, shape: tuple[int, ...], dims: tuple[int, ...]) -> BCOO:
    """`mat` with new or repeated batch and dense dims; its sparse dims stay. `dims` are where its dims lie in `shape`."""
    first, end = _ends(mat)
    lead = (last := dims[end] if mat.n_dense else len(shape)) - mat.n_sparse
    batch = tuple(dims[:first])
    sizes = [1] * lead
    for k, d in enumerate(batch):
        sizes[d] = mat.indices.shape[k]
    indices = mat.indices.reshape(*sizes, *mat.indices.shape[first:])
    for k, d in enumerate(batch):
        sizes[d] = mat.data.shape[k]
    dense = [d - last + lead + 1 for d in dims[end:]]
    data = lax.broadcast_in_dim(mat.data, (*sizes, mat.nse, *shape[last:]), (*batch, lead, *dense))
    return BCOO((data, indices), shape=shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


# -- places of others ------------------------------------------------------------------------------------------------------------


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array `arr` at the places of a sparse one, `sparr`. ValueError where shapes differ.

    Of several elements at one place the first one gets the value, the others 0, unless `assume_unique` says that there are none.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_extract(m, jnp.full((2, 2), 7.0)).todense()
    Array([[7., 0.],
           [7., 7.]], dtype=float32)
    """
    dense = jnp.asarray(arr)
    if dense.shape != sparr.shape:
        raise ValueError(f"bcoo_extract: arrays have one shape, got {sparr.shape} and {dense.shape}.")
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    of_one = lambda places, x: read_places(x, places, unique)  # noqa: E731
    elements = over_batches(of_one, sparr.shape, sparr.n_batch, sparr.indices, dense)
    known_flags = {"indices_sorted": sparr.indices_sorted, "unique_indices": sparr.unique_indices}
    return BCOO((elements, sparr.indices), shape=sparr.shape, **known_flags)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The elementwise product of two sparse arrays: elements at the places of `lhs`. Shapes broadcast against that of `rhs`, and back.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_multiply_sparse(m, m).todense()
    Array([[1., 0.],
           [4., 9.]], dtype=float32)
    """
    shape = np.broadcast_shapes(lhs.shape, rhs.shape)
    left, right = (
        m.all_sparse()
        if m.shape == shape
        else bcoo_broadcast_in_dim(
            m, shape=shape, broadcast_dimensions=range(len(shape) - m.ndim, len(shape))
        ).all_sparse()
        for m in (lhs, rhs)
    )
    totals = right.sum_duplicates(right.nse, remove_zeros=False)
    inside = _inside(left)
    if not shape or not totals.nse:
        other = jnp.broadcast_to(totals.data.sum(), left.data.shape) if not shape else jnp.zeros(left.nse, totals.dtype)
        return BCOO((left.data * other, left.indices), shape=shape, unique_indices=left.unique_indices)
    # One row per element of both: where a row of the first meets the row before it, that one has the factor.
    rows = jnp.concatenate([totals.indices, left.indices.astype(totals.indices.dtype)])
    late = jnp.concatenate([jnp.zeros(totals.nse, np.int32), jnp.ones(left.nse, np.int32)])
    order = jnp.lexsort((late, *(rows[:, d] for d in range(len(shape) - 1, -1, -1))))
    latest = lax.cummax(jnp.where(order < totals.nse, jnp.arange(order.shape[0]), -1))
    source = jnp.where(latest >= 0, order[jnp.maximum(latest, 0)], 0)
    place = jnp.zeros_like(order).at[order].set(source)[totals.nse :]
    equal = jnp.all(totals.indices[place] == left.indices, axis=1) & inside & (_inside(totals)[place])
    factors = jnp.where(equal, totals.data[place], 0)
    return BCOO((left.data * factors, left.indices), shape=shape, unique_indices=left.unique_indices)


# -- random arrays ---------------------------------------------------------------------------------------------------------------


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = None,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Any] = random.uniform,
    **kwds: Any,
) -> BCOO:
    """Elements that `generator` draws with `key`, as `dtype`, at random places of `shape`: `nse` of each batch, or below 1 that share.

    `n_batch` and `n_dense` are as in `BCOO`; `unique_indices` draws no place twice, `sorted_indices` sorts them.
    `kwds` go on to `generator`.

    Raises:
        ValueError: the dims do not fit the shape, `nse` is no number of places, or `indices_dtype` cannot count them.

    >>> from shardwise.experimental import sparse
    >>> sparse.random_bcoo(jax.random.key(0), (4, 5), nse=3)
    BCOO(float32[4, 5], nse=3)
    """
    whole = tuple(map(operator.index, shape))
    if min(n_batch, n_dense) < 0 or n_batch + n_dense > len(whole):
        raise ValueError(f"random_bcoo: shape {whole} has no n_batch={n_batch} and n_dense={n_dense} dims.")
    batch, sparse, dense = whole[:n_batch], whole[n_batch : len(whole) - n_dense], whole[len(whole) - n_dense :]
    places = math.prod(sparse)
    if not 0 <= nse < places:
        raise ValueError(f"random_bcoo: nse is from 0 up to the number of places, {places}, got {nse}.")
    count = operator.index(math.ceil(nse * places) if 0 < nse < 1 else nse)  # pyright: ignore[reportArgumentType]
    index_type = np.dtype(default_dtype("i") if indices_dtype is None else indices_dtype)
    if places > np.iinfo(index_type).max:
        raise ValueError(f"random_bcoo: indices of type {index_type.name} do not count {places} places.")

    def draw_indices(key: Any) -> Any:
        if not sparse:
            return jnp.zeros((count, 0), index_type)
        flat = random.choice(key, places, (count,), replace=not unique_indices).astype(index_type)
        return jnp.stack(jnp.unravel_index(flat, sparse), axis=-1)

    first, *_ = keys = random.split(key, math.prod(batch) + 1)
    data = generator(first, shape=(*batch, count, *dense), dtype=float if dtype is None else dtype, **kwds)
    indices = vmap(draw_indices)(keys[1:]).reshape(*batch, count, len(sparse))
    sparse_array = BCOO((data, indices), shape=whole, unique_indices=unique_indices)
    return sparse_array.sort_indices() if sorted_indices else sparse_array


def _times(self: BCOO, other: Any) -> BCOO:
    return bcoo_multiply_sparse(self, other) if isinstance(other, BCOO) else self.beside(operator.mul, "*", other)


BCOO.__mul__ = BCOO.__rmul__ = _times


__dir__ = _listing(__name__)
