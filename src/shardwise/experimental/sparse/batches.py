"""Elements of a `BCOO`, in batches and as arrays: `data` [*batch, nse, *dense] at `indices` [*batch, nse, n_sparse].

In: these two and the array's shape. Out: the same elements with all dims sparse, in order, or summed by place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.transforms.interpreters.vmap import vmap

Elements = tuple[Array, Array]


def check_elements(data: Any, indices: Any, shape: Sequence[int]) -> None:
    """ValueError unless data and indices are those of an array of this shape."""
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1] if indices.ndim else 0
    sparse_end = n_batch + n_sparse
    fits = n_batch >= 0 and len(shape) >= sparse_end and data.ndim == n_batch + 1 + len(shape) - sparse_end
    fits = fits and data.shape[n_batch] == indices.shape[n_batch] and data.shape[n_batch + 1 :] == shape[sparse_end:]
    for elements in (data, indices):
        batch = elements.shape[: max(n_batch, 0)]
        fits = fits and all(n in (1, m) for n, m in zip(batch, shape, strict=False))
    if not fits:
        raise ValueError(
            f"BCOO of shape {tuple(shape)} has data of shape (*batch, nse, *dense) at indices of shape (*batch, nse, n_sparse), where "
            f"batch dims may be 1; got {data.shape} and {indices.shape}."
        )


def batch_dims(indices: Any) -> int:
    """How many dims lead, for whose elements the others are kept apart. ValueError where `vmap` took a dim that is none of them."""
    if indices.ndim < 2:
        raise ValueError("a BCOO array without batch dims cannot be mapped by vmap; make it with n_batch=1.")
    return indices.ndim - 2


def spread_elements(data: Any, indices: Any, shape: Sequence[int], n_batch: int = 0, n_dense: int = 0) -> Elements:
    """The elements with the first `n_batch` dims as batch dims and the last `n_dense` ones as dense dims: all others are sparse."""
    batch, dense = batch_dims(indices), data.ndim - indices.ndim + 1
    if (batch, dense) == (n_batch, n_dense):
        return data, indices
    dtype = np.promote_types(indices.dtype, np.int32)
    # Of each element that stays an array: its batch, its number in it, and its place along dense dims that become sparse.
    full = (*shape[:batch], indices.shape[batch], *shape[len(shape) - dense : len(shape) - n_dense])
    along = lambda d: lax.broadcasted_iota(dtype, full, d)  # noqa: E731
    wide_indices = indices.astype(dtype).reshape(*indices.shape[:-1], *(1,) * (dense - n_dense), indices.shape[-1])
    columns = [
        *map(along, range(n_batch, batch)),
        *(jnp.broadcast_to(wide_indices[..., k], full) for k in range(indices.shape[-1])),
        *map(along, range(batch + 1, len(full))),
    ]
    kept_shape = (*shape[:n_batch], math.prod(full[n_batch:]))
    places = jnp.stack(columns, axis=-1) if columns else jnp.zeros((*full, 0), dtype)
    whole = jnp.broadcast_to(data, (*full, *shape[len(shape) - n_dense :]))
    return whole.reshape(*kept_shape, *whole.shape[len(full) :]), places.reshape(*kept_shape, len(columns))


def over_batches(f: Callable[..., Any], shape: Sequence[int], n_batch: int, *arrays: Any) -> Any:
    """`f` of each batch of arrays whose batch dims may be 1."""
    whole = [jnp.broadcast_to(a, (*shape[:n_batch], *a.shape[n_batch:])) for a in arrays]
    for _ in range(n_batch):
        f = vmap(f)
    return f(*whole)


def nonzero_elements(dense: Array, nse: int | None, n_batch: int, n_dense: int, index_dtype: Any) -> Elements:
    """The elements of an array that are not zero, in order. ValueError for more batch and dense dims than it has."""
    end = dense.ndim - n_dense
    if min(n_batch, n_dense) < 0 or n_batch > end:
        raise ValueError(f"an array of shape {dense.shape} has no n_batch={n_batch} and n_dense={n_dense} dims.")
    sparse = dense.shape[n_batch:end]
    is_nonzero = jnp.any(dense != 0, axis=tuple(range(end, dense.ndim)))
    if not sparse:  # one element, at no index
        indices = jnp.zeros((*dense.shape[:n_batch], 1, 0), index_dtype)
        return jnp.expand_dims(dense, n_batch), indices
    if nse is None:
        nse = int(jnp.max(jnp.sum(is_nonzero, axis=tuple(range(n_batch, end))), initial=0))

    def of_one(x: Array, kept: Array) -> Elements:
        places = jnp.nonzero(kept, size=nse, fill_value=sparse)
        return x.at[places].get(mode="fill", fill_value=0), jnp.stack(places, axis=-1).astype(index_dtype)

    return over_batches(of_one, dense.shape, n_batch, dense, is_nonzero)


def are_inside(indices: Any, shape: Sequence[int]) -> Any:
    """A mask of the elements inside the sparse dims' shape; indices [nse, n_sparse]."""
    return jnp.all(indices < per_dim(shape, indices), axis=1)


