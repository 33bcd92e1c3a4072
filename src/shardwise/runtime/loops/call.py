"""Calls of compiled functions.

`Call` is a function with its job, run on addresses by as many threads as pay; `Calls` are several in a row, with memory of their own;
`WorkLoop` is a function that is called with arrays. `SpecializedKernel` is called with blocks and keeps a
`Specialization` for each way they lie in memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.loops.function import Function, Kernel
from shardwise.runtime.loops.layout import Result
from shardwise.runtime.machine import standby_threads, thread_count
from shardwise.runtime.memory import alone, pool

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
        standby_threads.run(
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
        """A callable that runs them: the call itself, if there is one that needs no memory."""
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


class WorkLoop:
    """A function with named `numbers` and `arrays`, and a body per unit of work: `body(writer, unit)`."""

    def __init__(
        self, numbers: Sequence[str], arrays: Sequence[str], width: int, body: Callable[[Function, str], object]
    ) -> None:
        w = Function(width, ("units", *numbers), arrays)
        w.units("%units", lambda unit: body(w, unit))
        self._function = w
        self._kernel: Kernel | None = None
        self._slower = 0.0  # of the call that it was compiled for
        self._arrays = len(arrays)
        self._calls = Bounded[tuple[int, ...], Call](LAYOUTS)

    def _compile_function(self, slower: float) -> Kernel:
        self._kernel, self._slower = self._function.compile_function(slower), slower
        return self._kernel

    def call(self, units: int, numbers: Sequence[int], threads: int, slower: float = math.inf) -> Call:
        """The call for the units below `units`, on the addresses of the arrays, which may be called again. `slower`: nanoseconds that it
        would take longer as a draft.
        """
        kernel = self._kernel
        if kernel is None or slower > 4 * self._slower:  # for larger arrays a draft may not pay
            kernel = self._compile_function(slower)
        return Call(kernel, (units, *numbers), self._arrays, min(units, threads))

    def __call__(
        self,
        units: int,
        numbers: Sequence[int],
        arrays: Sequence[np.ndarray[Any, Any]],
        threads: int | None = None,
        slower: float | None = None,
    ) -> None:
        """Run it for the units below `units`; by as many threads as a call may use where `threads` is None. `slower`: as in `call`; None:
        what loops take that visit each element of the arrays.
        """
        key = (thread_count() if threads is None else threads, units, *numbers)
        call = self._calls.get(key)
        if call is None:
            slower = costs.DRAFT_VISITED * sum([a.size for a in arrays]) if slower is None else slower
            call = self._calls[key] = self.call(units, numbers, key[0], slower)
        call(*[address(a) for a in arrays])


@dataclass(frozen=True, slots=True)
class Specialization:
    """How a kernel runs on blocks of given shapes and strides.

    Attributes:
        results: how the results are allocated.
        run: ``(blocks, results)``: computes.
        over: (result, operand) pairs that lie alike in memory: the result may be written over the operand.
        run_over: makes the function in place of `run` where results are written over operands; None: `run` itself.
        held: objects that `run` refers to by address.
    """

    results: tuple[Result, ...]
    run: Callable[[Sequence[Ndarray], Sequence[Ndarray]], object]
    over: tuple[tuple[int, int], ...] = ()
    run_over: Callable[[], Callable[[Sequence[Ndarray], Sequence[Ndarray]], object]] | None = None
    held: object = None


class SpecializedKernel:
    """A kernel on blocks that keeps a specialization for each combination of their shapes and strides.

    Args:
        specialize: makes the specialization for such blocks; None where `plain` is as fast.
        plain: computes without one.
        scalars: whether blocks may be NumPy scalars, which functions of 0-d arrays give.
    """

    def __init__(
        self,
        specialize: Callable[[Sequence[Ndarray]], Specialization | None],
        plain: Callable[..., tuple[Ndarray, ...]],
        scalars: bool,
    ) -> None:
        self._make = specialize
        self._plain = plain
        self._scalars = scalars
        self._specializations = Bounded[tuple[tuple[Shape, Shape], ...], Specialization | None](LAYOUTS)

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        return self._run(blocks, ())

    def over(self, free: Sequence[int], blocks: list[Ndarray]) -> tuple[Ndarray, ...]:
        """The results, written over those operands of `free` (positions) that nothing but the list can reach."""
        return self._run(blocks, free)

    def _run(self, blocks: Sequence[Ndarray], free: Sequence[int]) -> tuple[Ndarray, ...]:
        if self._scalars:
            if isinstance(blocks, list):  # the list stays the only reference to its blocks
                blocks[:] = map(np.asarray, blocks)
            else:
                blocks = [np.asarray(b) for b in blocks]
        key = tuple([(b.shape, b.strides) for b in blocks])
        try:
            special = self._specializations[key]
        except KeyError:
            special = self._specializations[key] = self._make(blocks)
        if special is None:
            return self._plain(*blocks)
        reused = _reusable_operands(special, blocks, free) if free else None
        if not reused:
            outs = tuple([result.empty() for result in special.results])
            special.run(blocks, outs)
            return outs
        outs = tuple(
            [blocks[reused[j]].view(r.dtype) if j in reused else r.empty() for j, r in enumerate(special.results)]
        )
        run = special.run if special.run_over is None else special.run_over()
        operands = tuple(blocks)
        for i in reused.values():
            blocks[i] = None  # type: ignore[index]  a list, whose owner sees the operands that remain
        run(operands, outs)
        return outs


def _reusable_operands(special: Specialization, blocks: Sequence[Ndarray], free: Sequence[int]) -> dict[int, int]:
    """By the result's position, that of an operand that dies and whose memory the result takes."""
    found: dict[int, int] = {}
    if isinstance(blocks, list):
        for j, i in special.over:
            if i in free and j not in found and i not in found.values() and alone(blocks, i):
                found[j] = i
    return found
