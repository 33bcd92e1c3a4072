"""Products of very few rows and a large matrix in machine code of our own: the matrix is read once, row after row, and laid out nowhere.

Comes in: how the left operand lies, and its number of rows; the right one lies plain. Goes out: a function with the arguments of
``cblas_?gemm`` that computes ``c = a @ b`` (order, alpha and beta are not read). Some rows of `b` at a time are multiplied by the numbers
of `a` beside them, which stay in registers, and added to the rows of `c`, which stay in the first-level cache. Each sum is added up in the
order of the depth, so results do not depend on cuts.
"""

from __future__ import annotations

import functools
import itertools

from shardwise.runtime import costs
from shardwise.runtime.loops import Writer, lanes_of, module
from shardwise.runtime.machine import TYPES, Lane, itemsize, llvm
from shardwise.runtime.products import blas

_CHARS = {"f": "float32", "d": "float64"}
_NUMBERS = 16  # of `a` that are in registers together
_TOGETHER = 4  # rows of `a` that they belong to


def pays(char: str, right: int, m: int, n: int, k: int) -> bool:
    """Whether this is the best way for products of these sizes, `b` plain or transposed, if the code can be made; asks no compiler."""
    large = n >= costs.LAYERS_LEAST and m * n * k > costs.PRODUCT_NUMPYS
    return char in _CHARS and right == blas.PLAIN and 1 < m <= costs.LAYERS_MOST and large


def fits(char: str, right: int, m: int, n: int, k: int) -> bool:
    """Whether products of these sizes are best computed so."""
    return pays(char, right, m, n, k) and llvm.available()


def function(char: str, left: int, m: int, integer_size: int, work: float) -> int:
    """The address of the function for `m` rows that lie plain or transposed, as the library's flag `left` says. `work`: multiplications."""
    text = _module(_CHARS[char], lanes_of(_CHARS[char]), left == blas.TRANSPOSED, m, 8 * integer_size)
    code = llvm.compile_function("product", text, costs.DRAFT_PRODUCT * work)
    return _alive.setdefault(text, code).address


_alive: dict[str, llvm.CompiledFunction] = {}


@functools.cache
def _module(dtype: str, lanes: int, left: bool, m: int, bits: int) -> str:
    """The function's module; integers of the library have `bits` bits."""
    w = _Writer(dtype, lanes, left, m)
    w.product(*blas.arguments(w, ("n", "k", "lda", "ldb", "ldc"), bits))
    return module(w, f"define void @product({blas.signature(TYPES[dtype], bits)}) #0 {{\n{w.body()}\n  ret void\n}}")


class _Writer(Writer):
    """Writes the function's body. `left`: whether `a` lies transposed."""

    def __init__(self, dtype: str, lanes: int, left: bool, rows: int) -> None:
        self.dtype, self.left, self.rows = dtype, left, rows
        super().__init__(lanes, wide=lanes * itemsize(dtype) == 64)
        self.start("entry")

    def _at(self, base: str, offset: int | str) -> str:
        return self.element(base, offset, self.dtype)

    def product(self, n: str, k: str, lda: str, ldb: str, ldc: str) -> None:
        """Blocks of columns, and for each the layers of rows of `b`."""
        vector = self.width * itemsize(self.dtype)
        block = max(costs.LAYERS_BLOCK // self.rows // vector, 4) * self.width
        deep = _NUMBERS // max(2, min(self.rows, _TOGETHER))
        whole = self.integer("sub", k, self.integer("urem", k, deep))

        def columns(j: str, _: list[str]) -> None:
            count = self.integer("sub", self.least(self.integer("add", j, block), n), j)
            b, c = self._at("%b", j), self._at("%c", j)
            for begin, end, depth in (("0", whole, deep), (whole, k, 1)):

                def layer(d: str, _: list[str], depth: int = depth) -> None:
                    self._layer(d, depth, count, b, c, lda, ldb, ldc)

                self.loop(begin, end, layer, step=depth, occurs=False)

        self.loop(0, n, columns, step=block)

    def _layer(self, d: str, depth: int, count: str, b: str, c: str, lda: str, ldb: str, ldc: str) -> None:
        """Add the products with `depth` rows of `b` from row d on."""
        dtype = self.dtype
        kind = f"<{self.width} x {TYPES[dtype]}>"
        sources = [self._at(b, self.integer("mul", self.integer("add", d, p), ldb)) for p in range(depth)]
        nexts = [self._at(source, self.integer("mul", ldb, depth)) for source in sources]
        top, zero = self.test("eq", d, 0), self.constant(0.0, dtype)
        groups = -(-self.rows // _TOGETHER)
        cuts = [self.rows * g // groups for g in range(groups + 1)]
        for rows in itertools.starmap(range, itertools.pairwise(cuts)):
            numbers = [[self.scalar(self._number(r, p, d, lda), dtype) for r in rows] for p in range(depth)]
            targets = [self._at(c, self.integer("mul", ldc, r)) for r in rows]

            def vector(
                i: str,
                mask: str | None,
                rows: range = rows,
                numbers: list[list[Lane]] = numbers,
                targets: list[str] = targets,
            ) -> None:
                earlier = [self.load(self._at(line, i), dtype, mask) for line in targets]
                sums = [self.let(f"select i1 {top}, {kind} {zero.ref}, {kind} {x.ref}", dtype) for x in earlier]
                for own, source, ahead in zip(numbers, sources, nexts, strict=True):
                    x = self.load(self._at(source, i), dtype, mask)
                    if mask is None and not rows.start:
                        self.prefetch(self._at(ahead, i), False, 2)
                    sums = [self.fma(x, number, total) for number, total in zip(own, sums, strict=True)]
                for total, line in zip(sums, targets, strict=True):
                    self.store(total, self._at(line, i), mask)

            self.parts(count, vector)

    def _number(self, row: int, offset: int, d: str, lda: str) -> str:
        """The address of a number of `a`."""
        depth = self.integer("add", d, offset)
        if self.left:
            return self._at("%a", self.integer("add", self.integer("mul", depth, lda), row))
        return self._at("%a", self.integer("add", self.integer("mul", lda, row), depth))
