"""Machine code that calls the library's products: for the tasks of one product, or for panels of products and loops.

Tasks of one product differ in where their matrices lie and in two sizes (`task_walker`). A panel is a list of records, each a product
of its own kind or a loop; `Records` collects them for `panel_walker`. There, places in memory are a slot and an offset in bytes. A slot
is an operand or result of the whole step, or memory of the thread's own.

Threads take tasks and panels from the first counter until none is left; the second counter numbers the threads that work on panels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.runtime.loops import Function, Kernel
from shardwise.runtime.machine import llvm
from shardwise.runtime.products import blas

Place = tuple[int, int]  # slot, offset

TASK = 5  # words of a task: offsets in bytes of a, b and out; two sizes
TASK_HEAD = ("function", "tasks", "chunk", "one", "zero", "left", "right", "depth", "a_step", "b_step", "out_step")

_RECORD = 16  # words
_HEAD = ("panels", "bytes", "outside", "own", "firsts", "records")
_PRODUCT, _LOOP = 0, 1
_COUNTERS = 16  # bytes at the beginning of a thread's memory: those of a loop, which one thread does alone


class Records:
    """The records of all panels, and from them the job of `panel_walker`.

    The job: panels, bytes of a thread's memory, slots from outside, own slots, where the panels' first records stand, where the
    records stand; the own slots' offsets; the first record of each panel, and their number; the records; lists of places.
    """

    def __init__(self) -> None:
        self._firsts = [0]
        self._records: list[list[int]] = []
        self._lists: list[int] = []
        self._longest = 0

    def product(
        self,
        function: int,
        flags: Sequence[int],
        sizes: Sequence[int],
        a: Place,
        b: Place,
        out: Place,
        steps: Sequence[int],
    ) -> None:
        """``out = a @ b``; `flags` and `steps` as OpenBLAS takes them, `sizes` are m, n, k."""
        self._records.append([_PRODUCT, function, *flags, *sizes, *a, steps[0], *b, steps[1], *out, steps[2]])

    def loop(self, kernel: int, job: int, places: Sequence[Place]) -> None:
        """A loop over what lies at `places`."""
        record = [_LOOP, kernel, job, len(places), len(self._lists)]
        self._records.append(record + [0] * (_RECORD - len(record)))
        self._lists += [n for place in places for n in place]
        self._longest = max(self._longest, len(places))

    def end(self) -> None:
        """The panel is complete."""
        self._firsts.append(len(self._records))

    def job(self, outside: int, own: Sequence[int]) -> tuple[Any, int]:
        """The job for `outside` slots from outside and own slots of these sizes; and the bytes that each thread needs."""
        used = _COUNTERS + 8 * (outside + len(own) + self._longest)
        offsets = list[int]()
        for size in own:
            used = -(-used // 64) * 64
            offsets.append(used)
            used += size
        used = -(-used // 4096) * 4096 + 64 * 3  # threads' memories begin in different sets of the caches
        firsts_at = len(_HEAD) + len(offsets)
        records_at = firsts_at + len(self._firsts)
        lists_at = records_at + _RECORD * len(self._records)
        records = np.array(self._records, np.int64)
        records[records[:, 0] == _LOOP, 4] += lists_at
        head = [len(self._firsts) - 1, used, outside, len(own), firsts_at, records_at, *offsets, *self._firsts]
        return np.concatenate([np.array(head, np.int64), records.reshape(-1), np.array(self._lists, np.int64)]), used


class _Walker(Function):
    """Writes calls of the library's products, whose integers have `integer_size` bytes."""

    def __init__(self, numbers: Sequence[str], pointers: Sequence[str], char: str, integer_size: int) -> None:
        super().__init__(1, numbers, pointers)
        self._integer = f"i{8 * integer_size}"
        self._number = {"f": "float", "d": "double"}.get(char, "ptr")

    def cast(self, number: str, kind: str) -> str:
        """An i64 as an integer of a library, or as a pointer."""
        if kind == "i64":
            return number
        return self.value(f"{'inttoptr' if kind == 'ptr' else 'trunc'} i64 {number} to {kind}", "a")

    def multiply(
        self,
        function: str,
        flags: Sequence[str],
        sizes: Sequence[str],
        places: Sequence[str],
        steps: Sequence[str],
        scalars: tuple[str, str] = ("1.0", "0.0"),
    ) -> None:
        """Call a gemm, or with one flag and two sizes a gemv: ``out = one * a @ b + zero * out``.

        Args:
            function: its address.
            flags: which operands lie transposed.
            sizes: m, n and k; of a matrix times a vector, the matrix's.
            places: the addresses of a, b and out.
            steps: elements from line to line of each.
            scalars: one and zero, of complex types their addresses.
        """
        integer, number = self._integer, self._number
        a, b, out = [[("ptr", at), (integer, self.cast(step, integer))] for at, step in zip(places, steps, strict=True)]
        one, zero = [[(number, x)] for x in scalars]
        arguments = [("i32", str(blas.ROW_MAJOR)), *[("i32", self.cast(x, "i32")) for x in flags]]
        arguments += [*[(integer, self.cast(x, integer)) for x in sizes], *one, *a, *b, *zero, *out]
        types, given = ", ".join(kind for kind, _ in arguments), ", ".join(f"{kind} {x}" for kind, x in arguments)
        self.line(f"call void ({types}) {function}({given})")


