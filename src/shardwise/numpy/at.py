"""Writing with an index: ``x.at[...].set(y)`` and the other methods.

In: an array, an index, values. Out: a new array. Static ints and slices become an update of one window;
index arrays scatter. Writes out of bounds are dropped, unless a mode says otherwise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import recent
from shardwise.base.config import context_token
from shardwise.base.dtypes import issubdtype, lattice_result_type, safe_to_cast
from shardwise.base.errors import ShardingNotImplementedErrorSeed, ShardingTypeError, ShardingTypeErrorSeed
from shardwise.engine.array import ArrayImpl
from shardwise.engine.eager import run_composed
from shardwise.ir import Array, Literal, ShapedArray, bind, is_eager
from shardwise.ir.showing import SHOWING
from shardwise.lax import GatherScatterMode
from shardwise.lax import adaptive as lax
from shardwise.numpy._indexer import BATCH, Cut, Item, Lookup, Pick, ResultDims, Window, parse, result_dims, settle_item
from shardwise.numpy._promote import broadcast_to_shape, plain_number
from shardwise.numpy._promote import value as checked_value
from shardwise.numpy.array_views import index_key
from shardwise.numpy.binary import divide, power
from shardwise.numpy.creation import asarray
from shardwise.numpy.indexing import index_vectors, take_index, traced_arrays, with_arrays
from shardwise.ops.elementwise.casts import convert, warn_of_lost_part
from shardwise.ops.indexing.apply import apply_at
from shardwise.ops.indexing.scatter import ScatterDimensionNumbers, scatter_with
from shardwise.ops.indexing.slicing import dynamic_update_slice_p, static_starts
from shardwise.ops.rules.convert import as_array, wide_int
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.fill import full_like
from shardwise.sharding import NamedSharding, PartitionSpec
from shardwise.transforms.manual.explicit import auto_axes

_BINARY: dict[str, Callable[..., Array]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "min": lax.min,
    "max": lax.max,
}

_GRID_MOST = (
    2.5  # elements of a value for each that strided slices of it address, up to which one loop goes over all of them
)


class IndexUpdateHelper:
    """The value of ``x.at``: index it to choose the elements, then call a method to change them."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"_IndexUpdateHelper({self.array!r})"


class IndexUpdateRef:
    """``x.at[index]``: each method returns a copy of `x` changed there, or the elements there.

    All take `mode` ('drop', the default, leaves indices out of bounds out; 'clip' clamps them; 'promise_in_bounds'),
    `indices_are_sorted` and `unique_indices` (promises that may save time), `wrap_negative_indices` (False takes
    negative indices as out of bounds). Values broadcast to the shape of ``x[index]`` and are cast to the dtype of `x`,
    with a FutureWarning where that may lose something. Repeated indices are all taken, in order.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"_IndexUpdateRef({self.array!r}, {self.index!r})"

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
        fill_value: Any = None,
        out_sharding: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """``x[index]``; by default indices out of bounds clamp, with mode='fill' they give `fill_value`."""
        return take_index(
            self.array,
            self.index,
            mode=mode,
            fill_value=fill_value,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            out_sharding=out_sharding,
            wrap_negative_indices=wrap_negative_indices,
        )

    def set(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] = values``."""
        return update_index(self.array, self.index, values, "", **options)

    def add(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] += values``."""
        return update_index(self.array, self.index, values, "add", **options)

    def subtract(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] -= values``."""
        return update_index(self.array, self.index, values, "sub", **options)

    def multiply(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] *= values``."""
        return update_index(self.array, self.index, values, "mul", **options)

    mul = multiply

    def divide(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] /= values``; a floating result, also for integers."""

        return divide(self.array, update_index(full_like(self.array, 1), self.index, values, "mul", **options))

    def power(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] **= values``."""

        return power(self.array, update_index(full_like(self.array, 1), self.index, values, "mul", **options))

    def min(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] = minimum(x[index], values)``."""
        return update_index(self.array, self.index, values, "min", **options)

    def max(self, values: Any, **options: Any) -> Array:
        """``x`` with ``x[index] = maximum(x[index], values)``."""
        return update_index(self.array, self.index, values, "max", **options)

    def apply(self, func: Callable[[Array], Array], **options: Any) -> Array:
        """``x`` with elementwise `func` applied at `index`, as often as an element is indexed."""
        return apply_index(self.array, self.index, func, **options)


