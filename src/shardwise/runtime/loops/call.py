"""Compiled functions and what they are run on.

`Call` is one with its job, run on addresses by as many threads as pay; `Calls` several in a row, with memory of their own; `Loop`
one that is called with arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.loops.function import Function, Kernel
from shardwise.runtime.machine.standby import standby
from shardwise.runtime.machine.threads import thread_count
from shardwise.runtime.memory import pool

_COUNTERS = ctypes.c_int64 * 2  # units that were taken, and threads that came


class Call:
    """A kernel, its job (64-bit integers), how many pointers it takes, and by how many threads it is run."""

    __slots__ = ("_job_at", "_pointers", "job", "kernel", "threads")

    def __init__(
        self,
        kernel: Kernel,
        job: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]],
        pointers: int,
        threads: int = 1,
    ) -> None:
        self.kernel = kernel
        words = ctypes.c_int64 * len(job)
        self.job = words.from_buffer_copy(job.data) if isinstance(job, np.ndarray) else words(*job)
        self.threads = threads
        self._job_at = ctypes.addressof(self.job)
        self._pointers = ctypes.c_void_p * pointers

    @property
    def job_at(self) -> int:
        """The job's address."""
        return self._job_at

    def __call__(self, *addresses: int, rouse: bool = True) -> None:
        """Run it on what lies at these addresses, and wait."""
        pointers, counters = self._pointers(*addresses), _COUNTERS()
        standby.run(
            self.kernel, self._job_at, ctypes.addressof(pointers), ctypes.addressof(counters), self.threads, rouse
        )


class Calls:
    """Calls on the same addresses, one after the other. They share `bytes` of memory, at whose `offsets` more pointers point."""

    __slots__ = ("_spare", "bytes", "calls", "offsets")

    def __init__(self, calls: Sequence[Call], bytes: int = 0, offsets: Sequence[int] = ()) -> None:
        self.calls = tuple(calls)
        self.bytes = bytes
        self.offsets = tuple(offsets)
        self._spare: list[np.ndarray[Any, Any]] = []  # a little is kept from call to call

    @property
    def run(self) -> Callable[..., None]:
        """What runs them: the call itself, if there is one that needs no memory."""
        return self.calls[0] if len(self.calls) == 1 and not self.bytes else self

    def __call__(self, *addresses: int) -> None:
        """Run them on what lies at these addresses, and wait."""
        if not self.bytes:
            for call in self.calls:
                call(*addresses)
            return
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = pool.empty((self.bytes,), np.uint8)
        start = address(memory)
        for call in self.calls:
            call(*addresses, *[start + offset for offset in self.offsets])
        if self.bytes <= costs.KEPT_SCRATCH:
            self._spare.append(memory)


class Loop:
    """A function with named `numbers` and `arrays`, and a body per unit of work: `body(writer, unit)`."""

    def __init__(
        self, numbers: Sequence[str], arrays: Sequence[str], width: int, body: Callable[[Function, str], object]
    ) -> None:
        w = Function(width, ("units", *numbers), arrays)
        w.units("%units", lambda unit: body(w, unit))
        self._kernel = w.compiled()

    def __call__(
        self, units: int, numbers: Sequence[int], arrays: Sequence[np.ndarray[Any, Any]], threads: int | None = None
    ) -> None:
        """Run it for the units below `units`; by as many threads as a call may use, if it is not said how many."""
        threads = min(units, thread_count() if threads is None else threads)
        Call(self._kernel, (units, *numbers), len(arrays), threads)(*[address(a) for a in arrays])
