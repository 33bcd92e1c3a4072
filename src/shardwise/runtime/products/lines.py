"""Products of a large matrix, whose lines run along the depth, with few lines of another, in machine code of our own.

Comes in: which operand is the large one (``b`` if it lies transposed, ``a`` if it lies plain), how the other lies, and its lines, few rows
of `a` or columns of `b`. Goes out: a function with the arguments of ``cblas_?gemm`` that computes ``c = a @ b`` (order, alpha and beta are
not read). The few lines are laid out piece by piece of the depth. Some lines of the large matrix go past some of the few: products are
added up lane by lane, and then the lanes of each sum, neighbours first. That order depends on the depth alone, so results do not depend
on cuts.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from shardwise.runtime import costs
from shardwise.runtime.loops import Writer, lanes_of, module
from shardwise.runtime.machine import TYPES, Lane, itemsize, llvm
from shardwise.runtime.products import blas

_CHARS = {"f": "float32", "d": "float64"}
_DEEP = 1024  # elements of a piece


def side(left: int, right: int, m: int, n: int) -> bool | None:
    """Whether the few lines are the right operand's (else the left one's) for results of m x n; None where this is no way."""
    if left == blas.PLAIN and n <= min(m, costs.LINES_MOST):
        return True
    return False if right == blas.TRANSPOSED and m <= min(n, costs.LINES_MOST) else None


def _lies_apart(few_right: bool, left: int, right: int) -> bool:
    """Whether the elements of the few lines do not follow each other in memory."""
    return right == blas.PLAIN if few_right else left == blas.TRANSPOSED


def pays(char: str, left: int, right: int, m: int, n: int, k: int) -> bool:
    """Whether this is the best way for products of these sizes if the code can be made; asks no compiler."""
    few_right, few, many = side(left, right, m, n), min(m, n), max(m, n)
    if char not in _CHARS or few_right is None:
        return False
    if few == 1:
        return k <= costs.LINES_SHORT and m * n * k > costs.LINE_NUMPYS
    if k < costs.LINES_DEPTH or m * n * k <= costs.PRODUCT_NUMPYS:
        return False
    return many >= costs.LINES_LAID_OUT or not _lies_apart(few_right, left, right)


def fits(char: str, left: int, right: int, m: int, n: int, k: int) -> bool:
    """Whether products of these sizes are best computed so."""
    return pays(char, left, right, m, n, k) and llvm.available()


def function(char: str, left: int, right: int, m: int, n: int, k: int, integer_size: int, work: float) -> int:
    """The address of the function. `work`: multiplications."""
    dtype = _CHARS[char]
    few_right = bool(side(left, right, m, n))
    lanes = min(lanes_of(dtype), max(4, 1 << (k - 1).bit_length()))
    apart, few = _lies_apart(few_right, left, right), n if few_right else m
    text = _module(dtype, lanes, llvm.target().wide, few_right, apart, few, 8 * integer_size)
    code = llvm.compile_function("product", text, costs.DRAFT_PRODUCT * work)
    return _alive.setdefault(text, code).address


_alive: dict[str, llvm.CompiledFunction] = {}


@functools.cache
def _module(dtype: str, lanes: int, wide: bool, right: bool, apart: bool, few: int, bits: int) -> str:
    """The function's module; integers of the library have `bits` bits."""
    w = _Writer(dtype, lanes, wide, right, apart, few)
    names = ("m", "k", "lda", "ldb", "ldc") if right else ("n", "k", "ldb", "lda", "ldc")
    w.product(*blas.arguments(w, names, bits))
    return module(w, f"define void @product({blas.signature(TYPES[dtype], bits)}) #0 {{\n{w.body()}\n  ret void\n}}")


