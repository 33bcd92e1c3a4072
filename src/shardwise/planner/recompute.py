"""The choice between storing cheap values and recomputing them at each use.

A light value with one reader is part of it. One with several is recomputed in each of them if that takes no more memory than the value:
its inputs are alive at the last reader anyway, or are smaller. So an activation's derivative is computed
in the backward pass from the activation's operand, which the chain rule needs there in any case, as XLA does by fusing producers
into all their consumers. Values whose computation takes longer than writing and reading them are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Atom, Var
from shardwise.planner.roles import Role, cost_of
from shardwise.planner.target import Target
from shardwise.planner.values import Values

MOST_READERS = 8  # values with more readers are stored: each reader would grow
MOST_LEAVES = 12  # operands of a fused kernel
_NONE: frozenset[Var] = frozenset()
_NOBODY: Sequence[int] = ()


@dataclass(slots=True)
class Chosen:
    """The decision for each cheap value of a program.

    Attributes:
        stored: the roots that lie in memory.
        cones: per light value that is not stored the positions of the equations that compute it from stored ones.
        leaves: those stored values.
        moved: those of them whose elements are read at other positions than the result's.
        shared: by position, whether a chain of light equations from there on has several readers, as far as computed.
    """

    stored: set[Var]
    cones: dict[Var, frozenset[int]] = field(default_factory=dict[Var, frozenset[int]])
    leaves: dict[Var, tuple[Var, ...]] = field(default_factory=dict[Var, tuple[Var, ...]])
    moved: dict[Atom, frozenset[Var]] = field(default_factory=dict[Atom, frozenset[Var]])
    shared: dict[int, bool] = field(default_factory=dict[int, bool])


def choose_stored(values: Values, target: Target) -> Chosen:
    """Decide for every light value whether it is stored."""
    last = _last_readers(values)
    chosen = Chosen(set(values.stored))
    costs: dict[Var, float] = {}
    for i, eqn in enumerate(values.program.equations):
        piece = values.pieces.get(i)
        if piece is not None and eqn.outputs[0] not in chosen.stored:
            chosen.stored.add(piece)
            chosen.leaves[eqn.outputs[0]], chosen.cones[eqn.outputs[0]] = (*values.reads[i], piece), frozenset()
            chosen.moved[eqn.outputs[0]] = frozenset(values.reads[i])
            costs[eqn.outputs[0]] = 0.0
            continue
        if values.roles[i] is not Role.LIGHT:
            chosen.stored.update(eqn.outputs)
            continue
        if chosen.stored.issuperset(eqn.outputs):
            continue
        leaves, cone, cost = _cone_of(values, chosen, costs, i)
        for var in eqn.outputs:
            if var in chosen.stored:
                continue
            if len(leaves) <= MOST_LEAVES and _is_computed_again(values, chosen, target, var, leaves, cone, cost, last):
                chosen.leaves[var], chosen.cones[var], costs[var] = leaves, cone, cost
                moved_values = moved_operands(values, chosen, i)
                if moved_values:
                    chosen.moved[var] = moved_values
            else:
                chosen.stored.add(var)
    return chosen


def moved_operands(values: Values, chosen: Chosen, i: int) -> frozenset[Var]:
    """The stored values that equation `i`, or its cone, reads at other positions than it writes."""
    eqn = values.program.equations[i]
    op = eqn.op
    elsewhere = op.emit is None and op.fold is None and (op.boxes is not None or op.rule is not None)
    roots, turned_views, moved_values = values.roots, values.turned, chosen.moved
    if not elsewhere and moved_values.keys().isdisjoint(values.reads[i]) and turned_views.isdisjoint(eqn.inputs):
        return _NONE
    operands: set[Var] = set()
    for atom in eqn.inputs:
        root = roots.get(atom, atom)
        if elsewhere or atom in turned_views:
            if isinstance(root, Var):
                operands.update(chosen.leaves.get(root, (root,)))
        elif root in moved_values:
            operands |= moved_values[root]
    return frozenset(operands) if operands else _NONE


def _last_readers(values: Values) -> dict[Var, int]:
    """The position of the last reader of each root, also through light values."""
    last: dict[Var, int] = {}
    roles, equations, stored_roots, reads = values.roles, values.program.equations, values.stored, values.reads
    for i in range(len(values.roles) - 1, -1, -1):
        reach = i
        if roles[i] is Role.LIGHT:
            outs = equations[i].outputs
            if len(outs) != 1:
                reach = max([last.get(out, i) for out in outs if out not in stored_roots], default=i)
            elif outs[0] not in stored_roots:
                reach = last.get(outs[0], i)
        for var in reads[i]:
            if last.get(var, -1) < reach:
                last[var] = reach
    return last


def _cone_of(
    values: Values, chosen: Chosen, costs: dict[Var, float], i: int
) -> tuple[tuple[Var, ...], frozenset[int], float]:
    """The inputs of a recomputation of equation `i`: stored values, the equations to repeat, and the cost per element."""
    eqn = values.program.equations[i]
    size = max(eqn.outputs[0].aval.size, 1)
    cost = float(cost_of(eqn))
    reads, cones = values.reads[i], chosen.cones
    if cones.keys().isdisjoint(reads):
        return reads, frozenset((i,)), cost
    leaves: dict[Var, None] = {}
    cone = frozenset((i,))
    for var in reads:
        if var in cones:
            leaves.update(dict.fromkeys(chosen.leaves[var]))
            cone |= cones[var]
            cost += costs[var] * min(1.0, var.aval.size / size)
        else:
            leaves[var] = None
    return tuple(leaves), cone, cost


def _is_computed_again(
    values: Values,
    chosen: Chosen,
    target: Target,
    var: Var,
    leaves: tuple[Var, ...],
    cone: frozenset[int],
    cost: float,
    last: dict[Var, int],
) -> bool:
    """Whether `var`, which need not be stored, is computed by each of its readers."""
    users = values.users.get(var, _NOBODY)
    nbytes = var.aval.nbytes
    if len(users) <= 1:
        # The only reader decides, unless its result is larger.
        reader = values.program.equations[users[0]] if users else None
        if reader is None or values.roles[users[0]] is not Role.LIGHT:
            return True
        if reader.outputs[0].aval.nbytes <= nbytes or not _is_shared(values, chosen, users[0]):
            return True
    if not target.duplicates or len(users) > MOST_READERS:
        return not leaves and cost <= target.cost_limit
    if cost > target.cost_limit * var.aval.itemsize:
        return False
    needed_bytes = sum(
        leaf.aval.nbytes for leaf in leaves if not _is_there_until(values, chosen, leaf, cone, last.get(var, -1), last)
    )
    return needed_bytes < nbytes


def _is_shared(values: Values, chosen: Chosen, i: int) -> bool:
    """Whether a chain of light equations from `i` on has several readers somewhere."""
    chain: list[int] = []
    has_sharers = False
    while i not in chosen.shared:
        chain.append(i)
        if values.roles[i] is not Role.LIGHT:
            break
        outs = [v for v in values.program.equations[i].outputs if v not in values.stored]
        users = [u for out in outs for u in values.users.get(out, ())]
        if len(users) != 1:
            has_sharers = len(users) > 1
            break
        i = users[0]
    else:
        has_sharers = chosen.shared[i]
    chosen.shared.update(dict.fromkeys(chain, has_sharers))
    return has_sharers


def _is_there_until(
    values: Values, chosen: Chosen, leaf: Var, cone: frozenset[int], position: int, last: dict[Var, int]
) -> bool:
    """Whether other readers keep a stored value in memory until `position`."""
    if leaf not in values.makers:  # an argument, a carry, a row of a stacked array
        return True
    for i in values.users.get(leaf, ()):
        if i in cone:
            continue
        outs = values.program.equations[i].outputs if values.roles[i] is Role.LIGHT else ()
        if max([i, *(last.get(out, i) for out in outs if out not in chosen.stored)]) >= position:
            return True
    return leaf in values.stored and any(leaf is a for a in values.outputs)
