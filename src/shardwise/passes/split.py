"""The split of one equation over the devices, computed once for all equal equations.

Comes in: an op, its types, params and the layouts of its values, global; then local types. Goes out: the layouts of its
operands and results, and its local params and types. Layers of a network repeat the same few equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

from shardwise.base.caches import recent
from shardwise.base.config import Token
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, DimAxes
from shardwise.ir import Atom, ExactParams, Need, Program, ShapedArray
from shardwise.ir.op import Op, Types
from shardwise.passes.choose import FactorAxes, choose_factors, compose, other_choices, with_idle_axes
from shardwise.passes.positions import Positions
from shardwise.passes.reduction import plan_reduction
from shardwise.passes.reshard import local_shape, resharding_cost
from shardwise.passes.templates import Changes, Template
from shardwise.runtime import costs
from shardwise.sharding import Crowding
from shardwise.sharding.rule import Kind, Rule, TensorFactors

Items = tuple[tuple[str, Any], ...]
Dims = tuple[DimAxes, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """The axes of each factor of an op's rule, and the layouts that follow from them."""

    rule: Rule
    factors: FactorAxes
    operands: Dims
    results: Dims
    partial: Axes  # axes over which the results are partial reductions
    exchanged: tuple[int, ...]  # factors for which each device needs a window
    moves_much: bool = False  # whether other splits are worth trying


@dataclass(slots=True)
class Known:
    """Results kept for equations and bodies that share their params with others, as the layers of an unrolled model do.

    Keys hold the ids of params; entries hold the params themselves, so that no id is reused.

    Attributes:
        splits: the split per op, params, types and layouts.
        forms: per op, params, local types and layouts: the local params, the result types, and the reason of the collective.
        bodies: the local programs of bodies.
        close_calls: how often the second best way to partition an equation sends hardly more than the best.
        takes_seconds: whether it is taken then.
        templates: the local equations per op, params, types and layouts.
        parts: local values that were cut from others that are there.
        anywhere: by op, params and types of an equation, whether any device can compute any part of its results.
        changes: what the equation at hand changed, and followed from.
        positions: per program, by the id of its equations: where its uneven values lie in their frames.
        differs: axes over which some values differ that no axis splits.
    """

    splits: dict[Any, tuple[Any, ExactParams, Split]] = field(default_factory=dict)
    forms: dict[Any, tuple[Any, Mapping[str, Any], tuple[ShapedArray, ...], Need | None]] = field(default_factory=dict)
    bodies: dict[Any, tuple[Any, Program]] = field(default_factory=dict)
    close_calls: int = 0
    takes_seconds: bool = False
    templates: dict[Any, Template] = field(default_factory=dict)
    anywhere: dict[Any, tuple[Any, bool]] = field(default_factory=dict)
    parts: set[Atom] = field(default_factory=set["Atom"])
    changes: Changes = field(default_factory=Changes)
    positions: dict[int, tuple[Any, Positions]] = field(default_factory=dict)
    differs: frozenset[str] = frozenset()


def cache_hashable(make: Callable[..., Any]) -> Callable[..., Any]:
    """`make` with a cache of its results, for arguments that hash."""
    cached_make = recent(4096)(make)

    def call(*key: Any) -> Any:
        try:
            return cached_make(*key)
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            return make(*key)

    return call


@cache_hashable
def split_of(op: Op, in_types: Types, out_types: Types, params: ExactParams, dims: Dims, sizes: Items) -> Split:
    """The split of an op whose operands and results have the layouts `dims`, over axes of these sizes.

    If tensors disagree, the layout held by the most elements wins. Axes that split a factor that must be whole go to batch factors,
    unless gathering the operands sends less, as it does where results are wanted whole.
    """
    rule = op.sharding_rule(in_types, out_types, params)
    sums = op.reduction_of(params) == "sum"
    if op.halo is None:
        return _split_without_windows(rule, in_types + out_types, dims, sizes, sums)
    split_for = lambda factors: _split(op, in_types, params, rule, factors)  # noqa: E731
    return _choose_split(
        rule, in_types + out_types, dims, sizes, sums, _windows(op, in_types, out_types, params, rule), split_for
    )


