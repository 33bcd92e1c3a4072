"""Propagation through one op: from the layouts of its operands and results to layouts that extend them.

Comes in: an op's sharding rule and the current layouts. Goes out: the tensors whose layout grows, with the new layout.

A rule is compiled once into a `FactorRule`, which lists for each level of propagation the places where a factor occurs and
whether a layout may start there. The step itself has three parts: find the axes of each factor on which all tensors that
have some agree; order the factors, because two of them may want one axis on the same tensor; extend each tensor as far
as its dims are open, its axes free and its factors large enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shardwise.base.caches import recent
from shardwise.base.shapes import Axes, DimAxes
from shardwise.ir import Equation, ExactParams, Op, ShapedArray
from shardwise.ir.op import Params
from shardwise.sharding.rule import Kind, Rule, TensorFactors

# Levels of propagation. Ops that only rearrange elements go first, because their layouts are always a good choice. The
# operand of a broadcast says least about the layout of its result, so this direction comes last.
SINGLE_USE = 1  # elementwise ops, transposes and reshapes whose operands have no other user
MULTI_USE = 2  # the same ops, whose operands may have other users
PASS_THROUGH = 3  # every factor that needs no communication, except broadcasts from operand to result
ALL_FACTORS = 4  # every factor, except broadcasts from operand to result
EVERYTHING = 5
LEVELS = (SINGLE_USE, MULTI_USE, PASS_THROUGH, ALL_FACTORS, EVERYTHING)

Types = tuple[ShapedArray, ...]
Place = tuple[int, int]  # tensor, slot
Slot = tuple[int, int, bool]  # dim, factor, whether the factor is the minor-most of the dim
# A factor, the places where its layouts start, the places that can only veto them, and the places that they reach.
Movement = tuple[int, tuple[Place, ...], tuple[Place, ...], tuple[Place, ...]]


class FactorRule:
    """A sharding rule prepared for propagation.

    A tensor's *slots* are its (dim, factor) pairs, dims without factors included, so that for tensors whose dims are
    single factors slots and dims are the same.
    """

    __slots__ = ("compound", "levels", "num_inputs", "pointwise", "rule", "sizes", "slot_of", "slots", "tensor_sizes",
                 "turns")  # fmt: skip

    def __init__(self, rule: Rule, early: int, *, forward_first: bool = False, identity: bool = False) -> None:
        """`early` is the level at which an op that only rearranges elements begins; an `identity` always is such an op."""
        tensors = rule.tensors
        self.rule = rule
        self.num_inputs = len(rule.inputs)
        self.sizes = rule.sizes
        self.slots = tuple(_slots(t) for t in tensors)
        self.slot_of = tuple({f: s for s, (_, f, _) in enumerate(slots) if f >= 0} for slots in self.slots)
        self.compound = tuple(len(slots) != len(t) for slots, t in zip(self.slots, tensors, strict=True))
        self.tensor_sizes = tuple(_product(rule.sizes[f] for f in slot_of) for slot_of in self.slot_of)
        self.pointwise = not identity and not forward_first and _is_pointwise(rule)
        self.levels = _levels(rule, self.slot_of, self.pointwise, identity, forward_first, early)
        # The levels that allow more than the level before.
        self.turns = tuple(n for n in LEVELS if self.levels[n] != self.levels[n - 1])


def _product(values: Any) -> int:
    n = 1
    for v in values:
        n *= v
    return n


def _slots(tensor: TensorFactors) -> tuple[Slot, ...]:
    out: list[Slot] = []
    for d, factors in enumerate(tensor):
        out.extend((d, f, f == factors[-1]) for f in factors)
        if not factors:
            out.append((d, -1, True))
    return tuple(out)


def _is_pointwise(rule: Rule) -> bool:
    """Whether every tensor has the result's dims, except scalars and dims of size 1."""
    result = rule.outputs[0] if rule.outputs else ()
    if not rule.inputs or any(k is not Kind.PASS for k in rule.kinds) or any(len(dim) > 1 for dim in result):
        return False
    if any(out != result for out in rule.outputs):
        return False
    full = [t for t in rule.inputs if t]
    if any(len(t) != len(result) or any(a and a != b for a, b in zip(t, result, strict=True)) for t in full):
        return False
    return {dim for t in full for dim in t if dim} == {dim for dim in result if dim}


