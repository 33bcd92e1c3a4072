"""The few greatest elements of rows, in machine code: two passes over a row, which stays in the cache.

The first pass finds a bound that at least the wanted number of elements reach: each lane keeps its greatest element, and the least
of these is the bound. The second pass inserts the elements that reach the bound, which are few, into a sorted list.
"""

from __future__ import annotations

import math

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ndarray
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import RARE, STORED, Lane, available, thread_count
from shardwise.runtime.memory import pool

FEWEST = 1 << 10  # elements; from here on a compiled loop is faster
MOST = 128  # wanted elements: each insertion shifts the list by one position
_CHUNK = 1 << 14  # elements per chunk of a thread
_THREADS_FROM = 1 << 16  # elements; from here on a second thread is faster
_LANES = 16  # of most processors' vectors of int32
_INSERTION_LOOKS, _MOVE_LOOKS = 6, 1.3  # looks at an element that an insertion takes, and more for each that is wanted
_LAST = (1 << 31) - 1  # the last rank
_FLOATS = {
    "float32": ("int32", _LAST),
    "float16": ("int16", (1 << 15) - 1),
    "bfloat16": ("int16", (1 << 15) - 1),
}  # all bits but the sign
_OPEN = (1 << 32) - 1  # the position of a list entry without an element


def selects(x: Ndarray, k: int) -> bool:
    """Whether code for `k` elements of each row of `x` exists and is faster."""
    if not (0 < k <= MOST and x.size >= FEWEST and x.shape[-1] < 1 << 31):
        return False
    return name_of(x.dtype) in STORED and x.itemsize <= 4 and x.dtype.isnative and available()


def row_steps(x: Ndarray) -> tuple[int, int, int] | None:
    """How rows follow each other where each lies in one piece: runs of so many, bytes from run to run and from row to row of a run, as the
    parts of a dim that devices split have them. None where they lie otherwise.
    """
    if x.strides[-1] != x.itemsize:
        return None
    loops = list[tuple[int, int]]()
    for n, step in zip(x.shape[:-1], x.strides[:-1], strict=True):
        if n == 1:
            continue
        if loops and loops[-1][1] == n * step:
            loops[-1] = loops[-1][0] * n, step
        else:
            loops.append((n, step))
    if len(loops) > 2:
        return None
    (_, outer), (count, inner) = [(1, 0)] * (2 - len(loops)) + loops
    return count, outer, inner