@recent(4096)
def _split_without_windows(rule: Rule, types: Types, dims: Dims, sizes: Items, sums: bool) -> Split:
    """`split_of` for ops that take no windows: all with this rule have it, such as slices at many places."""
    return _choose_split(rule, types, dims, sizes, sums, {}, partial(_with_factors, rule))


def _choose_split(
    rule: Rule,
    types: Types,
    dims: Dims,
    sizes: Items,
    sums: bool,
    windows: Mapping[int, Any],
    made: Callable[[FactorAxes], Split],
) -> Split:
    ways, shapes = dict(sizes), [t.shape for t in types]
    factors = choose_factors(rule, dims, shapes, ways, windows)
    split = made(factors)
    if not split.partial and split.operands + split.results == dims:
        return split

    def split_bytes(split: Split) -> float:
        return _bytes_moved(split, types, dims, ways, (1,) * len(dims), sums)

    least = split_bytes(split)
    if Kind.REPLICATE in rule.kinds or Kind.PERMUTE in rule.kinds:
        gather_split = made(choose_factors(rule, dims, shapes, ways, windows, move=False))
        if gather_split.factors != factors and (less := split_bytes(gather_split)) < least:
            split, least = gather_split, less
    return replace(split, moves_much=least >= costs.RESHARD_WORTH)


@cache_hashable
def cheaper_split(
    op: Op,
    in_types: Types,
    out_types: Types,
    params: ExactParams,
    dims: Dims,
    sizes: Items,
    readers: tuple[int, ...],
    worth: int = costs.OPERATIONS_PER_BYTE,
    crowding: Crowding | None = None,
    copies: tuple[Dims, ...] = (),
) -> Split:
    """`split_of`, unless another split moves far fewer bytes and keeps at least as many devices busy.

    Partial results may cost more to sum than operands to gather: then devices compute the same sums, if it takes at most `worth`
    operations more for each byte that is not sent, and far fewer bytes where no operand is whole already. `readers` gives, per operand,
    the number of equations that read it: they share the cost of moving it; last, the number of those that add the result to others, as
    one sum over devices. `crowding` says how much longer a byte of an all-to-all takes than others. `copies` gives, per operand, other
    layouts in which it is there already.
    """
    ways, types = dict(sizes), in_types + out_types
    split: Split = split_of(op, in_types, out_types, params, dims, sizes)
    rule, factors, shapes = split.rule, split.factors, [t.shape for t in types]
    windows = _windows(op, in_types, out_types, params, rule)
    sums = op.reduction_of(params) == "sum"
    alone = (1,) * len(types)
    *shares, additions = readers
    first_cost = _bytes_moved(split, types, dims, ways, (*shares, *alone), sums, crowding, copies)
    at_work = _ways(factors, ways)
    other_splits = list(other_choices(rule, dims, shapes, ways, windows, factors))
    whole_sums = {f: axes for f, axes in factors.items() if rule.kinds[f] is not Kind.REDUCE}
    there = [dims, *[(*dims[:i], layout, *dims[i + 1 :]) for i, layouts in enumerate(copies) for layout in layouts]]
    one_sided = op.updates or all(
        f in whole_sums or any(_is_whole_somewhere(rule, f, axes, layouts) for layouts in there)
        for f, axes in factors.items()
    )
    # A product goes through all combinations of its factors, an update once through each operand.
    operations = 2 * (max(math.prod(t.shape) for t in in_types[1:]) if op.updates else math.prod(rule.sizes))
    if split.partial:
        other_splits.append(whole_sums)
    without_gathered = _drop_gathered_axes(split, dims[len(in_types) :])
    if without_gathered != factors:
        other_splits.append(without_gathered)
    for chosen in (factors, *other_splits):
        other_splits += with_idle_axes(rule, chosen, ways)
    best, least = split, first_cost
    layouts_tried: set[Dims] = {split.operands + split.results}
    for other in other_splits:
        busy = _ways(other, ways)
        if busy < at_work and other not in (without_gathered, whole_sums):
            continue
        trial = _split(op, in_types, params, rule, other)
        layouts = trial.operands + trial.results
        if layouts in layouts_tried or not set(trial.exchanged) <= set(split.exchanged):
            continue
        layouts_tried.add(layouts)
        cost = _bytes_moved(trial, types, dims, ways, alone, sums, crowding, copies)
        more = operations * (1 / busy - 1 / at_work)
        if more > worth * (first_cost - cost):
            continue
        both = other == whole_sums and not one_sided
        if both and additions:
            continue
        gain = cost * (costs.UPDATES_GAIN if op.updates else costs.BOTH_SIDES_GAIN if both else costs.RESHARD_GAIN)
        if cost < least and ((gain, -busy) < (first_cost, -at_work) or (busy < at_work and gain <= first_cost)):
            best, least = trial, cost
    return best


