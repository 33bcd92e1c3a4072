"""Ways to partition one equation, tried side by side: the one that sends the fewest bytes is taken.

Comes in: a region and the ways, functions that partition the region's current equation. Goes out: the region with the equations and
values of the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shardwise.ir import Program
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


def _cost(trial: Region) -> float:
    """The cost of a trial's transfers (`transfer_cost`), in all rounds; `passes.hoist` takes steady ones out of the loop."""
    total = 0.0
    for eqn in trial.equations:
        cost = transfer_cost(Program((), (eqn,), ()), trial.grid)
        total += cost if cost and trial.steady.issuperset(eqn.outputs) else cost * trial.rounds
    return total
