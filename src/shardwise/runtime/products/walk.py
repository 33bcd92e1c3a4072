"""Machine code that takes panels of a product through products and loops, one panel after the other.

A panel is a list of records, each a call of OpenBLAS or of a loop; `Records` collects them. Places in memory are a slot and an
offset in bytes. A slot is an operand or result of the whole step, or memory of the thread's own.

Threads take panels from the first counter until none is left; the second numbers the threads that came.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.runtime.machine import llvm
from shardwise.runtime.products import blas

Place = tuple[int, int]  # slot, offset
Kernel = Callable[..., None]

_RECORD = 16  # words
_HEAD = 8
_PRODUCT, _LOOP = 0, 1
_COUNTERS = 16  # bytes at the beginning of a thread's memory: those of a loop, which one thread does alone


class Records:
    """The records of all panels, and from them the job of `walker`.

    The job: panels, bytes of a thread's memory, slots from outside, own slots, where the panels' first records stand, where the
    records stand, 0, 0; the own slots' offsets; the first record of each panel, and their number; the records; lists of places.
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
        """The job for so many slots from outside and own slots of these sizes; and the bytes that each thread needs."""
        used = _COUNTERS + 8 * (outside + len(own) + self._longest)
        offsets = []
        for size in own:
            used = -(-used // 64) * 64
            offsets.append(used)
            used += size
        used = -(-used // 4096) * 4096 + 64 * 3  # threads' memories begin in different sets of the caches
        firsts_at = _HEAD + len(offsets)
        records_at = firsts_at + len(self._firsts)
        lists_at = records_at + _RECORD * len(self._records)
        records = np.array(self._records, np.int64)
        records[records[:, 0] == _LOOP, 4] += lists_at
        head = [len(self._firsts) - 1, used, outside, len(own), firsts_at, records_at, 0, 0, *offsets, *self._firsts]
        return np.concatenate([np.array(head, np.int64), records.reshape(-1), np.array(self._lists, np.int64)]), used


def _loads(what: str, count: int, prefix: str) -> str:
    lines = [
        f"%{prefix}at{i} = getelementptr i64, ptr {what}, i64 {i}\n  %{prefix}{i} = load i64, ptr %{prefix}at{i}, align 8"
        for i in range(count)
    ]
    return "\n  ".join(lines)


def _place(name: str, slot: str, offset: str) -> str:
    return (
        f"%{name}.slot = getelementptr ptr, ptr %table, i64 {slot}\n  %{name}.base = load ptr, ptr %{name}.slot, align 8\n"
        f"  %{name} = getelementptr i8, ptr %{name}.base, i64 {offset}"
    )


@functools.cache
def walker(char: str, integer_size: int) -> Kernel:
    """`walk(job, pointers, counters)` for products of float32 ("f") or float64 ("d"). The last pointer is to the threads' memory."""
    n, number = f"i{8 * integer_size}", {"f": "float", "d": "double"}[char]
    sizes = [4, 5, 6, 9, 12, 15]
    cast = "trunc i64 %r{0} to " + n if integer_size < 8 else "add i64 %r{0}, 0"
    whole = "\n  ".join(f"%n{i} = {cast.format(i)}" for i in sizes)
    types = f"i32, i32, i32, {n}, {n}, {n}, {number}, ptr, {n}, ptr, {n}, {number}, ptr, {n}"
    call = (
        f"i32 {blas.ROW_MAJOR}, i32 %left, i32 %right, {n} %n4, {n} %n5, {n} %n6, {number} 1.0, ptr %a, {n} %n9, "
        f"ptr %b, {n} %n12, {number} 0.0, ptr %c, {n} %n15"
    )
    text = f"""
define void @walk(ptr %job, ptr %pointers, ptr %counters) {{
entry:
  {_loads("%job", 6, "j")}
  %threads = getelementptr i64, ptr %counters, i64 1
  %thread = atomicrmw add ptr %threads, i64 1 monotonic
  %memory.at = getelementptr ptr, ptr %pointers, i64 %j2
  %memory = load ptr, ptr %memory.at, align 8
  %own.offset = mul i64 %thread, %j1
  %own = getelementptr i8, ptr %memory, i64 %own.offset
  %table = getelementptr i8, ptr %own, i64 {_COUNTERS}
  %slots = add i64 %j2, %j3
  %list = getelementptr ptr, ptr %table, i64 %slots
  br label %copy
copy:
  %i = phi i64 [ 0, %entry ], [ %i.next, %copied ]
  %outside = icmp ult i64 %i, %j2
  br i1 %outside, label %given, label %mine
given:
  %given.at = getelementptr ptr, ptr %pointers, i64 %i
  %given.is = load ptr, ptr %given.at, align 8
  br label %copied
mine:
  %mine.number = sub i64 %i, %j2
  %mine.word = add i64 %mine.number, {_HEAD}
  %mine.at = getelementptr i64, ptr %job, i64 %mine.word
  %mine.offset = load i64, ptr %mine.at, align 8
  %mine.is = getelementptr i8, ptr %own, i64 %mine.offset
  br label %copied
copied:
  %is = phi ptr [ %given.is, %given ], [ %mine.is, %mine ]
  %to = getelementptr ptr, ptr %table, i64 %i
  store ptr %is, ptr %to, align 8
  %i.next = add i64 %i, 1
  %i.more = icmp ult i64 %i.next, %slots
  br i1 %i.more, label %copy, label %panels
panels:
  %panel = atomicrmw add ptr %counters, i64 1 monotonic
  %left.over = icmp ult i64 %panel, %j0
  br i1 %left.over, label %take, label %exit
take:
  %first.word = add i64 %j4, %panel
  %first.at = getelementptr i64, ptr %job, i64 %first.word
  %first = load i64, ptr %first.at, align 8
  %end.at = getelementptr i64, ptr %first.at, i64 1
  %end = load i64, ptr %end.at, align 8
  br label %records
records:
  %r = phi i64 [ %first, %take ], [ %r.next, %next ]
  %r.words = mul i64 %r, {_RECORD}
  %r.word = add i64 %r.words, %j5
  %record = getelementptr i64, ptr %job, i64 %r.word
  {_loads("%record", _RECORD, "r")}
  %function = inttoptr i64 %r1 to ptr
  %kind = icmp eq i64 %r0, {_PRODUCT}
  br i1 %kind, label %product, label %loop
product:
  %left = trunc i64 %r2 to i32
  %right = trunc i64 %r3 to i32
  {whole}
  {_place("a", "%r7", "%r8")}
  {_place("b", "%r10", "%r11")}
  {_place("c", "%r13", "%r14")}
  call void ({types}) %function({call})
  br label %next
loop:
  %k = phi i64 [ 0, %records ], [ %k.next, %loop ]
  %k.words = mul i64 %k, 2
  %k.word = add i64 %k.words, %r4
  %slot.at = getelementptr i64, ptr %job, i64 %k.word
  %slot = load i64, ptr %slot.at, align 8
  %offset.at = getelementptr i64, ptr %slot.at, i64 1
  %offset = load i64, ptr %offset.at, align 8
  {_place("here", "%slot", "%offset")}
  %list.at = getelementptr ptr, ptr %list, i64 %k
  store ptr %here, ptr %list.at, align 8
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, %r3
  br i1 %k.more, label %loop, label %call
call:
  %loop.job = inttoptr i64 %r2 to ptr
  store i64 0, ptr %own, align 8
  %own.second = getelementptr i64, ptr %own, i64 1
  store i64 0, ptr %own.second, align 8
  call void %function(ptr %loop.job, ptr %list, ptr %own)
  br label %next
next:
  %r.next = add i64 %r, 1
  %r.more = icmp ult i64 %r.next, %end
  br i1 %r.more, label %records, label %panels
exit:
  ret void
}}
"""
    return llvm.compile_kernel("walk", text)
