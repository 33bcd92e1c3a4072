"""Threads that stay awake for a moment after they helped with a kernel: the next kernel finds them at once.

To wake a thread takes longer than many kernels run, so after its work a helper watches a mailbox for a fifth of a millisecond before
it sleeps. All of that is machine code and needs no interpreter: the caller of a kernel posts it, works on it itself, and
waits for those who came. Where nothing can be compiled, `threads.helpers` do.

A kernel is ``kernel(job, pointers, counter)``, and takes chunks of work from the counter until none is left, so one that no helper
comes to is done by the caller. One kernel at a time is posted; another caller meanwhile works alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from shardwise.runtime.machine import llvm
from shardwise.runtime.machine.threads import helpers, started

Kernel = Callable[..., None]

_WATCH = 200e-6  # seconds that a helper watches the mailbox before it sleeps
_TRIAL = 1000  # looks into the mailbox, whose time is taken to know how many fill that: a pause is 5 to 50 ns, as processors go
_PATIENCE = 20000  # looks at helpers that are not done before the caller lets other threads run

# The mailbox: words of 64 bits, those that several threads write on cache lines of their own.
_BUSY, _POSTED, _SEATS, _INSIDE, _AWAKE, _KERNEL, _NUMBER, _YIELD = 0, 8, 16, 24, 32, 40, 44, 45
_WORDS = 48

# How a processor is told that a loop only waits; on others it just loops.
_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def _address(word: int) -> str:
    return f"getelementptr i64, ptr %mail, i64 {word}"


_TEXT = f"""
define void @serve(ptr %mail, i64 %looks) {{
  %posted_at = {_address(_POSTED)}
  %seats_at = {_address(_SEATS)}
  %inside_at = {_address(_INSIDE)}
  %awake_at = {_address(_AWAKE)}
  %kernel_at = {_address(_KERNEL)}
  %job_at = {_address(_KERNEL + 1)}
  %pointers_at = {_address(_KERNEL + 2)}
  %counter_at = {_address(_KERNEL + 3)}
  %risen = atomicrmw add ptr %awake_at, i64 1 seq_cst
  br label %look
look:
  %n = phi i64 [ 0, %0 ], [ %next, %wait ], [ 0, %leave ]
  %done = phi i64 [ 0, %0 ], [ %done, %wait ], [ %posted, %leave ]
  %posted = load atomic i64, ptr %posted_at acquire, align 8
  %open = icmp ne i64 %posted, 0
  %fresh = icmp ne i64 %posted, %done
  %go = and i1 %open, %fresh
  br i1 %go, label %enter, label %wait
wait:
  PAUSE
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %looks
  br i1 %more, label %look, label %sleep
enter:
  %came = atomicrmw add ptr %inside_at, i64 1 seq_cst
  %still = load atomic i64, ptr %posted_at seq_cst, align 8
  %same = icmp eq i64 %still, %posted
  br i1 %same, label %sit, label %leave
sit:
  %seats = atomicrmw sub ptr %seats_at, i64 1 seq_cst
  %seat = icmp sgt i64 %seats, 0
  br i1 %seat, label %work, label %leave
work:
  %kernel = load ptr, ptr %kernel_at, align 8
  %job = load ptr, ptr %job_at, align 8
  %pointers = load ptr, ptr %pointers_at, align 8
  %counter = load ptr, ptr %counter_at, align 8
  call void %kernel(ptr %job, ptr %pointers, ptr %counter)
  br label %leave
leave:
  %left = atomicrmw sub ptr %inside_at, i64 1 seq_cst
  br label %look
sleep:
  %gone = atomicrmw sub ptr %awake_at, i64 1 seq_cst
  ret void
}}