def at(x: Array) -> IndexUpdateHelper:
    """The value of ``x.at``."""
    return IndexUpdateHelper(x)


# -- one window ----------------------------------------------------------------------------------------------------------


def update_index(
    x: Array,
    index: Any,
    values: Any,
    combine: str,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
    out_sharding: Any = None,
    wrap_negative_indices: bool = True,
) -> Array:
    """`x` with `values` put (`combine` '') or combined ('add', 'sub', 'mul', 'min', 'max') into ``x[index]``."""
    gather_mode = GatherScatterMode.from_any(mode)
    if type(x) is ArrayImpl and not combine and wrap_negative_indices and out_sharding is None and is_eager():
        key = index_key(index)
        place = None if key is None else _window_place(x._sig.aval.shape, key, gather_mode)
        if place is not None:
            scalar = plain_number(values, x) if x._sig.aval.mesh is None else None
            if scalar is None:
                values = _operand_value(values, x)
                scalar = values if _is_plain_scalar(x, values) else None
            if scalar is not None:
                return _put(x, scalar, *place)
    items = _settle_items(x, index, gather_mode, wrap_negative_indices)
    y = _operand_value(values, x)
    options = dict(mode=gather_mode, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices)
    dtype, weak = x.dtype, x.weak_type
    if not safe_to_cast(y, x):
        warnings.warn(
            f"scatter inputs have incompatible types: cannot safely cast value from dtype={y.dtype.name} to "
            f"dtype={dtype.name} with jax_numpy_dtype_promotion={config.jax_numpy_dtype_promotion!r}. In future JAX "
            "releases this will result in an error. Cast the value with .astype first.",
            FutureWarning,
            stacklevel=3,
        )
        warn_of_lost_part(y.dtype, dtype)
    if combine:
        common, common_weak = lattice_result_type(x, y)
        x, y = as_array(convert(x, common, common_weak)), convert(y, common, common_weak)
    else:  # nothing is computed, so the value may be cast at once
        y = convert(y, dtype, False)
    if out_sharding is None:
        try:
            out = _update_items(x, items, y, combine, options, wrap_negative_indices)
        except (ShardingTypeError, ShardingTypeErrorSeed, ShardingNotImplementedErrorSeed) as error:
            method = combine or "set"
            raise type(error)(
                f"x.at[...].{method}: the sharding of the result does not follow from those of x, {x.aval.str_short()}, and of what is "
                f"written. Give it: x.at[...].{method}(..., out_sharding={x.aval.sharding.spec}). ({error})"
            ) from None
    else:
        body = auto_axes(
            lambda x, y, *arrays: _update_items(
                x, with_arrays(items, arrays), y, combine, options, wrap_negative_indices
            ),
            out_sharding=resolve_out_sharding(out_sharding, f".{combine or 'set'}", x.ndim),
        )
        out = body(x, as_array(y), *traced_arrays(items))
    return as_array(convert(out, dtype, weak))


def _is_plain_scalar(x: ArrayImpl, y: Any) -> bool:
    """Whether `y` is a scalar that goes into `x` without a warning, and neither is typed over a mesh."""
    own, given = x._sig.aval, y.aval
    if given.shape or own.mesh is not None or given.mesh is not None:
        return False
    return given.dtype == own.dtype or _goes_into(context_token(), given.dtype, given.weak_type, own.dtype)


def _put(x: ArrayImpl, y: Any, starts: tuple[Literal, ...], sizes: tuple[int, ...]) -> Array:
    """`x` with a scalar in all of a window, as types and place are known."""
    scalar: Any = convert(y, x._sig.aval.dtype, y.aval.weak_type)
    return run_composed(_window_filled, sizes, x, scalar, *starts)


