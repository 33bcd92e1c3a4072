"""Arrays joined and taken apart: concatenate, stack and their kin, block, split, append, delete, insert.

In: sequences of arrays, or one array that stands for its rows. Out: one array with the common dtype, or a list of parts.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardwise.ir import Array, Tracer
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import (
    as_array,
    astype,
    broadcast_to_shape,
    canonical_axis,
    concrete,
    concrete_int,
    convert,
    host_or_value,
    is_bool,
    is_integer,
    no_out,
    promote_dtypes,
    requested_dtype,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.creation import asarray
from shardwise.numpy.indexing import take
from shardwise.numpy.shapes import atleast_1d, atleast_2d, atleast_3d, flat, moveaxis, new_dims
from shardwise.ops.indexing.search import searchsorted
from shardwise.ops.indexing.sorting import argsort_positions
from shardwise.ops.shapes.pieces import rows_between
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = [
    "append", "array_split", "block", "column_stack", "concat", "concatenate", "delete", "dsplit", "dstack", "hsplit",
    "hstack", "insert", "split", "stack", "unstack", "vsplit", "vstack",
]  # fmt: skip

Arrays = Any  # a sequence of arrays, or an array that stands for its rows


# -- joining ---------------------------------------------------------------------------------------------------


def _items(name: str, arrays: Arrays) -> list[Array] | Array:
    """The arrays of a sequence; one array with rows stays as it is. ValueError for none, TypeError for entries that are no arrays."""
    if isinstance(arrays, Array | np.ndarray):
        items: list[Array] | Array = checked(name, arrays)
        if not items.ndim or not items.shape[0]:
            raise ValueError(
                f"Need at least one array to {name}, got an array of shape {items.shape}, which has no rows."
            )
        return items
    if isinstance(arrays, Iterator):
        raise TypeError(f"{name} takes a sequence of arrays, got {type(arrays).__name__}; pass a list of it.")
    items = [checked(name, a, i) for i, a in enumerate(arrays)]
    if not items:
        raise ValueError(f"Need at least one array to {name}, got none.")
    return items


def _rank(items: list[Array] | Array) -> int:
    return items.ndim - 1 if isinstance(items, Array) else items[0].ndim


_AT_LEAST = {1: atleast_1d, 2: atleast_2d, 3: atleast_3d}


def _raise_rank(items: list[Array] | Array, rank: int) -> list[Array] | Array:
    """Each array as `atleast_1d` or its kin makes it."""
    if not isinstance(items, Array):
        return [_AT_LEAST[rank](x) for x in items]
    return lax.expand_dims(items, [d + 1 for d in new_dims(items.ndim - 1, rank)])


def _concatenate(name: str, items: list[Array] | Array, axis: int, dtype: Any = None) -> Array:
    rank = _rank(items)
    if not rank:
        raise ValueError(f"{name}: Zero-dimensional arrays cannot be concatenated. Use jnp.stack.")
    d = canonical_axis(axis, rank)
    if not isinstance(items, Array):
        return lax.concatenate(_one_dtype(name, items, dtype), d)
    x = _one_dtype(name, [items], dtype)[0]
    sizes = items.shape[1:]
    return lax.reshape(moveaxis(x, 0, d), (*sizes[:d], items.shape[0] * sizes[d], *sizes[d + 1 :]))


def _one_dtype(name: str, xs: Sequence[Array], dtype: Any) -> Sequence[Any]:
    result_dtype = requested_dtype(name, dtype)
    return promote_dtypes(*xs) if result_dtype is None else [astype(x, result_dtype) for x in xs]


def concatenate(arrays: Arrays, axis: int | None = 0, dtype: Any = None) -> Array:
    """The arrays joined along their dim `axis` (None: flattened), in their common dtype or in `dtype`.

    Raises TypeError unless all other dims agree, ValueError for no arrays or arrays without dims.

    >>> jnp.concatenate([jnp.array([[1, 2], [3, 4]]), jnp.array([[5, 6]])])
    Array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    """
    items = _items("concatenate", arrays)
    if axis is not None:
        return _concatenate("concatenate", items, axis, dtype)
    if isinstance(items, Array):
        return flat(_one_dtype("concatenate", [items], dtype)[0])
    return _concatenate("concatenate", [flat(x) for x in items], 0, dtype)


def concat(arrays: Arrays, /, *, axis: int | None = 0) -> Array:
    """The sequence `arrays` joined along the dim `axis` (None: flattened): `concatenate` by the name of the array
    API.

    >>> jnp.concat([jnp.array([1]), jnp.array([2, 3])])
    Array([1, 2, 3], dtype=int32)
    """
    return concatenate(arrays, axis)


def stack(arrays: Arrays, axis: int = 0, out: None = None, dtype: Any = None) -> Array:
    """The sequence `arrays` of arrays of one shape, joined along the new dim `axis`: k times [n, m] -> [k, n, m].
    ValueError for none, or where shapes differ.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.
        dtype: the result's; by default the common one.

    >>> jnp.stack([jnp.array([1, 2]), jnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    no_out("stack", out)
    items = _items("stack", arrays)
    d = canonical_axis(axis, _rank(items) + 1)
    if isinstance(items, Array):
        return moveaxis(_one_dtype("stack", [items], dtype)[0], 0, d)
    if len({x.shape for x in items}) > 1:
        raise ValueError(
            f"stack: All input arrays must have the same shape, got {', '.join(str(x.shape) for x in items)}."
        )
    return lax.stack(_one_dtype("stack", items, dtype), d)


def vstack(tup: Arrays, dtype: Any = None) -> Array:
    """The arrays of the sequence `tup` joined along their first dim; those with fewer than two dims are rows.

    >>> jnp.vstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    return _concatenate("vstack", _raise_rank(_items("vstack", tup), 2), 0, dtype)


def hstack(tup: Arrays, dtype: Any = None) -> Array:
    """The arrays of the sequence `tup` joined along their second dim, or along their only one.

    >>> jnp.hstack([jnp.array([1]), jnp.array([2, 3])])
    Array([1, 2, 3], dtype=int32)
    """
    items = _raise_rank(_items("hstack", tup), 1)
    return _concatenate("hstack", items, 0 if _rank(items) == 1 else 1, dtype)


def dstack(tup: Arrays, dtype: Any = None) -> Array:
    """The arrays of the sequence `tup` joined along their third dim, after `atleast_3d`.

    >>> jnp.dstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[[1, 3],
            [2, 4]]], dtype=int32)
    """
    return _concatenate("dstack", _raise_rank(_items("dstack", tup), 3), 2, dtype)


def column_stack(tup: Arrays) -> Array:
    """The arrays of the sequence `tup` joined along their second dim; those of at most one dim are columns.

    >>> jnp.column_stack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    items = _items("column_stack", tup)
    if isinstance(items, Array):
        columns: list[Array] | Array = lax.expand_dims(items, range(items.ndim, 3))
    else:
        columns = [lax.expand_dims(x, range(x.ndim, 2)) for x in items]
    return _concatenate("column_stack", columns, 1)


