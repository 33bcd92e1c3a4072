"""Parts of arrays at static positions (`slice`, `split`), and `pad`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from shardwise.base.shapes import Ints, Ndarray
from shardwise.ir import (
    Array,
    Box,
    Equation,
    Halo,
    Program,
    ShapedArray,
    Shown,
    SmallForm,
    Var,
    bind,
    define_op,
    literal,
)
from shardwise.ir.explicit import varying_specs
from shardwise.ir.key_uses import KeyUses, UsesOf
from shardwise.ir.op import Params, Types
from shardwise.ir.showing import SHOWING
from shardwise.ir.types import Spec
from shardwise.ops.rules import batching
from shardwise.ops.rules.derivative import do, full_cotangent, is_linear, later, strong
from shardwise.ops.rules.dims import dim_index, int_tuple
from shardwise.ops.rules.operands import operand, operands
from shardwise.ops.shapes.strided_slices import spread_partition, strided_partition
from shardwise.ops.shapes.transpose import dim_factors, own_factors
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.sharding.rule import Kind, Rule

__all__ = ["pad", "slice", "slice_in_dim", "split"]

Boxes = tuple[tuple[Box, ...], ...]  # of each result
_operand = operand  # functions below have a parameter of that name
_slice = slice  # the builtin, before `lax.slice` takes the name


# -- slice -----------------------------------------------------------------------------------------------------------


def _slice_type(
    x: ShapedArray, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None = None
) -> ShapedArray:
    steps = strides or (1,) * x.ndim
    for what, values in (("start_indices", start_indices), ("limit_indices", limit_indices), ("strides", steps)):
        if len(values) != x.ndim:
            raise TypeError(f"slice takes one of {what} for each of the operand's {x.ndim} dims, got {values}.")
    if any(step < 1 for step in steps):
        raise TypeError(f"slice strides must be positive, got {steps}. Reverse dims with lax.rev.")
    if any(not 0 <= a <= b <= n for a, b, n in zip(start_indices, limit_indices, x.shape, strict=True)):
        raise TypeError(
            f"slice takes 0 <= start <= limit <= size in each dim, got start_indices {start_indices} and "
            f"limit_indices {limit_indices} for operand shape {x.shape}."
        )
    sizes = [-(-(b - a) // s) for a, b, s in zip(start_indices, limit_indices, steps, strict=True)]
    return ShapedArray(sizes, x.dtype, x.weak_type)


def _slice_kernel(
    env: Env, x: Ndarray, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None = None
) -> Ndarray:
    return x[_index(start_indices, limit_indices, strides)]


def _index(start_indices: Ints, limit_indices: Ints, strides: Ints | None = None) -> tuple[Any, ...]:
    """The index by which NumPy slices."""
    steps = strides or (1,) * len(start_indices)
    return (..., *[_slice(a, b, s) for a, b, s in zip(start_indices, limit_indices, steps, strict=True)])


def _slice_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """Dims that the slice keeps whole have their local size; cut dims are not split."""
    limits = [
        n if n == m else limit
        for n, m, limit in zip(in_types[0].shape, out_types[0].shape, params["limit_indices"], strict=True)
    ]
    return {**params, "limit_indices": tuple(limits)}


def cut_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Dims that keep their size keep their sharding; a dim whose size changes is one PERMUTE factor of the operand's size."""
    shape = in_types[0].shape
    changed_dims = {d for out in out_types for d, (n, m) in enumerate(zip(shape, out.shape, strict=True)) if n != m}
    kinds = tuple(Kind.PERMUTE if d in changed_dims else Kind.PASS for d in range(len(shape)))
    scalars: tuple[tuple[()], ...] = ((),) * (len(in_types) - 1)
    return Rule((dim_factors(shape), *scalars), tuple(dim_factors(out.shape) for out in out_types), shape, kinds)


def _slice_halo(params: Params, dim: int, in_types: Types, out_local: int) -> Halo:
    """Part i of the result reads every stride-th position from ``start + i * stride * out_local``."""
    step = params["strides"][dim] if params["strides"] else 1
    width = step * (out_local - 1) + 1
    at = {"start_indices": 0, "limit_indices": width}
    local = {k: (*params[k][:dim], v, *params[k][dim + 1 :]) for k, v in at.items()}
    return Halo(step * out_local, params["start_indices"][dim], width, {**params, **local})


