"""`gather`: windows of an array at computed positions, with XLA's dimension numbers.

Comes in: an operand, an integer array of window starts (its last dim has one entry per indexed operand dim), the
numbers. Goes out: one window per start; starts out of bounds follow the mode.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from shardwise.base.dtypes import iinfo, isdtype
from shardwise.ir import Array, ShapedArray, bind, define_op
from shardwise.ir.explicit import type_error
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Axes, Spec
from shardwise.ops.convert import as_array
from shardwise.ops.derivative import do, filled, moved_to_front
from shardwise.ops.windows import Block, linear_index, read_windows
from shardwise.runtime.copies import taken
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

__all__ = ["GatherDimensionNumbers", "GatherScatterMode", "gather"]

DimAxes = tuple[Axes, ...]

# Whether an indexed operand dim may stay split: each device reads what it owns and a sum completes the result.
MASKED_GATHER = True


class GatherScatterMode(enum.Enum):
    """What happens to windows that do not lie inside the operand."""

    CLIP = 1  # starts are moved until the window fits
    FILL_OR_DROP = 2  # gather gives the fill value, scatter leaves the window out
    PROMISE_IN_BOUNDS = 3  # the caller says there are none; as CLIP in gather and DROP in scatter
    ONE_HOT = 4

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """The mode that a user's `mode=` argument names; ValueError if there is none."""
        if isinstance(s, GatherScatterMode):
            return s
        if s not in _MODES:
            raise ValueError(f"mode={s!r} is not known; expected one of {', '.join(repr(m) for m in _MODES if m)}.")
        return _MODES[s]


_MODES: dict[str | None, GatherScatterMode] = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


def as_tuples(numbers: Any) -> None:
    """Make the fields of dimension numbers tuples, so that they hash."""
    for field in fields(numbers):
        object.__setattr__(numbers, field.name, tuple(getattr(numbers, field.name)))


@dataclass(frozen=True)
class GatherDimensionNumbers:
    """How the dims of a gather correspond.

    offset_dims                   result dims that hold the window, in the order of the window's dims
    collapsed_slice_dims          operand dims of window size 1 that the result leaves out
    start_index_map               the operand dim that each entry of an index vector addresses
    operand_batching_dims         operand dims that run in step with ...
    start_indices_batching_dims   ... these dims of the indices
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        as_tuples(self)


def window_dims(numbers: GatherDimensionNumbers, ndim: int) -> list[int]:
    """The operand dims that the result's window has."""
    gone = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    return [d for d in range(ndim) if d not in gone]


# -- types -------------------------------------------------------------------------------------


def check_dims(op: str, name: str, dims: Sequence[int], rank: int, *, ordered: bool = True) -> None:
    """TypeError unless `dims` are distinct, in 0..rank-1 and, if `ordered`, increasing."""
    if ordered and list(dims) != sorted(dims):
        raise TypeError(f"{op}: {name} must be sorted, got {tuple(dims)}.")
    if len(set(dims)) != len(dims):
        raise TypeError(f"{op}: {name} must not repeat, got {tuple(dims)}.")
    for d in dims:
        if not 0 <= d < rank:
            raise TypeError(f"{op}: {name} {tuple(dims)} must lie in 0..{rank - 1}, got {d}.")