def _is_rearrangement(rule: Rule, sides: Sequence[tuple[bool, bool]]) -> bool:
    """Whether the op only moves elements: every factor is on both sides, or on one and whole (reshape) or of size 1 (`expand_dims`)."""
    return len(rule.inputs) == 1 == len(rule.outputs) and all(
        k is (Kind.PASS if on_input and on_output else Kind.REPLICATE) or (on_output and n == 1)
        for k, n, (on_input, on_output) in zip(rule.kinds, rule.sizes, sides, strict=True)
    )


def _levels(
    rule: Rule, slot_of: Sequence[Mapping[int, int]], pointwise: bool, identity: bool, forward_first: bool, early: int
) -> tuple[tuple[Movement, ...], ...]:
    n_in = len(rule.inputs)
    sides = [(any(f in t for t in slot_of[:n_in]), any(f in t for t in slot_of[n_in:])) for f in range(len(rule.sizes))]
    rearranges = pointwise or identity or (not forward_first and _is_rearrangement(rule, sides))
    expands = not rearranges and n_in == 1 and not any(rule.kinds) and all(out for _, out in sides)
    # An operand that a pointwise op broadcasts along size-1 dims behaves like the operand of an explicit broadcast.
    full = max((len(t) for t in slot_of), default=0)
    stretched_tensors = {t for t in range(n_in) if pointwise and 0 < len(slot_of[t]) < full}

    def start(kind: Kind) -> tuple[int, int]:
        """The levels at which a factor begins to move forward and backward."""
        usual = PASS_THROUGH if kind is Kind.PASS else ALL_FACTORS
        if rearranges:
            return early, early
        if forward_first:
            return early, usual
        return (EVERYTHING, PASS_THROUGH) if expands else (usual, usual)

    levels: list[list[Movement]] = [[] for _ in range(len(LEVELS) + 1)]
    for f, kind in enumerate(rule.kinds):
        if f in rule.blocked:
            continue
        begins = start(kind)
        ins = tuple([(t, slot_of[t][f]) for t in range(n_in) if f in slot_of[t]])
        outs = tuple([(t, slot_of[t][f]) for t in range(n_in, len(slot_of)) if f in slot_of[t]])
        last_key, last_movements = None, None
        for level in LEVELS:
            allowed_directions = begins[0] <= level, begins[1] <= level, level >= PASS_THROUGH, level >= EVERYTHING
            if allowed_directions != last_key:
                last_key, last_movements = (
                    allowed_directions,
                    _movement(f, ins, outs, stretched_tensors, *allowed_directions),
                )
            if last_movements is not None:
                levels[level].append(last_movements)
    return tuple(map(tuple, levels))


def _movement(
    f: int,
    ins: tuple[Place, ...],
    outs: tuple[Place, ...],
    stretched: Collection[int],
    forward: bool,
    backward: bool,
    reached: bool,
    heard: bool,
) -> Movement | None:
    """How a factor moves where layouts go `forward` and `backward`, and stretched operands are `reached` and `heard`; None: not at all."""
    if not (forward or backward):
        return None
    if stretched and not reached:
        ins = tuple([p for p in ins if p[0] not in stretched])
    if len(ins) + len(outs) < 2:
        return None
    speakers = tuple([p for p in ins if p[0] not in stretched]) if stretched and not heard else ins
    sources = (*(speakers if forward else ()), *(outs if backward else ()))
    others = (*(() if forward else ins), *(() if backward else outs))
    return f, sources, others, (*outs, *ins)


def equation_flow(eqn: Equation, early: int = SINGLE_USE) -> FactorRule:
    """The `FactorRule` of an equation's sharding rule, shared like the rule itself."""
    in_types = tuple([a.aval for a in eqn.inputs])
    out_types = tuple([v.aval for v in eqn.outputs])
    try:
        return _cached_flow(eqn.op, in_types, out_types, ExactParams(eqn.params), early)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _make_flow(eqn.op, in_types, out_types, eqn.params, early)