@functools.cache
def task_walker(char: str, line: bool, integer_size: int) -> Kernel | None:
    """Calls the library's function for the tasks of a job, a chunk of them at a time; None without LLVM.

    The job: `TASK_HEAD`, where `one` and `zero` are addresses for complex types, then the tasks. Pointers: a, b and out; if `line`,
    these are a matrix and two vectors.
    """
    if not llvm.available():
        return None
    w = _Walker(TASK_HEAD, ("a", "b", "out"), char, integer_size)
    function = w.cast("%function", "ptr")
    scalars = ("1.0", "0.0") if char in "fd" else (w.cast("%one", "ptr"), w.cast("%zero", "ptr"))

    def multiply(task: str) -> None:
        words = w.advance_address("%job", w.integer("add", w.integer("mul", task, TASK), len(TASK_HEAD)), 8)
        *offsets, m, n = [w.entry(words, i) for i in range(TASK)]
        places = [
            w.advance_address(base, offset, 1) for base, offset in zip(("%a", "%b", "%out"), offsets, strict=True)
        ]
        flags, sizes = (("%left",), (m, n)) if line else (("%left", "%right"), (m, n, "%depth"))
        w.multiply(function, flags, sizes, places, ("%a_step", "%b_step", "%out_step"), scalars)

    w.units("%tasks", multiply, "%chunk")
    return w.compile_function(slower=0)  # the products are computed elsewhere


@functools.cache
def panel_walker(char: str, integer_size: int) -> Kernel:
    """Works through the panels of `Records`, whose products are of float32 ("f") or float64 ("d").

    Pointers: the slots from outside, then the threads' memory. Of its part, a thread keeps the counters of loops, the addresses of
    all slots, those that the present loop takes, and its own slots.
    """
    w = _Walker(_HEAD, (), char, integer_size)
    thread = w.ticket(w.advance_address("%counter", 1, 8))
    own = w.advance_address(w.entry("%pointers", "%outside", "ptr"), thread, "%bytes")
    table = w.advance_address(own, 1, _COUNTERS)
    places = w.advance_address(table, w.integer("add", "%outside", "%own"), 8)

    def slot_outside(i: str, _: list[str]) -> None:
        w.set_entry(table, i, w.entry("%pointers", i, "ptr"), "ptr")

    def own_slot(i: str, _: list[str]) -> None:
        offset = w.entry("%job", w.integer("add", i, len(_HEAD)))
        w.set_entry(table, w.integer("add", i, "%outside"), w.advance_address(own, offset, 1), "ptr")

    w.loop(0, "%outside", slot_outside)
    w.loop(0, "%own", own_slot)

    def address(slot: str, offset: str) -> str:
        return w.advance_address(w.entry(table, slot, "ptr"), offset, 1)

    def record(number: str, _: list[str]) -> None:
        at = w.advance_address("%job", w.integer("add", w.integer("mul", number, _RECORD), "%records"), 8)
        kind, function, *words = [w.entry(at, i) for i in range(_RECORD)]
        function = w.cast(function, "ptr")

        def product() -> None:
            left, right, m, n, k, *operands = words
            a, b, out = operands[:3], operands[3:6], operands[6:]
            w.multiply(function, (left, right), (m, n, k), [address(*x[:2]) for x in (a, b, out)], (a[2], b[2], out[2]))

        def loop() -> None:
            job, count, first = words[:3]

            def place(i: str, _: list[str]) -> None:
                pair = w.advance_address("%job", w.integer("add", w.integer("mul", i, 2), first), 8)
                w.set_entry(places, i, address(w.entry(pair, 0), w.entry(pair, 1)), "ptr")

            w.loop(0, count, place)
            for counter in (0, 1):
                w.set_entry(own, counter, 0)
            w.line(f"call void {function}(ptr {w.cast(job, 'ptr')}, ptr {places}, ptr {own})")

        w.branch(w.test("eq", kind, _PRODUCT), product, loop)

    def panel(number: str) -> None:
        first = w.advance_address("%job", w.integer("add", "%firsts", number), 8)
        w.loop(w.entry(first, 0), w.entry(first, 1), record)

    w.units("%panels", panel)
    return w.compile_function(slower=0)