def check_batching(
    op: str,
    operand: ShapedArray,
    indices: ShapedArray,
    operand_dims: Sequence[int],
    indices_dims: Sequence[int],
    collapsed: Sequence[int],
    collapsed_name: str,
    mapped: Sequence[int],
    mapped_name: str,
) -> None:
    """TypeErrors that gather and scatter share: the batching dims and how indices address the operand."""
    vector = indices.ndim - 1
    if len(mapped) != indices.shape[-1]:
        raise TypeError(
            f"{op}: {mapped_name} {tuple(mapped)} names {len(mapped)} operand dims, but the last dim of the indices "
            f"{indices.shape} holds {indices.shape[-1]} entries."
        )
    check_dims(op, mapped_name, mapped, operand.ndim, ordered=False)
    check_dims(op, collapsed_name, collapsed, operand.ndim)
    check_dims(op, "operand_batching_dims", operand_dims, operand.ndim)
    check_dims(op, "indices batching dims", indices_dims, indices.ndim, ordered=False)
    for name, dims in ((collapsed_name, collapsed), (mapped_name, mapped)):
        both = set(dims) & set(operand_dims)
        if both:
            raise TypeError(f"{op}: operand dims {sorted(both)} stand in {name} and in operand_batching_dims.")
    if vector in indices_dims:
        raise TypeError(f"{op}: dim {vector} of the indices holds index vectors and cannot be a batching dim.")
    if len(operand_dims) != len(indices_dims):
        raise TypeError(
            f"{op}: {len(operand_dims)} batching dims of the operand for {len(indices_dims)} of the indices."
        )
    for d, i in zip(operand_dims, indices_dims, strict=True):
        if operand.shape[d] != indices.shape[i]:
            raise TypeError(
                f"{op}: batching dims must agree in size, got {operand.shape[d]} (operand dim {d}) and "
                f"{indices.shape[i]} (indices dim {i})."
            )


def check_indices(op: str, indices: ShapedArray) -> None:
    """TypeError unless `indices` are integers with a dim for index vectors."""
    if not isdtype(indices.dtype, "integral"):
        raise ValueError(f"{op}: indices must be integers, got {indices.dtype.name}.")
    if not indices.ndim:
        raise TypeError(f"{op}: the indices need a last dim that holds index vectors, got a scalar.")


def _gather_type(
    operand: ShapedArray,
    indices: ShapedArray,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: tuple[int, ...],
    operand_axes: DimAxes | None,
    **params: Any,
) -> ShapedArray:
    del params
    n = dimension_numbers
    check_indices("gather", indices)
    rank = len(n.offset_dims) + indices.ndim - 1
    check_dims("gather", "offset_dims", n.offset_dims, rank)
    check_batching(
        "gather",
        operand,
        indices,
        n.operand_batching_dims,
        n.start_indices_batching_dims,
        n.collapsed_slice_dims,
        "collapsed_slice_dims",
        n.start_index_map,
        "start_index_map",
    )
    if len(slice_sizes) != operand.ndim:
        raise TypeError(f"gather: slice_sizes {slice_sizes} needs one size per dim of the operand {operand.shape}.")
    window = window_dims(n, operand.ndim)
    if len(window) != len(n.offset_dims):
        raise TypeError(
            f"gather: a window of the operand {operand.shape} has dims {window}, but offset_dims {n.offset_dims} "
            f"places {len(n.offset_dims)}; leave the others to collapsed_slice_dims or operand_batching_dims."
        )
    for d, (size, full) in enumerate(zip(slice_sizes, operand.shape, strict=True)):
        if not 0 <= size <= full and operand_axes is None:
            raise TypeError(
                f"gather: slice_sizes {slice_sizes} must lie within the operand {operand.shape}; see dim {d}."
            )
    for d in (*n.collapsed_slice_dims, *n.operand_batching_dims):
        if slice_sizes[d] > 1:
            raise TypeError(
                f"gather: dim {d} is collapsed or a batching dim, so its slice size must be 1, not {slice_sizes[d]}."
            )
    batch = iter(indices.shape[:-1])
    sizes = iter(slice_sizes[d] for d in window)
    shape = tuple(next(sizes) if d in n.offset_dims else next(batch) for d in range(rank))
    return ShapedArray(shape, operand.dtype, operand.weak_type)


# -- the kernel -------------------------------------------------------------------------------------


