"""Where devices that run one by one meet: a collective happens when every device of its group has called it.

Comes in: calls, each from one device. Goes out: results for all of a group at once, or an error that names two devices,
their calls and source lines when no device can go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardwise.base.dtypes import short_name
from shardwise.base.errors import DivergenceError
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray
from shardwise.ir.op import Op
from shardwise.ir.program import Source
from shardwise.runtime.exchange import Mapped, exchange

Place = frozenset[tuple[str, int]]  # mesh axis names with the device's coordinates


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """One device's call of a collective."""

    op: Op
    operands: tuple[Ndarray, ...]
    params: Mapping[str, Any]
    source: Source | None = None
    mapped: Mapped = ()  # the vmaps around it

    def matches(self, other: CollectiveCall) -> bool:
        """Whether both are the same collective on operands of the same type; source lines may differ."""
        return (
            self.op is other.op
            and dict(self.params) == dict(other.params)
            and self.mapped == other.mapped
            and [(x.shape, x.dtype) for x in self.operands] == [(x.shape, x.dtype) for x in other.operands]
        )

    def __str__(self) -> str:
        collective = self.op.collective
        assert collective is not None
        name = self.op.name if collective.called is None else collective.called(self.params)
        axes = ", ".join(repr(a) for a in self.params["axes"])
        extra = [f"{k}={self.params[k]}" for k in collective.told if self.params.get(k) is not None]
        shown = ", ".join(f"{short_name(x.dtype)}[{','.join(map(str, x.shape))}]" for x in self.operands)
        where = f" at {self.source[0]}:{self.source[1]}" if self.source else ""
        return f"{name} over {axes} of {shown}{' with ' + ', '.join(extra) if extra else ''}{where}"


class Rendezvous:
    """The calls that wait for their group to be complete."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.waiting: dict[Place, CollectiveCall] = {}
        self.ended: set[Place] = set()
        self.labels: dict[Place, str] = {}

    def group(self, place: Place, axes: Sequence[str]) -> list[Place]:
        """The devices that share a collective over `axes` with the one at `place`, in row-major order."""
        rest = frozenset(item for item in place if item[0] not in axes)
        ranges = [range(self.sizes[a]) for a in axes]
        return [rest | frozenset(zip(axes, at, strict=True)) for at in itertools.product(*ranges)]

    def arrive(self, place: Place, call: CollectiveCall) -> list[tuple[Place, Ndarray]]:
        """Let the device at `place` wait in `call`; if its group is complete, the results of all of it."""
        self.waiting[place] = call
        group = self.group(place, call.params["axes"])
        calls = [self.waiting.get(p) for p in group]
        if any(c is None or not c.matches(call) for c in calls):
            return []
        results = exchange(call.op, [c.operands for c in calls if c is not None], call.params, call.mapped)
        for p in group:
            del self.waiting[p]
        return list(zip(group, results, strict=True))

    def end(self, place: Place) -> None:
        """The device has returned from its function."""
        self.ended.add(place)

    def label(self, place: Place) -> str:
        """The device's name and coordinates, for messages."""
        known = self.labels.get(place)
        shown = coordinates_text((a, i) for a, i in place)
        return f"{known} at ({shown})" if known else f"the device at ({shown})"

    def stuck_error(self) -> DivergenceError:
        """Why nobody can go on: one device that waits, and one that it waits for."""
        first = min(self.waiting, key=self._order)
        call = self.waiting[first]
        other = next(
            p
            for p in self.group(first, call.params["axes"])
            if p not in self.waiting or not self.waiting[p].matches(call)
        )
        if other in self.waiting:
            does = f"is in {self.waiting[other]}"
        elif other in self.ended:
            does = "has returned from the function without calling it"
        else:
            does = "has not come to it and cannot: it waits for devices that never start"
        return DivergenceError(
            f"{self.label(first)} waits in {call}, but {self.label(other)} {does}. All devices of an axis must call the same "
            "collectives in the same order: let conditions that differ between devices choose values, not collectives."
        )

    def _order(self, place: Place) -> tuple[int, ...]:
        at = dict(place)
        return tuple(at.get(a, -1) for a in self.sizes)


def coordinates_text(items: Iterable[tuple[str, int]]) -> str:
    """``x=0, y=3``."""
    return ", ".join(f"{a}={i}" for a, i in sorted(items))
