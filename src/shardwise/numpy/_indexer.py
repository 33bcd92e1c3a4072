"""Index expressions: the index of ``x[...]`` parsed into one item per indexed or new dim.

In: a shape and an index. Out: a list of `Cut` (slice), `Window` (slice of traced start), `Pick` (static int), `Lookup` (array or
traced int) and `NEW` (None) in the order in which they were written; an Ellipsis and missing dims have become whole `Cut`s.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import isdtype, lattice_result_type
from shardwise.base.errors import NonConcreteBooleanIndexError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, Literal, Tracer, as_literal
from shardwise.ir.showing import SHOWING
from shardwise.lax import GatherScatterMode
from shardwise.numpy.dynamic_index import Slice
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.shapes import stack

Host: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class Cut:
    """Positions ``start + step * i`` for i below `size`, all of them inside the dim."""

    dim: int
    start: int
    size: int
    step: int

    @property
    def low(self) -> int:
        """The least position (of an empty cut: any)."""
        return self.start if self.step > 0 or not self.size else self.start + self.step * (self.size - 1)

    def is_whole(self, n: int) -> bool:
        """Whether these are all `n` positions in order."""
        return self.size == n and (self.step == 1 or n == 1)


@dataclass(frozen=True, slots=True, eq=False)
class Window(Cut):
    """Adjacent positions from a start that is an array without dims. Out of bounds, reads move the window inside, and writes leave
    all of it out.
    """

    start: Any

    def is_whole(self, n: int) -> bool:
        """Whether these are known to be all `n` positions."""
        return False


@dataclass(frozen=True, slots=True)
class Pick:
    """One position as the user wrote it: it may be negative or out of bounds. The dim is removed."""

    dim: int
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Positions in an integer array; its dims replace the indexed dim. A bool scalar indexes no dim."""

    dim: int | None
    array: Host | Array


NEW = None
Item: TypeAlias = "Cut | Pick | Lookup | None"


class HeldInt(int):
    """An index that an array or a NumPy scalar holds. Any value is allowed, as in a traced array; a Python int must be an int32."""

    __slots__ = ()


class ArrayInt(HeldInt):
    """An index that an Array holds. Like a traced one it is no static index, whose bounds can be checked."""

    __slots__ = ()


def parse(shape: tuple[int, ...], index: Any) -> list[Item]:
    """`index` read against `shape`.

    TypeError for lists outside of a tuple, floats and strings; IndexError for too many indices, masks that do not fit,
    traced slice bounds, static ints into empty dims and anything else; NonConcreteBooleanIndexError for traced masks.
    """
    if not isinstance(index, tuple):
        if isinstance(index, Sequence) and not isinstance(index, (str, bytes)):
            raise TypeError(
                "Using a non-tuple sequence for multidimensional indexing is not allowed; use `arr[array(seq)]` instead of "
                f"`arr[seq]` to index one dim, or `arr[tuple(seq)]` for one index per dim. Got {index!r}"
            )
        index = (index,)
    entries = [e if isinstance(e, Slice) else _entry(e) for e in index]
    used = sum(_dims_used(e) for e in entries)
    ellipses = sum(e is Ellipsis for e in entries)
    if ellipses > 1:
        raise IndexError(f"an index can only have a single ellipsis ('...'), got {ellipses}.")
    if used > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {used} were indexed")
    if not ellipses:
        entries.append(Ellipsis)
    items: list[Item] = []
    dim = gap = 0
    for position, e in enumerate(entries):
        if e is Ellipsis:
            gap = len(items)
            items += [Cut(d, 0, shape[d], 1) for d in range(dim, dim + len(shape) - used)]
            dim += len(shape) - used
        elif e is None:
            items.append(NEW)
        elif isinstance(e, slice):
            items.append(_cut(dim, e, shape[dim], position))
            dim += 1
        elif isinstance(e, Slice):
            items.append(_from_start(dim, e, shape[dim]))
            dim += 1
        elif isinstance(e, int):
            if not shape[dim]:
                raise IndexError(f"index {e} is out of bounds for axis {dim} with size 0")
            items.append(Pick(dim, e))
            dim += 1
        elif _is_mask(e):
            items += _mask_lookups(dim, e, shape, position)
            dim += e.ndim
        else:
            items.append(Lookup(dim, e))
            dim += 1
    if any(isinstance(e, Slice) and e.stride > 1 for e in entries):
        _check_strided_start(items)
    return _gather_items(items, gap) if used == len(shape) else items


def _gather_items(items: list[Item], gap: int) -> list[Item]:
    """The items with index arrays and ints first, if an Ellipsis of no dims at `gap` keeps some of them from being side by side."""
    if not any(isinstance(item, Lookup) and item.array.ndim for item in items):
        return items
    is_index = [isinstance(item, (Pick, Lookup)) for item in items]
    if not (any(is_index[:gap]) and any(is_index[gap:])):
        return items
    return [i for i, p in zip(items, is_index, strict=True) if p] + [
        i for i, p in zip(items, is_index, strict=True) if not p
    ]


