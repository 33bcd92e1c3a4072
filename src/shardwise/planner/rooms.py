"""Rooms: the memory of results that are not written yet, where temporaries lie until then.

A result of a program that takes no donated argument's memory has its own from the start. Compilers lend it to one temporary after the
other: large ones choose first, each takes the smallest room in which it fits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner.span import Span


@dataclass(slots=True)
class Room:
    """The memory of a result before it is written.

    Attributes:
        last: the last group before that.
        heir: the temporary that the result may be written over, element by element; None if there is none.
    """

    nbytes: int
    last: int
    heir: Span | None = None


def without_room(spans: Sequence[Span], rooms: Sequence[Room]) -> list[Span]:
    """The spans for which there is no room: those that need memory of their own."""
    rooms = sorted(rooms, key=lambda room: room.nbytes)
    sizes = [room.nbytes for room in rooms]
    there = {id(span) for span in spans}
    heirs = [
        r.heir if id(r.heir) in there and r.heir is not None and r.heir.nbytes <= r.nbytes else None for r in rooms
    ]
    lodgers = [[] if heir is None else [heir] for heir in heirs]
    lodged_ids = {id(heir) for heir in heirs}
    for span in sorted(spans, key=lambda span: -span.nbytes):
        if span.var is None or id(span) in lodged_ids:
            continue
        for i in range(bisect_left(sizes, span.nbytes), len(rooms)):
            if span.last <= rooms[i].last and all(
                span.last < other.first or other.last < span.first for other in lodgers[i]
            ):
                lodgers[i].append(span)
                lodged_ids.add(id(span))
                break
    return [span for span in spans if id(span) not in lodged_ids]
