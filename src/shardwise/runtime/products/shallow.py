"""Matrix products of little depth in machine code of our own, a third faster there than a library that lays out both operands.

Comes in: how the operands lie. Goes out: a function with the arguments of ``cblas_?gemm`` that computes ``c = a @ b`` (order, alpha and
beta are not read). A strip of some columns of `b` is laid out row by row in the first-level cache; then the rows of `a` go past it, a
few at a time, whose sums stay in registers. Each sum is added up in the order of the depth, so results do not depend on cuts. Where `b` has
fewer columns than a vector has lanes, vectors are as short.

Rows and columns must fill the registers once (`fits`): the last ones are computed again together with those before them.
"""

from __future__ import annotations

import contextlib
import functools
import math

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.runtime import costs
from shardwise.runtime.loops import Writer, module
from shardwise.runtime.machine import TYPES, Lane, itemsize, llvm, start_thread
from shardwise.runtime.products import blas

_NARROWEST, _HALF = 4, 8  # columns, and those that shorter vectors have to fill
WIDEST = 16  # columns beyond which all have the same function
_CHARS = "fd"  # the dtypes whose products are written here


@dataclass(frozen=True, slots=True)
class Registers:
    """Lanes of a vector, the rows whose sums are in registers together, and the vectors of each."""

    lanes: int
    rows: int
    across: int = 2

    @property
    def columns(self) -> int:
        """The columns of a strip."""
        return self.lanes * self.across


def registers(char: str, n: int) -> Registers:
    """The registers of this processor for float32 ("f") or float64 ("d") and a result of `n` columns."""
    target = llvm.target()
    lanes = target.bytes // (4 if char == "f" else 8)
    if n > lanes:
        return Registers(lanes, 12 if target.wide else 4)
    return Registers(1 << n.bit_length() - 1, 12 if target.wide else 8, 1)


def fits(char: str, left: int, m: int, n: int, k: int) -> bool:
    """Whether this is the best way for products of these sizes, `a` plain or transposed, where the result stays in the cache."""
    if char not in _CHARS or not llvm.available():
        return False
    held = registers(char, n)
    narrow = held.across == 1 and (
        n < _NARROWEST or (held.lanes < _HALF and n > held.lanes)
    )  # short vectors, most of them twice
    fills = m >= held.rows and n >= held.columns and not narrow
    return fills and held.lanes <= k <= _deepest(left, costs.SHALLOW_DEEPEST)


def _deepest(left: int, plain: int) -> int:
    """The greatest depth: `plain` for a left operand that lies plain."""
    return plain if left == blas.PLAIN else costs.SHALLOW_DEEPEST_TURNED


def fits_cold(char: str, left: int, m: int, n: int, k: int, step: int) -> bool:
    """As `fits`, for a result in memory, with `step` elements from row to row."""
    return pays_cold(char, left, m, n, k, step) and fits(char, left, m, n, k)


def pays_cold(char: str, left: int, m: int, n: int, k: int, step: int) -> bool:
    """Whether `fits_cold` pays if the code can be made; asks no compiler."""
    few = k <= _deepest(left, costs.SHALLOW_DEEPEST_COLD) and step <= costs.SHALLOW_LONGEST_COLD
    return few and char in _CHARS and m * n * k > (costs.SHALLOW_COLD_FROM if n > WIDEST else costs.SHALLOW_NARROW_FROM)


def function(char: str, left: int, right: int, n: int, integer_size: int, work: float, ahead: bool = False) -> int:
    """The address of the function for operands that lie plain or transposed, as the library's flags say, and `n` columns. `work`:
    multiplications; `ahead`: as in `llvm.compile_function`.
    """
    text = _module(char, registers(char, n), left == blas.TRANSPOSED, right == blas.TRANSPOSED, 8 * integer_size)
    compiled = llvm.compile_function("product", text, costs.DRAFT_PRODUCT * work, ahead)
    return _alive.setdefault(text, compiled).address


_alive: dict[str, llvm.CompiledFunction] = {}


@functools.cache
def prepare(char: str, left: int, right: int, n: int, integer_size: int) -> None:
    """Have the function made in another thread, as a program is compiled that will probably need it."""
    start_thread(_prepare_kernel, char, left, right, n, integer_size)


def _prepare_kernel(char: str, left: int, right: int, n: int, integer_size: int) -> None:
    with contextlib.suppress(RuntimeError, OSError, MemoryError):  # the product that needs it will raise
        if llvm.available():
            function(char, left, right, n, integer_size, math.inf, ahead=True)


