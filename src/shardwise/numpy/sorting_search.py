"""Sorting: `sort`, `argsort`, partitions, and the positions of values in a sorted array.

In: arrays. Out: arrays. NaNs come last; complex values are ordered by their real, then their imaginary parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import check_requested, default_dtype, to_complex
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import (
    as_array,
    astype,
    canonical_axis,
    concrete,
    convert,
    is_complex,
    promote_dtypes,
    value,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.indexing import take
from shardwise.numpy.shapes import flat
from shardwise.ops.indexing.search import searchsorted as search
from shardwise.ops.indexing.sorting import argsort_positions
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = [
    "argpartition", "argsort", "digitize", "lexsort", "partition", "searchsorted", "sort", "sort_complex",
]  # fmt: skip

_METHODS = ("compare_all", "scan", "scan_unrolled", "sort")


def _operand(name: str, a: Any, axis: int | None, kind: Any, order: Any) -> tuple[Array, int]:
    """The array (flattened for axis None) and the dim."""
    x = checked(name, a)
    if kind is not None:
        raise TypeError(f"'kind' argument to {name} is not supported. Use stable=True or stable=False instead.")
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported; arrays have no fields.")
    return (flat(x), 0) if axis is None else (x, canonical_axis(axis, x.ndim))


# -- order -----------------------------------------------------------------------------------------------------


@shown_call("axis kind order stable descending")
def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """`a` sorted along `axis` (None: flattened), by `descending` from the greatest on.

    Args:
        kind: only None, see `stable`.
        order: only None, as there are no structured dtypes.
        stable: equal elements keep their order.

    >>> jnp.sort(jnp.array([[3, 1, 2]]), descending=True)
    Array([[3, 2, 1]], dtype=int32)
    """
    x, d = _operand("sort", a, axis, kind, order)
    result = lax.sort(x, d, is_stable=stable)
    return lax.rev(result, (d,)) if descending else result


@shown_call("axis kind order stable descending")
def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Array:
    """The indices along `axis` (None: of the flattened array) that sort `a`, as integers of the dtype `dtype`
    (default: the default one).

    Args:
        kind: only None, see `stable`.
        order: only None, as there are no structured dtypes.
        stable: equal elements keep their order.
        descending: from the greatest on.

    >>> jnp.argsort(jnp.array([30, 10, 20]))
    Array([1, 2, 0], dtype=int32)
    """
    x, d = _operand("argsort", a, axis, kind, order)
    result_dtype = default_dtype("i") if dtype is None else check_requested(dtype, "argsort")
    if not descending:
        return argsort_positions(x, d, is_stable=stable, dtype=result_dtype)
    if not stable:
        return lax.rev(argsort_positions(x, d, is_stable=False, dtype=result_dtype), (d,))
    # Sorted backwards twice: equal elements change their order twice.
    positions = lax.rev(argsort_positions(lax.rev(x, (d,)), d, dtype=result_dtype), (d,))
    return lax.sub(literal(x.shape[d] - 1, result_dtype), positions)


@shown_call("axis")
def lexsort(keys: Any, axis: int = -1) -> Array:
    """The indices along `axis` that sort by the last key, equal ones by the last but one, and so on.

    TypeError for no keys, ValueError for keys of different shapes.

    >>> jnp.lexsort((jnp.array([3, 1, 2]), jnp.array([1, 1, 0])))
    Array([2, 1, 0], dtype=int32)
    """
    arrays = [checked("lexsort", key, i) for i, key in enumerate(keys)]
    if not arrays:
        raise TypeError("lexsort: need sequence of keys with len > 0.")
    if len({key.shape for key in arrays}) > 1:
        raise ValueError(f"lexsort: all keys need to be the same shape, got {', '.join(str(k.shape) for k in arrays)}.")
    result_dtype = default_dtype("i")
    first = arrays[0]
    if not first.ndim:
        return lax.full((), 0, result_dtype)
    d = canonical_axis(axis, first.ndim)
    positions = lax.broadcasted_iota(result_dtype, first.shape, d)
    return lax.sort((*arrays[::-1], positions), d, num_keys=len(arrays))[-1]


@shown_call()
def sort_complex(a: Any) -> Array:
    """`a` sorted along its last dim, as complex values.

    >>> jnp.sort_complex(jnp.array([2, 1 + 1j, 1]))
    Array([1.+0.j, 1.+1.j, 2.+0.j], dtype=complex64)
    """
    x = lax.sort(checked("sort_complex", a))
    return as_array(astype(x, to_complex(x.dtype)))


def _partition(name: str, a: Any, kth: int, axis: int) -> tuple[Array, int, int]:
    x = checked(name, a)
    if is_complex(x.dtype):
        raise NotImplementedError(f"{name} of complex values, which have no order of their own. Use jnp.sort_complex.")
    d = canonical_axis(axis, x.ndim)
    return x, d, canonical_axis(kth, x.shape[d], "kth")


@shown_call("kth axis")
def partition(a: Any, kth: int, axis: int = -1) -> Array:
    """`a` with the `kth` smallest element along `axis` at its place, smaller ones before and greater ones behind it.

    >>> jnp.partition(jnp.array([30, 10, 20]), 0)[0]
    Array(10, dtype=int32)
    """
    x, d, k = _partition("partition", a, kth, axis)
    result = lax.sort(x, d)
    below, above = lax.split(result, [k + 1, x.shape[d] - k - 1], d)
    return lax.concatenate([below, lax.rev(above, (d,))], d)


@shown_call("kth axis")
def argpartition(a: Any, kth: int, axis: int = -1) -> Array:
    """The indices along `axis` that partition `a` at position `kth`, those of greater elements in ascending order.

    >>> jnp.argpartition(jnp.array([30, 10, 20]), 1)
    Array([1, 2, 0], dtype=int32)
    """
    x, d, k = _partition("argpartition", a, kth, axis)
    below, above = lax.split(argsort_positions(x, d, dtype=np.dtype(np.int32)), [k + 1, x.shape[d] - k - 1], d)
    places = lax.concatenate([below, lax.sort(above, d)], d)
    weak = x.weak_type and config.dialect.functions.argpartition_keeps_weak_type
    return as_array(convert(places, places.dtype, weak))


# -- places in a sorted array ----------------------------------------------------------------------------------


@shown_call("side sorter method")
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan") -> Array:
    """The positions in the sorted 1-d `a` before which (`side` 'right': after whose equals) the values `v` belong.

    `sorter`: indices that sort `a`. `method` has no effect: there is one binary search. ValueError for other texts.

    >>> jnp.searchsorted(jnp.array([10, 20, 30]), jnp.array([5, 20]), side='right')
    Array([0, 2], dtype=int32)
    """
    sorted_values, values = checked("searchsorted", a), value("searchsorted", v, 1)
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: invalid argument side={side!r}, expected 'left' or 'right'")
    if method not in _METHODS:
        raise ValueError(f"searchsorted: invalid argument method={method!r}, expected one of {', '.join(_METHODS)}")
    if sorted_values.ndim != 1:
        raise ValueError(f"searchsorted: a should be 1-dimensional, got shape {sorted_values.shape}.")
    sorted_values, values = promote_dtypes(sorted_values, values)
    if sorter is not None:
        sorted_values = take(sorted_values, checked("searchsorted", sorter, 2), mode="clip")
    return search(sorted_values, values, right=side == "right")


@shown_call("right method")
def digitize(x: Any, bins: Any, right: bool = False, *, method: str | None = None) -> Array:
    """The number of the bin of each element: i where ``bins[i-1] <= x < bins[i]`` (`right`: ``< x <=``).

    `bins` is 1-d, ascending or descending. ValueError for another rank.

    Args:
        method: how to search, as for `searchsorted`; without effect on the result.

    >>> jnp.digitize(jnp.array([0.5, 1.5, 9.0]), jnp.array([1.0, 2.0]))
    Array([0, 1, 2], dtype=int32)
    """
    v, edges = value("digitize", x), checked("digitize", bins, 1)
    right = bool(concrete(right, "right of digitize"))
    if edges.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got shape {edges.shape}.")
    if method is not None and method not in _METHODS:
        raise ValueError(f"digitize: invalid argument method={method!r}, expected one of {', '.join(_METHODS)}")
    n = edges.shape[0]
    if not n:
        return lax.full(v.shape, 0, np.int32)
    edges, v = promote_dtypes(edges, v)
    upwards = search(edges, v, right=not right)
    downwards = lax.sub(np.int32(n), search(lax.rev(edges, (0,)), v, right=not right))
    first, last = lax.index_in_dim(edges, 0, keepdims=False), lax.index_in_dim(edges, n - 1, keepdims=False)
    return where_(last >= first, upwards, downwards)