class _Writer(Writer):
    """Writes the function's body. `right`: whether the few lines are those of `b`; `apart`: whether their elements lie apart."""

    def __init__(self, dtype: str, lanes: int, wide: bool, right: bool, apart: bool, few: int) -> None:
        self.dtype, self.right, self.apart, self.few = dtype, right, apart, few
        self.lanes = lanes
        # Elements from line to line of the large matrix and of `c`; where the few are laid out.
        self.step = self.ldc = self.strip = ""
        # The present piece of the large matrix, and whether it is the first.
        self.place = self.top = ""
        super().__init__(lanes, wide=wide and lanes * itemsize(dtype) == 64)
        most = 6 if wide else 3  # of the few lines, whose sums with some of the others are in registers together
        groups = -(-few // most)
        tall = few - groups * (few // groups)
        self.groups = [(few // groups) + (g < tall) for g in range(groups)]
        room = 24 if wide else 12
        self.together = max(t for t in (1, 2, 4, 8) if t * self.groups[0] <= room and t <= lanes)
        self.start("entry")

    def _at(self, base: str, offset: int | str) -> str:
        return self.element(base, offset, self.dtype)

    def product(self, count: str, k: str, step: str, few_step: str, ldc: str) -> None:
        """Pieces of the depth, and for each the lines of the large matrix, some at a time, with all of the few."""
        self.step, self.ldc = step, ldc
        self.strip = self.value(f"alloca {TYPES[self.dtype]}, i64 {_DEEP * self.few}, align 64", "strip")
        large, few = ("%a", "%b") if self.right else ("%b", "%a")
        rest = self.integer("urem", count, self.together)
        whole = self.integer("sub", count, rest)

        def piece(begin: str, _: list[str]) -> None:
            depth = self.integer("sub", self.least(self.integer("add", begin, _DEEP), k), begin)
            self._lay_out(few, few_step, begin, depth)
            self.place = self._at(large, begin)
            self.top = self.test("eq", begin, 0)
            self.loop(0, whole, lambda i, _: self._lines(i, self.together, depth), step=self.together, occurs=False)
            if self.together > 1:
                self.loop(whole, count, lambda i, _: self._lines(i, 1, depth), occurs=False)

        self.loop(0, k, piece, step=_DEEP)

    def _lay_out(self, few: str, step: str, begin: str, depth: str) -> None:
        """A piece of the few lines, one after the other."""
        for f in range(self.few):
            target = self._at(self.strip, f * _DEEP)
            if self.apart:
                source = self._at(few, self.integer("add", self.integer("mul", begin, step), f))
                self.at(1)

                def one(d: str, _: list[str], source: str = source, target: str = target) -> None:
                    self.store(
                        self.load(self._at(source, self.integer("mul", d, step)), self.dtype), self._at(target, d)
                    )

                self.loop(0, depth, one)
                self.at(self.lanes)
                continue
            source = self._at(few, self.integer("add", self.integer("mul", step, f), begin))

            def part(d: str, mask: str | None, source: str = source, target: str = target) -> None:
                self.store(self.load(self._at(source, d), self.dtype, mask), self._at(target, d), mask)

            self.parts(depth, part)

    def _lines(self, i: str, count: int, depth: str) -> None:
        """`count` lines of the large matrix from line i on, with all of the few."""
        begin = 0
        lines = [self._at(self.place, self.integer("mul", self.step, self.integer("add", i, r))) for r in range(count)]
        for group in self.groups:
            few = range(begin, begin + group)
            self._add_up(i, lines, few, depth)
            begin += group

    def _add_up(self, i: str, lines: Sequence[str], few: Sequence[int], depth: str) -> None:
        strips = [self._at(self.strip, f * _DEEP) for f in few]
        zero = self.constant(0.0, self.dtype)

        def products(d: str, mask: str | None, sums: Sequence[Lane]) -> list[Lane]:
            own = [self.load(self._at(s, d), self.dtype, mask) for s in strips]
            out = list[Lane]()
            for r, line in enumerate(lines):
                x = self.load(self._at(line, d), self.dtype, mask)
                out += [self.fma(x, y, sums[r * len(strips) + f]) for f, y in enumerate(own)]
            return out

        rest = self.integer("urem", depth, self.lanes)
        whole = self.integer("sub", depth, rest)
        sums = self.accumulate(
            0,
            whole,
            lambda d, earlier: products(d, None, earlier),
            [zero] * (len(lines) * len(strips)),
            step=self.lanes,
            occurs=False,
        )
        sums = products(whole, self.below(rest), sums)
        across = [self._total([sums[r * len(strips) + f] for r in range(len(lines))]) for f in range(len(strips))]
        for f, total in zip(few, across, strict=True):
            self._store_sums(i, f, total, len(lines))
        self.at(self.lanes)

    def _total(self, sums: Sequence[Lane]) -> Lane:
        """One vector with the sum of the lanes of each of these."""
        sums, parts, width = list(sums), self.lanes, self.lanes
        while parts > 1:
            parts //= 2
            if len(sums) > 1:
                sums = [self._add_neighbours(x, y, width) for x, y in zip(sums[::2], sums[1::2], strict=True)]
            else:
                sums = [self._add_neighbours(sums[0], None, width)]
                width //= 2
        self.at(width)
        return sums[0]

    def _add_neighbours(self, x: Lane, y: Lane | None, width: int) -> Lane:
        """The sums of pairs of lanes, those of x first."""
        places = range(0, 2 * width if y else width, 2)
        self.at(len(places))
        second = "poison" if y is None else y.ref
        return self.add(*[self._take_lanes(x.ref, second, [p + odd for p in places], width, x.dtype) for odd in (0, 1)])

    def _store_sums(self, i: str, f: int, total: Lane, count: int) -> None:
        """The sums of line f with `count` lines from line i on; added to those of earlier pieces."""
        size = itemsize(self.dtype)
        line, column = (i, f) if self.right else (f, i)
        place = self._at("%c", self.integer("add", self.integer("mul", self.ldc, line), column))
        steps = (self.integer("mul", self.ldc, size) if self.right else size,)
        earlier = self.read(place, (count,), steps, self.dtype)
        zero = self.constant(0.0, self.dtype)
        kind = self.vector(total.type)
        earlier = self.let(f"select i1 {self.top}, {kind} {zero.ref}, {kind} {earlier.ref}", self.dtype)
        self.write(self.add(earlier, total), place, (count,), steps)
