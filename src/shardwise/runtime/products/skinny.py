"""Products of few rows and a large matrix in machine code of our own: the matrix is read once, and hardly laid out.

Comes in: how the left operand lies, and its number of rows; the right one lies plain. Goes out: a function with the arguments of
``cblas_?gemm`` that computes ``c = a @ b`` (order, alpha and beta are not read). A library lays out all of `b` first, which takes
as long as to multiply it by some ten rows. Here a piece of `b` is laid out in the first-level cache, and the rows of `a` go past
it, some at a time, whose sums stay in registers; meanwhile the next piece is fetched. Each sum is added up in the order of the
depth, so results do not depend on cuts.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.runtime import costs
from shardwise.runtime.loops import Writer, module
from shardwise.runtime.machine import TYPES, Lane, itemsize, llvm, start_thread
from shardwise.runtime.products import blas

_DEEP = 64


@dataclass(frozen=True, slots=True)
class Registers:
    """Lanes of a vector, and the most rows and the vectors of a row whose sums are in registers together."""

    lanes: int
    rows: int
    across: int


def registers(char: str) -> Registers:
    """The registers of this processor for float32 ("f") or float64 ("d")."""
    target = llvm.target()
    return Registers(target.bytes // (4 if char == "f" else 8), *((6, 4) if target.wide else (4, 2)))


def fits(char: str, right: int, m: int, n: int, k: int, step: int) -> bool:
    """Whether products of these sizes, `b` plain or transposed and with `step` elements from row to row of the result, are best computed
    so, in cuts of columns whose result has `costs.SKINNY_RESULT` bytes.
    """
    if not pays(char, right, m, n, k, step) or not llvm.available():
        return False
    held = registers(char)
    return n >= held.lanes * held.across and n % held.lanes == 0


def pays(char: str, right: int, m: int, n: int, k: int, step: int) -> bool:
    """Whether this is the best way if the code can be made, and columns fill the registers; asks no compiler."""
    if char not in "fd" or right != blas.PLAIN:
        return False
    shallow = k <= costs.SHALLOW_DEEPEST_COLD and step <= costs.SHALLOW_LONGEST_COLD
    return not shallow and k >= costs.SKINNY_DEPTH and m * k * n > costs.SKINNY_FROM and 1 < m <= costs.SKINNY_MOST


def function(char: str, left: int, m: int, integer_size: int, work: float, ahead: bool = False) -> int:
    """The address of the function for `m` rows that lie plain or transposed, as the library's flag `left` says. `work`: multiplications;
    `ahead`: as in `llvm.compile_function`."""
    held = registers(char)
    tiles = -(-m // held.rows)
    text = _module(char, held, left == blas.TRANSPOSED, -(-m // tiles), 8 * integer_size)
    compiled = llvm.compile_function("product", text, costs.DRAFT_PRODUCT * work, ahead)
    return _alive.setdefault(text, compiled).address


@recent(256)
def prepare(char: str, left: int, m: int, n: int, k: int, integer_size: int) -> None:
    """Have the function for products that pay made in another thread, as a program is compiled that will probably need it; or the library
    loaded, where it cannot be made or columns do not fill the registers. Where a draft may do, whoever needs it makes it.
    """
    start_thread(_prepare_kernel, char, left, m, n, k, integer_size)


def _prepare_kernel(char: str, left: int, m: int, n: int, k: int, integer_size: int) -> None:
    if not fits(char, blas.PLAIN, m, n, k, n):
        blas.prepare()
    elif m * n * k >= costs.SKINNY_NO_DRAFT:
        with contextlib.suppress(RuntimeError, OSError, MemoryError):  # the product that needs it will raise
            function(char, left, m, integer_size, math.inf, ahead=True)


_alive: dict[str, llvm.CompiledFunction] = {}


@functools.cache
def _module(char: str, held: Registers, left: bool, height: int, bits: int) -> str:
    """The function's module; integers of the library have `bits` bits."""
    w = _Writer(char, held, left, height)
    names = ("m", "n", "k", "lda", "ldb", "ldc")
    w.sizes.update(zip(names, blas.arguments(w, names, bits), strict=True))
    w.product()
    return module(w, f"define void @product({blas.signature(TYPES[w.dtype], bits)}) #0 {{\n{w.body()}\n  ret void\n}}")