def _make_flow(op: Op, in_types: Types, out_types: Types, params: Params, early: int) -> FactorRule:
    if op.rule is None and any(t.ndim not in (0, out_types[0].ndim) for t in (*in_types, *out_types)):
        rule = Rule(((),) * len(in_types), ((),) * len(out_types), (), ())  # no rule, and not elementwise
    else:
        rule = op.sharding_rule(in_types, out_types, params)
    return _flow_of_rule(rule, early, op.forward_first)


_cached_flow = recent(4096)(_make_flow)


@recent(4096)
def _flow_of_rule(rule: Rule, early: int, forward_first: bool) -> FactorRule:
    """The `FactorRule` of ops with this rule: slices at many places have one."""
    return FactorRule(rule, early, forward_first=forward_first)


# -- axes of factors -------------------------------------------------------------------------------


def agree(known: Axes, axes: Axes, grow: bool) -> tuple[Axes, bool]:
    """The axes that two shardings of one factor have in common, and whether they may still grow.

    If one list is a prefix of the other, the longer one wins; lists that diverge never grow past that point.

    >>> agree(("x",), ("x", "y"), True)
    (('x', 'y'), True)
    >>> agree(("x", "y"), ("x", "z"), True)
    (('x',), False)
    """
    n = min(len(known), len(axes))
    if known[:n] == axes[:n]:
        return (axes, True) if grow and len(axes) > len(known) else (known, grow)
    same = 0
    while known[same] == axes[same]:
        same += 1
    return known[:same], False


def _deal(
    tensor: tuple[Slot, ...], sizes: Sequence[int], dims: DimAxes, mesh: Mapping[str, int]
) -> tuple[list[Axes], list[Axes]]:
    """The axes of each slot, major factors first, and the axes left over because one does not fit into its factor."""
    out: list[Axes] = []
    overflow: list[Axes] = []
    rest: Axes = ()
    is_stuck = False
    at = -1
    for d, f, minor in tensor:
        if d != at:
            at, rest, is_stuck = d, dims[d], False
        if minor or is_stuck:
            dealt_axes, rest = ((), rest) if is_stuck else (rest, ())
            out.append(dealt_axes)
            overflow.append(())
            continue
        room, n = sizes[f], 0
        while n < len(rest) and room % mesh[rest[n]] == 0:
            room //= mesh[rest[n]]
            n += 1
        out.append(rest[:n])
        rest = rest[n:]
        is_stuck = bool(rest) and room > 1
        overflow.append(rest if is_stuck else ())
    return out, overflow


def _join(
    tensor: tuple[Slot, ...],
    sizes: Sequence[int],
    axes: Sequence[Axes],
    overflow: Sequence[Axes],
    rank: int,
    mesh: Mapping[str, int],
) -> DimAxes:
    """The layout whose slots have these axes. A minor factor counts only if all factors above it in its dim are full."""
    dims: list[Axes] = [()] * rank
    full = True
    at = -1
    for (d, f, minor), taken, over in zip(tensor, axes, overflow, strict=True):
        if d != at:
            at, full = d, True
        if not full:
            continue
        dims[d] = dims[d] + taken + over
        full = not over and not minor and _product(mesh[a] for a in taken) == sizes[f]
    return tuple(dims)


# -- the step --------------------------------------------------------------------------------------


def extend(
    flow: FactorRule,
    level: int,
    dims: Sequence[DimAxes],
    closed: Sequence[tuple[bool, ...]],
    banned: Sequence[frozenset[str]],
    mesh: Mapping[str, int],
) -> list[tuple[int, DimAxes]]:
    """The tensors whose layout grows at this level, with the grown layout.

    `dims`, `closed` (per dim) and `banned` (axes that the tensor may not gain) have one entry per tensor, operands first.
    """
    slots: list[Sequence[Axes]] = list(dims)
    overflow: dict[int, list[Axes]] = {}
    for t, compound in enumerate(flow.compound):
        if compound:
            slots[t], overflow[t] = _deal(flow.slots[t], flow.sizes, dims[t], mesh)

    wanted_axes: dict[int, Axes] = {}
    arrivals: dict[int, tuple[Place, ...]] = {}
    for f, sources, others, places in flow.levels[level]:
        axes: Axes = ()
        grow = True
        for t, s in sources:
            here = slots[t][s]
            if here != axes:
                axes, grow = agree(axes, here, grow)
        if not axes:
            continue
        for t, s in others:
            here = slots[t][s]
            if here != axes:
                axes, _ = agree(axes, here, False)
        if axes:
            for t, s in places:
                if len(slots[t][s]) < len(axes):
                    wanted_axes[f] = axes
                    arrivals[f] = places
                    break
    if not wanted_axes:
        return []
    return _grow(flow, wanted_axes, arrivals, slots, overflow, dims, closed, banned, mesh)


