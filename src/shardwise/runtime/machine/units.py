"""Machine code for loops that are no elementwise group: a body per unit of work, taken from a shared counter by any number of threads.

Comes in: what the body needs by name, and a function that writes it with `Lanes`. Goes out: a `Loop`, called with integers and
arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.runtime.address import address
from shardwise.runtime.fused.codegen import assembled, attributes
from shardwise.runtime.machine import llvm
from shardwise.runtime.machine.lanes import STORED, TYPES, Lane, Lanes
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.machine.standby import standby
from shardwise.runtime.machine.threads import thread_count

__all__ = ["Body", "Loop", "Vectors", "available", "lanes_of"]

Body = Callable[["Vectors"], object]
Ndarray = np.ndarray[Any, Any]


def lanes_of(dtype: str) -> int:
    """Elements of a vector register; those of narrow types are computed 32 bits wide."""
    return llvm.target().bytes // (8 if TYPES[dtype] in ("double", "i64") else 4)


class Vectors(Lanes):
    """Lanes with counted loops and vectors at computed places. Names given to the loop are registers: ``%name``; `%u` is the unit."""

    def count(
        self, begin: str, end: str, step: int, body: Callable[..., Lane | None], state: Lane | None = None
    ) -> Lane | None:
        """``for i in range(begin, end, step)``: `body` is given the register of i and, if there is one, the `state`, whose next
        value it returns. Goes out: the last one.
        """
        head, inside, after = self.name("head"), self.name("inside"), self.name("after")
        i, following, before = "%" + self.name("i"), "%" + self.name("next"), self.label
        self.line(f"br label %{head}")
        self.start(head)
        at = len(self.lines)
        self.lines += ["", ""]  # the phis: their second sources are known when the body is written
        now = None if state is None else Lane("%" + self.name("state"), state.dtype)
        more = self.value(f"icmp slt i64 {i}, {end}")
        self.line(f"br i1 {more}, label %{inside}, label %{after}")
        self.start(inside)
        new = body(i) if now is None else body(i, now)
        self.line(f"{following} = add i64 {i}, {step}")
        self.lines[at] = f"  {i} = phi i64 [ {begin}, %{before} ], [ {following}, %{self.label} ]"
        if state is not None and now is not None and new is not None:
            sources = f"[ {state.ref}, %{before} ], [ {new.ref}, %{self.label} ]"
            self.lines[at + 1] = f"  {now.ref} = phi {self.vector(state.type)} {sources}"
        self.line(f"br label %{head}")
        self.start(after)
        return now

    def value(self, text: str) -> str:
        """The register that holds what an instruction gives."""
        name = "%" + self.name("s")
        self.line(f"{name} = {text}")
        return name

    def place(self, base: str, index: str, dtype: str) -> str:
        """The address of element `index`."""
        return self.value(f"getelementptr {STORED[dtype]}, ptr {base}, i64 {index}")

    def least(self, x: str, y: str) -> str:
        """The smaller of two integers."""
        return self.value(f"select i1 {self.value(f'icmp slt i64 {x}, {y}')}, i64 {x}, i64 {y}")

    def load(self, place: str, dtype: str, mask: str | None = None, other: Lane | None = None) -> Lane:
        """The vector there; with a `mask`, `other` in the lanes that it leaves out."""
        v = self.vector(STORED[dtype])
        if mask is None:
            return self.loaded(self.value(f"load {v}, ptr {place}, align 1"), dtype)
        kept = "zeroinitializer" if other is None else self.storable(other)
        self.declare(
            "llvm.masked.load." + self.suffix(dtype),
            f"declare {v} @llvm.masked.load.{self.suffix(dtype)}(ptr, i32, {self.vector('i1')}, {v})",
        )
        call = f"call {v} @llvm.masked.load.{self.suffix(dtype)}(ptr {place}, i32 1, {self.vector('i1')} {mask}, {v} {kept})"
        return self.loaded(self.value(call), dtype)

    def store(self, x: Lane, place: str, mask: str | None = None) -> None:
        """Write a vector; with a `mask`, only its lanes."""
        v, raw = self.vector(STORED[x.dtype]), self.storable(x)
        if mask is None:
            self.line(f"store {v} {raw}, ptr {place}, align 1")
            return
        name = "llvm.masked.store." + self.suffix(x.dtype)
        self.declare(name, f"declare void @{name}({v}, ptr, i32, {self.vector('i1')})")
        self.line(f"call void @{name}({v} {raw}, ptr {place}, i32 1, {self.vector('i1')} {mask})")

    def suffix(self, dtype: str) -> str:
        """How the names of intrinsics on vectors in memory end."""
        kind = {"half": "f16", "float": "f32", "double": "f64"}.get(STORED[dtype], STORED[dtype])
        return f"v{self.width}{kind}.p0"

    def scalar(self, place: str, dtype: str) -> Lane:
        """One element in all lanes."""
        return self.loaded(self.value(f"load {STORED[dtype]}, ptr {place}, align 1"), dtype, scalar=True)

    def below(self, count: str) -> str:
        """The mask of the first `count` lanes."""
        few = self.splat(self.value(f"trunc i64 {count} to i32"), "int32")
        return self.compare("lt", self.sequence("int32"), few).ref

    def vectors(self, count: str, body: Callable[[str, str | None], None]) -> None:
        """`body` for the elements below `count`, a vector at a time: is given where it begins and, for the last part of one, a mask."""
        if self.width == 1:
            self.count("0", count, 1, lambda i: body(i, None))
            return
        rest = self.value(f"urem i64 {count}, {self.width}")
        whole = self.value(f"sub i64 {count}, {rest}")
        self.count("0", whole, self.width, lambda i: body(i, None))
        self.when(rest, lambda: body(whole, self.below(rest)))

    def when(self, count: str, body: Callable[..., Lane | None], state: Lane | None = None) -> Lane | None:
        """`body` unless `count` is 0, with a `state` as in `count`."""
        then, after, before = self.name("then"), self.name("after"), self.label
        some = self.value(f"icmp ne i64 {count}, 0")
        self.line(f"br i1 {some}, label %{then}, label %{after}")
        self.start(then)
        new = body() if state is None else body(state)
        inside = self.label
        self.line(f"br label %{after}")
        self.start(after)
        if state is None or new is None:
            return None
        return self.let(
            f"phi {self.vector(state.type)} [ {state.ref}, %{before} ], [ {new.ref}, %{inside} ]", state.dtype
        )


class Loop:
    """A compiled loop: integers `numbers` and arrays `arrays` by name, and the body of a unit of work."""

    def __init__(self, numbers: Sequence[str], arrays: Sequence[str], width: int, body: Body) -> None:
        self._kernel = assembled(_text(tuple(numbers), tuple(arrays), width, body))

    def __call__(
        self, units: int, numbers: Sequence[int], arrays: Sequence[Ndarray], threads: int | None = None
    ) -> None:
        """Run it for the units below `units`; by as many threads as a call may use, if it is not said how many."""
        job = (ctypes.c_int64 * (len(numbers) + 1))(units, *numbers)
        pointers = (ctypes.c_void_p * len(arrays))(*[address(a) for a in arrays])
        counter = ctypes.c_int64(0)
        threads = min(units, thread_count() if threads is None else threads)
        at, pointers_at = ctypes.addressof(job), ctypes.addressof(pointers)
        standby.run(self._kernel, at, pointers_at, ctypes.addressof(counter), threads)


def _text(numbers: tuple[str, ...], arrays: tuple[str, ...], width: int, body: Body) -> str:
    wide = llvm.target().wide
    w = Vectors(width, wide)
    w.start("entry")
    for i, name in enumerate(("units", *numbers)):
        w.line(f"%at_{name} = getelementptr i64, ptr %job, i64 {i}")
        w.line(f"%{name} = load i64, ptr %at_{name}, align 8")
    for i, name in enumerate(arrays):
        w.line(f"%at_{name} = getelementptr ptr, ptr %pointers, i64 {i}")
        w.line(f"%{name} = load ptr, ptr %at_{name}, align 8")
    w.line("br label %take")
    w.start("take")
    w.line("%u = atomicrmw add ptr %counter, i64 1 monotonic")
    w.line("%any = icmp ult i64 %u, %units")
    w.line("br i1 %any, label %unit, label %exit")
    w.start("unit")
    body(w)
    w.line("br label %take")
    w.start("exit")
    w.line("ret void")
    head, lines = "\n".join(w.declared.values()), "\n".join(w.lines)
    signature = "define void @kernel(ptr noalias %job, ptr noalias %pointers, ptr %counter)"
    return f"{head}\n{signature} #0 {{\n{lines}\n}}\n{attributes(wide)}"
