"""Slices at computed positions: `dynamic_slice`, `dynamic_update_slice`.

Starts are clamped so that the window fits. Their forms for one dim are in `dim_slices`, static slices (`slice`, `slice_in_dim`)
in `ops.shapes.pieces`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.small_integers import is_below_byte
from shardwise.ir import Array, Box, Equation, Literal, ShapedArray, Shown, SmallForm, bind, define_op, literal
from shardwise.ir.explicit import check_divisible, type_error
from shardwise.ir.indexed import IndexedWindows
from shardwise.ir.key_uses import HANDS_ON, KeyUses
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Axes, Spec
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.indexing.shown_starts import counted_starts
from shardwise.ops.indexing.slice_partition import slice_partition, slice_window
from shardwise.ops.indexing.slice_updates import UpdateKernel, clamp_start, update_window
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.derivative import do, full_cotangent, is_linear, later, linear_jvp
from shardwise.ops.shapes.pieces import slice_in_dim, slice_p
from shardwise.ops.shapes.reshape import reshape
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

__all__ = ["dynamic_slice", "dynamic_update_slice"]

DimAxes = tuple[Axes, ...]


def _check_starts(name: str, starts: Sequence[ShapedArray], ndim: int) -> None:
    if len(starts) != ndim:
        raise TypeError(f"{name} takes one start index per dim of the operand: got {len(starts)} for {ndim} dims.")
    if any(t.shape for t in starts):
        raise TypeError(f"{name} takes scalar start indices, got {', '.join(t.str_short() for t in starts)}.")
    if starts and (starts[0].dtype.kind not in "iu" or any(t.dtype != starts[0].dtype for t in starts)):
        kinds = ", ".join(t.dtype.name for t in starts)
        raise TypeError(f"index arguments to {name} must be integers of the same type, got {kinds}.")


# -- dynamic_slice -------------------------------------------------------------------------------------


def _slice_type(
    operand: ShapedArray, *starts: ShapedArray, slice_sizes: tuple[int, ...], wrap: tuple[bool, ...]
) -> ShapedArray:
    del wrap
    _check_starts("dynamic_slice", starts, operand.ndim)
    if len(slice_sizes) != operand.ndim:
        raise TypeError(
            f"dynamic_slice: slice_sizes {slice_sizes} needs one size per dim of the operand {operand.shape}."
        )
    if any(size > n for size, n in zip(slice_sizes, operand.shape, strict=True)):
        raise TypeError(
            f"dynamic_slice: slice_sizes must be less than or equal to operand shape {operand.shape}, got {slice_sizes}."
        )
    if any(size < 0 for size in slice_sizes):
        raise TypeError(f"dynamic_slice: slice_sizes must not be negative, got {slice_sizes}.")
    return ShapedArray(slice_sizes, operand.dtype, operand.weak_type)


def window_rule(shape: tuple[int, ...], sizes: tuple[int, ...], scalars: int) -> Rule:
    """One factor per dim of operand and result; a cut dim must be whole, and its sharding does not propagate."""
    dims = tuple((d,) if n != 1 else () for d, n in enumerate(shape))
    outs = tuple(() if size == 1 else dim for dim, size in zip(dims, sizes, strict=True))
    cut = frozenset(d for d, (n, size) in enumerate(zip(shape, sizes, strict=True)) if n != size)
    kinds = tuple(Kind.REPLICATE if d in cut else Kind.PASS for d in range(len(shape)))
    return Rule((dims, *((),) * scalars), (outs,), shape, kinds, cut)


def cut_specs(in_types: Types, outs: Types) -> tuple[Spec, ...]:
    """Specs of results that keep the first operand's spec: a split dim may shrink to a size that its axes still divide."""
    operand, out = in_types[0], outs[0]
    for d, axes in enumerate(operand.spec):
        if axes and out.shape[d] != operand.shape[d]:
            check_divisible("dynamic_slice", in_types, out, d, axes)
    return (operand.spec,) * len(outs)


def _slice_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    return do.dynamic_slice(*primals, **params), do.dynamic_slice(tangents[0], *primals[1:], **params)


def _slice_transpose(
    ct: Any, operand: Any, *starts: Any, slice_sizes: tuple[int, ...], wrap: tuple[bool, ...]
) -> list[Any]:
    whole = do.dynamic_update_slice(full_cotangent(operand.aval), ct, *starts, wrap=wrap, operand_axes=None)
    return [whole, *[None] * len(starts)]