def _window_filled(sizes: tuple[int, ...], x: Array, scalar: Any, *starts: Any) -> Array:
    """`x` with `scalar` in all of a window."""
    update = bind(broadcast_in_dim_p, scalar, shape=sizes, broadcast_dimensions=(), out_sharding=None)
    out = bind(dynamic_update_slice_p, x, update, *starts, wrap=(False,) * len(starts), operand_axes=None)
    return as_array(convert(out, x.dtype, x.weak_type))


@recent(1024)
def _goes_into(token: object, source: Any, weak: bool, target: Any) -> bool:
    """Whether a value of one dtype may be put into an array of another without a warning, as the settings are."""
    del token
    return safe_to_cast(ShapedArray((), source, weak), target)


@recent(4096)
def _window_place(
    shape: tuple[int, ...], key: tuple[Any, ...], mode: GatherScatterMode
) -> tuple[tuple[Literal, ...], tuple[int, ...]] | None:
    """Where the window begins that an index without arrays addresses, and its sizes; None if it is none, or empty."""
    index = tuple([slice(*part) if type(part) is tuple else part for part in key])
    drops = mode if mode is GatherScatterMode.CLIP else GatherScatterMode.FILL_OR_DROP
    items = [settle_item(item, shape, drops, True) for item in parse(shape, index)]
    if not _is_one_window(items):
        return None
    starts, sizes = _window(len(shape), items)
    return (static_starts(tuple(starts)), tuple(sizes)) if math.prod(sizes) else None


def _settle_items(x: Array, index: Any, mode: GatherScatterMode, wrap: bool) -> list[Item]:
    """The items of `index`. Static ints out of bounds are left to the scatter, unless the mode clamps."""
    drops = mode if mode is GatherScatterMode.CLIP else GatherScatterMode.FILL_OR_DROP
    return [settle_item(item, x.shape, drops, wrap) for item in parse(x.shape, index)]


def _operand_value(values: Any, x: Array) -> Any:
    """The values to write into `x`; sequences become arrays."""
    if isinstance(values, (list, tuple, range)):
        return asarray(values)
    if type(values) is bool and np.issubdtype(x.dtype, np.integer):
        values = int(values)  # which meets integers under strict promotion, too
    wide = wide_int(values, x.dtype)
    if wide is not values and not _holds(x.dtype, values):
        wide = values  # too large for the default integers, too, so that it is refused
    return checked_value(".at[...]", wide)


def _holds(dtype: Any, number: int) -> bool:
    """Whether a number beyond the default integers is one of `dtype`."""
    if dtype.kind not in "iu":
        return issubdtype(dtype, np.inexact)
    limits = np.iinfo(dtype)
    return limits.min <= number <= limits.max


def _update_items(x: Array, items: Sequence[Item], y: Any, combine: str, options: dict[str, Any], wrap: bool) -> Array:
    result = result_dims(items)
    if _is_one_window(items) and not _shown_as_scatter(x, items):
        return _window_updated(x, items, result, y, combine)
    if not combine and _is_dense_grid(x, items):
        return _grid_written(x, items, result, y)
    update, vectors, numbers, unique, wraps = _scatter_operands(x, items, result, y, wrap)
    if not update.size:
        return x  # also where no window fits into an empty dim, so that derivatives could read none
    if unique:
        options = {
            **options,
            "unique_indices": True,
            "indices_are_sorted": SHOWING.get() or options["indices_are_sorted"],
        }
    return scatter_with(combine, x, vectors, update, numbers, wrap_negative=wraps, **options)


def _shown_as_scatter(x: Array, items: Sequence[Item]) -> bool:
    """Whether the program is traced to be shown, where JAX scatters a window that is not all of the array."""
    if not SHOWING.get() or x.aval.mesh is not None:
        return False
    return any(isinstance(i, Pick) or (isinstance(i, Cut) and not i.is_whole(x.shape[i.dim])) for i in items)