def greatest(x: Ndarray, k: int, threads: int | None = None) -> tuple[Ndarray, Ndarray]:
    """The `k` greatest elements of each row, and their int32 positions: [..., n] -> [..., k]; `x` has `row_steps`.

    They are ordered as `descending_ranks` orders them; equal ones by position.
    """
    n, steps = x.shape[-1], row_steps(x)
    assert steps is not None
    rows = x.size // n
    width = lanes_of("int32")
    values, places = (pool.empty((*x.shape[:-1], k), t) for t in (x.dtype, np.dtype(np.int32)))
    chunk = max(1, _CHUNK // n)
    units = -(-rows // chunk)
    groups = 1 << max(0, -(-k // width) - 1).bit_length()
    room = 1 + k + width // 2
    lists = np.empty((units, room), np.int64)
    if threads is None:
        threads = thread_count() if x.size >= _THREADS_FROM else 1
    numbers = (rows, n, chunk, k, room, n - n % width, n - n % (groups * width), *steps)
    _loop(name_of(x.dtype), groups)(units, numbers, (x, values, places, lists), threads)
    return values, places


def ranks_of(w: Function, place: str, dtype: str, mask: str | None = None) -> Lane:
    """int32 ranks of the elements at `place` in the total order, greatest first."""
    if dtype in _FLOATS:
        word, positive = _FLOATS[dtype]
        bits = w.convert(w.load(place, word, mask), "int32")
        # The bits of negative floats are in reverse order.
        flip_mask = w.binary("and", w.binary("ashr", bits, w.like(31, bits)), w.like(positive, bits))
        ranks = w.binary("xor", bits, flip_mask)
    elif dtype == "uint32":
        ranks = w.load(place, "int32", mask)
        ranks = w.binary("xor", ranks, w.like(-1 - _LAST, ranks))
    else:
        ranks = w.convert(w.load(place, dtype, mask), "int32")
    return w.binary("xor", ranks, w.like(-1, ranks))


def insertion_steps(k: int, n: int) -> float:
    """About how many looks at an element the insertions of a row of `n` take: elements that reach the bound, the least of the greatest
    elements of as many lanes as are wanted, each of which moves a part of the list."""
    lanes = _LANES << max(0, -(-k // _LANES) - 1).bit_length()
    return min(n, lanes * (math.log(lanes) + 0.6)) * (_INSERTION_LOOKS + _MOVE_LOOKS * k)


@recent(32)
def _loop(dtype: str, groups: int) -> WorkLoop:
    """Unit: some rows, with a list of int64: a sentinel below all, the wanted elements as rank and position, then a vector's ranks."""
    numbers = ("rows", "n", "chunk", "k", "room", "whole", "grouped", "run", "outer", "inner")
    arrays = ("x", "values", "places", "lists")
    return WorkLoop(numbers, arrays, lanes_of("int32"), lambda w, unit: _Selection(w, unit, dtype, groups).write())


class _Selection:
    """Writes the selection from the rows of a unit."""

    def __init__(self, w: Function, unit: str, dtype: str, groups: int) -> None:
        self.w, self.dtype, self.groups = w, dtype, groups
        self.begin = w.integer("mul", unit, "%chunk")
        self.end = w.least("%rows", w.integer("add", self.begin, "%chunk"))
        self.items = w.element("%lists", w.integer("mul", unit, "%room"), "int64")
        self.wanted, self.ranks = (w.element(self.items, w.integer("add", "%k", i), "int64") for i in (0, 1))

    def write(self) -> None:
        w = self.w
        w.line(f"store i64 {-(1 << 63)}, ptr {self.items}, align 8")
        w.declare("llvm.cttz.i64", "declare i64 @llvm.cttz.i64(i64, i1)")
        w.loop(self.begin, self.end, self._row)

    def _row(self, r: str, _: list[str]) -> None:
        w = self.w
        run, at = w.split(r, ["%rows", "%run"])
        row = w.advance_address(w.advance_address("%x", run, "%outer"), at, "%inner")
        bound = w.value(f"sext i32 {self._rank_bound(row)} to i64")
        first = w.value(f"or i64 {w.value(f'shl i64 {bound}, 32')}, {_OPEN}")
        w.loop(0, "%k", lambda j, _: self._set_item(w.integer("add", j, 1), first))
        carry = [("i64", first), ("i32", self._threshold(first))]
        state = w.loop(0, "%whole", lambda i, held: self._vector(row, i, held), carry, w.width, occurs=False)
        rest = w.integer("sub", "%n", "%whole")
        w.branch(w.test("ne", rest, 0), lambda: (self._vector(row, "%whole", state, w.below(rest)), None)[1])
        out = w.integer("mul", r, "%k")
        w.loop(0, "%k", lambda j, _: self._give(row, out, j))

    def _rank_bound(self, row: str) -> str:
        """A rank that enough elements of the row reach, or the last one if the row is short."""
        w, dtype = self.w, self.dtype

        def step(i: str, best: list[Lane]) -> list[Lane]:
            ranks: list[Lane] = []
            for g, least in enumerate(best):
                place = w.element(row, w.integer("add", i, g * w.width), dtype)
                ranks.append(w.call("smin", least, ranks_of(w, place, dtype)))
            return ranks

        start = [w.constant(_LAST, "int32")] * self.groups
        worst, *others = w.accumulate(0, "%grouped", step, start, self.groups * w.width, occurs=False)
        for other in others:
            worst = w.call("smax", worst, other)
        name = f"llvm.vector.reduce.smax.v{w.width}i32"
        w.declare(name, f"declare i32 @{name}({w.vector('i32')})")
        return w.value(f"call i32 @{name}({w.vector('i32')} {worst.ref})")

    def _threshold(self, last: str) -> str:
        """The worst rank that enters the list: one equal to the last item's is too late, unless the last entry is open."""
        w = self.w
        rank = w.value(f"trunc i64 {w.value(f'ashr i64 {last}, 32')} to i32")
        position = w.value(f"and i64 {last}, {_OPEN}")
        is_closed = w.value(f"zext i1 {w.test('ne', position, _OPEN)} to i32")
        return w.value(f"sub i32 {rank}, {is_closed}")

    def _vector(self, row: str, i: str, held: list[str], mask: str | None = None) -> list[str]:
        """Process a vector of the row; returns the last item of the list and the threshold."""
        w = self.w
        bits_type = f"i{w.width}"
        ranks = ranks_of(w, w.element(row, i, self.dtype), self.dtype, mask)
        hits = w.compare("le", ranks, w.splat(held[1], "int32"))
        if mask is not None:
            hits = w.binary("and", hits, Lane(mask, "bool"))
        bits = w.value(f"bitcast {w.vector('i1')} {hits.ref} to {bits_type}")
        bits = w.value(f"zext {bits_type} {bits} to i64")

        def look() -> list[str]:
            w.store(ranks, self.ranks)
            some = lambda now: w.test("ne", now[0], 0)  # noqa: E731
            last = w.repeat([("i64", bits), ("i64", held[0])], some, lambda now: self._hit(i, *now))[1]
            return [last, self._threshold(last)]

        return w.branch(w.test("ne", bits, 0), look, held, ["i64", "i32"], RARE)

    def _hit(self, i: str, bits: str, last: str) -> list[str]:
        """Look at the first of the `bits` that are set, those of lanes from element i on. Returns the other bits and the last item."""
        w = self.w
        lane = w.value(f"call i64 @llvm.cttz.i64(i64 {bits}, i1 true)")
        rank = w.value(f"sext i32 {self._load(self.ranks, lane, 'int32')} to i64")
        item = w.value(f"or i64 {w.value(f'shl i64 {rank}, 32')}, {w.integer('add', i, lane)}")
        (last,) = w.branch(w.test("slt", item, last), lambda: self._enter(item), [last], ["i64"])
        return [w.value(f"and i64 {bits}, {w.integer('sub', bits, 1)}"), last]

    def _enter(self, item: str) -> list[str]:
        """Insert an item in order and drop the last item. Returns the new last item."""
        w = self.w

        def precedes(held: list[str]) -> str:
            return w.test("sgt", self._load(self.items, w.integer("sub", held[0], 1)), item)

        def move(held: list[str]) -> list[str]:
            before = w.integer("sub", held[0], 1)
            self._set_item(held[0], self._load(self.items, before))
            return [before]

        (place,) = w.repeat([("i64", "%k")], precedes, move)
        self._set_item(place, item)
        return [self._load(self.wanted, 0)]

    def _give(self, row: str, out: str, j: str) -> None:
        """Store item j of the list as a result: its value and its position."""
        w, kind = self.w, STORED[self.dtype]
        place = w.value(f"trunc i64 {self._load(self.items, w.integer('add', j, 1))} to i32")
        at = w.integer("add", out, j)
        w.line(f"store i32 {place}, ptr {w.element('%places', at, 'int32')}, align 4")
        source = w.element(row, w.value(f"zext i32 {place} to i64"), self.dtype)
        value = w.value(f"load {kind}, ptr {source}, align 1")
        w.line(f"store {kind} {value}, ptr {w.element('%values', at, self.dtype)}, align 1")

    def _load(self, place: str, index: int | str, kind: str = "int64") -> str:
        return self.w.value(f"load {STORED[kind]}, ptr {self.w.element(place, index, kind)}, align 4")

    def _set_item(self, index: str, item: str) -> None:
        self.w.line(f"store i64 {item}, ptr {self.w.element(self.items, index, 'int64')}, align 8")