@functools.cache
def _module(char: str, held: Registers, left: bool, right: bool, bits: int) -> str:
    """The function's module; integers of the library have `bits` bits."""
    w = _Writer(char, held)
    m, n, k, lda, ldb, ldc = blas.arguments(w, ("m", "n", "k", "lda", "ldb", "ldc"), bits)
    w.product(m, n, k, lda, ldb, ldc, left, right)
    return module(w, f"define void @product({blas.signature(TYPES[w.dtype], bits)}) #0 {{\n{w.body()}\n  ret void\n}}")


class _Writer(Writer):
    """Writes the function's body."""

    def __init__(self, char: str, held: Registers) -> None:
        self.dtype = "float32" if char == "f" else "float64"
        self.rows, self.strip, self.across = held.rows, held.columns, held.across
        super().__init__(held.lanes, wide=held.lanes * itemsize(self.dtype) == 64)
        self.start("entry")

    def _at(self, base: str, offset: int | str) -> str:
        return self.element(base, offset, self.dtype)

    def product(self, m: str, n: str, k: str, lda: str, ldb: str, ldc: str, left: bool, right: bool) -> None:
        """Blocks of rows, and for each the strips of columns; `left` and `right` say which operands lie transposed."""
        room = self.integer("mul", k, self.strip)
        strip = self.value(f"alloca {TYPES[self.dtype]}, i64 {room}, align 64", "strip")
        last_strip = self.integer("sub", n, self.strip)
        # Rows of a block: a multiple of those in registers, and at least that many.
        fit = self.integer("udiv", costs.SHALLOW_BLOCK // itemsize(self.dtype) // self.rows, k)
        height = self.integer("mul", self.greatest(fit, 4), self.rows)

        def block(first: str, _: list[str]) -> None:
            end = self.least(self.integer("add", first, height), m)
            last_rows = self.integer("sub", end, self.rows)

            def columns(at: str, _: list[str]) -> None:
                j = self.least(at, last_strip)
                (self._pack_turned if right else self._pack)(strip, j, k, ldb)
                out = self._at("%c", j)

                def rows(at: str, _: list[str]) -> None:
                    i = self.least(at, last_rows)
                    self._rows(strip, out, i, k, lda, ldc, left)

                self.loop(first, end, rows, step=self.rows)

            self.loop(0, n, columns, step=self.strip)

        self.loop(0, m, block, step=height)

    def _pack(self, strip: str, j: str, k: str, ldb: str) -> None:
        """Lay out a strip from rows."""
        begin = self._at("%b", j)

        def row(p: str, _: list[str]) -> None:
            source = self._at(begin, self.integer("mul", p, ldb))
            target = self._at(strip, self.integer("mul", p, self.strip))
            for v in range(self.across):
                self.store(self.load(self._at(source, v * self.width), self.dtype), self._at(target, v * self.width))

        self.loop(0, k, row)

    def _pack_turned(self, strip: str, j: str, k: str, ldb: str) -> None:
        """Lay out a strip from columns that lie side by side: squares of a vector's lanes are transposed in registers."""
        lanes = self.width
        begin = self._at("%b", self.integer("mul", j, ldb))

        def square(p: str) -> None:
            source = self._at(begin, p)
            target = self._at(strip, self.integer("mul", p, self.strip))

            def part(
                first: str, _: list[str]
            ) -> None:  # not unrolled: LLVM takes 6 ms for the shuffles of a square of 16
                corner, to = self._at(source, self.integer("mul", ldb, first)), self._at(target, first)
                columns = [self._at(corner, self.integer("mul", ldb, i)) for i in range(lanes)]
                lines = self.transpose_rows([self.load(column, self.dtype) for column in columns])
                for i, line in enumerate(lines):
                    self.store(line, self._at(to, i * self.strip))

            self.loop(0, self.strip, part, step=lanes)

        self.row(k, square)

    def _rows(self, strip: str, out: str, i: str, k: str, lda: str, ldc: str, left: bool) -> None:
        """Some rows of `a` past the strip, their sums in registers."""
        numbers = [self.integer("add", i, r) for r in range(self.rows)]
        starts = [self._at("%a", number if left else self.integer("mul", number, lda)) for number in numbers]
        zero = self.constant(0.0, self.dtype)

        def depth(d: str, sums: list[Lane]) -> list[Lane]:
            row, step = self.integer("mul", d, self.strip), self.integer("mul", d, lda) if left else d
            at = self._at(strip, row)
            b = [self.load(self._at(at, x * self.width), self.dtype) for x in range(self.across)]
            found = list[Lane]()
            for r, start in enumerate(starts):
                a = self.scalar(self._at(start, step), self.dtype)
                found += [self.fma(b[x], a, sums[r * self.across + x]) for x in range(self.across)]
            return found

        sums = self.accumulate(0, k, depth, [zero] * (self.rows * self.across))
        for r, number in enumerate(numbers):
            line = self._at(out, self.integer("mul", number, ldc))
            for x in range(self.across):
                self.store(sums[r * self.across + x], self._at(line, x * self.width))