def _slice_boxes(eqn: Equation) -> Boxes | None:
    start, limit, strides = (eqn.params[k] for k in ("start_indices", "limit_indices", "strides"))
    if strides is not None and any(s != 1 for s in strides):
        return None
    size = tuple(b - a for a, b in zip(start, limit, strict=True))
    return ((Box(0, start, (0,) * len(size), size),),)


def _slice_transpose(
    ct: Any, x: Any, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None = None
) -> list[Any]:
    """Pad the cotangent with zeros, around it and between strides."""
    steps = strides or (1,) * len(start_indices)
    config = tuple(
        (a, n - a - (max(m - 1, 0) * s + min(m, 1)), s - 1)
        for a, m, n, s in zip(start_indices, ct.shape, x.aval.shape, steps, strict=True)
    )
    return [do.pad(ct, strong(0, ct.dtype), padding_config=config)]


def _whole_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Outside jit the starts count as values: a cut dim is read whole, and its sharding does not propagate."""
    rule = cut_rule(in_types, out_types, params)
    cut = frozenset(d for d, kind in enumerate(rule.kinds) if kind is Kind.PERMUTE)
    kinds = tuple(Kind.REPLICATE if d in cut else kind for d, kind in enumerate(rule.kinds))
    return Rule(rule.inputs, rule.outputs, rule.sizes, kinds, cut)


def _cut_specs(in_types: Types, outs: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    del params, rule
    return varying_specs("slice" if len(outs) == 1 else "split", in_types, outs)


def _slice_mapped(size: int, start_indices: Ints, limit_indices: Ints, strides: Ints | None = None) -> dict[str, Any]:
    steps = None if strides is None else (1, *strides)
    return {"start_indices": (0, *start_indices), "limit_indices": (size, *limit_indices), "strides": steps}


def _slice_keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    start, limit, strides = (eqn.params[k] for k in ("start_indices", "limit_indices", "strides"))
    mask = np.zeros(eqn.inputs[0].aval.shape, np.bool_)
    steps = strides or (1,) * len(start)
    mask[tuple(np.s_[a:b:c] for a, b, c in zip(start, limit, steps, strict=True))] = True
    return KeyUses({0: mask}, frozenset({0}))


slice_p = define_op(
    "slice",
    type_rule=_slice_type,
    kernel=_slice_kernel,
    compile=lambda env, in_types, out_types, params: itemgetter(_index(**params)),
    rule=cut_rule,
    explicit=_cut_specs,
    localize=_slice_localize,
    halo=_slice_halo,
    boxes=_slice_boxes,
    partition=lambda region, eqn: strided_partition(region, eqn, pad_p),
    view=True,
    additive=True,
    jvp="linear",
    transpose=_slice_transpose,
    batch=batching.in_front("slice", _slice_mapped),
    shown=Shown(empty=("strides",)),
    keys=_slice_keys,
)
window_p = replace(slice_p, rule=_whole_rule, halo=None, boxes=None, partition=None)  # x[...] outside jit


def slice(
    operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """The elements of `operand` from `start_indices` up to `limit_indices`, in steps of ``strides[d]`` along each dim
    d.

    TypeError unless 0 <= start <= limit <= size in each dim; nothing is clipped and nothing counts from the end.

    >>> lax.slice(jnp.arange(6), (1,), (5,), (2,))
    Array([1, 3], dtype=int32)
    """
    starts, limits = int_tuple(start_indices, "slice start_indices"), int_tuple(limit_indices, "slice limit_indices")
    steps = None if strides is None else int_tuple(strides, "slice strides")
    if steps is not None and all(s == 1 for s in steps) and len(steps) == len(starts):
        steps = None
    return bind(slice_p, _operand("slice", operand), start_indices=starts, limit_indices=limits, strides=steps)


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """`slice` of `operand` along `axis`, from `start_index` up to `limit_index` in steps of `stride`. None means 0 as
    start and the dim's size as limit; negative positions count from the end.

    >>> lax.slice_in_dim(jnp.arange(6), 1, 5, 2)
    Array([1, 3], dtype=int32)
    """
    starts, limits, steps = _along(operand, start_index, limit_index, stride, axis)
    if SHOWING.get():  # JAX's has its strides
        return bind(slice_p, _operand("slice", operand), start_indices=starts, limit_indices=limits, strides=steps)
    return slice(operand, starts, limits, steps)


def rows_between(operand: Any, start_index: int, limit_index: int, axis: int) -> Array:
    """The elements of `operand` from `start_index` up to `limit_index` along `axis`, as programs that are shown have ``x[start:limit]``."""
    starts, limits, _ = _along(operand, start_index, limit_index, 1, axis)
    return slice(operand, starts, limits)


def _along(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int, axis: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Starts, limits and strides of a slice along one dim."""
    x = _operand("slice_in_dim", operand)
    d = dim_index(axis, x.ndim, "slice_in_dim")
    n = x.shape[d]
    start = 0 if start_index is None else start_index + n if start_index < 0 else start_index
    limit = n if limit_index is None else limit_index + n if limit_index < 0 else limit_index
    starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[d], limits[d], steps[d] = start, limit, stride
    return tuple(starts), tuple(limits), tuple(steps)