def _entry(e: Any) -> Any:
    """One index brought to None, Ellipsis, a slice, an int, or an integer or bool array."""
    if e is None or e is Ellipsis or type(e) is slice or type(e) is int:
        return e
    if isinstance(e, (bool, np.bool_)):
        return np.asarray(e)
    if isinstance(e, np.integer) and not isinstance(e, np.timedelta64):
        return HeldInt(e)
    if isinstance(e, int):
        return int(e)
    if isinstance(e, str):
        raise TypeError(f"JAX does not support string indexing; got idx={e!r}")
    if isinstance(e, (list, tuple)):
        e = _stack_nested(e) if _holds_tracers(e) else np.asarray(e) if len(e) else np.zeros(np.shape(e), np.int32)
    elif not isinstance(e, (Array, np.ndarray)) and hasattr(e, "__jax_array__"):
        e = as_value(e)
    if isinstance(e, Literal):
        e = e.value
    if not isinstance(e, (Array, np.ndarray, np.generic, float, complex)):
        try:
            return operator.index(e)
        except TypeError:
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean arrays are valid "
                f"indices. Got {e!r}"
            ) from None
    array = e if isinstance(e, (Array, np.ndarray)) else np.asarray(e)
    if not isdtype(array.dtype, ("integral", "bool")):
        raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {array.dtype.name}")
    if array.ndim or array.dtype == np.bool_:
        return array
    if not isinstance(array, Tracer):
        return (ArrayInt if isinstance(array, Array) else HeldInt)(np.asarray(array))
    number = as_literal(array)
    return ArrayInt(number.value) if isinstance(number, Literal) and not SHOWING.get() else array


def _holds_tracers(e: Any) -> bool:
    return any(map(_holds_tracers, e)) if isinstance(e, (list, tuple)) else isinstance(e, Tracer)


def _stack_nested(e: Any) -> Any:
    """The array of a nested list, some of whose elements are traced."""
    if not isinstance(e, (list, tuple)):
        return e
    values = [as_value(_stack_nested(each)) for each in e]
    dtype = lattice_result_type(*values)[0]
    return stack([as_array(convert(v, dtype)) for v in values])


def _is_mask(e: Any) -> bool:
    return isinstance(e, (np.ndarray, Array)) and e.dtype == np.bool_


def _dims_used(e: Any) -> int:
    return 0 if e is None or e is Ellipsis else e.ndim if _is_mask(e) else 1


def _cut(dim: int, s: slice, n: int, position: int) -> Cut:
    bounds = (s.start, s.stop, s.step)
    if any(isinstance(b, Tracer) for b in bounds):
        raise IndexError(
            f"Slice entries must be static integers. Got {s} at position {position}. Use lax.dynamic_slice for traced starts, "
            "or mark the argument static."
        )
    start, stop, step = slice(*(None if b is None else operator.index(b) for b in bounds)).indices(n)
    size = len(range(start, stop, step))
    return Cut(dim, start if size else 0, size, step)


def _from_start(dim: int, s: Slice, n: int) -> Item:
    """The item of a `Slice`: a cut where it is known to lie inside."""
    if s.is_dynamic_start:
        start = as_array(as_value(s.start))
        return Window(dim, start, s.size, 1) if s.stride == 1 else Lookup(dim, s.positions())
    first = operator.index(s.start)
    if first >= 0 and first + s.stride * (s.size - 1) < n:
        return Cut(dim, first, s.size, s.stride)
    if s.stride == 1:
        return Window(dim, held_index(np.asarray(first, np.int64), n), s.size, 1)
    return Lookup(dim, held_index(first + s.stride * np.arange(s.size, dtype=np.int64), n))


def _check_strided_start(items: Sequence[Item]) -> None:
    """Positions of a strided `Slice` that is no cut are an index array, whose dim would not be in place beside others."""
    at = [i for i, item in enumerate(items) if isinstance(item, (Pick, Lookup))]
    arrays = [item for item in items if isinstance(item, Lookup) and item.array.ndim]
    if arrays and (len(arrays) > 1 or at[-1] - at[0] + 1 != len(at)):
        raise NotImplementedError(
            "an index has a ds(start, size, stride) whose start is traced or out of bounds, and arrays or ints apart from it. Index in two "
            "steps: x[ds(...)] first."
        )


def _mask_lookups(dim: int, mask: Any, shape: tuple[int, ...], position: int) -> list[Item]:
    if isinstance(mask, Tracer):
        raise NonConcreteBooleanIndexError(
            f"Array boolean indices must be concrete; got {mask.aval.str_short()}, for which the shape of the result would "
            f"depend on values{mask.describe()}. Use jnp.where with three arguments, or mark the argument static."
        )
    host = np.asarray(mask)
    if not host.ndim:
        return [Lookup(None, np.zeros(int(host), np.int32))]
    expected_shape = shape[dim : dim + host.ndim]
    if len(host.shape) != len(expected_shape) or any(
        n not in (0, m) for n, m in zip(host.shape, expected_shape, strict=True)
    ):
        raise IndexError(
            f"boolean index did not match shape of indexed array in index {position}: got {host.shape}, expected {expected_shape}"
        )
    return [Lookup(dim + i, where) for i, where in enumerate(np.nonzero(host))]