def _drop_gathered_axes(split: Split, placed: Dims) -> FactorAxes:
    """The split's factors without the axes along which all results are gathered: devices compute there what they would receive."""
    kept_axes = {a for layout in placed for axes in layout for a in axes}
    return {
        f: tuple([a for a in axes if a in kept_axes]) if split.rule.kinds[f] is Kind.PASS else axes
        for f, axes in split.factors.items()
    }


def _is_whole_somewhere(rule: Rule, factor: int, axes: Axes, dims: Dims) -> bool:
    """Whether an operand has all of a factor already, which these axes split in others."""
    operand_axes = [
        have
        for tensor, layout in zip(rule.inputs, dims, strict=False)
        for factors, have in zip(tensor, layout or ((),) * len(tensor), strict=True)
        if factor in factors
    ]
    return any(not set(have).intersection(axes) for have in operand_axes)


def _ways(factors: FactorAxes, sizes: Mapping[str, int]) -> int:
    """The number of devices that compute different parts."""
    return math.prod(sizes[a] for axes in factors.values() for a in axes)


def _bytes_moved(
    split: Split,
    types: Types,
    dims: Dims,
    sizes: Mapping[str, int],
    shared: Sequence[int],
    sums: bool,
    crowding: Crowding | None = None,
    copies: Sequence[Dims] = (),
) -> float:
    """The bytes that a device sends to bring the operands into the split's layouts, if no copy lies so, and the results into those of
    `dims`, those of an all-to-all as many times as `crowding` says that they take longer.
    """
    count = len(split.operands)
    total = 0.0
    for i, (aval, have, want, n) in enumerate(zip(types, dims, split.operands, shared, strict=False)):
        if copies and want in copies[i]:
            continue
        whole = have or ((),) * aval.ndim
        total += resharding_cost(whole, want, aval.shape, aval.itemsize, sizes, crowding) / n
    for aval, made, placed in zip(types[count:], split.results, dims[count:], strict=True):
        if split.partial:
            plan = plan_reduction(made, placed, split.partial, aval.shape, aval.itemsize, sizes, scatters=sums)
            total += plan.bytes_sent
        else:
            total += resharding_cost(made, placed, aval.shape, aval.itemsize, sizes, crowding)
    return total


def _split(op: Op, in_types: Types, params: ExactParams, rule: Rule, factors: FactorAxes) -> Split:
    return _with_factors(rule, factors, _summed_windows(op, in_types, params, rule, factors))


def _with_factors(rule: Rule, factors: FactorAxes, summed_windows: tuple[int, ...] = ()) -> Split:
    return Split(
        rule,
        factors,
        tuple(compose(t, factors) for t in rule.inputs),
        tuple(compose(t, factors) for t in rule.outputs),
        tuple(a for f in rule.factors_of(Kind.REDUCE) for a in factors.get(f, ())),
        tuple(f for f in rule.factors_of(Kind.PERMUTE) if factors.get(f)) + summed_windows,
    )