def _known_starts(
    starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int], wrap: Sequence[bool]
) -> tuple[int, ...] | None:
    """The clamped starts of a window if all are literals; else None."""
    if not all(isinstance(s, Literal) for s in starts):
        return None
    given = zip(starts, shape, sizes, wrap, strict=True)
    return tuple(clamp_start(int(s.value), n, n - size, wraps) for s, n, size, wraps in given)


def _static_slice(eqn: Equation) -> Equation | None:
    """The equivalent `slice` if the starts are known: its split dims stay split."""
    operand, *starts = eqn.inputs
    if operand.aval.mesh is not None:
        return None
    sizes = eqn.params["slice_sizes"]
    at = _known_starts(starts, operand.aval.shape, sizes, eqn.params["wrap"])
    if at is None:
        return None
    limits = tuple(i + size for i, size in zip(at, sizes, strict=True))
    return Equation(
        slice_p,
        (operand,),
        eqn.outputs,
        {"start_indices": at, "limit_indices": limits, "strides": None},
        eqn.source,
    )


def _indexing_of(params: Params, in_types: Types) -> IndexedWindows:
    sizes = params["slice_sizes"]
    return IndexedWindows(1, False, range(len(sizes)), sizes, params["wrap"])


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    """JAX has no param for starts that count from the end: its programs count them by ops."""
    return {k: v for k, v in shown.items() if k != "wrap" or any(v)}