def in_bounds(start: Block, n: int, limit: int, wrap: bool) -> tuple[Block, Block | None]:
    """`start` as intp clamped into 0..limit, and where it needed no clamping (None if nowhere)."""
    start = start.astype(np.intp, copy=False)
    if not start.size:
        return start, None
    low = start.min()
    if wrap and low < 0:
        start = np.where(start < 0, start + n, start)
        low = start.min()
    if low >= 0 and start.max() <= limit:
        return start, None
    return np.clip(start, 0, max(limit, 0)), (start >= 0) & (start <= limit)


def default_fill(dtype: Any) -> Any:
    """What gather puts for windows out of bounds: NaN, the least signed or greatest unsigned integer, True."""
    if isdtype(dtype, "bool"):
        return True
    if isdtype(dtype, "signed integer"):
        return iinfo(dtype).min
    if isdtype(dtype, "unsigned integer"):
        return iinfo(dtype).max
    return np.nan if isdtype(dtype, ("real floating", "complex floating")) else 0


def _gather_kernel(
    env: Env,
    operand: Block,
    indices: Block,
    *,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: tuple[int, ...],
    mode: GatherScatterMode,
    fill_value: Any,
    wrap_negative: bool,
    operand_axes: DimAxes | None,
    **promises: Any,
) -> Block:
    del promises
    lead = env.lead
    numbers = dimension_numbers
    if operand_axes is None:
        rows = _gather_rows(operand, indices, lead, numbers, slice_sizes, mode, fill_value, wrap_negative)
        if rows is not None:
            return rows
    starts: dict[int, Block] = {}
    outside: Block | None = None  # True where a window leaves the operand
    foreign: Block | None = None  # True where a window lies on another device
    extra: tuple[int, ...] = (1,) * lead
    first: Block | None = None  # True on the one device that contributes fill values
    for i, d in enumerate(numbers.start_index_map):
        part = operand.shape[lead + d]
        axes = operand_axes[d] if operand_axes else ()
        n = part * math.prod(env.size(a) for a in axes)
        start, inside = in_bounds(indices[..., i], n, n - slice_sizes[d], wrap_negative)
        if inside is not None and mode is GatherScatterMode.FILL_OR_DROP:
            outside = ~inside if outside is None else outside | ~inside
        if axes:
            device = env.index(axes)
            extra = np.broadcast_shapes(extra, device.shape)
            wide = device.reshape(device.shape + (1,) * (indices.ndim - 1 - lead))
            start = start - wide * part
            own = (start >= 0) & (start < part)
            foreign = ~own if foreign is None else foreign | ~own
            start = np.clip(start, 0, part - 1)
            first = wide == 0 if first is None else first & (wide == 0)
        starts[d] = start
    index_shape = (*np.broadcast_shapes(indices.shape[:lead], extra), *indices.shape[lead:-1])
    pairs = tuple(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    out = read_windows(operand, lead, starts, slice_sizes, pairs, index_shape)
    batch = indices.ndim - 1 - lead
    out = _place_window(out, lead, batch, numbers, operand.ndim - lead)
    widen = lambda mask: _place_mask(mask, lead, numbers, out.ndim - lead)  # noqa: E731
    if foreign is not None:
        out = np.where(widen(foreign), np.zeros((), out.dtype), out)
    if outside is not None:
        value = _fill(fill_value, out.dtype)
        if first is not None:
            value = np.where(widen(np.broadcast_to(first, index_shape)), value, np.zeros((), out.dtype))
        out = np.where(widen(outside), value, out)
    return out


def _fill(fill_value: Any, dtype: np.dtype[Any]) -> Block:
    value = default_fill(dtype) if fill_value is None else fill_value
    return np.asarray(value).astype(dtype)


def run_of_dims(numbers: GatherDimensionNumbers, ndim: int, batch: int) -> int | None:
    """The first of the indexed dims if these are a run of collapsed dims in whose place the result has its batch dims."""
    dims = numbers.start_index_map
    if not dims or numbers.operand_batching_dims:
        return None
    first, count = min(dims), len(dims)
    if numbers.collapsed_slice_dims != tuple(range(first, first + count)) or set(dims) != {
        *numbers.collapsed_slice_dims
    }:
        return None
    rest = range(first + batch, batch + ndim - count)
    return first if numbers.offset_dims == (*range(first), *rest) else None


def _gather_rows(
    operand: Block,
    indices: Block,
    lead: int,
    numbers: GatherDimensionNumbers,
    slice_sizes: tuple[int, ...],
    mode: GatherScatterMode,
    fill_value: Any,
    wrap: bool,
) -> Block | None:
    """The common case: whole rows at positions in a run of dims, the same on all devices. None if it is not that."""
    rank, batch = operand.ndim - lead, indices.ndim - 1 - lead
    first = run_of_dims(numbers, rank, batch)
    if first is None or math.prod(indices.shape[:lead]) != 1:
        return None
    count = len(numbers.start_index_map)
    shape = operand.shape[lead:]
    if shape[:first] != slice_sizes[:first] or shape[first + count :] != slice_sizes[first + count :]:
        return None
    starts: list[Block] = [indices] * count
    outside: Block | None = None
    for i, d in enumerate(numbers.start_index_map):
        column = indices.reshape(indices.shape[lead:])[..., i]
        starts[d - first], inside = in_bounds(column, shape[d], shape[d] - 1, wrap)
        if inside is not None and mode is GatherScatterMode.FILL_OR_DROP:
            outside = ~inside if outside is None else outside | ~inside
    before = lead + first
    if operand.flags.c_contiguous:
        position = linear_index(starts, shape[first : first + count], starts[0].shape)
        sizes = operand.shape
        flat = operand.reshape((*sizes[:before], math.prod(shape[first : first + count]), *sizes[before + count :]))
        out = taken(flat, position, before)
    else:
        out = operand[(slice(None),) * before + tuple(starts)]
    if outside is None:
        return out
    return np.where(outside.reshape(outside.shape + (1,) * (rank - first - count)), _fill(fill_value, out.dtype), out)


def _place_window(out: Block, lead: int, batch: int, numbers: GatherDimensionNumbers, operand_ndim: int) -> Block:
    """From ``loops + batch + every unpaired operand dim`` to the result's dims."""
    unpaired = [d for d in range(operand_ndim) if d not in numbers.operand_batching_dims]
    collapsed = tuple(lead + batch + i for i, d in enumerate(unpaired) if d in numbers.collapsed_slice_dims)
    if collapsed:
        out = out[tuple(0 if a in collapsed else slice(None) for a in range(out.ndim))]
    offset = iter(range(lead + batch, out.ndim))
    index = iter(range(lead, lead + batch))
    order = [next(offset) if d in numbers.offset_dims else next(index) for d in range(out.ndim - lead)]
    return out.transpose((*range(lead), *order))


def _place_mask(mask: Block, lead: int, numbers: GatherDimensionNumbers, rank: int) -> Block:
    """A mask ``loops + batch`` made to broadcast against the result."""
    shape = iter(mask.shape[lead:])
    return mask.reshape((*mask.shape[:lead], *(1 if d in numbers.offset_dims else next(shape) for d in range(rank))))


# -- sharding -------------------------------------------------------------------------------------


def _gather_rule(ins: Types, outs: Types, params: Params) -> Rule:
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    operand, indices, out = ins[0].shape, ins[1].shape, outs[0].shape
    slice_sizes: tuple[int, ...] = params["slice_sizes"]
    rank = len(operand)
    sizes = [*operand, *indices]  # one factor per operand dim, then one per dim of the indices
    kinds = [Kind.PASS] * rank + [Kind.PASS] * (len(indices) - 1) + [Kind.REPLICATE]
    blocked: set[int] = set()
    index_factor = {i: rank + i for i in range(len(indices))}
    for d, i in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        index_factor[i] = d
    window = window_dims(numbers, rank)
    for d, size in enumerate(slice_sizes):
        if d in numbers.operand_batching_dims:
            continue
        indexed = d in numbers.start_index_map
        if indexed and size == 1 and MASKED_GATHER:
            kinds[d] = Kind.REDUCE if operand[d] != 1 else Kind.PASS
        elif indexed or size != operand[d]:
            kinds[d] = Kind.REPLICATE
            if size != operand[d]:
                blocked.add(d)
    offsets = iter(window)
    batch = iter(range(len(indices) - 1))
    out_dims = [next(offsets) if d in numbers.offset_dims else index_factor[next(batch)] for d in range(len(out))]
    return Rule(
        (
            tuple((d,) if n != 1 else () for d, n in enumerate(operand)),
            tuple((index_factor[i],) if n != 1 else () for i, n in enumerate(indices)),
        ),
        (tuple((f,) if n != 1 else () for f, n in zip(out_dims, out, strict=True)),),
        tuple(sizes),
        tuple(kinds),
        frozenset(blocked),
    )


def _localize(params: Params, ins: Types, outs: Types) -> Params:
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    sizes = list(params["slice_sizes"])
    for d, o in zip(window_dims(numbers, ins[0].ndim), numbers.offset_dims, strict=True):
        sizes[d] = outs[0].shape[o]
    return {**params, "slice_sizes": tuple(sizes)}


def _place(params: Params, in_dims: Sequence[DimAxes], out_dims: Sequence[DimAxes]) -> Params:
    """Tell the kernel which mesh axes split the indexed operand dims."""
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    if not in_dims[0]:
        return params
    axes: list[Axes] = [() for _ in in_dims[0]]
    for d in numbers.start_index_map:
        axes[d] = in_dims[0][d]
    del out_dims
    return {**params, "operand_axes": tuple(axes) if any(axes) else None}


def _gather_specs(ins: Types, outs: Types, params: Mapping[str, Any], rule: Rule) -> tuple[Spec, ...]:
    del rule
    numbers: GatherDimensionNumbers = params["dimension_numbers"]
    operand, indices = ins[0], ins[1]
    window = window_dims(numbers, operand.ndim)
    whole = [d for d in window if params["slice_sizes"][d] == operand.shape[d]]
    batching = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    clear = all(not axes or d in whole or d in numbers.operand_batching_dims for d, axes in enumerate(operand.spec))
    clear &= all(
        not axes or (i in batching and axes == operand.spec[batching[i]]) for i, axes in enumerate(indices.spec)
    )
    if not clear:
        raise type_error(
            f"gather from {operand.str_short()} at {indices.str_short()}: the result's sharding is ambiguous. "
            "Say it with .at[...].get(out_sharding=), or reshard the indexed dims and the indices to None."
        )
    offsets = iter(operand.spec[d] for d in window)
    batch = iter(range(indices.ndim - 1))
    spec: list[Axes] = []
    for d in range(outs[0].ndim):
        if d in numbers.offset_dims:
            spec.append(next(offsets))
        else:
            i = next(batch)
            spec.append(operand.spec[batching[i]] if i in batching else ())
    return (tuple(spec),)


# -- derivative and batching -------------------------------------------------------------------------------------


def _gather_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The windows of the tangent; nothing where there is a fill value."""
    operand, indices = primals
    fill = 0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None
    return do.gather(operand, indices, **params), do.gather(tangents[0], indices, **{**params, "fill_value": fill})


def _gather_transpose(ct: Any, operand: Any, indices: Any, *, dimension_numbers: GatherDimensionNumbers,
                      mode: GatherScatterMode, **params: Any) -> list[Any]:  # fmt: skip
    """Every window is added where it was read."""
    from shardwise.ops.scatter import ScatterDimensionNumbers

    n = dimension_numbers
    numbers = ScatterDimensionNumbers(n.offset_dims, n.collapsed_slice_dims, n.start_index_map, n.operand_batching_dims,
                                      n.start_indices_batching_dims)  # fmt: skip
    mode = GatherScatterMode.CLIP if mode is GatherScatterMode.PROMISE_IN_BOUNDS else mode
    kept = {k: params[k] for k in ("indices_are_sorted", "unique_indices", "wrap_negative")}
    return [do.scatter_add(filled(operand.aval), indices, ct, dimension_numbers=numbers, mode=mode, operand_axes=None, update_axes=(),
                           combine="add", **kept), None]  # fmt: skip


def _gather_batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Any:
    """One gather: a mapped dim of the operand is a dim of every window, of the indices a dim of their batch, of both a pair."""
    (operand, indices), (left, right) = values, dims
    n: GatherDimensionNumbers = params["dimension_numbers"]
    up = lambda ds: tuple(d + 1 for d in ds)  # noqa: E731
    offset, collapsed, mapped = up(n.offset_dims), n.collapsed_slice_dims, n.start_index_map
    ours, theirs, sizes = n.operand_batching_dims, n.start_indices_batching_dims, params["slice_sizes"]
    if left is not None:
        operand = moved_to_front(operand, left)
        collapsed, mapped, ours = up(collapsed), up(mapped), up(ours)
        sizes = (min(size, 1) if right is not None else size, *sizes)
    if right is not None:
        indices = moved_to_front(indices, right)
        theirs = up(theirs)
    if left is not None and right is not None:
        ours, theirs = (0, *ours), (0, *theirs)
    elif left is not None:
        offset = (0, *offset)
    numbers = GatherDimensionNumbers(offset, collapsed, mapped, ours, theirs)
    promises = {} if right is None else {"indices_are_sorted": False, "unique_indices": False}
    return [
        do.gather(operand, indices, **{**params, **promises, "dimension_numbers": numbers, "slice_sizes": sizes})
    ], [0]


gather_p = define_op(
    "gather",
    type_rule=_gather_type,
    kernel=_gather_kernel,
    rule=_gather_rule,
    localize=_localize,
    place=_place,
    explicit=_gather_specs,
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    batch=_gather_batch,
)


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: Any = None,
    wrap_negative: bool = False,
) -> Array:
    """Windows of `slice_sizes` at `start_indices`: see `GatherDimensionNumbers` for how dims correspond.

    `mode` says what becomes of windows out of bounds: 'fill', 'clip', or the default 'promise_in_bounds', which clips
    too; `fill_value` (default NaN, the least or greatest integer, True) is what they hold. `wrap_negative` counts
    negative starts from the end. Raises TypeError where shapes and numbers do not fit.
    """
    parsed = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    if parsed is GatherScatterMode.ONE_HOT:
        raise NotImplementedError(
            "gather with mode='one_hot' is not implemented; use mode='fill', which gives the same values."
        )
    params = gather_params(
        dimension_numbers,
        slice_sizes,
        parsed,
        fill_value,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
        wrap_negative=wrap_negative,
    )
    return bind(gather_p, as_array(operand), as_array(start_indices), **params)


def gather_params(
    numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    mode: GatherScatterMode,
    fill_value: Any = None,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    wrap_negative: bool = False,
) -> dict[str, Any]:
    """The params of the gather op."""
    if fill_value is not None:
        fill_value = np.asarray(fill_value).item()
        if fill_value != fill_value and isinstance(fill_value, float):
            fill_value = math.nan  # one object, so that params which hold it are equal
    return dict(
        dimension_numbers=numbers,
        slice_sizes=tuple(operator.index(n) for n in slice_sizes),
        mode=mode,
        fill_value=fill_value if mode is GatherScatterMode.FILL_OR_DROP else None,
        indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices),
        wrap_negative=bool(wrap_negative),
        operand_axes=None,
    )
