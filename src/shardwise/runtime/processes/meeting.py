"""`Meeting`: what processes do together, which they compare before any data moves.

Comes in: who takes part, a number that stands for what they are about to do, and a function that exchanges data. Goes out: what it
returns, once all have come for the same; else the error of `World._raise_divergence`. A process's threads take turns: a meeting ends
with all of its exchanges before the next one begins, so that processes whose threads come in different orders are told of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shardwise.runtime.processes.divergence import Evidence
from shardwise.runtime.processes.link import Link
from shardwise.runtime.processes.shared import SharedLink

if TYPE_CHECKING:
    from shardwise.runtime.processes.comm import World

BUSY: tuple[str, tuple[int, ...], int] = ("busy", (), 0)  # the place of a process that waits for nobody


class Meeting:
    """One thing that processes do together, again and again: they wait for each other and compare what they have come for.

    Where `early` is true the first thing that follows is an exchange between the same processes; if their link compares tags
    that exchange is the meeting.
    """

    __slots__ = ("_describe", "_early", "_evidence", "_link", "number", "ranks", "world")

    def __init__(
        self,
        world: World,
        ranks: tuple[int, ...],
        number: int,
        describe: Callable[[], str],
        early: bool = False,
        evidence: Callable[[], Evidence] | None = None,
    ) -> None:
        self.world = world
        self.ranks = ranks
        self.number = number
        self._describe = describe
        self._early = early
        self._evidence = evidence
        self._link: Link | None = None

    def arrive(self) -> None:
        """From now on this process waits for the others."""
        world, ranks = self.world, self.ranks
        step = world._steps[ranks] = world._steps.get(ranks, 0) + 1
        world._doing = world.last = self._describe
        world._evidence = self._evidence
        world._place = ("meets", ranks, step)
        world._since = time.monotonic()

    def begin(self) -> None:
        """All have come; they begin to exchange."""
        world = self.world
        world._place = ("exchanges", self.ranks, world._steps[self.ranks])
        world._since = time.monotonic()

    def _connect(self) -> Link:
        """The link between the processes, which the first of them to ask for it may have to wait for."""
        world = self.world
        world._doing, world._place = self._describe, ("meets", self.ranks, 0)
        world._since = time.monotonic()
        link = self._link = world.link(self.ranks)
        world._since = None
        world._place = BUSY
        return link

    def meet(self) -> None:
        """Wait for the others. DivergenceError if one of them has come for something else."""
        world = self.world
        with world.turn:
            link = self._link or self._connect()
            self.arrive()
            agreed = link.meet(self.number)
            world._since = None
            world._place = BUSY
            if not agreed:
                world._raise_divergence(self.ranks, world.group(self.ranks), self._describe, self._evidence)

    def exchange(self, run: Callable[..., Any], blocks: Sequence[Any]) -> Any:
        """Meet, then `run(*blocks)`, which exchanges data with the others."""
        with self.world.turn:
            return self._exchange(run, blocks)

    def _exchange(self, run: Callable[..., Any], blocks: Sequence[Any]) -> Any:
        world, link = self.world, self._link or self._connect()
        early = self._early and isinstance(link, SharedLink)
        if early:
            before, link.owed = link.owed, self  # type: ignore[union-attr]
        else:
            self.meet()
            self.begin()
        try:
            return run(*blocks)
        finally:
            if early:
                link.owed = before  # type: ignore[union-attr]
            world._since = None
            world._place = BUSY