def _is_one_window(items: Sequence[Item]) -> bool:
    return not any(
        isinstance(i, (Lookup, Window)) or (isinstance(i, Cut) and abs(i.step) != 1 and i.size > 1) for i in items
    )


def _is_dense_grid(x: Array, items: Sequence[Item]) -> bool:
    """Whether strided slices, as ``[..., ::2]``, address about half of a value in a program: then one loop over all of it takes less time
    than to look up each place. A program that is shown scatters, as JAX does; so does an array on a mesh with Explicit axes.
    """
    plain = x.dtype.kind == "b" or issubdtype(x.dtype, np.number)  # no random keys
    if is_eager() or SHOWING.get() or x.aval.mesh is not None or not (plain and x.size):
        return False
    if any(isinstance(item, (Lookup, Pick, Window)) for item in items):
        return False
    cuts = [item for item in items if isinstance(item, Cut)]
    return _GRID_MOST * math.prod([c.size for c in cuts]) >= x.size


def _grid_written(x: Array, items: Sequence[Item], result: ResultDims, y: Any) -> Array:
    """`x` with `y` in the elements that slices address: where these are, the elements of `y` with gaps between them."""
    update = as_array(_as_window(items, result, y))
    pads = [(0, 0, 0)] * x.ndim
    is_written: Any = None
    for c in (item for item in items if isinstance(item, Cut)):
        n, step = x.shape[c.dim], abs(c.step)
        if c.size == n:
            continue
        pads[c.dim] = (c.low, n - c.low - (c.size - 1) * step - 1, step - 1)
        places = lax.pad(lax.full((c.size,), True), False, [pads[c.dim]])
        here = lax.broadcast_in_dim(places, x.shape, (c.dim,))
        is_written = here if is_written is None else lax.bitwise_and(is_written, here)
    return lax.select(is_written, lax.pad(update, np.zeros((), x.dtype), pads), x)


def _window(rank: int, items: Sequence[Item]) -> tuple[list[int], list[int]]:
    starts, sizes = [0] * rank, [1] * rank
    for item in items:
        if isinstance(item, Cut):
            starts[item.dim], sizes[item.dim] = item.low, item.size
        elif isinstance(item, Pick):
            starts[item.dim] = item.index
    return starts, sizes


def _window_updated(x: Array, items: Sequence[Item], result: ResultDims, y: Any, combine: str) -> Array:
    starts, sizes = _window(x.ndim, items)
    update = _in_layout_of(x, sizes, _as_window(items, result, y))
    if combine and sizes == list(x.shape):
        return as_array(_BINARY[combine](x, update))
    if combine:
        update = _BINARY[combine](lax.dynamic_slice(x, starts, sizes, allow_negative_indices=False), update)
    if not math.prod(sizes):
        return x
    return lax.dynamic_update_slice(x, as_array(update), starts, allow_negative_indices=False)


def _in_layout_of(x: Array, sizes: Sequence[int], update: Array) -> Array:
    """`update` split, on Explicit axes, as the window of these sizes in `x` is; only its unsplit dims yield."""
    if x.aval.mesh is None or update.aval.mesh is None:  # an update that no mesh holds adapts
        return update
    spec = [
        own or (axes if size == n else ())
        for own, axes, size, n in zip(update.aval.spec, x.aval.spec, sizes, x.shape, strict=True)
    ]
    layout = NamedSharding(x.aval.mesh, PartitionSpec(*[axes or None for axes in spec]))
    return lax.broadcast_in_dim(update, sizes, range(x.ndim), out_sharding=layout)


def _as_window(items: Sequence[Item], result: ResultDims, y: Any) -> Array:
    """`y` broadcast to the shape of ``x[index]``, then laid out as the window of ``x``."""
    cuts = {item.dim: item for item in items if isinstance(item, Cut)}
    update = _without_new(broadcast_to_shape(y, result.shape(items)), result)
    backwards = [i for i, d in enumerate(cuts) if cuts[d].step < 0 and cuts[d].size > 1]
    if backwards:
        update = lax.rev(update, backwards)
    picks = [item.dim for item in items if isinstance(item, Pick)]
    return lax.expand_dims(update, picks) if picks else update