def _windows(op: Op, in_types: Types, out_types: Types, params: Mapping[str, Any], rule: Rule) -> dict[int, int]:
    """PERMUTE factors that may stay split because the op gives the window of its operand that each part needs.

    Each maps to the size of the result's dim in units that a part must be a multiple of; the axes must divide it too.
    """
    if op.halo is None:
        return {}
    windows = {}
    for f in rule.factors_of(Kind.PERMUTE):
        d_in, d_out = dim_of(rule.inputs[0], f), dim_of(rule.outputs[0], f)
        elsewhere = any(f in fs for t in (*rule.inputs[1:], *rule.outputs[1:]) for fs in t)
        if d_in is not None and d_out is not None and not elsewhere:
            size = out_types[0].shape[d_out]
            halo = op.halo(params, d_in, in_types, size) if size else None
            if halo is not None:
                windows[f] = size // halo.unit
    return windows


def _summed_windows(
    op: Op, in_types: Types, params: Mapping[str, Any], rule: Rule, factors: FactorAxes
) -> tuple[int, ...]:
    """Split REDUCE factors for which a part of operand 1 needs a window of operand 0 that reaches beyond the device's own part."""
    if op.halo is None or len(rule.inputs) < 2:
        return ()
    windows = []
    for f in rule.factors_of(Kind.REDUCE):
        d, d_other = dim_of(rule.inputs[0], f), dim_of(rule.inputs[1], f)
        if factors.get(f) and d is not None and d_other is not None:
            part = in_types[1].shape[d_other]
            if op.halo(params, d, in_types, part) is not None:
                windows.append(f)
    return tuple(windows)


def dim_of(tensor: TensorFactors, factor: int) -> int | None:
    """The dim that consists of this factor alone."""
    return next((d for d, fs in enumerate(tensor) if fs == (factor,)), None)


def local_type(aval: ShapedArray, dims: DimAxes, sizes: Mapping[str, int], scope: Mapping[str, Axes]) -> ShapedArray:
    """The per-device type of a value with this layout; `scope` maps manual axes to grid axes."""
    axes = frozenset(a for axes in dims for a in axes)
    manual = frozenset(g for a in aval.vma for g in scope.get(a, (a,)))
    return ShapedArray(local_shape(aval.shape, dims, sizes), aval.dtype, aval.weak_type, vma=axes | manual)


@cache_hashable
def local_params(
    op: Op,
    params: ExactParams,
    types: Types,
    in_dims: Dims,
    out_dims: Dims,
    out_types: Types,
    sizes: Items,
    scope: Items,
) -> dict[str, Any]:
    """The params of an op on local operands of these types; its results have the layouts `out_dims` of their global types."""
    given: Any = dict(params)
    # By params: local types have no mesh, also where its axes are of size 1.
    has_mesh = any(t.mesh is not None for t in out_types)
    if op.localize is not None and (has_mesh or any(map(any, (*in_dims, *out_dims)))):
        axis_sizes = dict(scope)
        outs = tuple(local_type(t, d, dict(sizes), axis_sizes) for t, d in zip(out_types, out_dims, strict=True))
        given = dict(op.localize(given, types, outs))
    if op.place is not None:
        given = dict(op.place(given, in_dims, out_dims))
    return given


@cache_hashable
def local_results(op: Op, types: Types, params: ExactParams, varying: frozenset[str], context: Token) -> Types:
    """The result types of an op on local operands; the results also vary over `varying`."""
    del context  # part of the key: type rules may read the context mesh and the x64 flag
    out = op.type_rule(*types, **params)
    outs: Types = tuple(out) if op.multiple_results else (out,)
    if op.typed:
        return outs
    vma = varying.union(*[t.vma for t in types])
    return tuple(t.update(vma=vma) for t in outs)


@recent(4096)
def shape_of(shape: tuple[int, ...], dims: DimAxes, sizes: Items) -> tuple[int, ...]:
    """The local shape of a value with this layout."""
    return local_shape(shape, dims, dict(sizes))
