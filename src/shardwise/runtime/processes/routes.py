"""`Route`: which process sends which part of an array to whom, so that each gets what a new layout gives it.

Comes in: the parts of an array that processes hold, and those that they want. Goes out: the messages between them, the same on every
process. Both ways to lay an array out anew over processes follow one: `relayout` inside a program, and `device_put` to other devices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray
from shardwise.runtime.processes.link import Link


@dataclass(frozen=True, slots=True)
class Message:
    """One message between two processes: `shared`, which lies in the part `held` of the sender and in the part `wanted` of the receiver.

    `place` is the message's number among those that the sender sends. Processes are counted as their link counts them.
    """

    sender: int
    receiver: int
    place: int
    held: Any
    wanted: Any
    shared: Any


class Route:
    """The messages of one process, and what all processes must know of them.

    Attributes:
        sends: those that it sends.
        takes: those that it gets.
        kept: moves inside the process, as messages to itself.
        fan: how many messages a process sends at most.
        shared: what is sent between any two processes.
    """

    __slots__ = ("fan", "kept", "sends", "shared", "takes")

    def __init__(
        self,
        have: Mapping[Any, Sequence[int]],
        want: Mapping[Any, Sequence[int]],
        common: Callable[[Any, Any], Hashable | None],
        me: int,
    ) -> None:
        """`have` and `want` give per part the processes that hold or want it; `common` is what two parts share, None for nothing.

        Who has a part already takes it from nobody; others take it from one of those that have it, by turns.
        """
        sent: dict[int, list[Message]] = {}
        self.kept: list[Message] = []
        for wanted, takers in want.items():
            for held, holders in have.items():
                shared = common(held, wanted)
                if shared is None:
                    continue
                for taker in takers:
                    if taker in holders:
                        if taker == me:
                            self.kept.append(Message(me, me, 0, held, wanted, shared))
                        continue
                    sender = holders[taker % len(holders)]
                    row = sent.setdefault(sender, [])
                    row.append(Message(sender, taker, len(row), held, wanted, shared))
        self.sends = sent.get(me, [])
        self.takes = [m for row in sent.values() for m in row if m.receiver == me]
        self.fan = max(map(len, sent.values()), default=0)
        self.shared = list(dict.fromkeys(m.shared for row in sent.values() for m in row))

    def exchange(
        self,
        link: Link,
        part: Callable[[Message], Ndarray],
        into: Callable[[Message], Ndarray],
        shapes: Sequence[tuple[int, ...]],
        itemsize: int,
        tag: int,
    ) -> None:
        """Send and take: `part` gives what a message carries, `into` where it arrives; `shapes` are those of all of `shared`."""
        sends = [(m.receiver, part(m)) for m in self.sends]
        takes = [(m.sender, m.place, into(m)) for m in self.takes]
        link.swap(sends, takes, self.fan, shapes, itemsize, tag)
