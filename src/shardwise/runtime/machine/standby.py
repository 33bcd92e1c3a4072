"""Threads that stay awake for a moment after they helped with a kernel: the next kernel finds them at once.

To wake a thread takes longer than many kernels run, so after its work a helper watches a mailbox for a fifth of a millisecond before
it sleeps. All of that is machine code and needs no interpreter: the caller of a kernel posts it, works on it itself, and
waits for those who came. Where nothing can be compiled, and until that pays, `threads.helpers` do.

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
from shardwise.runtime.machine.flow import Flow
from shardwise.runtime.machine.threads import helpers, start_thread

Kernel = Callable[..., None]

_WATCH = 200e-6  # seconds that a helper watches the mailbox before it sleeps
_TRIAL = 1000  # looks into the mailbox, whose time is taken to know how many fill that: a pause is 5 to 50 ns, as processors go
_EARLY = 64  # calls of a process before machine code is made for them: that takes 8 ms, and to wake a thread 0.1 ms
_STREAK = 8  # calls in a row, each sooner after the last one than a helper sleeps, from which one is woken for them
_PATIENCE = 20000  # looks at helpers that are not done before the caller lets other threads run

# The mailbox: words of 64 bits, those that several threads write on cache lines of their own.
_BUSY, _POSTED, _SEATS, _INSIDE, _AWAKE, _KERNEL, _NUMBER, _YIELD = 0, 8, 16, 24, 32, 40, 44, 45
_WORDS = 48

# How a processor is told that a loop only waits: an intrinsic and its argument. Others just loop.
_PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ""), "aarch64": ("llvm.aarch64.hint", "i32 1")}


class _Mailbox(Flow):
    """Writes a function on the mailbox at ``%mail``. What several threads write is seen by all of them in one order."""

    def __init__(self) -> None:
        super().__init__()
        self.start("entry")

    def word(self, number: int) -> str:
        """A word's address."""
        return self.value(f"getelementptr i64, ptr %mail, i64 {number}", "at")

    def read_shared(self, number: int, order: str = "seq_cst") -> str:
        """The word that others write."""
        return self.value(f"load atomic i64, ptr {self.word(number)} {order}, align 8", "word")

    def share(self, number: int, value: str) -> None:
        """Write a word for others."""
        self.line(f"store atomic i64 {value}, ptr {self.word(number)} seq_cst, align 8")

    def count(self, number: int, by: int) -> str:
        """Add to a word that others add to: the number before."""
        return self.atomic_add(self.word(number), by, "seq_cst")

    def pause(self) -> None:
        """Tell the processor that the loop only waits."""
        if found := _PAUSES.get(platform.machine()):
            name, argument = found
            self.declare(name, f"declare void @{name}({argument.partition(' ')[0]})")
            self.line(f"call void @{name}({argument})")

    def function(self, signature: str) -> str:
        """The text of the function."""
        return f"define void {signature} {{\n{self.body()}\n  ret void\n}}\n"


def _serve_text(w: _Mailbox) -> str:
    """A helper: look at the mailbox ``%looks`` times, and as many times again after each kernel."""

    def patient(held: list[str]) -> str:
        return w.test("ult", held[0], "%looks")

    def look(held: list[str]) -> list[str]:
        looks, done = held
        posted = w.read_shared(_POSTED, "acquire")
        fresh = w.value(f"and i1 {w.test('ne', posted, 0)}, {w.test('ne', posted, done)}")

        def enter() -> list[str]:
            w.count(_INSIDE, 1)
            # The caller either sees us inside, and waits, or has taken the kernel back, which we see.
            w.branch(w.test("eq", w.read_shared(_POSTED), posted), sit)
            w.count(_INSIDE, -1)
            return ["0", posted]

        def wait() -> list[str]:
            w.pause()
            return [w.integer("add", looks, 1), done]

        return w.branch(fresh, enter, wait, ["i64", "i64"])

    def sit() -> None:
        w.branch(w.test("sgt", w.count(_SEATS, -1), 0), work)

    def work() -> None:
        kernel, *arguments = [w.value(f"load ptr, ptr {w.word(_KERNEL + i)}, align 8", "field") for i in range(4)]
        w.line(f"call void {kernel}({', '.join(f'ptr {x}' for x in arguments)})")

    w.count(_AWAKE, 1)
    w.repeat([("i64", "0"), ("i64", "0")], patient, look)
    w.count(_AWAKE, -1)
    return w.function("@serve(ptr %mail, i64 %looks)")


