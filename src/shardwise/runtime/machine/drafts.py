"""Machine code that was made fast is replaced, where it is called often, by code that runs fast.

Comes in: a draft (`MachineCode` behind switches), and what makes better code of the same module. A thread looks at the drafts'
counts, more and more rarely, and ends when no draft is left. Most kernels of short programs are never called so often.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from weakref import ref

from shardwise.runtime.machine.machine_code import LoadedCode, MachineCode
from shardwise.runtime.machine.threads import process_ends, start_thread

_SOONEST, _LATEST = 0.02, 0.3  # seconds between looks at the counts
_SAVED = 40_000  # nanoseconds of LLVM for a line of a module, most of which a draft saves
_FEWEST, _MOST = 2, 16  # calls of a draft: other calls of a program may share it; and the thread has little to look at

Improve = Callable[[], LoadedCode | None]


def calls_that_pay(ir: str, slower: float) -> int:
    """For how many calls a draft of a module is good enough, if each takes `slower` nanoseconds longer; 0: it does not pay."""
    calls = min(_MOST, _SAVED * ir.count("\n") / max(slower, 1))
    return int(calls) if calls >= _FEWEST else 0


class Drafts:
    """Drafts that wait for better code; in a forked child, those of the parent wait for the child's first one."""

    def __init__(self) -> None:
        self.working = threading.RLock()  # held while better code is made: a child finds LLVM at rest
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._waiting: list[tuple[ref[MachineCode], Improve]] = []
        self._pause = _SOONEST
        self._running = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._begin_anew)
        atexit.register(self._stop)  # LLVM must not be at work when its library ends

    def watch(self, code: MachineCode, improve: Improve) -> None:
        """Replace `code` by what `improve` gives, in a thread of ours, once it was called as often as it counts."""
        with self._lock:
            self._waiting.append((ref(code), improve))
            self._pause = _SOONEST
            if not self._running and not self.ending:
                self._running = start_thread(self._work)

    def take(self, code: MachineCode) -> bool:
        """Whether a draft waits, which it then does no more: the caller improves it."""
        with self._lock:
            left = [w for w in self._waiting if w[0]() is not code]
            found = len(left) < len(self._waiting)
            self._waiting = left
        return found

    def settle(self) -> None:
        """Replace all drafts that wait, as after many calls."""
        with self._lock:
            waiting = list(self._waiting)
        for code, improve in waiting:
            self._improve(code(), improve)

    @property
    def ending(self) -> bool:
        """Whether the process ends, so that nothing is improved any more."""
        return self._end.is_set()

    def _work(self) -> None:
        while not self._end.wait(self._pause):
            with self._lock:
                self._pause = min(2 * self._pause, _LATEST)
                self._waiting = [w for w in self._waiting if w[0]() is not None]
                self._running = bool(self._waiting)
                often = [w for w in self._waiting if (c := w[0]()) is not None and c.calls_left() <= 0]
            if not self._running:
                return
            for code, improve in often:
                self._improve(code(), improve)

    def _improve(self, code: MachineCode | None, improve: Improve) -> None:
        if code is None or self.ending or not self.take(code):
            return
        with contextlib.suppress(RuntimeError, OSError, MemoryError):  # the draft stays
            better = improve()
            if better is not None:
                code.give_way(better)

    def _stop(self) -> None:
        if not process_ends():
            return
        self._end.set()
        with self.working:
            pass

    def _hold(self) -> None:
        self.working.acquire()
        self._lock.acquire()

    def _release(self) -> None:
        self._lock.release()
        self.working.release()

    def _begin_anew(self) -> None:
        self._running = False
        ending, self._end = self.ending, threading.Event()  # the thread of the parent may have held the old one's lock
        if ending:
            self._end.set()
        self._release()


drafts = Drafts()


def settle_drafts() -> None:
    """Let all code run as it does after many calls, for who measures it."""
    drafts.settle()