def _without_new(update: Array, result: ResultDims) -> Array:
    return lax.squeeze(update, result.new_dims) if result.new_dims else update


# -- scatters ------------------------------------------------------------------------------------------------------------


def _scatter_operands(
    x: Array, items: Sequence[Item], result: ResultDims, y: Any, wrap: bool
) -> tuple[Array, Array, ScatterDimensionNumbers, bool, bool]:
    """The updates, index vectors and numbers of the scatter; whether no element is written twice; whether to wrap."""
    cuts = {item.dim: item for item in items if isinstance(item, Cut)}
    strided_dims = [d for d, c in cuts.items() if abs(c.step) != 1 and c.size > 1]
    lookups = [item for item in items if isinstance(item, Lookup)]

    places, _ = result.positions()

    # Batch dims of the index vectors, in the order in which the updates have them.
    order = [e for e in result.order if e == BATCH or e in strided_dims]
    batch: list[int] = []
    begins: dict[Any, int] = {}
    for entry in order:
        begins[entry] = len(batch)
        batch += result.batch if entry == BATCH else [cuts[entry].size]  # type: ignore[index]
    dims: list[int] = []
    columns: list[Any] = []

    def in_batch(array: Any, begin: int, rank: int) -> Any:
        """`array`, whose last dim is number `begin + rank - 1` of the batch, ready to broadcast to it."""
        after = len(batch) - begin - rank
        if isinstance(array, np.ndarray):
            return array.reshape(array.shape + (1,) * after)
        return lax.reshape(array, array.shape + (1,) * after) if after else array

    for item in items:
        if isinstance(item, Lookup) and item.dim is not None:
            dims.append(item.dim)
            columns.append(
                in_batch(item.array, begins.get(BATCH, 0), len(result.batch)) if item.array.ndim else item.array
            )
        elif isinstance(item, Pick):
            dims.append(item.dim)
            columns.append(np.asarray(item.index, np.int32))
        elif isinstance(item, Cut) and item.dim in strided_dims:
            dims.append(item.dim)
            positions = item.low + abs(item.step) * np.arange(item.size)
            columns.append(in_batch(positions, begins[item.dim], 1))
        elif isinstance(item, Window):
            dims.append(item.dim)
            columns.append(item.start)
        elif isinstance(item, Cut) and not item.is_whole(x.shape[item.dim]) and item.size < x.shape[item.dim]:
            dims.append(item.dim)
            columns.append(np.asarray(item.low, np.int32))
    vectors, wraps = index_vectors(columns, [x.shape[d] for d in dims], tuple(batch), wrap)
    update = _without_new(broadcast_to_shape(y, result.shape(items)), result)
    backwards = [places[d] for d, c in cuts.items() if c.step < 0 and c.size > 1]
    if backwards:
        update = lax.rev(update, backwards)
    inserted_dims = tuple(sorted(d for d in dims if d not in cuts or d in strided_dims))
    window = tuple(sorted(places[d] for d in cuts if d not in strided_dims))
    numbers = ScatterDimensionNumbers(window, inserted_dims, tuple(dims))
    unique = not any(item.array.ndim for item in lookups)
    return update, vectors, numbers, unique, wraps


def apply_index(
    x: Array,
    index: Any,
    func: Callable[[Array], Array],
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
    wrap_negative_indices: bool = True,
) -> Array:
    """`x` with `func` applied to the elements of ``x[index]``, as often as each is indexed."""
    gather_mode = GatherScatterMode.from_any(mode)
    items = _settle_items(x, index, gather_mode, wrap_negative_indices)
    result = result_dims(items)
    update, vectors, numbers, unique, wraps = _scatter_operands(
        x, items, result, np.zeros((), np.bool_), wrap_negative_indices
    )
    return apply_at(
        x,
        vectors,
        func,
        numbers,
        update.shape,
        mode=gather_mode,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices or unique,
        wrap_negative=wraps,
    )
