"""A small pool of threads that help with one call of a kernel, for work big enough to pay for waking them.

Kernels take their chunks from a shared counter, so a helper that comes late, or never, only leaves more to the caller.
"""

from __future__ import annotations

import _thread
import itertools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], object]


def thread_count(*variables: str) -> int:
    """How many threads a call may use: the first of `variables` that is set, else OMP_NUM_THREADS; at most the processors
    that this process may run on.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        allowed = os.cpu_count() or 1
    for name in (*variables, "OMP_NUM_THREADS"):
        wanted = os.environ.get(name, "").partition(",")[0].strip()
        if wanted.isdigit() and int(wanted):
            return min(int(wanted), allowed)
    return allowed


def start_thread(target: Callable[..., object], *args: object) -> bool:
    """Begin a thread that the interpreter does not wait for; False where the system gives no more of them: a limit on processes, or on
    memory. Unlike `threading.Thread` it does not wait either until the thread runs, which other programs may put off.
    """
    try:
        _thread.start_new_thread(target, args)
    except (RuntimeError, MemoryError):  # also as the interpreter ends
        return False
    return True


def process_ends() -> bool:
    """Whether the interpreter ends, as its exit functions ask: tests of programs may call those earlier."""
    return not threading.main_thread().is_alive()


class _Job:
    """One call: helpers enter until the caller has closed it; the caller waits for those inside, and gets their error."""

    __slots__ = ("closed", "error", "inside", "left", "lock", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.lock = threading.Lock()
        self.closed = False
        self.error: BaseException | None = None
        self.inside = 0
        self.left = threading.Semaphore(0)

    def help(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.inside += 1
        try:
            self.work()
        except BaseException as error:  # the caller's to raise
            self.error = error
        finally:
            self.left.release()

    def close(self) -> None:
        with self.lock:
            self.closed = True
        for _ in range(self.inside):
            self.left.acquire()
        self.work = _nothing  # a helper that comes late finds the job in the queue, which must not keep the work's arrays until then


def _nothing() -> None:
    pass


class Helpers:
    """Daemon threads that wait for jobs; made at the first call, and anew in a forked child."""

    def __init__(self) -> None:
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin without threads: those of the parent do not exist in a child."""
        self._started = 0
        self._most: int | None = None  # once the system gave no more
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Job] = SimpleQueue()

    def run(self, work: Work, threads: int) -> None:
        """Run `work` in this thread and at once in up to ``threads - 1`` others; returns when all that began are done."""
        if threads <= 1:
            work()
            return
        job = _Job(work)
        for _ in range(self._ready(threads - 1)):
            self._queue.put(job)
        try:
            work()
        finally:
            job.close()
        if job.error is not None:
            raise job.error

    def _ready(self, count: int) -> int:
        """How many of `count` helpers there are, after the missing ones were started."""
        if self._started < count and self._most is None:
            with self._lock:
                while self._started < count and self._most is None:
                    if start_thread(self._serve, self._queue):
                        self._started += 1
                    else:
                        self._most = self._started
        return min(count, self._started)

    @staticmethod
    def _serve(queue: SimpleQueue[_Job]) -> None:
        while True:
            queue.get().help()


helpers = Helpers()


def run_in_parts(work: Callable[[slice], object], count: int, step: int, threads: int) -> None:
    """Call `work` for runs of `step` of the numbers below `count`, in up to `threads` threads at once."""
    starts = itertools.count(0, step)  # its steps are atomic

    def take() -> None:
        while (start := next(starts)) < count:
            work(slice(start, min(start + step, count)))

    helpers.run(take, threads if count > step else 1)
