"""Choosing the split of one op: the mesh axes that shard each factor of its sharding rule.

Comes in: a rule and the layouts of the op's operands and results. Goes out: axes per factor that every tensor of the op
can take, so that each device computes its part alone; tensors of other layouts are resharded before or after the op.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from shardwise.base.shapes import Axes, DimAxes, Shape
from shardwise.sharding.rule import Kind, Rule, TensorFactors

FactorAxes = dict[int, Axes]


def compose(tensor: TensorFactors, factors: Mapping[int, Axes]) -> DimAxes:
    """The layout of a tensor whose factors have these axes."""
    return tuple(tuple(a for f in dim for a in factors.get(f, ())) for dim in tensor)


def decompose(rule: Rule, tensor: TensorFactors, dims: DimAxes, sizes: Mapping[str, int]) -> FactorAxes:
    """Assign the axes of each dim to its factors, major first; axes that do not fill a factor exactly are left out."""
    out: FactorAxes = {}
    for factors, axes in zip(tensor, dims, strict=True):
        rest = list(axes)
        for f in factors:
            room, own_axes = rule.sizes[f], []
            while rest and room % sizes[rest[0]] == 0 and room > 1:
                room //= sizes[rest[0]]
                own_axes.append(rest.pop(0))
            if own_axes:
                out[f] = tuple(own_axes)
            if room > 1:
                break
    return out


def choose_factors(
    rule: Rule,
    dims: Sequence[DimAxes],
    shapes: Sequence[Shape],
    sizes: Mapping[str, int],
    windows: Mapping[int, int] | None = None,
    first: int | None = None,
    move: bool = True,
) -> FactorAxes:
    """The axes for each factor. If tensors disagree, the layout held by the most elements wins, or the layout of tensor `first`.

    `windows` maps the PERMUTE factors that may stay split to the size of the result's dim. `move`: whether axes of factors that must
    be whole go to batch factors; else they split nothing.
    """
    parts = [decompose(rule, t, d, sizes) if any(d) else {} for t, d in zip(rule.tensors, dims, strict=True)]
    factors: FactorAxes = {}
    for group in _independent(rule):
        tensors, own = [rule.tensors[t] for t in group], [parts[t] for t in group]
        agreed = _agreement(tensors, own)
        if agreed is None:
            agreed = _by_weight(rule, own, [shapes[t] for t in group], sizes, parts[first] if first in group else {})
        factors |= agreed
    split = {f for f, n in (windows or {}).items() if n % math.prod(sizes[a] for a in factors.get(f, ())) == 0}
    whole = [f for f in factors if rule.kinds[f] in (Kind.REPLICATE, Kind.PERMUTE) and f not in split]
    _free_whole_dims(rule, factors, sizes, whole, move)
    _drop_inexpressible(rule, factors, sizes)
    return factors


def _independent(rule: Rule) -> list[list[int]]:
    """The tensors of an op in independent groups: an axis may split one factor of each group.

    Each value that passes through an `optimization_barrier` is such a group. The tensors of an op that reduces are one group.
    """
    all_tensors = list(range(len(rule.tensors)))
    if len(rule.outputs) < 2 or any(rule.kinds):
        return [all_tensors]
    groups: list[tuple[set[int], list[int]]] = []  # factors, tensors
    for t in all_tensors:
        factors = {f for dim in rule.tensors[t] for f in dim}
        touched_groups = [g for g in groups if g[0] & factors]
        groups = [g for g in groups if not g[0] & factors]
        joint_factors = set().union(factors, *[g[0] for g in touched_groups])
        groups.append((joint_factors, sorted([t, *[u for g in touched_groups for u in g[1]]])))
    return [tensors for _, tensors in groups]


def _agreement(tensors: Sequence[TensorFactors], parts: Sequence[FactorAxes]) -> FactorAxes | None:
    """The split on which these tensors agree; None if they disagree."""
    factors: FactorAxes = {}
    for part in parts:
        factors.update(part)
    used = [a for axes in factors.values() for a in axes]
    if len(used) != len(set(used)):
        return None
    for tensor, part in zip(tensors, parts, strict=True):
        for dim in tensor:
            for f in dim:
                if part.get(f, ()) != factors.get(f, ()):
                    return None
    return factors


def other_choices(
    rule: Rule,
    dims: Sequence[DimAxes],
    shapes: Sequence[Shape],
    sizes: Mapping[str, int],
    windows: Mapping[int, int] | None,
    chosen: FactorAxes,
) -> Iterator[FactorAxes]:
    """Splits that may move fewer bytes than `chosen`: in each, one tensor keeps its layout."""
    for t, (tensor, d) in enumerate(zip(rule.tensors, dims, strict=True)):
        if any(d) and compose(tensor, chosen) != d:
            factors = choose_factors(rule, dims, shapes, sizes, windows, first=t)
            if factors != chosen:
                yield factors


def with_idle_axes(rule: Rule, factors: FactorAxes, sizes: Mapping[str, int]) -> Iterator[FactorAxes]:
    """`factors` with one more axis that is unused so far, or all of them: a device then moves a part of a value instead of all of it."""
    used = {a for axes in factors.values() for a in axes}
    idle = [a for a, n in sizes.items() if a not in used and n > 1]
    for more in (*[(a,) for a in idle], *([tuple(idle)] if len(idle) > 1 else [])):
        for f, kind in enumerate(rule.kinds):
            axes = (*factors.get(f, ()), *more)
            if kind is Kind.PASS and rule.sizes[f] % math.prod(sizes[a] for a in axes) == 0:
                wider = {**factors, f: axes}
                _drop_inexpressible(rule, wider, sizes)
                if f in wider:
                    yield wider


def _by_weight(
    rule: Rule,
    parts: Sequence[FactorAxes],
    shapes: Sequence[Shape],
    sizes: Mapping[str, int],
    first: FactorAxes,
) -> FactorAxes:
    weights: dict[tuple[int, Axes], int] = {}
    for part, shape in zip(parts, shapes, strict=True):
        for f, axes in part.items():
            weights[f, axes] = weights.get((f, axes), 0) + math.prod(shape)
    ways = lambda axes: math.prod(sizes[a] for a in axes)  # noqa: E731
    order = sorted(weights, key=lambda fa: (-weights[fa], rule.kinds[fa[0]], -ways(fa[1])))
    order = [*first.items(), *order]
    factors: FactorAxes = {}
    used: set[str] = set()
    for f, axes in order:
        known_axes = factors.get(f, ())
        if known_axes and axes[: len(known_axes)] != known_axes:
            continue
        free = list(known_axes)
        for a in axes[len(known_axes) :]:
            if a in used:
                break
            free.append(a)
        if len(free) > len(known_axes):
            factors[f] = tuple(free)
            used.update(free)
    return factors


def _free_whole_dims(
    rule: Rule, factors: FactorAxes, sizes: Mapping[str, int], whole: Sequence[int], move: bool
) -> None:
    """Take the axes off the factors `whole`, and `move` them to a batch factor that every tensor has and that they divide."""
    for f in whole:
        for a in factors.pop(f):
            for g, kind in enumerate(rule.kinds) if move else ():
                ways = math.prod(sizes[b] for b in factors.get(g, ()))
                if kind is Kind.PASS and rule.sizes[g] % (ways * sizes[a]) == 0 and _everywhere(rule, g):
                    factors[g] = (*factors.get(g, ()), a)
                    break


def _everywhere(rule: Rule, factor: int) -> bool:
    return all(any(factor in dim for dim in tensor) for tensor in rule.tensors if tensor)


def _drop_inexpressible(rule: Rule, factors: FactorAxes, sizes: Mapping[str, int]) -> None:
    """Drop the axes of minor factors of a merged dim unless its major factors are split completely."""
    has_changed = True
    while has_changed:
        has_changed = False
        for tensor in rule.tensors:
            for dim in tensor:
                full = True
                for f in dim:
                    if not full and f in factors:
                        del factors[f]
                        has_changed = True
                    full = full and math.prod(sizes[a] for a in factors.get(f, ())) == rule.sizes[f]
