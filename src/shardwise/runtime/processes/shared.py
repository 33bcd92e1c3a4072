"""A link through memory that the processes of one node share: they copy to and from it, in step.

Each process has a segment: a head and `DEPTH` slots. In round r it fills its slot ``r % DEPTH``, says so by writing r into its
head, waits until the others have, and reads their slots. Nobody writes where others read: what was shown in round r has been
read by whoever has come to round r + LATE. Large arrays go through the slots piece by piece, and slots are small enough to
stay in a processor's cache, so that main memory is read and written once.

A head also holds the tag of the exchange that its process has come for; slots are read only where all tags are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from shardwise.base.errors import JaxRuntimeError
from shardwise.base.shapes import Ndarray
from shardwise.runtime.memory import pool
from shardwise.runtime.monoids import MONOIDS
from shardwise.runtime.processes.link import Combine, combine_arrays, patiently, pieces
from shardwise.runtime.processes.sleeping import can_sleep, sleep_at, wake_at
from shardwise.runtime.processes.traffic import total_traffic

DEPTH = 6
LATE = 3
ROOM = 1 << 18  # bytes of a slot
CROWDED_ROOM = 1 << 20  # where each round means that processors change hands
_HEAD = 4096
_SPINS = 20000  # looks at a flag before the process sleeps: about a millisecond
_FEWEST_SPINS = 200  # where looking has been in vain, as on processors that others use, too
# After each so many waits in vain a process looks longer than it takes to wake another, or both would go on sleeping by turns.
_VAIN_WAITS, _ENOUGH_SPINS = 64, 4000
_WAITS_FOR = (
    64  # the place in a head of the process that its process sleeps for, counted from 1; apart from what others look at
)
_SLEEP = 0.01  # seconds at most between two looks of a process that sleeps
_SMALL = 1 << 14  # bytes that all-reduce shows to everybody at once
# Processors that keep the order of writes, and of reads.
_IN_ORDER = hasattr(os, "uname") and os.uname().machine in ("x86_64", "amd64", "i686")


class Owed(Protocol):
    """A meeting that takes place in the first round of an exchange."""

    number: int

    def arrive(self) -> None:
        """Told before the wait."""
        ...

    def begin(self) -> None:
        """Told after it, if all have come with the same number."""
        ...


class SharedLink:
    """The processes of one communicator, all on one node. `diverged` raises the error for tags that differ."""

    __slots__ = ("_broken", "_flags", "_head", "_others", "_round", "_segments", "_small", "_spins", "_vain_waits", "_window",
                 "_word", "diverged", "me", "most_spins", "owed", "room", "size")  # fmt: skip

    def __init__(self, window: Any, size: int, me: int, crowded: bool, diverged: Callable[[], Any]) -> None:
        self.size = size
        self.me = me
        self.room = _room(crowded)
        self.diverged = diverged
        self._window = window
        self._segments = [np.frombuffer(window.Shared_query(k)[0], np.uint8) for k in range(size)]
        heads = [memoryview(s[:_HEAD]).cast("q") for s in self._segments]  # type: ignore[arg-type]
        self._head = heads[me]
        self._others = [head for k, head in enumerate(heads) if k != me]
        self._flags = [(head, k + 1, self._segments[k].ctypes.data) for k, head in enumerate(heads) if k != me]
        self._word = self._segments[me].ctypes.data
        self._round = 0
        self._spins = self.most_spins = 0 if crowded else _SPINS
        self._vain_waits = 0
        self._small: dict[Any, list[tuple[Ndarray, list[Ndarray]]]] = {}
        self._broken = False
        self.owed: Owed | None = None  # a meeting that the next exchange is to be, too

    @staticmethod
    def bytes_needed(crowded: bool) -> int:
        """The size of a process's segment."""
        return _HEAD + DEPTH * _room(crowded)

    # -- rounds ----------------------------------------------------------------------------------------------------------

    def _wait(self, step: int) -> None:
        """Until all others have come to round `step`."""
        for head, place, word in self._flags:
            if head[0] < step:
                self._wait_for(head, place, word, step)
        if not _IN_ORDER:
            self._window.Sync()

    def _wait_for(self, head: memoryview, place: int, word: int, step: int) -> None:
        spins = self._spins if self._vain_waits % _VAIN_WAITS else max(self._spins, _ENOUGH_SPINS)
        for _ in range(min(spins, self.most_spins)):
            if head[0] >= step:
                self._spins = min(2 * spins, self.most_spins)
                return
        self._spins = max(self._spins // 2, _FEWEST_SPINS)
        self._vain_waits += 1
        if not can_sleep:
            patiently(lambda: head[0] >= step)
            return
        own = self._head
        own[_WAITS_FOR] = place
        try:
            while (value := head[0]) < step:
                sleep_at(word, value, _SLEEP)
        finally:
            own[_WAITS_FOR] = 0

    def _begin(self) -> int:
        """Start a round; its slot may be filled then. Gives the slot."""
        step = self._round = self._round + 1
        self._wait(step - DEPTH + LATE)
        return step % DEPTH

    def _show(self) -> int:
        """The slot is filled. Gives the round."""
        if not _IN_ORDER:
            self._window.Sync()
        step = self._head[0] = self._round
        place = self.me + 1
        for head in self._others:
            if head[_WAITS_FOR] == place:
                wake_at(self._word)
                break
        return step

    def _first(self, tag: int) -> int:
        """Like `_show` in the first round of an exchange; waits for all, and compares tags."""
        step, owed = self._round, self.owed
        if owed is not None:
            self.owed = None
            tag ^= owed.number
            owed.arrive()
        self._head[1 + step % DEPTH] = tag
        self._show()
        self._wait(step)
        if not self._alike(step, tag):
            self._broken = False
            self.diverged()
        if owed is not None:
            owed.begin()
        return step

    def _alike(self, step: int, tag: int) -> bool:
        at = 1 + step % DEPTH
        for head in self._others:  # noqa: SIM110  on every path, and quicker than all()
            if head[at] != tag:
                return False
        return True

    def _enter(self) -> None:
        """Nothing can be exchanged after an exchange that was left in the middle."""
        if self._broken:
            raise JaxRuntimeError(
                "an exchange between processes was interrupted in the middle, so that they no longer know what the others hold. "
                "Start the job anew."
            )
        self._broken = True

    def _slot(self, k: int, slot: int, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> Ndarray:
        """Process k's slot as an array."""
        return np.ndarray(shape, dtype, self._segments[k], _HEAD + slot * self.room + offset)  # type: ignore[arg-type]

    # -- exchanges -------------------------------------------------------------------------------------------------------

    def meet(self, number: int) -> bool:
        """Wait for all processes; whether all came with this number."""
        self._enter()
        self._begin()
        step = self._round
        self._head[1 + step % DEPTH] = number
        self._show()
        self._wait(step)
        self._broken = False
        return self._alike(step, number)

    def all_reduce(self, x: Ndarray, kind: str, tag: int, *more: Ndarray) -> Ndarray:
        """The reduction of everybody's contiguous `x` and `more` of its kind."""
        total_traffic.add("all_reduce", 2 * (self.size - 1) * x.nbytes // self.size)
        combine = MONOIDS[kind].merger(x.dtype)
        if x.nbytes <= _SMALL:
            if more:
                own = np.empty_like(x)
                combine_arrays(combine, (x, *more), own)
                x = own
            return self._reduce_small(x, combine, tag)
        out = pool.empty(x.shape, x.dtype)
        self._reduce_large([y.reshape(-1) for y in (x, *more)], out.reshape(-1), combine, tag)
        return out

    def _reduce_small(self, x: Ndarray, combine: Combine, tag: int) -> Ndarray:
        self._enter()
        key = (x.shape, x.dtype)
        views = self._small.get(key)
        if views is None:
            if len(self._small) > 256:
                self._small.clear()
            views = self._small[key] = [
                (self._slot(self.me, s, *key), [self._slot(k, s, *key) for k in range(self.size)]) for s in range(DEPTH)
            ]
        mine, shown = views[self._begin()]
        mine[...] = x
        self._first(tag)
        out = np.asarray(combine(shown[0], shown[1]), x.dtype)
        for other in shown[2:]:
            out = np.asarray(combine(out, other), x.dtype)
        self._broken = False
        return out

    def _reduce_large(self, given: Sequence[Ndarray], out: Ndarray, combine: Combine, tag: int) -> None:
        """Of each piece every process reduces one part, and shows it.

        `given` are this process's own arrays, which it reduces as it shows them.

        Three things go on at a time: piece j is shown, piece j - 1 reduced, and what came of piece j - 2 copied.
        """
        self._enter()
        n, me, dtype, total = self.size, self.me, out.dtype, out.size
        x = given[0] if len(given) == 1 else None
        length = self.room // dtype.itemsize
        count = -(-total // length)
        shown: list[tuple[int, int]] = []  # round and slot by piece
        reduced: list[tuple[int, int]] = []
        first = True
        for j in range(count + 2):
            if j < count:
                start, stop = j * length, min((j + 1) * length, total)
                part = -(-(stop - start) // n)
                low, high = min(start + me * part, stop), min(start + (me + 1) * part, stop)
                slot = self._begin()
                view = self._slot(me, slot, (stop - start,), dtype)
                if x is None:
                    combine_arrays(combine, [y[start:stop] for y in given], view)
                else:
                    view[: low - start] = x[start:low]  # nobody else needs the own part
                    view[high - start :] = x[high:stop]
                shown.append((self._first(tag) if first else self._show(), slot))
                first = False
            if 0 <= j - 2 < count:
                start, stop = (j - 2) * length, min((j - 1) * length, total)
                part = -(-(stop - start) // n)
                step, slot = reduced[j - 2]
                self._wait(step)
                for k in range(n):
                    low, high = min(start + k * part, stop), min(start + (k + 1) * part, stop)
                    if k != me and low < high:
                        out[low:high] = self._slot(k, slot, (high - low,), dtype)
            if 0 <= j - 1 < count:
                start, stop = (j - 1) * length, min(j * length, total)
                part = -(-(stop - start) // n)
                low, high = min(start + me * part, stop), min(start + (me + 1) * part, stop)
                step, slot = shown[j - 1]
                self._wait(step)
                into = out[low:high]
                sources = (
                    [
                        x[low:high]
                        if k == me and x is not None
                        else self._slot(k, slot, (high - low,), dtype, (low - start) * dtype.itemsize)
                        for k in range(n)
                    ]
                    if low < high
                    else []
                )
                if sources:
                    combine_arrays(combine, sources, into)
                slot = self._begin()
                if sources:
                    self._slot(me, slot, (high - low,), dtype)[...] = into
                reduced.append((self._show(), slot))
        self._broken = False

    def reduce_scatter(self, parts: Sequence[Ndarray], out: Ndarray, kind: str, tag: int) -> None:
        """Into `out` the reduction of everybody's part for this process."""
        total_traffic.add("reduce_scatter", sum(p.nbytes for k, p in enumerate(parts) if k != self.me))
        self._enter()
        combine, me, dtype = MONOIDS[kind].merger(out.dtype), self.me, out.dtype
        room = self.room // self.size // 64 * 64
        cuts = [pieces(p.shape, dtype.itemsize, room) for p in parts]
        mine = cuts[me]
        for j in range(max(1, *(c.count for c in cuts))):
            slot = self._begin()
            for k, cut in enumerate(cuts):
                if k != me and j < cut.count:
                    piece = parts[k][cut[j]]
                    self._slot(me, slot, piece.shape, dtype, k * room)[...] = piece
            if j:
                self._wait(self._show())
            else:
                self._first(tag)
            if j < mine.count:
                at = mine[j]
                into, own = out[at], parts[me][at]
                given = [
                    own if k == me else self._slot(k, slot, into.shape, dtype, me * room) for k in range(self.size)
                ]
                combine_arrays(combine, given, into)
        self._broken = False

    def all_gather(self, x: Ndarray, takes: Sequence[Ndarray], tag: int) -> None:
        """Into ``takes[k]`` the `x` of process k."""
        total_traffic.add("all_gather", x.nbytes * (self.size - 1))
        self._enter()
        me, dtype = self.me, x.dtype
        cuts = [pieces(t.shape, dtype.itemsize, self.room) for t in takes]
        for j in range(max(1, *(c.count for c in cuts))):
            slot = self._begin()
            if j < cuts[me].count:
                piece = x[cuts[me][j]]
                self._slot(me, slot, piece.shape, dtype)[...] = piece
            if j:
                step = self._show()
            else:
                step = self._first(tag)
            if j < cuts[me].count:
                takes[me][cuts[me][j]] = x[cuts[me][j]]
            self._wait(step)
            for k, cut in enumerate(cuts):
                if k != me and j < cut.count:
                    into = takes[k][cut[j]]
                    into[...] = self._slot(k, slot, into.shape, dtype)
        self._broken = False

    def swap(
        self,
        sends: Sequence[tuple[int, Ndarray]],
        takes: Sequence[tuple[int, int, Ndarray]],
        fan: int,
        largest: Sequence[tuple[int, ...]],
        itemsize: int,
        tag: int,
    ) -> None:
        """Messages between pairs of processes."""
        total_traffic.add("exchange", sum(x.nbytes for _, x in sends))
        self._enter()
        me = self.me
        room = self.room // max(fan, 1) // 64 * 64
        rounds = max((pieces(shape, itemsize, room).count for shape in largest), default=0)
        out = [(x, pieces(x.shape, itemsize, room)) for _, x in sends]
        into = [(k, place, take, pieces(take.shape, itemsize, room)) for k, place, take in takes]
        for j in range(max(1, rounds)):
            slot = self._begin()
            for place, (x, cut) in enumerate(out):
                if j < cut.count:
                    piece = x[cut[j]]
                    self._slot(me, slot, piece.shape, x.dtype, place * room)[...] = piece
            if j:
                self._wait(self._show())
            else:
                self._first(tag)
            for k, place, take, cut in into:
                if j < cut.count:
                    piece = take[cut[j]]
                    piece[...] = self._slot(k, slot, piece.shape, take.dtype, place * room)
        self._broken = False


def _room(crowded: bool) -> int:
    return CROWDED_ROOM if crowded else ROOM


def crowd(own: Sequence[set[int]]) -> bool:
    """Whether processes that may run on these processors are more than those."""
    return len(set().union(*own)) < len(own)


def processors() -> set[int]:
    """The processors on which this process may run."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # not on every system
        return set(range(os.cpu_count() or 1))


def has_shared_memory(size: int) -> bool:
    """Whether the system has `size` bytes of shared memory and more, as far as it tells."""
    try:
        system = os.statvfs("/dev/shm")
    except (AttributeError, OSError):  # not on every system
        return True
    return system.f_bavail * system.f_frsize > 4 * size