# -- the shape of the result -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResultDims:
    """The dims of a result in order: a dim of the operand that was cut, None for a new dim, or BATCH for all dims of the
    index arrays together."""

    order: tuple[int | str | None, ...]
    batch: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """How many dims the result has."""
        return sum(len(self.batch) if entry == BATCH else 1 for entry in self.order)

    @property
    def new_dims(self) -> tuple[int, ...]:
        """Positions of the new dims in the result."""
        places, at = [], 0
        for entry in self.order:
            if entry is None:
                places.append(at)
            at += len(self.batch) if entry == BATCH else 1
        return tuple(places)

    def shape(self, items: Sequence[Item]) -> list[int]:
        """The result's sizes, for the items that these dims come from."""
        sizes = {item.dim: item.size for item in items if isinstance(item, Cut)}
        shape: list[int] = []
        for entry in self.order:
            if entry == BATCH:
                shape += self.batch
            else:
                shape.append(1 if entry is None else sizes[entry])  # type: ignore[index]
        return shape

    def positions(self) -> tuple[dict[int, int], int]:
        """The places of the cut dims, and of the first index dim, in the result without its new dims."""
        places: dict[int, int] = {}
        at = first = 0
        for entry in self.order:
            if entry == BATCH:
                first, at = at, at + len(self.batch)
            elif isinstance(entry, int):
                places[entry] = at
                at += 1
        return places, first


BATCH = "batch"


def result_dims(items: Sequence[Item]) -> ResultDims:
    """How the dims of a result are ordered: index arrays that stand side by side (ints among them) put their dims in
    place, others put them first. ValueError if the arrays do not broadcast."""
    arrays = [item for item in items if isinstance(item, Lookup)]
    shapes = [item.array.shape for item in arrays]
    try:
        batch = tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ValueError(f"Incompatible shapes for broadcasting: index arrays have shapes={shapes}") from None
    order: list[int | str | None] = [
        item.dim if isinstance(item, Cut) else BATCH if item is not None else None for item in items
    ]
    if not any(len(s) for s in shapes):
        return ResultDims(tuple(e for e in order if e != BATCH), ())
    at = [i for i, e in enumerate(order) if e == BATCH]
    first = sum(e != BATCH for e in order[: at[0]]) if at[-1] - at[0] + 1 == len(at) else 0
    rest = [e for e in order if e != BATCH]
    return ResultDims((*rest[:first], BATCH, *rest[first:]), batch)


def clamps(mode: GatherScatterMode) -> bool:
    """Whether reads out of bounds give the nearest element."""
    return mode in (GatherScatterMode.CLIP, GatherScatterMode.PROMISE_IN_BOUNDS)


def check_static_index(index: int, dim: int, size: int) -> None:
    """Of an index out of bounds: IndexError where the option jax_check_static_indices is set."""
    if config.jax_check_static_indices:
        raise IndexError(
            f"index {index} out of bounds for axis {dim} with size {size}. Without jax_check_static_indices the nearest element is "
            "read; x.at[index].get(mode=...) says what to read."
        )


def settle_item(
    item: Item,
    shape: tuple[int, ...],
    mode: GatherScatterMode,
    wrap: bool,
    *,
    keep_outside: bool = False,
    checked: bool = False,
) -> Item:
    """`item`; a static int is counted from the front and, out of bounds, clamped or left to the mode of a gather.

    `keep_outside` leaves clamping to the op, so that `checkify` sees the index. OverflowError if it is a Python int beyond 64 bits, or,
    where the mode clamps, beyond the default integers, which no traced index can be; IndexError for a `checked` one out of bounds, where
    the option jax_check_static_indices is set.
    """
    if not isinstance(item, Pick):
        return item
    n = shape[item.dim]
    wide = not -(2**31) <= item.index < 2**31 and n < 2**31 and not isinstance(item.index, HeldInt)
    in_64_bits = -(2**63) <= item.index < 2**63
    if wide and not (in_64_bits and (config.x64 or not clamps(mode))):
        kind = "int64" if config.x64 else "int32"
        raise OverflowError(f"Python int {item.index} too large to convert to {kind}; the dim has size {n}.")
    at = item.index + n if wrap and item.index < 0 else item.index
    if 0 <= at < n:
        return Pick(item.dim, at)
    if checked and not isinstance(item.index, ArrayInt):
        check_static_index(item.index, item.dim, n)
    if clamps(mode) and not keep_outside:
        return Pick(item.dim, min(max(at, 0), n - 1))
    return Lookup(item.dim, held_index(np.asarray(item.index, np.int64), n))


def held_index(index: Host, n: int) -> Host:
    """`index` as int32, or as int64 where the dim of size `n` needs it; indices beyond that remain out of bounds."""
    limits = np.iinfo(np.int32)
    return index if n > limits.max else np.clip(index, limits.min, limits.max).astype(np.int32)
