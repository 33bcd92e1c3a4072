"""Threads of which one runs at a time: each device has one, and passes the baton on when it waits in a collective.

Comes in: runners that are ready. Goes out: the order in which they run, or the error that ends them all: the first
exception of a runner, or a deadlock.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from shardwise.runtime.rendezvous import Place, Rendezvous


class DeviceStopped(BaseException):
    """Unwinds a device's thread after another one has failed."""


class Runner:
    """A thread that can be told to go on: a device's, or the one that called shard_map."""

    def __init__(self) -> None:
        self.result: Any = None  # of the collective it waited in
        self._wake = threading.Lock()
        self._wake.acquire()

    def resume(self) -> None:
        """Let the thread go on."""
        self._wake.release()

    def pause(self) -> None:
        """Wait to be resumed."""
        self._wake.acquire()


class Crew:
    """All devices of one outermost call. Only one thread runs at a time, so nothing here needs a lock."""

    def __init__(self) -> None:
        self.rendezvous = Rendezvous({})
        self.workers: dict[Place, Runner] = {}
        self.ready: deque[Runner] = deque()
        self.error: BaseException | None = None

    def pass_on(self) -> None:
        """Resume the next runner; if all wait in collectives that never complete, end them all with an error."""
        if not self.ready:
            self.fail(self.rendezvous.stuck_error())
        self.ready.popleft().resume()

    def fail(self, error: BaseException) -> None:
        """Remember the first error, and let waiting devices unwind."""
        if self.error is None:
            self.error = error
        self.ready.extend(self.workers[place] for place in self.rendezvous.waiting)
        self.rendezvous.waiting.clear()


class SteppedCall:
    """The devices of one shard_map call and what they return."""

    def __init__(self, parent: Runner, size: int) -> None:
        self.parent = parent
        self.running = size
        self.results: list[Any] = [None] * size  # (leaves, tree) per device
