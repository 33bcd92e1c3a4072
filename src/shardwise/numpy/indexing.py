"""Reading with an index: ``x[...]``, `take`, `take_along_axis`.

Slices and ints become slice, reverse and squeeze ops; only index arrays gather. Reads out of bounds clamp, unless a
mode says otherwise; negative indices count from the end first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import recent
from shardwise.base.config import context_token
from shardwise.base.dtypes import iinfo, isdtype
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, Literal, bind, is_eager, literal
from shardwise.ir.explicit import type_error
from shardwise.ir.showing import SHOWING
from shardwise.lax import GatherDimensionNumbers, GatherScatterMode
from shardwise.lax import adaptive as lax
from shardwise.numpy._indexer import (
    Cut,
    Item,
    Lookup,
    Pick,
    ResultDims,
    Window,
    clamps,
    held_index,
    parse,
    result_dims,
    settle_item,
)
from shardwise.numpy._promote import array as checked_array
from shardwise.numpy._promote import broadcast_shapes, canonical_axis, no_out
from shardwise.numpy._promote import value as checked_value
from shardwise.numpy.array_views import (
    basic_data,
    basic_form,
    basic_view,
    checks_results,
    is_dense,
    is_watched,
    pmap_piece,
    view_signatures,
)
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.indexing.gather import gather_p, gather_params, gather_windows
from shardwise.ops.indexing.shown_starts import wrapped_index
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.shapes.pieces import window_p
from shardwise.sharding import NamedSharding, PartitionSpec, PmapSharding, SingleDeviceSharding
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call
from shardwise.transforms.manual.explicit import auto_axes, reshard

__all__ = ["take", "take_along_axis"]

Items = Sequence[Item]


def getitem(x: Array, index: Any) -> Array:
    """``x[index]`` as NumPy reads it; indices out of bounds clamp."""
    if type(x) is ArrayImpl and is_eager():
        kind = type(x.sharding)
        if kind is SingleDeviceSharding:
            view = basic_view(x, index)
            if view is not None:
                return view
        elif kind is PmapSharding:
            piece = pmap_piece(x, index)
            if piece is not None:
                return piece
        elif (form := basic_form(index)) is not None and not x._sig.spans and is_dense(x) and not x._sig.varies:
            key = x._sig, context_token(), form
            sig = view_signatures.get(key)
            if sig is None:
                y = take_index(x, index)
                if type(y) is ArrayImpl and not (is_watched(x) or checks_results()):
                    view_signatures[key] = y._sig
                return y
            return ArrayImpl(sig, dense=basic_data(x, index))
    if isinstance(index, (Array, np.ndarray)) and index.ndim and index.size and x.ndim and index.dtype.kind in "iu":
        vectors, wraps = index_vectors([index], x.shape[:1], index.shape, True)
        return bind(gather_p, x, vectors, **_row_params(x.shape, index.ndim, wraps, SHOWING.get()))
    return take_index(x, index)


@recent(1024)
def _row_params(shape: tuple[int, ...], rank: int, wraps: bool, shown: bool) -> dict[str, Any]:
    """The params of the gather for ``x[index]`` with one index array of that rank."""
    numbers = GatherDimensionNumbers(tuple(range(rank, rank + len(shape) - 1)), (0,), (0,))
    mode = GatherScatterMode.PROMISE_IN_BOUNDS if shown else GatherScatterMode.CLIP
    return gather_params(numbers, (1, *shape[1:]), mode, wrap_negative=wraps)


def iterate(x: Array) -> Iterator[Array]:
    """The rows of `x`; TypeError for an array without dims."""
    if not x.ndim:
        raise TypeError("iteration over a 0-d array")
    return iter(lax.unstack(x))


def take_index(
    x: Array,
    index: Any,
    *,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    out_sharding: Any = None,
    wrap_negative_indices: bool = True,
) -> Array:
    """``x[index]``, with a mode for indices out of bounds and a sharding for a result whose type is ambiguous.

    Raises TypeError and IndexError for an invalid index of `x`; see `parse`.
    """
    default = GatherScatterMode.PROMISE_IN_BOUNDS if SHOWING.get() else GatherScatterMode.CLIP
    gather_mode = default if mode is None else GatherScatterMode.from_any(mode)
    is_checked = mode is None or gather_mode is GatherScatterMode.PROMISE_IN_BOUNDS
    items = [
        settle_item(i, x.shape, gather_mode, wrap_negative_indices, keep_outside=True, checked=is_checked)
        for i in parse(x.shape, index)
    ]
    options = dict(
        mode=gather_mode, fill_value=fill_value, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices
    )
    wrap = wrap_negative_indices
    if out_sharding is None:
        return _take_items(x, items, options, wrap)
    target = resolve_out_sharding(out_sharding, ".get", result_dims(items).ndim)
    body = auto_axes(lambda x, *arrays: _take_items(x, with_arrays(items, arrays), options, wrap), out_sharding=target)
    return body(x, *traced_arrays(items))


def _take_items(x: Array, items: Items, options: dict[str, Any], wrap: bool) -> Array:
    lookups = [item for item in items if isinstance(item, Lookup)]
    result = result_dims(items)
    windows = any(isinstance(item, Window) for item in items)
    if not lookups and not windows:
        y = cut(x, items)
        dims = [item.dim for item in items if isinstance(item, (Cut, Pick))]
        dims_gone = [
            d for d, item in zip(dims, (i for i in items if i is not None), strict=True) if isinstance(item, Pick)
        ]
    elif all(item.dim is None or not item.array.ndim for item in lookups) and (empty := _empty_dims(x, lookups)):
        raise IndexError(f"index is out of bounds for axis {empty[0]} with size 0")
    elif clamps(options["mode"]) and all(item.dim is not None and not item.array.ndim for item in lookups):
        y = _slice_at(x, items, wrap)
        dims_gone = [item.dim for item in items if isinstance(item, (Pick, Lookup)) and item.dim is not None]
    elif 0 in (shape := result.shape(items)):  # nothing is read, so that dims of `x` may be empty, too
        return _empty(x, tuple(shape))
    else:
        y, dims_gone = _gather_dims(cut(x, items), items, result, lookups, options, wrap), []
    if dims_gone:
        y = lax.squeeze(y, dims_gone)
    places, _ = result.positions()
    backwards = [places[item.dim] for item in items if isinstance(item, Cut) and item.step < 0 and item.size > 1]
    if backwards:
        y = lax.rev(y, backwards)
    return lax.expand_dims(y, result.new_dims) if result.new_dims else y


def _empty_dims(x: Array, lookups: Sequence[Lookup]) -> list[int]:
    return [item.dim for item in lookups if item.dim is not None and not x.shape[item.dim]]


def traced_arrays(items: Items) -> list[Array]:
    """The index arrays, and starts of windows, that are no host data."""
    given = [i.array if isinstance(i, Lookup) else i.start for i in items if isinstance(i, (Lookup, Window))]
    return [x for x in given if isinstance(x, Array)]


def with_arrays(items: Items, arrays: Sequence[Array]) -> list[Item]:
    """`items` with `arrays` in place of `traced_arrays(items)`."""
    rest = iter(arrays)
    new_items: list[Item] = []
    for item in items:
        if isinstance(item, Lookup) and isinstance(item.array, Array):
            new_items.append(Lookup(item.dim, next(rest)))
        elif isinstance(item, Window) and isinstance(item.start, Array):
            new_items.append(Window(item.dim, next(rest), item.size, 1))
        else:
            new_items.append(item)
    return new_items


# -- slices ----------------------------------------------------------------------------------------------------


def cut(x: Array, items: Items) -> Array:
    """`x` cut to the positions of each `Cut`, in ascending order, and to size 1 at each `Pick`."""
    starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for item in items:
        if isinstance(item, Cut) and not isinstance(item, Window):
            step = abs(item.step) if item.size > 1 else 1
            starts[item.dim], steps[item.dim] = item.low, step
            limits[item.dim] = item.low + (item.size - 1) * step + 1 if item.size else item.low
        elif isinstance(item, Pick):
            starts[item.dim], limits[item.dim] = item.index, item.index + 1
    changed_dims = [d for d, n in enumerate(x.shape) if starts[d] or limits[d] != n or steps[d] != 1]
    if not changed_dims:
        return x
    if isinstance(x, ArrayImpl) and is_eager():
        if x.sharding.num_devices > 1:
            x = _whole_in(x, changed_dims)
        if steps == [1] * x.ndim and x.sharding.num_devices == 1 and not is_watched(x):
            # Starts are values here, not part of the op: op by op, all of them share one compiled slice.
            sizes = [b - a for a, b in zip(starts, limits, strict=True)]
            return lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False)
        if x.sharding.num_devices > 1:
            return bind(
                window_p,
                x,
                start_indices=tuple(starts),
                limit_indices=tuple(limits),
                strides=None if steps == [1] * x.ndim else tuple(steps),
            )
    return lax.slice(x, starts, limits, None if steps == [1] * x.ndim else steps)


def _whole_in(x: ArrayImpl, dims: Sequence[int]) -> ArrayImpl:
    """Outside of jit, a dim that is cut must not be split in the type; the dialect says whether it is made whole first."""
    if x.aval.mesh is None or not any(x.aval.spec[d] for d in dims):
        return x
    if not config.dialect.explicit.eager_indexing_gathers:
        raise type_error(
            f"x[...] cuts dims {list(dims)} of {x.aval.str_short()}, which are split. Use .at[...].get(out_sharding=), "
            "reshard those dims to None, or index under jit."
        )
    entries = [None if d in dims else entry for d, entry in enumerate(x.aval.sharding.spec.partitions)]
    assert isinstance(x.sharding, NamedSharding)
    return reshard(x, NamedSharding(x.sharding.mesh, PartitionSpec(*entries)))


def _slice_at(x: Array, items: Items, wrap: bool) -> Array:
    """Static cuts, windows, and traced ints as slices of size 1 whose starts are values."""
    y = cut(x, [item for item in items if isinstance(item, Cut) and abs(item.step) != 1])
    starts: list[Any] = [0] * x.ndim
    sizes = list(y.shape)
    negative = [False] * x.ndim
    for item in items:
        if isinstance(item, Cut) and abs(item.step) == 1:
            starts[item.dim], sizes[item.dim] = item.low, item.size
            negative[item.dim] = wrap and isinstance(item, Window)
        elif isinstance(item, Pick):
            starts[item.dim], sizes[item.dim] = item.index, 1
        elif isinstance(item, Lookup) and item.dim is not None:
            starts[item.dim], sizes[item.dim] = item.array, 1
            negative[item.dim] = wrap
    if isinstance(y, ArrayImpl) and is_eager():
        y = _whole_in(y, [d for d, n in enumerate(y.shape) if n != sizes[d]])
    if not wrap:  # clamped here, where they are known
        starts = [s if isinstance(s, Array) else max(s, 0) for s in starts]
    return lax.dynamic_slice(y, _of_one_dtype(starts), sizes, allow_negative_indices=negative)


def _of_one_dtype(starts: Sequence[Any]) -> Sequence[Any]:
    """Starts of one dtype: that of the arrays among them if it holds the others, too."""
    dtypes = {s.dtype for s in starts if isinstance(s, Array)}
    if not dtypes:
        return [int(s) for s in starts]
    dtype = min(dtypes, key=str)
    if len(dtypes) > 1 or any(isinstance(s, int) and s > iinfo(dtype).max for s in starts):
        dtype = np.dtype(np.int64 if any(d.itemsize == 8 for d in dtypes) else np.int32)
    return [convert(s, dtype) if isinstance(s, Array) else literal(s, dtype=dtype) for s in starts]


# -- gathers ---------------------------------------------------------------------------------------------------


def _gather_dims(
    y: Array, items: Items, result: ResultDims, lookups: Sequence[Lookup], options: dict[str, Any], wrap: bool
) -> Array:
    mapped_lookups = [item for item in lookups if item.dim is not None]
    windows = {item.dim: item for item in items if isinstance(item, Window)}
    taken_dims = tuple(item.dim for item in mapped_lookups if item.dim is not None)
    dims = (*taken_dims, *windows)
    picks = [item.dim for item in items if isinstance(item, Pick)]
    places, first = result.positions()
    collapsed_dims = tuple(sorted((*taken_dims, *picks)))
    columns = [*(i.array for i in mapped_lookups), *(w.start for w in windows.values())]
    vectors, wraps = index_vectors(columns, [y.shape[d] for d in dims], result.batch, wrap)
    numbers = GatherDimensionNumbers(tuple(sorted(places.values())), collapsed_dims, dims)
    sizes = [1 if d in collapsed_dims else windows[d].size if d in windows else n for d, n in enumerate(y.shape)]
    del first
    return gather_windows(y, vectors, numbers, sizes, wrap_negative=wraps, **options)


def _count_from_front(indices: np.ndarray[Any, Any], size: int, wrap: bool) -> Any:
    """Host indices of a dim, negative ones counted from its end."""
    wide = indices.astype(np.int64)
    return held_index(np.where(wide < 0, wide + size, wide) if wrap else wide, 0)


def index_vectors(
    arrays: Sequence[Any], sizes: Sequence[int], batch: tuple[int, ...], wrap: bool
) -> tuple[Array, bool]:
    """Index arrays for dims of `sizes`, broadcast to `batch` and laid side by side: ``[*batch, k]``.

    Also tells whether the op must still count negative ones from the end; for host data that is done here.
    """
    is_shown = SHOWING.get() and not batch  # JAX makes constants of known numbers in the program
    if all(isinstance(a, np.ndarray) for a in arrays) and not is_shown:
        vectors = np.empty((*batch, len(arrays)), np.int32)
        for k, (a, n) in enumerate(zip(arrays, sizes, strict=True)):
            vectors[..., k] = _count_from_front(a, n, wrap)
        return as_array(vectors), False
    if is_shown:
        is_known = [isinstance(a, np.ndarray) for a in arrays]
        counted_arrays = [
            _count_from_front(a, n, wrap) if k else a for a, n, k in zip(arrays, sizes, is_known, strict=True)
        ]
        arrays = [
            literal(int(a), dtype=np.dtype(np.int32)) if k else a for a, k in zip(counted_arrays, is_known, strict=True)
        ]
    values = [as_array(a.astype(np.int32)) if isinstance(a, np.ndarray) else a for a in arrays]
    dtypes = {v.dtype for v in values}
    if len(dtypes) > 1:
        wide = np.dtype(np.int64 if any(d.itemsize == 8 for d in dtypes) else np.int32)
        values = [convert(v, wide) for v in values]
    if wrap and SHOWING.get():  # JAX counts them from the end by ops
        values = [v if isinstance(v, Literal) else wrapped_index(v, n) for v, n in zip(values, sizes, strict=True)]
        wrap = False
    columns = []
    for v in values:
        first = len(batch) - v.ndim
        if v.shape == batch:
            columns.append(lax.expand_dims(v, (v.ndim,)))
        else:
            columns.append(lax.broadcast_in_dim(v, (*batch, 1), range(first, len(batch))))
    vectors = columns[0] if len(columns) == 1 else lax.concatenate(columns, len(batch))
    return vectors, wrap and not isdtype(vectors.dtype, "unsigned integer")


# -- take ------------------------------------------------------------------------------------------------------


@composed_function(2)
@shown_call("axis out mode unique_indices indices_are_sorted fill_value", name="_take")
def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """The slices of `a` at `indices` along `axis` (None: of the flattened array).

    `mode` for indices out of bounds: 'fill' (the default) gives `fill_value` (NaN, or the least integer) after counting
    negative ones from the end, 'clip' clamps into the dim, 'wrap' takes the remainder. Raises IndexError for reads from
    an empty dim, ValueError for floats or a bad axis, NotImplementedError for mode 'raise', whose check would need
    values.

    Args:
        unique_indices: a promise that may be used, as `indices_are_sorted` is: no index occurs twice.
        indices_are_sorted: the indices ascend.

    >>> jnp.take(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]), axis=0)
    Array([[3, 4],
           [3, 4]], dtype=int32)
    """
    no_out("take", out)
    x, index = checked_value("take", a), checked_value("take", indices, 1)
    x = as_array(x)
    if axis is None:
        x, d = lax.reshape(x, (x.size,)), 0
    else:
        d = canonical_axis(axis, x.ndim)
    if mode == "raise":
        raise NotImplementedError(
            "The 'raise' mode to jnp.take is not supported. Use mode='fill' and check the result."
        )
    if mode not in (None, "fill", "clip", "wrap"):
        raise ValueError(f"Invalid mode {mode!r} for np.take; expected 'fill', 'clip' or 'wrap'.")
    if isdtype(index.dtype, "bool") or not index.aval.size:
        index = convert(index, np.dtype(np.int32))
    if not isdtype(index.dtype, "integral"):
        raise ValueError(f"take: indices must have an integer type, got {index.dtype.name}.")
    n = x.shape[d]
    if not n and index.aval.size:
        raise IndexError("Cannot do a non-empty jnp.take() from an empty axis.")
    if mode == "wrap":
        index = wrap_index(index, n)
    rank = index.ndim
    vectors = lax.expand_dims(as_array(index), (rank,))
    numbers = GatherDimensionNumbers((*range(d), *range(d + rank, rank + x.ndim - 1)), (d,), (d,))
    sizes = (*x.shape[:d], 1 if n else 0, *x.shape[d + 1 :])
    gather_mode = GatherScatterMode.CLIP if mode in ("clip", "wrap") else GatherScatterMode.FILL_OR_DROP
    return gather_windows(
        x,
        vectors,
        numbers,
        sizes,
        mode=gather_mode,
        fill_value=fill_value,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        wrap_negative=gather_mode is GatherScatterMode.FILL_OR_DROP,
    )


def wrap_index(index: Any, n: int) -> Any:
    """`index` modulo `n`, in 0..n-1."""
    if isinstance(index, Literal):
        index = as_array(index)
    size = np.asarray(n).astype(index.dtype)
    rest = lax.rem(index, size)
    if isdtype(index.dtype, "unsigned integer"):
        return rest
    return lax.select_n(lax.lt(rest, size.dtype.type(0)), rest, lax.add(rest, size))


def _empty(x: Array, shape: tuple[int, ...]) -> Array:
    """No elements of `x`, on its device where it is committed to one."""
    alone = isinstance(x, ArrayImpl) and isinstance(x.sharding, SingleDeviceSharding)
    return lax.full_like(x, 0, x.dtype, shape) if alone else lax.full(shape, 0, x.dtype)


@shown_call("axis mode fill_value wrap_negative_indices")
def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """Elements of `arr` at `indices` along `axis`, the other dims running in step (None: of the flattened array).

    Modes as for `take`, without 'wrap'. Other dims of size 1 broadcast. Raises TypeError for indices that are no
    integers, ValueError where ranks or shapes do not fit.

    Args:
        mode: what happens to indices out of bounds. 'one_hot' gives 0 there, whatever `fill_value` says.
        fill_value: the element for mode 'fill'.
        wrap_negative_indices: negative indices count from the end.

    >>> jnp.take_along_axis(jnp.array([[1, 2], [3, 4]]), jnp.array([[1], [0]]), axis=1)
    Array([[2],
           [3]], dtype=int32)
    """
    x, index = checked_array("take_along_axis", arr), checked_array("take_along_axis", indices, 1)
    if not isdtype(index.dtype, "integral"):
        raise TypeError(f"take_along_axis indices must be of integer type, got {index.dtype.name}")
    if axis is None:
        if index.ndim != 1:
            raise ValueError(f"take_along_axis indices must be 1D if axis=None, got shape {index.shape}.")
        x, axis = lax.reshape(x, (x.size,)), 0
    if x.ndim != index.ndim:
        raise ValueError(f"indices and arr must have the same number of dimensions; {index.ndim} vs. {x.ndim}")
    d = canonical_axis(axis, x.ndim)
    without = lambda s: (*s[:d], 1, *s[d + 1 :])  # noqa: E731
    broadcast_shapes(without(index.shape), without(x.shape))

    if not index.size:
        sizes = [m if i == d or n == 1 else n for i, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))]
        return _empty(x, tuple(sizes))

    # A dim runs in step, is read whole by every index vector, or (size 1) is read again and again.
    rank = x.ndim
    together = tuple(i for i in range(rank) if i != d and x.shape[i] == index.shape[i])
    whole = tuple(i for i in range(rank) if i != d and i not in together and index.shape[i] == 1)
    again = tuple(i for i in range(rank) if i != d and i not in together and i not in whole)
    kept_dims = [i for i in range(rank) if i not in whole]
    vectors = lax.expand_dims(lax.squeeze(index, whole) if whole else index, (len(kept_dims),))
    gather_mode = GatherScatterMode.from_any("fill" if mode is None else mode)
    if (
        gather_mode is GatherScatterMode.ONE_HOT
    ):  # a product with rows of a single one: zeros where no element is asked for
        gather_mode, fill_value = GatherScatterMode.FILL_OR_DROP, 0
    numbers = GatherDimensionNumbers(
        whole, tuple(sorted((d, *again))), (d,), together, tuple(kept_dims.index(i) for i in together)
    )
    return gather_windows(
        x,
        vectors,
        numbers,
        tuple(x.shape[i] if i in whole else min(x.shape[i], 1) for i in range(rank)),
        mode=gather_mode,
        fill_value=fill_value,
        wrap_negative=wrap_negative_indices is not False and not isdtype(index.dtype, "unsigned integer"),
    )