def _post_text(w: _Mailbox) -> str:
    """A caller: post the kernel, work on it, and wait for the helpers that came. While another one is posted, work alone."""

    def run() -> None:
        w.line("call void %kernel(ptr %job, ptr %pointers, ptr %counter)")

    def together() -> None:
        number = w.integer("add", w.value(f"load i64, ptr {w.word(_NUMBER)}, align 8"), 1)
        w.line(f"store i64 {number}, ptr {w.word(_NUMBER)}, align 8")
        for i, field in enumerate(("kernel", "job", "pointers", "counter"), _KERNEL):
            w.line(f"store ptr %{field}, ptr {w.word(i)}, align 8")
        w.share(_SEATS, "%seats")
        w.share(_POSTED, number)
        run()
        w.share(_POSTED, "0")
        w.repeat([("i64", "0")], others_work, wait)
        w.share(_BUSY, "0")

    def others_work(_: list[str]) -> str:
        return w.test("ne", w.read_shared(_INSIDE), 0)

    def wait(held: list[str]) -> list[str]:
        looks = w.integer("add", held[0], 1)

        def pause() -> list[str]:
            w.pause()
            return [looks]

        def let_others_run() -> list[str]:
            w.value(f"call i32 {w.value(f'load ptr, ptr {w.word(_YIELD)}, align 8')}()")
            return ["0"]

        return w.branch(w.test("ult", looks, _PATIENCE), pause, let_others_run, ["i64"])

    swap = w.value(f"cmpxchg ptr {w.word(_BUSY)}, i64 0, i64 1 seq_cst seq_cst")
    w.branch(w.value(f"extractvalue {{ i64, i1 }} {swap}, 1"), together, run)
    return w.function("@post(ptr %mail, i64 %seats, ptr %kernel, ptr %job, ptr %pointers, ptr %counter)")


def _text() -> str:
    """The module."""
    serve, post = _Mailbox(), _Mailbox()
    functions = _serve_text(serve), _post_text(post)
    return "\n".join([*(serve.declared | post.declared).values(), *functions])


class Standby:
    """The helpers and their mailbox; made at the first call, and anew in a forked child."""

    def __init__(self) -> None:
        self._code: tuple[Any, Any] | None = None  # serve, post
        self._looks = _TRIAL
        self._calls = 0  # without machine code
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
        # Of calls that wake nobody: how many came in a row, and when the last one ended.
        self._streak, self._ended = 0, 0.0

    def run(self, kernel: Kernel, job: int, pointers: int, counter: int, threads: int, rouse: bool = True) -> None:
        """Call ``kernel(job, pointers, counter)`` in this thread and in up to ``threads - 1`` others; returns when all are done.

        Args:
            kernel: a ctypes function.
            job: the address of its job; `pointers` and `counter` likewise.
            threads: how many threads may work on it.
            rouse: whether to wake helpers that sleep. Those that are awake help in any case. Calls that come in a row, as in a
                loop, wake them once: they stay awake from one to the next.
        """
        if threads <= 1:
            kernel(job, pointers, counter)
            return
        code = self._code or self._compile_once()
        if code is None:
            helpers.run(lambda: kernel(job, pointers, counter), threads if rouse else 1)
            return
        missing = threads - 1 - self._mail[_AWAKE]
        if missing > 0:
            if not (rouse or self._in_a_row()):
                kernel(job, pointers, counter)
                self._ended = time.perf_counter()
                return
            self._rouse(threads - 1, missing)
        code[1](self._at, threads - 1, address_of(kernel), job, pointers, counter)
        if missing > 0 and not rouse:  # those that were woken are not here yet
            self._ended = time.perf_counter()

    def _in_a_row(self) -> bool:
        """Whether calls come so often that a helper would stay awake between them."""
        self._streak = self._streak + 1 if time.perf_counter() - self._ended < _WATCH else 0
        return self._streak >= _STREAK

    def _rouse(self, most: int, missing: int) -> None:
        if self._started < most and self._most is None:
            with self._lock:
                while self._started < most and self._most is None:
                    if start_thread(_serve, self._code, self._queue, self._at):
                        self._started += 1
                    else:
                        self._most = self._started
        for _ in range(min(missing, self._started) - self._queue.qsize()):
            self._queue.put(self._looks)

    def _write_code(self) -> llvm.CompiledFunction | None:
        """Machine code; None in a process with few calls, for which it is not kept: those are helped as where there is none."""
        self._calls += 1
        if self._calls > _EARLY:
            return llvm.compile_function("serve", _text())
        return llvm.kept_function("serve", _text()) if self._calls == 1 else None

    def _compile_once(self) -> tuple[Any, Any] | None:
        with self._lock:
            if self._code is None and not self._broken:
                try:
                    code = self._write_code()
                except RuntimeError:  # no compiler
                    self._broken = True
                    return None
                if code is None:
                    return None
                void, word = ctypes.c_void_p, ctypes.c_int64
                serve = code.as_ctypes(ctypes.CFUNCTYPE(None, void, word))
                post = code.as_ctypes(ctypes.CFUNCTYPE(None, void, word, *[void] * 4), "post")
                times: list[float] = []
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


standby_threads = Standby()