def per_dim(numbers: Any, indices: Any) -> Any:
    """A number per sparse dim as the indices `[..., nse, n_sparse]` meet them: of their rank, which a setting may ask for, and dtype."""
    row = jnp.asarray(numbers, indices.dtype)
    return row.reshape((1,) * (indices.ndim - 1) + row.shape)


def read_places(dense: Array, places: Any, unique: bool) -> Array:
    """The elements [nse, *dense] of an array at places [nse, n_sparse]; unless `unique`, zeros for all but the first at one place."""
    nse, columns = places.shape[0], [places[:, d] for d in range(places.shape[1])]
    elements = dense.at[tuple(columns)].get(mode="fill", fill_value=0) if columns else dense[None].repeat(nse, axis=0)
    if unique:
        return elements
    order = jnp.lexsort((jnp.arange(nse), *columns))
    repeats = jnp.all(places[order[1:]] == places[order[:-1]], axis=1)
    again = jnp.zeros(nse, bool).at[order[1:]].set(repeats)
    return jnp.where(again.reshape(-1, *(1,) * (elements.ndim - 1)), 0, elements)


def _sorted_places(indices: Any, shape: Sequence[int], kept: Any) -> tuple[Any, Any]:
    """The places in row-major order, those that are not `kept` last and outside, and the elements' order."""
    places = jnp.where(kept[:, None], indices, np.asarray(shape, indices.dtype))
    keys = [jnp.logical_not(kept), *(places[:, d] for d in range(indices.shape[1]))]
    _, *columns, order = lax.sort((*keys, jnp.arange(indices.shape[0])), num_keys=len(keys))
    return (jnp.stack(columns, axis=-1) if columns else places), order


def sorted_elements(data: Any, indices: Any, shape: Sequence[int]) -> Elements:
    """The elements in row-major order of their places; indices [nse, n_sparse]."""
    _, order = _sorted_places(indices, shape, are_inside(indices, shape))
    return data[order], indices[order]


def _places_and_firsts(data: Any, indices: Any, shape: Sequence[int], remove_zeros: bool) -> tuple[Any, ...]:
    """Sorted places, the elements' order, which of them count, and which are the first ones of their place."""
    is_inside = are_inside(indices, shape)
    if remove_zeros:
        is_inside = jnp.logical_and(is_inside, jnp.any(data != 0, axis=tuple(range(1, data.ndim))))
    places, order = _sorted_places(indices, shape, is_inside)
    is_inside = is_inside[order]
    first = jnp.concatenate([jnp.ones(min(indices.shape[0], 1), bool), jnp.any(places[1:] != places[:-1], axis=1)])
    return places, order, is_inside, jnp.logical_and(first, is_inside)


def count_places(data: Any, indices: Any, shape: Sequence[int], remove_zeros: bool) -> Array:
    """How many places have elements."""
    return jnp.sum(_places_and_firsts(data, indices, shape, remove_zeros)[-1])


def summed_elements(data: Any, indices: Any, shape: Sequence[int], nse: int, remove_zeros: bool) -> Elements:
    """One element for each of up to `nse` places, in order; places beyond are outside."""
    places, order, is_inside, first = _places_and_firsts(data, indices, shape, remove_zeros)
    at = jnp.where(is_inside, jnp.cumsum(first) - 1, nse)
    outside = jnp.broadcast_to(jnp.asarray(shape, indices.dtype), (nse, len(shape)))
    sums = add_at(jnp.zeros((nse, *data.shape[1:]), data.dtype), at, data[order])
    return sums, outside.at[at].set(places, mode="drop")


def add_at(zeros: Array, places: Any, values: Any) -> Array:
    """`zeros` with the sums of the values at each place; bools add up by "or". Places outside do not count."""
    if isinstance(places, tuple) and not places:  # one place, that of a scalar
        return values.any(0) if zeros.dtype == bool else values.sum(0, dtype=zeros.dtype)
    at = zeros.at[places]
    return (at.max if zeros.dtype == bool else at.add)(values, mode="drop")
