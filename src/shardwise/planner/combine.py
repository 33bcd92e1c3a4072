"""Combined reductions: sums over devices that do not wait for each other, as one collective.

XLA joins all-reduces of one type, up to a limit of bytes, to pay the latency once. All operands stay in memory until the last one is
computed: with a high limit, the gradients of a whole model.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import field, replace

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Atom, Equation, unwrap_op
from shardwise.planner.order import dependences
from shardwise.planner.target import Target
from shardwise.planner.work import Group


def with_combined_reductions(groups: Sequence[Group], target: Target) -> tuple[Group, ...]:
    """The groups with reductions joined, in an order in which they can run."""
    if not target.combine_bytes:
        return tuple(groups)
    bundles: list[_Bundle] = []
    open_bundles: dict[object, _Bundle] = {}  # open bundles, by type
    for g, group in enumerate(groups):
        awaited_bundles = {
            kind: bundle for kind, bundle in open_bundles.items() if not bundle.behind.isdisjoint(group.reads)
        }
        if group.kind == "collective" and _is_reduction(group.equations[-1]):
            kind, nbytes = _type(group), sum(v.aval.nbytes for v in group.reads)
            for other in awaited_bundles:  # its operands are complete: otherwise two bundles could wait for each other
                del open_bundles[other]
            bundle = open_bundles.get(kind)
            if bundle is None or nbytes > bundle.room:
                bundle = open_bundles[kind] = _Bundle(target.combine_bytes)
                bundles.append(bundle)
            bundle.members.append(g)
            bundle.behind.update(group.writes)
            bundle.room -= nbytes
        else:
            for bundle in awaited_bundles.values():
                bundle.behind.update(group.writes)
    return _join_bundles(groups, [b.members for b in bundles if len(b.members) > 1])


@dataclass(slots=True)
class _Bundle:
    """Reductions that one collective performs.

    Attributes:
        room: the bytes that it may still add.
        members: the positions of their groups.
        behind: values that depend on them.
    """

    room: int
    members: list[int] = field(default_factory=list[int])
    behind: set[Atom] = field(default_factory=set[Atom])


def _is_reduction(eqn: Equation) -> bool:
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    return (
        op.collective is not None and op.collective.absorbed is not None and op.collective.absorbed(params) is not None
    )


def _type(group: Group) -> object:
    eqn = group.equations[-1]
    return eqn.inputs[0].aval.dtype, eqn.params.get("axes")


def _join_bundles(groups: Sequence[Group], bundles: list[list[int]]) -> tuple[Group, ...]:
    """The groups with each bundle merged, in the place of its last member; readers follow it."""
    placed_groups: list[Group | None] = list(groups)
    for bundle in bundles:
        parts = [groups[g] for g in bundle]
        for g in bundle:
            placed_groups[g] = None
        placed_groups[bundle[-1]] = replace(
            parts[-1],
            equations=tuple(e for p in parts for e in p.equations),
            reads=tuple(dict.fromkeys(v for p in parts for v in p.reads)),
            writes=tuple(v for p in parts for v in p.writes),
            scratch=sum(p.scratch for p in parts),
        )
    return _runnable([g for g in placed_groups if g is not None])


def _runnable(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups in topological order, as near to the given order as possible."""
    waits, readers = dependences(groups)
    ready = [g for g, count in enumerate(waits) if count == 0]
    order: list[Group] = []
    while ready:
        g = heapq.heappop(ready)
        order.append(groups[g])
        for r in {r for v in groups[g].writes for r in readers.get(v, ())}:
            waits[r] -= 1
            if waits[r] == 0:
                heapq.heappush(ready, r)
    return tuple(order)