def _precedence(
    flow: FactorRule, wanted: Mapping[int, Axes], slots: Sequence[Sequence[Axes]], mesh: Mapping[str, int]
) -> list[int]:
    """The factors in the order in which they claim axes: largest source tensor first."""
    keys: dict[int, tuple[int, int, int, int]] = {}
    for f, axes in wanted.items():
        size, source = -1, -1
        for t, slot_of in enumerate(flow.slot_of):
            if f in slot_of and slots[t][slot_of[f]][: len(axes)] == axes and flow.tensor_sizes[t] > size:
                size, source = flow.tensor_sizes[t], -1 if t == flow.rule.favored else t
        ways = _product(mesh[a] for a in axes) if flow.pointwise else 0
        keys[f] = (-size, -ways, source, f)
    return sorted(wanted, key=keys.__getitem__)


def _grow(
    flow: FactorRule,
    wanted: Mapping[int, Axes],
    arrivals: Mapping[int, tuple[Place, ...]],
    slots: list[Sequence[Axes]],
    overflow: Mapping[int, list[Axes]],
    dims: Sequence[DimAxes],
    closed: Sequence[tuple[bool, ...]],
    banned: Sequence[frozenset[str]],
    mesh: Mapping[str, int],
) -> list[tuple[int, DimAxes]]:
    order = _precedence(flow, wanted, slots, mesh) if len(wanted) > 1 else list(wanted)
    n_in, n = flow.num_inputs, len(flow.slots)
    new_layouts: list[tuple[int, DimAxes]] = []
    for t in (*range(n_in, n), *range(n_in)):
        slot_of = flow.slot_of[t]
        mine: list[Axes] | None = None
        for f in order:
            s = slot_of.get(f)
            if s is None or (t, s) not in arrivals[f]:
                continue
            now = slots[t] if mine is None else mine
            have, want = now[s], wanted[f]
            d, _, minor = flow.slots[t][s]
            if closed[t][d] or len(want) <= len(have) or want[: len(have)] != have:
                continue
            if t in overflow and any(overflow[t][k] for k, (e, _, _) in enumerate(flow.slots[t]) if e == d):
                continue
            gain = _fitting_axes(want, have, now, banned[t], overflow.get(t, ()), 0 if minor else flow.sizes[f], mesh)
            if t < n_in and flow.pointwise:  # an operand gains only axes that the result could take too
                for r in range(n_in, n):
                    result = slots[r][flow.slot_of[r][f]]
                    if len(result) < len(gain) and gain[: len(result)] == result:
                        gain = result
            if len(gain) > len(have):
                mine = list(now) if mine is None else mine
                mine[s] = gain
        if mine is None:
            continue
        slots[t] = mine
        new_layout = tuple(mine)
        if flow.compound[t]:
            new_layout = _join(flow.slots[t], flow.sizes, mine, overflow[t], len(dims[t]), mesh)
        if new_layout != dims[t]:
            new_layouts.append((t, new_layout))
    return new_layouts


def _fitting_axes(
    want: Axes,
    have: Axes,
    slots: Sequence[Axes],
    banned: frozenset[str],
    overflow: Sequence[Axes],
    size: int,
    mesh: Mapping[str, int],
) -> Axes:
    """The axes of `want` beyond `have` that the tensor can take; `size` is the factor's, or 0 if any number fits."""
    ways = _product(mesh[a] for a in have) if size else 1
    for k in range(len(have), len(want)):
        a = want[k]
        if a in banned or any(a in taken for taken in slots) or any(a in over for over in overflow):
            return want[:k]
        if size:
            ways *= mesh[a]
            if size % ways:
                return want[:k]
    return want