def _slice_parts(values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    operand, *starts = values
    wrap = params["wrap"]
    if not any(wrap):
        return None
    starts_from_front = counted_starts(starts, operand.aval.shape, wrap)
    return do.dynamic_slice(operand, *starts_from_front, **{**params, "wrap": (False,) * len(wrap)})


_starts_fit = later("shardwise.runtime.small", "starts_fit")

dynamic_slice_p = define_op(
    "dynamic_slice",
    small=SmallForm(later("shardwise.runtime.small", "dynamic_slice"), _starts_fit, mapped=True),
    forward_first=True,
    additive=(0, 1),
    static=_static_slice,
    jvp=_slice_jvp,
    transpose=_slice_transpose,
    type_rule=_slice_type,
    kernel=slice_window,
    rule=lambda ins, outs, params: window_rule(ins[0].shape, outs[0].shape, len(ins) - 1),
    localize=lambda params, ins, outs: {**params, "slice_sizes": outs[0].shape},
    explicit=lambda ins, outs, params, rule: cut_specs(ins, outs),
    keys=HANDS_ON,
    indexed=_indexing_of,
    shown=Shown(absent={"wrap": lambda operands: (False,) * (operands - 1)}, change=_shown_params, parts=_slice_parts),
    extracts="window",
    partition=slice_partition,
)


@recent(4096)
def static_starts(starts: tuple[int, ...]) -> tuple[Literal, ...]:
    """Known starts as operands."""
    dtype = np.dtype(np.int64 if any(s >> 31 not in (0, -1) for s in starts) else np.int32)
    return tuple(literal(s, dtype=dtype) for s in starts)


_LAST = np.iinfo(np.int64).max  # a NumPy start beyond it is out of bounds like this one


def _start_values(
    name: str, starts: Any, ndim: int, negative: bool | Sequence[bool]
) -> tuple[Sequence[Any], tuple[bool, ...]]:
    """The start indices as scalar values of one dtype, and for each whether negative values count from the end."""
    wrap = (negative,) * ndim if isinstance(negative, bool) else tuple(map(bool, negative))
    if len(wrap) != ndim:
        raise ValueError(f"{name}: allow_negative_indices has {len(wrap)} entries for an operand of {ndim} dims.")
    if isinstance(starts, (Array, np.ndarray)):
        if starts.ndim != 1:
            raise ValueError(
                f"{name}: start_indices must be a list of scalars or an array of rank 1, got shape {starts.shape}."
            )
        if isinstance(starts, Array):
            starts = [reshape(slice_in_dim(starts, i, i + 1), ()) for i in range(starts.shape[0])]
    elif isinstance(starts, (Set, Mapping)):
        raise TypeError(
            f"{name}: start_indices must be a list of scalars or an array of rank 1, got {starts}, which has no order."
        )
    starts = list(starts)
    if len(starts) != ndim:
        raise ValueError(
            f"{name}: Length of slice indices must match number of operand dimensions, {ndim}; got {len(starts)}."
        )
    if not all(wrap):
        _check_not_negative(name, starts, wrap)
    all_known = all(type(s) is int or (isinstance(s, (int, np.integer)) and not isinstance(s, bool)) for s in starts)
    if all_known and len({int if isinstance(s, int) else type(s) for s in starts}) <= 1:
        return static_starts(tuple([s if type(s) is int else min(int(s), _LAST) for s in starts])), wrap
    values = [as_value(s) for s in starts]
    return [
        convert(v, np.dtype(np.int32)) if is_below_byte(v.dtype) else v for v in values
    ], wrap  # no kernel reads 4 bits


def _check_not_negative(name: str, starts: Sequence[Any], wrap: Sequence[bool]) -> None:
    for start, wraps in zip(starts, wrap, strict=True):
        if not wraps and isinstance(start, (int, np.integer)) and start < 0:
            raise ValueError(f"{name}: start {start} is out of bounds where allow_negative_indices is False.")


def dynamic_slice(
    operand: Any,
    start_indices: Any,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The window of `slice_sizes` at `start_indices` (a list of scalars, or an int array of rank 1).

    Negative starts count from the end if `allow_negative_indices`; then starts are clamped so that the window fits.
    Raises TypeError for sizes larger than the operand's and for non-integer starts, ValueError for a wrong number of
    starts.

    >>> lax.dynamic_slice(jnp.arange(6), (2,), (3,))
    Array([2, 3, 4], dtype=int32)
    """
    operand = as_array(operand)
    starts, wrap = _start_values("dynamic_slice", start_indices, operand.ndim, allow_negative_indices)
    return bind(dynamic_slice_p, operand, *starts, slice_sizes=tuple(operator.index(n) for n in slice_sizes), wrap=wrap)


# -- dynamic_update_slice -------------------------------------------------------------------------------------


def _update_type(
    operand: ShapedArray,
    update: ShapedArray,
    *starts: ShapedArray,
    wrap: tuple[bool, ...],
    operand_axes: DimAxes | None,
) -> ShapedArray:
    del wrap
    _check_starts("dynamic_update_slice", starts, operand.ndim)
    if update.ndim != operand.ndim:
        raise TypeError(
            f"dynamic_update_slice update must have the same rank as operand, got shapes {update.shape} and {operand.shape}."
        )
    if operand_axes is None and any(m > n for m, n in zip(update.shape, operand.shape, strict=True)):
        raise TypeError(
            f"dynamic_update_slice update shape must be smaller than operand shape {operand.shape}, got {update.shape}."
        )
    if update.dtype != operand.dtype:
        raise TypeError(
            "dynamic_update_slice requires arguments to have the same dtypes for operand and update, got "
            f"{operand.dtype.name} and {update.dtype.name}."
        )
    return ShapedArray(operand.shape, operand.dtype)


def _update_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> UpdateKernel:
    del out_types
    operand, update = in_types[:2]
    return UpdateKernel(env, operand.shape, update.shape, params["wrap"], params["operand_axes"])


def _update_rule(ins: Types, outs: Types, params: Params) -> Rule:
    del params
    shape, update = ins[0].shape, ins[1].shape
    rank = len(shape)
    dims = tuple((d,) if n != 1 else () for d, n in enumerate(shape))
    # A cut dim stays split: every device writes the part of the update that overlaps its own part.
    cut = [d for d in range(rank) if update[d] != shape[d]]
    own = {d: rank + i for i, d in enumerate(cut)}
    update_dims = tuple(() if update[d] == 1 else (own.get(d, d),) for d in range(rank))
    sizes = shape + tuple(update[d] for d in cut)
    kinds = (Kind.PASS,) * rank + (Kind.REPLICATE,) * len(cut)
    return Rule((dims, update_dims, *((),) * (len(ins) - 2)), (dims,), sizes, kinds)


def _update_place(params: Params, in_dims: Sequence[DimAxes], out_dims: Sequence[DimAxes]) -> Params:
    del out_dims
    axes = tuple(a if a != b else () for a, b in zip(in_dims[0], in_dims[1], strict=True)) if in_dims[1] else in_dims[0]
    return {**params, "operand_axes": axes if any(axes) else None}


def _update_specs(ins: Types, outs: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    del params, rule
    operand, update = ins[0], ins[1]
    if update.mesh is not None and operand.spec != update.spec:  # an update without a mesh adapts
        raise type_error(
            f"dynamic_update_slice: operand {operand.str_short()} and update {update.str_short()} must be split alike. "
            "Reshard the update."
        )
    for d, axes in enumerate(operand.spec):
        if axes and update.shape[d] != operand.shape[d]:
            check_divisible("dynamic_update_slice", ins, update, d, axes)
    return (operand.spec,) * len(outs)


def _update_boxes(eqn: Equation) -> tuple[tuple[Box, Box]] | None:
    operand, update, *starts = eqn.inputs
    shape, size = operand.aval.shape, update.aval.shape
    at = _known_starts(starts, shape, size, eqn.params["wrap"])
    if at is None:
        return None
    origin = (0,) * len(shape)
    return ((Box(0, origin, origin, shape), Box(1, origin, at, size)),)


def _update_transpose(
    ct: Any, operand: Any, update: Any, *starts: Any, wrap: tuple[bool, ...], operand_axes: DimAxes | None
) -> list[Any]:
    rest, window = None, None
    if is_linear(operand):
        rest = do.dynamic_update_slice(ct, full_cotangent(update.aval), *starts, wrap=wrap, operand_axes=operand_axes)
    if is_linear(update):
        window = do.dynamic_slice(ct, *starts, slice_sizes=update.aval.shape, wrap=wrap)
    return [rest, window, *[None] * len(starts)]


def _update_indexed(params: Params, in_types: Types) -> IndexedWindows:
    sizes = in_types[1].shape
    return IndexedWindows(2, False, range(len(sizes)), sizes, params["wrap"])


def _update_hold(params: Params, in_types: Types) -> Any:
    shape = in_types[1].shape

    def hold_update(going: Any, operand: Any, update: Any, *starts: Any) -> Any:
        before = do.dynamic_slice(operand, *starts, slice_sizes=shape, wrap=params["wrap"])
        return do.dynamic_update_slice(operand, do.select_n(going, before, update), *starts, **params)

    return hold_update


def _update_parts(values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    operand, update, *starts = values
    wrap = params["wrap"]
    if not any(wrap):
        return None
    starts_from_front = counted_starts(starts, operand.aval.shape, wrap)
    return do.dynamic_update_slice(operand, update, *starts_from_front, **{**params, "wrap": (False,) * len(wrap)})


dynamic_update_slice_p = define_op(
    "dynamic_update_slice",
    forward_first=True,
    updates=True,
    hold=_update_hold,
    additive=(0, 2),
    jvp=linear_jvp("dynamic_update_slice", (0, 1)),
    transpose=_update_transpose,
    type_rule=_update_type,
    kernel=update_window,
    compile=_update_compile,
    rule=_update_rule,
    place=_update_place,
    explicit=_update_specs,
    boxes=_update_boxes,
    keys=KeyUses({1: True}, forwards={0: 0}),
    indexed=_update_indexed,
    shown=Shown(
        absent={"wrap": lambda operands: (False,) * (operands - 2), "operand_axes": None},
        change=_shown_params,
        parts=_update_parts,
    ),
    small=SmallForm(
        later("shardwise.runtime.small", "dynamic_update"),
        _starts_fit,
        later("shardwise.runtime.small", "updated_window"),
        mapped=True,
    ),
)


def dynamic_update_slice(
    operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: bool | Sequence[bool] = True
) -> Array:
    """`operand` with `update` (same rank and dtype) written at `start_indices`, clamped so that it fits.

    Raises TypeError where rank, dtype or size do not fit, ValueError for a wrong number of starts.

    Args:
        allow_negative_indices: negative positions count from the end.

    >>> lax.dynamic_update_slice(jnp.zeros(4), jnp.ones(2), (1,))
    Array([0., 1., 1., 0.], dtype=float32)
    """
    operand, update = as_array(operand), as_array(update)
    starts, wrap = _start_values("dynamic_update_slice", start_indices, operand.ndim, allow_negative_indices)
    return bind(dynamic_update_slice_p, operand, update, *starts, wrap=wrap, operand_axes=None)