define void @post(ptr %mail, i64 %seats, ptr %kernel, ptr %job, ptr %pointers, ptr %counter) {{
  %busy_at = {_address(_BUSY)}
  %posted_at = {_address(_POSTED)}
  %seats_at = {_address(_SEATS)}
  %inside_at = {_address(_INSIDE)}
  %kernel_at = {_address(_KERNEL)}
  %job_at = {_address(_KERNEL + 1)}
  %pointers_at = {_address(_KERNEL + 2)}
  %counter_at = {_address(_KERNEL + 3)}
  %number_at = {_address(_NUMBER)}
  %yield_at = {_address(_YIELD)}
  %got = cmpxchg ptr %busy_at, i64 0, i64 1 seq_cst seq_cst
  %free = extractvalue {{ i64, i1 }} %got, 1
  br i1 %free, label %prepare, label %alone
alone:
  call void %kernel(ptr %job, ptr %pointers, ptr %counter)
  ret void
prepare:
  %before = load i64, ptr %number_at, align 8
  %number = add i64 %before, 1
  store i64 %number, ptr %number_at, align 8
  store ptr %kernel, ptr %kernel_at, align 8
  store ptr %job, ptr %job_at, align 8
  store ptr %pointers, ptr %pointers_at, align 8
  store ptr %counter, ptr %counter_at, align 8
  store atomic i64 %seats, ptr %seats_at seq_cst, align 8
  store atomic i64 %number, ptr %posted_at seq_cst, align 8
  call void %kernel(ptr %job, ptr %pointers, ptr %counter)
  store atomic i64 0, ptr %posted_at seq_cst, align 8
  br label %await
await:
  %n = phi i64 [ 0, %prepare ], [ %next, %pause ], [ 0, %yield ]
  %inside = load atomic i64, ptr %inside_at seq_cst, align 8
  %all = icmp eq i64 %inside, 0
  br i1 %all, label %end, label %again
again:
  %next = add i64 %n, 1
  %patient = icmp ult i64 %next, {_PATIENCE}
  br i1 %patient, label %pause, label %yield
pause:
  PAUSE
  br label %await
yield:
  %let = load ptr, ptr %yield_at, align 8
  %answer = call i32 %let()
  br label %await
end:
  store atomic i64 0, ptr %busy_at seq_cst, align 8
  ret void
}}
"""


class Standby:
    """The helpers and their mailbox; made at the first call, and anew in a forked child."""

    def __init__(self) -> None:
        self._code: tuple[Any, Any] | None = None  # serve, post
        self._looks = _TRIAL
        self._broken = False
        self.forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin without threads, and with an empty mailbox: those of the parent do not exist in a child."""
        self._room = (ctypes.c_int64 * (_WORDS + 8))()
        start = -ctypes.addressof(self._room) % 64 // 8
        self._mail = (ctypes.c_int64 * _WORDS).from_buffer(self._room, start * 8)
        self._at = ctypes.addressof(self._mail)
        self._mail[_YIELD] = _sched_yield()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[int] = SimpleQueue()
        self._started = 0
        self._most: int | None = None  # once the system gave no more

    def run(self, kernel: Kernel, job: int, pointers: int, counter: int, threads: int, rouse: bool = True) -> None:
        """Call ``kernel(job, pointers, counter)`` in this thread and in up to ``threads - 1`` others; returns when all are done.

        Args:
            kernel: a ctypes function.
            job: the address of its job; `pointers` and `counter` likewise.
            threads: how many threads may work on it.
            rouse: whether to wake helpers that sleep. Those that are awake help in any case.
        """
        if threads <= 1:
            kernel(job, pointers, counter)
            return
        code = self._code or self._compiled()
        if code is None:
            helpers.run(lambda: kernel(job, pointers, counter), threads)
            return
        missing = threads - 1 - self._mail[_AWAKE]
        if missing > 0:
            if not rouse:
                kernel(job, pointers, counter)
                return
            self._rouse(threads - 1, missing)
        code[1](self._at, threads - 1, address_of(kernel), job, pointers, counter)

    def _rouse(self, most: int, missing: int) -> None:
        if self._started < most and self._most is None:
            with self._lock:
                while self._started < most and self._most is None:
                    if started(_serve, "shardwise-standby", self._code, self._queue, self._at):
                        self._started += 1
                    else:
                        self._most = self._started
        for _ in range(min(missing, self._started) - self._queue.qsize()):
            self._queue.put(self._looks)

    def _compiled(self) -> tuple[Any, Any] | None:
        with self._lock:
            if self._code is None and not self._broken:
                pause = _PAUSES.get(platform.machine(), ("", ""))
                try:
                    code = llvm.compile_function("serve", pause[0] + _TEXT.replace("PAUSE", pause[1]))
                except RuntimeError:  # no compiler
                    self._broken = True
                    return None
                void, word = ctypes.c_void_p, ctypes.c_int64
                serve = code.called_as(ctypes.CFUNCTYPE(None, void, word))
                post = code.called_as(ctypes.CFUNCTYPE(None, void, word, *[void] * 4), "post")
                times = []
                for _ in range(3):
                    begin = time.perf_counter()
                    serve(self._at, _TRIAL)
                    times.append(time.perf_counter() - begin)
                self._looks = int(_TRIAL * _WATCH / max(min(times), 1e-6))
                self._code = serve, post
        return self._code


def _serve(code: tuple[Any, Any], queue: SimpleQueue[int], mail: int) -> None:
    serve = code[0]
    while True:
        serve(mail, queue.get())


def address_of(kernel: Any) -> int:
    """The address of a ctypes function, remembered in it."""
    try:
        return kernel.address
    except AttributeError:
        kernel.address = ctypes.cast(kernel, ctypes.c_void_p).value or 0
        return kernel.address


def _sched_yield() -> int:
    return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0


standby = Standby()
