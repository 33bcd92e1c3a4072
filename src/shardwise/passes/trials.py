"""Ways to partition one equation, tried side by side: the one that sends the fewest bytes is taken, or the one for a single memory.

Comes in: a region and the ways, functions that partition the region's current equation. Goes out: the region with the equations and
values of the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from shardwise.ir import Atom, Program
from shardwise.passes.transfers import transfer_cost
from shardwise.runtime import costs

if TYPE_CHECKING:
    from shardwise.passes.partition import Region

_LEARNED = ("values", "views", "steady", "windows", "moves")  # what a way adds to a region besides equations


def take_cheapest(region: Region, ways: Sequence[Callable[[Region], None]]) -> None:
    """Partition the current equation in the best of these ways; the first one wins ties."""
    if len(ways) == 1:
        return ways[0](region)
    trials: list[tuple[float, Region]] = []
    for way in ways:
        own: dict[str, Any] = {name: getattr(region, name).copy() for name in _LEARNED}
        trial = region.with_fields(equations=[], **own)
        way(trial)
        trials.append((_cost(trial), trial))
    trials.sort(key=lambda sent_by: sent_by[0])
    (least, best), (more, other), *_ = trials
    if least < more <= costs.CLOSE_CALL * least:
        region.known.close_calls += 1
        best = other if region.known.takes_seconds else best
    region.equations += best.equations
    for name in _LEARNED:
        getattr(region, name).update(getattr(best, name))


def take_apart(
    region: Region, operand: Atom, together: Callable[[Region], None], ways: Sequence[Callable[[Region], None]]
) -> None:
    """Partition the current equation, of an op that does less on a whole operand than on parts, in the best of the `ways` for devices
    apart. Where all parts lie in one memory, it is partitioned `together`, which gathers them: mostly a view there. Few elements in many
    parts stay apart: small programs put together no more parts.
    """
    parts = prod(region.sizes_of([a for axes in region.layout(operand) or () for a in axes]))
    if parts <= costs.SMALL_BOXES or operand.aval.size > costs.SMALL_LARGEST:
        if region.known.together:
            return together(region)
        region.known.apart += 1
    take_cheapest(region, ways)


def _cost(trial: Region) -> float:
    """The cost of a trial's transfers (`transfer_cost`), in all rounds; `passes.hoist` takes steady ones out of the loop."""
    total = 0.0
    for eqn in trial.equations:
        sent = transfer_cost(Program((), (eqn,), ()), trial.grid)
        total += sent if sent and trial.steady.issuperset(eqn.outputs) else sent * trial.rounds
    return total