class _Writer(Writer):
    """Writes the function's body. `left`: whether `a` lies transposed; `height`: the rows of most tiles, others have one less."""

    def __init__(self, char: str, held: Registers, left: bool, height: int) -> None:
        self.dtype = "float32" if char == "f" else "float64"
        self.held, self.left, self.height = held, left, height
        self.sizes: dict[str, str] = {}
        self.strip = self.rows = ""  # where the piece of `b` and the rows of `a` beside it are laid out
        super().__init__(held.lanes, wide=held.lanes * itemsize(self.dtype) == 64)
        self.start("entry")

    def _at(self, base: str, offset: int | str) -> str:
        return self.element(base, offset, self.dtype)

    def product(self) -> None:
        """Pieces of `b`, its rows outermost, and for each the tiles of rows of `a`."""
        m, n, k, height = self.sizes["m"], self.sizes["n"], self.sizes["k"], self.height
        tiles = self.integer("udiv", self.integer("add", m, height - 1), height)
        tall = self.integer("sub", m, self.integer("mul", tiles, height - 1))
        wide = self.held.lanes * self.held.across
        whole = self.integer("mul", self.integer("udiv", n, wide), wide)
        self.strip = self.value(f"alloca {TYPES[self.dtype]}, i64 {_DEEP * wide}, align 64", "strip")
        self.rows = self.value(f"alloca {TYPES[self.dtype]}, i64 {self.integer('mul', m, _DEEP)}, align 64", "rows")

        def deep(begin: str, _: list[str]) -> None:
            end = self.least(self.integer("add", begin, _DEEP), k)
            self._tiles(tiles, tall, lambda first, rows: self._lay_out_rows(first, rows, begin, end))
            self.loop(
                0,
                whole,
                lambda j, _: self._piece(j, begin, end, self.held.across, tiles, tall),
                step=wide,
                occurs=False,
            )
            self.loop(
                whole, n, lambda j, _: self._piece(j, begin, end, 1, tiles, tall), step=self.held.lanes, occurs=False
            )

        self.loop(0, k, deep, step=_DEEP)

    def _tiles(self, tiles: str, tall: str, body: Callable[[str, int], None]) -> None:
        """`body(first row, rows)` for the tiles with as many rows as any, then for those with one less."""
        height = self.height

        def high(t: str, _: list[str]) -> None:
            body(self.integer("mul", t, height), height)

        def low(t: str, _: list[str]) -> None:
            body(self.integer("add", self.integer("mul", t, height - 1), tall), height - 1)

        self.loop(0, tall, high)
        if height > 1:
            self.loop(tall, tiles, low, occurs=False)

    def _lay_out_rows(self, first: str, rows: int, begin: str, end: str) -> None:
        """Rows of `a`, the elements of a column side by side."""
        lda, kind = self.sizes["lda"], TYPES[self.dtype]
        numbers = [self.integer("add", first, r) for r in range(rows)]
        starts = [self._at("%a", i if self.left else self.integer("mul", i, lda)) for i in numbers]
        target = self._at(self.rows, self.integer("mul", first, _DEEP))

        def column(d: str, _: list[str]) -> None:
            step = self.integer("mul", d, lda) if self.left else d
            into = self._at(target, self.integer("mul", self.integer("sub", d, begin), rows))
            for r, start in enumerate(starts):
                size = itemsize(self.dtype)
                one = self.value(f"load {kind}, ptr {self._at(start, step)}, align {size}")
                self.line(f"store {kind} {one}, ptr {self._at(into, r)}, align {size}")

        self.loop(begin, end, column)

    def _piece(self, j: str, begin: str, end: str, across: int, tiles: str, tall: str) -> None:
        """All rows of `a` past one piece."""
        column = self._at("%b", j)

        def lay_out(d: str, _: list[str]) -> None:
            source = self._at(column, self.integer("mul", d, self.sizes["ldb"]))
            target = self._at(self.strip, self.integer("mul", self.integer("sub", d, begin), across * self.width))
            for x in range(across):
                self.store(self.load(self._at(source, x * self.width), self.dtype), self._at(target, x * self.width))

        self.loop(begin, end, lay_out)
        self._tiles(tiles, tall, lambda first, rows: self._tile(first, rows, j, begin, end, across))

    def _tile(self, first: str, rows: int, j: str, begin: str, end: str, across: int) -> None:
        """Some rows of `a` past a piece; their sums are those of the piece above, or zero."""
        ldb, ldc, width = self.sizes["ldb"], self.sizes["ldc"], self.width
        numbers = [self.integer("add", first, r) for r in range(rows)]
        lines = [self._at(self._at("%c", j), self.integer("mul", i, ldc)) for i in numbers]
        places = [self._at(line, x * width) for line in lines for x in range(across)]
        top, zero = self.test("eq", begin, 0), self.constant(0.0, self.dtype)
        kind = self.vector(zero.type)
        sums = [
            self.let(f"select i1 {top}, {kind} {zero.ref}, {kind} {self.load(place, self.dtype).ref}", self.dtype)
            for place in places
        ]
        # The piece to the right: each tile fetches one of its vectors per row, so that some tiles fetch all.
        part = self.integer("urem", self.integer("udiv", first, rows), across)
        ahead = self._at(
            "%b", self.integer("add", self.integer("add", j, across * width), self.integer("mul", part, width))
        )
        left = self._at(self.rows, self.integer("mul", first, _DEEP))

        def depth(d: str, held: list[Lane]) -> list[Lane]:
            at = self.integer("sub", d, begin)
            line, column = self._at(self.strip, self.integer("mul", at, across * width)), self.integer("mul", at, rows)
            b = [self.load(self._at(line, x * width), self.dtype) for x in range(across)]
            self.prefetch(self._at(ahead, self.integer("mul", d, ldb)), False, 2)
            found: list[Lane] = []
            for r in range(rows):
                a = self.scalar(self._at(self._at(left, column), r), self.dtype)
                found += [self.fma(b[x], a, held[r * across + x]) for x in range(across)]
            return found

        for place, total in zip(places, self.accumulate(begin, end, depth, sums), strict=True):
            self.store(total, place)