# -- split -----------------------------------------------------------------------------------------------------------


def _split_type(x: ShapedArray, *, sizes: Ints, axis: int) -> tuple[ShapedArray, ...]:
    if any(n < 0 for n in sizes):
        raise ValueError(f"split takes sizes of at least 0, got {sizes}.")
    if sum(sizes) != x.shape[axis]:
        raise ValueError(
            f"split: the sizes {sizes} sum to {sum(sizes)}, but dim {axis} of the operand has size {x.shape[axis]}."
        )
    return tuple(ShapedArray((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype, x.weak_type) for n in sizes)


def _split_kernel(env: Env, x: Ndarray, *, sizes: Ints, axis: int) -> tuple[Ndarray, ...]:
    before = (_slice(None),) * (env.lead + axis)
    parts = []
    start = 0
    for n in sizes:
        parts.append(x[(*before, _slice(start, start + n))])
        start += n
    return tuple(parts)


def _split_transpose(cts: Sequence[Any], x: Any, *, sizes: Ints, axis: int) -> list[Any]:
    def zero(n: int) -> Any:
        return full_cotangent(
            x.aval.update(shape=(*x.aval.shape[:axis], n, *x.aval.shape[axis + 1 :]), spec=x.aval.spec)
        )

    return [do.concatenate(*[zero(n) if c is None else c for c, n in zip(cts, sizes, strict=True)], dimension=axis)]


def _split_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """A single part is the whole dim, which devices may split."""
    return {**params, "sizes": tuple(t.shape[params["axis"]] for t in out_types)}


def _split_boxes(eqn: Equation) -> Boxes:
    shape, axis = eqn.inputs[0].aval.shape, eqn.params["axis"]
    origin, start, boxes = (0,) * len(shape), 0, []
    for n in eqn.params["sizes"]:
        first = (*origin[:axis], start, *origin[axis + 1 :])
        boxes.append((Box(0, first, origin, (*shape[:axis], n, *shape[axis + 1 :])),))
        start += n
    return tuple(boxes)


def _split_keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    return KeyUses({0: True}, frozenset(range(len(eqn.outputs))))


split_p = define_op(
    "split",
    type_rule=_split_type,
    kernel=_split_kernel,
    rule=cut_rule,
    explicit=_cut_specs,
    multiple_results=True,
    localize=_split_localize,
    boxes=_split_boxes,
    small=SmallForm(later("shardwise.runtime.small", "view")),
    additive=True,
    jvp="linear",
    transpose=_split_transpose,
    batch=batching.shift_dims_rule("split", "axis"),
    keys=_split_keys,
)


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """The consecutive parts of `operand`, of these `sizes`, along `axis`. ValueError unless the sizes sum to the
    dim's size.

    >>> lax.split(jnp.arange(3), (1, 2))
    [Array([0], dtype=int32), Array([1, 2], dtype=int32)]
    """
    x = _operand("split", operand)
    d = dim_index(axis, x.ndim, "split")
    return list(bind(split_p, x, sizes=int_tuple(sizes, "split sizes"), axis=d))


# -- pad -------------------------------------------------------------------------------------------------------------

PadConfig = tuple[tuple[int, int, int], ...]


def _pad_type(x: ShapedArray, value: ShapedArray, *, padding_config: PadConfig) -> ShapedArray:
    if len(padding_config) != x.ndim:
        raise ValueError(
            f"pad takes one (low, high, interior) for each dim, got padding_config {padding_config} for operand "
            f"shape {x.shape}."
        )
    if x.dtype != value.dtype:
        raise TypeError(f"pad takes a padding_value of the operand's dtype, got {x.dtype.name} and {value.dtype.name}.")
    if value.shape:
        raise ValueError(f"pad takes a scalar padding_value, got shape {value.shape}.")
    if any(interior < 0 for _, _, interior in padding_config):
        raise ValueError(f"pad: interior padding cannot be negative, got padding_config {padding_config}.")
    sizes = [lo + hi + _dilated_size(n, i) for n, (lo, hi, i) in zip(x.shape, padding_config, strict=True)]
    if any(n < 0 for n in sizes):
        raise ValueError(
            f"pad: padding_config {padding_config} takes away more than there is: the result's shape would be "
            f"{tuple(sizes)} for operand shape {x.shape}."
        )
    return ShapedArray(sizes, x.dtype, x.weak_type and value.weak_type)


def _dilated_size(n: int, interior: int) -> int:
    return n + max(n - 1, 0) * interior


def _pad_kernel(env: Env, x: Ndarray, value: Ndarray, *, padding_config: PadConfig) -> Ndarray:
    lead = env.lead
    core = x.shape[lead:]
    sizes = tuple(lo + hi + _dilated_size(n, i) for n, (lo, hi, i) in zip(core, padding_config, strict=True))
    loops = x.shape[:lead] if value.size == 1 else np.broadcast_shapes(x.shape[:lead], value.shape[:lead])
    in_rows = all(a >= b for a, b in pairwise(x.strides))
    out = pool.empty(loops + sizes, x.dtype) if in_rows else np.empty_like(x, shape=loops + sizes)
    fill = value.reshape(value.shape + (1,) * len(core))
    source: list[Any] = [...]
    target: list[Any] = [...]
    for d, (n, (lo, hi, interior)) in enumerate(zip(core, padding_config, strict=True)):
        step, size = interior + 1, sizes[d]
        first = -(-max(-lo, 0) // step)  # elements cut away at the start, and at the end
        last = n - max(0, -(-max(-hi, 0) // step))
        kept_count = max(last - first, 0)
        begin = lo + first * step
        end = begin + max(kept_count - 1, 0) * step + min(kept_count, 1)
        source.append(_slice(first, first + kept_count))
        target.append(_slice(begin, end, step) if kept_count else _slice(0, 0))
        here = (_slice(None),) * (lead + d)
        if interior or not kept_count:
            out[here] = fill
        else:
            out[(*here, _slice(0, begin))] = fill
            out[(*here, _slice(end, size))] = fill
    out[tuple(target)] = x[tuple(source)]
    return out


def _pad_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """As `cut_rule`, but a padded dim may change and keep its size."""
    shape = in_types[0].shape
    kinds = tuple(Kind.PERMUTE if any(p) else Kind.PASS for p in params["padding_config"])
    changes = zip(own_factors(shape), shape, out_types[0].shape, strict=True)
    out = tuple(f if m != 1 or n == 1 else () for f, n, m in changes)
    return Rule((own_factors(shape), ()), (out,), shape, kinds)


def _pad_halo(params: Params, dim: int, in_types: Types, out_local: int) -> Halo | None:
    """Part i of the result reads the operand's positions from ``i * out_local - low``; beyond the ends is padding.

    With interior padding, each element begins a stride, and parts are whole strides: an element goes to the part that holds it.
    """
    low, _, interior = params["padding_config"][dim]
    stride = interior + 1
    if out_local % stride:
        return None
    ahead = low % stride  # of a part's first element
    config = (
        *params["padding_config"][:dim],
        (ahead, interior - ahead, interior),
        *params["padding_config"][dim + 1 :],
    )
    width = out_local // stride
    return Halo(width, -(low // stride), width, {**params, "padding_config": config}, fill_operand=1, unit=stride)


def _pad_boxes(eqn: Equation) -> Boxes | None:
    config = eqn.params["padding_config"]
    if any(interior for _, _, interior in config):
        return None
    shape, out = eqn.inputs[0].aval.shape, eqn.outputs[0].aval.shape
    first = tuple(max(-low, 0) for low, _, _ in config)
    at = tuple(max(low, 0) for low, _, _ in config)
    size = tuple(n - f + min(high, 0) for n, f, (_, high, _) in zip(shape, first, config, strict=True))
    fill_box = Box(1, (), (0,) * len(out), out)
    return ((fill_box, Box(0, first, at, size)) if all(n > 0 for n in size) else (fill_box,),)


def _pad_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, padding_config: PadConfig) -> tuple[Any, Any]:
    out = do.pad(*primals, padding_config=padding_config)
    t, t_value = tangents
    if t is None and t_value is None:
        return out, None
    t = full_cotangent(primals[0].aval) if t is None else t
    beside = literal(0, t.dtype, weak_type=primals[1].aval.weak_type) if t_value is None else t_value
    return out, do.pad(t, beside, padding_config=padding_config)


def _cutting_pad_as_slice(eqn: Equation, devices: int) -> Program | None:
    """A pad that only cuts elements away, as the slopes of others are, as a view."""
    del devices
    (x, fill), out, config = (a.aval for a in eqn.inputs), eqn.outputs[0].aval, eqn.params["padding_config"]
    gaps = any(i and n > 1 for n, (_, _, i) in zip(x.shape, config, strict=True))
    if gaps or any(low > 0 or high > 0 for low, high, _ in config) or x.update(shape=out.shape) != out:
        return None
    old, unused_fill, new = Var(x), Var(fill), Var(out)
    limits = tuple(n + high for n, (_, high, _) in zip(x.shape, config, strict=True))
    params = {"start_indices": tuple(-low for low, _, _ in config), "limit_indices": limits, "strides": None}
    view = Equation(slice_p, (old,), (new,), params, eqn.source)
    return Program((old, unused_fill), (view,), (new,), 0, eqn.op.name)


def _pad_transpose(ct: Any, x: Any, value: Any, *, padding_config: PadConfig) -> list[Any]:
    """The operand's cotangent is `ct` at its positions, by the opposite padding and strides; the value's is the sum of the rest."""
    inside = do.pad(ct, strong(0, ct.dtype), padding_config=tuple((-lo, -hi, 0) for lo, hi, _ in padding_config))
    if any(i for _, _, i in padding_config):
        shape = inside.shape
        inside = do.slice(
            inside,
            start_indices=(0,) * len(shape),
            limit_indices=shape,
            strides=tuple(i + 1 for _, _, i in padding_config),
        )
    outside = None
    if is_linear(value):
        dims = tuple(range(ct.ndim))
        outside = do.sub(do.reduce_sum(ct, axes=dims), do.reduce_sum(inside, axes=dims))
    return [inside if is_linear(x) else None, outside]


pad_p = define_op(
    "pad",
    type_rule=_pad_type,
    kernel=_pad_kernel,
    rule=_pad_rule,
    halo=_pad_halo,
    boxes=_pad_boxes,
    partition=spread_partition,
    rewrite=_cutting_pad_as_slice,
    small=SmallForm(later("shardwise.runtime.small", "write_pad"), calls=16),
    additive=(0, 1),
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    batch=batching.pad,
    makes_nan=True,
)


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """`operand` with `padding_value` around and between its elements: `padding_config` has (low, high, interior) per
    dim.

    Negative `low` and `high` cut elements away. ValueError for a result of negative size, TypeError for unequal
    dtypes.

    >>> lax.pad(jnp.array([1, 2]), 0, [(1, 2, 1)])
    Array([0, 1, 0, 2, 0, 0], dtype=int32)
    """
    x, value = operands("pad", operand, padding_value)
    config = tuple(int_tuple(entry, "pad padding_config") for entry in padding_config)
    if any(len(entry) != 3 for entry in config):
        raise ValueError(f"pad takes (low, high, interior) for each dim, got padding_config {config}.")
    return bind(pad_p, x, value, padding_config=config)


# -- concatenate -----------------------------------------------------------------------------------------------------