@shown_call()
def block(arrays: Any) -> Array:
    """An array put together from `arrays`, nested lists of blocks: the innermost lists join along the last dim, and
    so on outwards.

    ValueError for tuples, empty lists, and lists of different depths.

    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 2))], [jnp.zeros((1, 3))]])
    Array([[1., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    return _block(arrays)[0]


def _block(arrays: Any) -> tuple[Array, int]:
    """The array, and the depth of the lists."""
    if isinstance(arrays, tuple):
        raise ValueError(f"block takes nested lists, not tuples, got {arrays}.")
    if not isinstance(arrays, list):
        return asarray(arrays), 0
    if not arrays:
        raise ValueError("block: lists of blocks cannot be empty.")
    blocks, depths = zip(*map(_block, arrays), strict=True)
    if len(set(depths)) > 1:
        raise ValueError(
            f"block: mismatched list depths, {' and '.join(map(str, sorted(set(depths))))} below one list."
        )
    depth = depths[0] + 1
    rank = max(depth, *(x.ndim for x in blocks))
    raised_blocks = [lax.expand_dims(x, range(rank - x.ndim)) for x in blocks]
    return _concatenate("block", raised_blocks, rank - depth), depth


# -- taking apart ----------------------------------------------------------------------------------------------


def _parts(name: str, ary: Any, indices_or_sections: Any, axis: Any, uneven: bool = False) -> list[Array]:
    x = checked(name, ary)
    d = canonical_axis(concrete_int(axis, f"axis of {name}"), x.ndim)
    n = x.shape[d]
    given = indices_or_sections
    if isinstance(given, tuple | list) or (isinstance(given, np.ndarray | Array) and given.ndim):
        bounds = [0, *[concrete_int(i, f"an index of {name}") for i in given], n]
        return _split(x, [b - a for a, b in itertools.pairwise(bounds)], d)
    sections = int(concrete(given, f"the number of sections of {name}"))
    size, rest = divmod(n, sections)
    if rest and not uneven:
        raise ValueError(
            f"array split does not result in an equal division: rest is {rest}. {n} elements do not split into "
            f"{sections} equal parts; use jnp.array_split."
        )
    return _split(x, [size + 1] * rest + [size] * (sections - rest), d)


def _split(x: Array, sizes: list[int], d: int) -> list[Array]:
    return [x] if sizes == [x.shape[d]] else lax.split(x, sizes, d)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """The parts of `ary` along `axis`: `indices_or_sections` is a number of equal ones, or the positions between
    them.

    ValueError where the dim does not split evenly; see `array_split`.

    >>> jnp.split(jnp.arange(4), [1, 3])
    [Array([0], dtype=int32), Array([1, 2], dtype=int32), Array([3], dtype=int32)]
    """
    return _parts("split", ary, indices_or_sections, axis)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """The parts of `ary` along `axis`, as by `split`; for a number `indices_or_sections` they may differ by one in
    size, the larger ones first.

    >>> jnp.array_split(jnp.arange(5), 2)
    [Array([0, 1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    return _parts("array_split", ary, indices_or_sections, axis, uneven=True)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """The parts of `ary` along the first dim; `indices_or_sections` as for `split`.

    >>> jnp.vsplit(jnp.array([[1, 2], [3, 4]]), 2)
    [Array([[1, 2]], dtype=int32), Array([[3, 4]], dtype=int32)]
    """
    return _parts("vsplit", ary, indices_or_sections, 0)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """The parts of `ary` along the second dim, or the only one; `indices_or_sections` as for `split`.

    >>> jnp.hsplit(jnp.array([[1, 2], [3, 4]]), 2)
    [Array([[1],
           [3]], dtype=int32), Array([[2],
           [4]], dtype=int32)]
    """
    x = checked("hsplit", ary)
    return _parts("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """The parts of `ary` along the third dim; `indices_or_sections` as for `split`.

    >>> [part.shape for part in jnp.dsplit(jnp.ones((1, 2, 4)), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return _parts("dsplit", ary, indices_or_sections, 2)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices of `x` along `axis`, without that dim. ValueError for an array without dims.

    >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    return lax.unstack(checked("unstack", x), axis)


# -- adding and taking away ------------------------------------------------------------------------------------


@shown_call("axis")
def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """`values` joined to the end of `arr` along `axis` (None: both flattened).

    >>> jnp.append(jnp.array([1, 2]), jnp.array([3]))
    Array([1, 2, 3], dtype=int32)
    """
    return concatenate([checked("append", arr), checked("append", values, 1)], axis)


def delete(arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False) -> Array:
    """`arr` without the slices at `obj` along `axis` (None: of the flattened array).

    Args:
        obj: an int, a slice, an array of integers or a mask. Known while tracing, unless `assume_unique_indices`.
        assume_unique_indices: no position is named twice, so that the result's size does not depend on values.

    Raises:
        ConcretizationTypeError: `obj` is traced without that promise. ValueError: it has another dtype or does not fit.
        IndexError: a known index is out of bounds.

    >>> jnp.delete(jnp.array([10, 20, 30]), 1)
    Array([10, 30], dtype=int32)
    """
    x = checked("delete", arr)
    x, d = (flat(x), 0) if axis is None else (x, canonical_axis(axis, x.ndim))
    n = x.shape[d]
    keep = np.ones(n, bool)
    if isinstance(obj, slice):
        keep[obj] = False
        return _keep_rows(x, keep, d)
    if not isinstance(obj, Tracer) and not isinstance(obj, bool | np.bool_):
        with contextlib.suppress(TypeError):
            at = canonical_axis(operator.index(obj), n, "obj of delete")
            return lax.concatenate([rows_between(x, 0, at, d), rows_between(x, at + 1, n, d)], d)
    index = host_or_value("delete", obj, 1)
    if assume_unique_indices and is_integer(index.dtype):
        return _without(x, flat(as_array(index)), d)
    host_values = concrete(index, "obj of delete, unless assume_unique_indices=True is passed,")
    if is_integer(host_values.dtype):
        keep[host_values] = False
    elif not is_bool(host_values.dtype):
        raise ValueError(f"delete takes positions or a mask as obj, got dtype {host_values.dtype}.")
    elif host_values.shape != (n,):
        raise ValueError(
            f"delete: a mask must have shape {(n,)}, one bool per slice along the dim, got {host_values.shape}."
        )
    else:
        keep = ~host_values
    return _keep_rows(x, keep, d)


def _keep_rows(x: Array, keep: np.ndarray[Any, Any], d: int) -> Array:
    index = np.flatnonzero(keep).astype(np.int32)
    return take(x, index, d, mode="clip", unique_indices=True, indices_are_sorted=True)


def _without(x: Array, index: Array, d: int) -> Array:
    """The slices that are not at `index`: each moves up by the number of gone ones before it."""
    n, m = x.shape[d], index.size
    index = lax.clamp(0, where_(lax.lt(index, zero_like(index)), lax.add(index, n), index), n)
    before = lax.sub(lax.sort(index), lax.iota(index.dtype, m))
    position = lax.iota(index.dtype, max(n - m, 0))
    skip_counts = searchsorted(before, position, right=True)
    return take(x, lax.add(position, astype(skip_counts, position.dtype)), d, mode="clip")


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """`arr` with `values`, cast to its dtype, put in before the positions `obj` along `axis` (None: into the flattened array).

    `obj`: an int, a slice or integers in one dim, clamped into the dim. ValueError for other dtypes or more dims.

    >>> jnp.insert(jnp.array([1, 2, 3]), 1, 9)
    Array([1, 9, 2, 3], dtype=int32)
    """
    x, new = checked("insert", arr), checked("insert", values, 2)
    x, d = (flat(x), 0) if axis is None else (x, canonical_axis(concrete_int(axis, "axis of insert"), x.ndim))
    n = x.shape[d]
    given = np.arange(*obj.indices(n), dtype=np.int32) if isinstance(obj, slice) else obj
    index = checked("insert", given, 1)
    if index.ndim > 1:
        raise ValueError(f"insert: obj must be a slice, an int or have one dim, got shape {index.shape}.")
    if not is_integer(index.dtype):
        if index.size or isinstance(obj, Array):
            raise ValueError(f"insert: obj must have an integer dtype, got {index.dtype}.")
        index = as_array(astype(index, np.dtype(np.int32)))
    new = lax.expand_dims(convert(new, x.dtype, x.weak_type), range(max(x.ndim - new.ndim, 0)))
    if index.size == 1:
        if not index.ndim:
            new = moveaxis(new, 0, d)
        index = lax.broadcast_in_dim(flat(index), (new.shape[d],), (0,))
    m = lax.broadcast_shapes(index.shape, (new.shape[d],))[0]
    new = broadcast_to_shape(new, (*x.shape[:d], m, *x.shape[d + 1 :]))
    index = lax.broadcast_in_dim(index, (m,), (0,))
    index = lax.clamp(0, where_(lax.lt(index, zero_like(index)), lax.add(index, n), index), n)
    # New slices get even keys and old ones odd keys, so that a stable sort puts each before the one it names.
    keys = lax.concatenate([lax.mul(index, 2), lax.add(lax.mul(lax.iota(index.dtype, n), 2), 1)], 0)
    return take(lax.concatenate([new, x], d), argsort_positions(keys), d, mode="clip", unique_indices=True)
