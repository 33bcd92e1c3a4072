"""Matrix products of little depth in machine code of our own, a third faster there than a library that lays out both operands.

Comes in: how the operands lie. Goes out: a function with the arguments of ``cblas_?gemm`` that computes ``c = a @ b`` (order, alpha and
beta are not read). A strip of some columns of `b` is laid out row by row in the first-level cache; then the rows of `a` go past it, a
few at a time, whose sums stay in registers. Each sum is added up in the order of the depth, so results do not depend on cuts.

Rows and columns must fill the registers once (`fits`): the last ones are computed again together with those before them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from shardwise.runtime.machine import llvm
from shardwise.runtime.products import blas

_DEEPEST = {blas.PLAIN: 512, blas.TRANSPOSED: 128}  # by how `a` lies
_DEEPEST_COLD = {blas.PLAIN: 256, blas.TRANSPOSED: 128}  # where the result is not in the cache
_LONGEST_COLD = 256  # elements from row to row of such a result: beyond, whole rows are better written at once
_FEWEST_COLD = 1 << 20  # multiplications up to which the library does without laying out operands, too
_BLOCK = 1 << 18  # bytes of `a` that pass by a strip before the next one
_ACROSS = 2  # vectors in a row of a strip


@dataclass(frozen=True, slots=True)
class Registers:
    """Lanes of a vector, and the rows whose sums are in registers together."""

    lanes: int
    rows: int

    @property
    def columns(self) -> int:
        """The columns of a strip."""
        return self.lanes * _ACROSS


def registers(char: str) -> Registers:
    """Those of this processor for float32 ("f") or float64 ("d")."""
    target = llvm.target()
    return Registers(target.bytes // (4 if char == "f" else 8), 12 if target.wide else 4)


def fits(char: str, left: int, m: int, n: int, k: int) -> bool:
    """Whether products of these sizes, `a` plain or transposed, are best computed so where the result stays in the cache."""
    if char not in "fd" or not llvm.available():
        return False
    held = registers(char)
    return m >= held.rows and n >= held.columns and held.lanes <= k <= _DEEPEST[left]


def fits_cold(char: str, left: int, m: int, n: int, k: int, step: int) -> bool:
    """The same for a result in memory, with so many elements from row to row."""
    return m * n * k > _FEWEST_COLD and k <= _DEEPEST_COLD[left] and step <= _LONGEST_COLD and fits(char, left, m, n, k)


@functools.cache
def function(char: str, left: int, right: int, integer_size: int) -> int:
    """The address of the function for operands that lie plain or transposed, as the library's flags say."""
    text = _Writer(char, registers(char), left == blas.TRANSPOSED, right == blas.TRANSPOSED, 8 * integer_size).text()
    compiled = llvm.compile_function("product", text)
    _alive.append(compiled)
    return compiled.address


_alive: list[llvm.Compiled] = []


class _Writer:
    """Writes the function's module."""

    def __init__(self, char: str, held: Registers, left: bool, right: bool, bits: int) -> None:
        self.lanes, self.rows, self.strip = held.lanes, held.rows, held.columns
        self.type, self.size = ("float", 4) if char == "f" else ("double", 8)
        self.vector = f"<{self.lanes} x {self.type}>"
        self.left, self.right, self.bits = left, right, bits
        self.fma = f"@llvm.fma.v{self.lanes}f{8 * self.size}"
        self.lines: list[str] = []

    def text(self) -> str:
        """The module."""
        n, v = f"i{self.bits}", self.vector
        wide = 512 if self.size * self.lanes == 64 else 256
        self._sizes()
        self._strips()
        self._pack_turned() if self.right else self._pack()
        self._rows()
        body = "\n  ".join(self.lines)
        return f"""declare {v} {self.fma}({v}, {v}, {v})
define void @product(i32 %order, i32 %l, i32 %r, {n} %m0, {n} %n0, {n} %k0, {self.type} %alpha, ptr %a, {n} %lda0, ptr %b, {n} %ldb0,
                     {self.type} %beta, ptr %c, {n} %ldc0) #0 {{
entry:
  {body}
}}
attributes #0 = {{ nounwind "prefer-vector-width"="{wide}" "min-legal-vector-width"="{wide}" }}
"""

    def _add(self, *lines: str) -> None:
        self.lines += lines

    def _at(self, name: str, base: str, offset: str) -> None:
        self._add(f"%{name} = getelementptr {self.type}, ptr {base}, i64 {offset}")

    def _sizes(self) -> None:
        for name in ("m", "n", "k", "lda", "ldb", "ldc"):
            self._add(
                f"%{name} = add i64 %{name}0, 0" if self.bits == 64 else f"%{name} = sext i{self.bits} %{name}0 to i64"
            )
        self._add(
            f"%room = mul i64 %k, {self.strip}",
            f"%strip = alloca {self.type}, i64 %room, align 64",
            f"%n.last = sub i64 %n, {self.strip}",
            # Rows of a block: a multiple of those in registers, and at least that many.
            f"%fit = udiv i64 {_BLOCK // self.size // self.rows}, %k",
            "%some = call i64 @llvm.umax.i64(i64 %fit, i64 4)",
            f"%block = mul i64 %some, {self.rows}",
            "br label %blocks",
        )

    def _strips(self) -> None:
        """Blocks of rows, and for each the strips of columns; the last strip ends with the columns."""
        self._add(
            "blocks:",
            "%from = phi i64 [ 0, %entry ], [ %to, %blocks.end ]",
            "%further = add i64 %from, %block",
            "%to = call i64 @llvm.smin.i64(i64 %further, i64 %m)",
            f"%i.last = sub i64 %to, {self.rows}",
            "br label %strips",
            "strips:",
            "%j0 = phi i64 [ 0, %blocks ], [ %j.next, %strips.end ]",
            "%j = call i64 @llvm.smin.i64(i64 %j0, i64 %n.last)",
        )

    def _pack(self) -> None:
        self._at("bj", "%b", "%j")
        self._add(
            "br label %pack", "pack:", "%p = phi i64 [ 0, %strips ], [ %p.next, %pack ]", "%p.line = mul i64 %p, %ldb"
        )
        self._at("p.from", "%bj", "%p.line")
        self._add(f"%p.row = mul i64 %p, {self.strip}")
        self._at("p.to", "%strip", "%p.row")
        for v in range(_ACROSS):
            self._at(f"p.from{v}", "%p.from", str(v * self.lanes))
            self._at(f"p.to{v}", "%p.to", str(v * self.lanes))
            self._add(
                f"%p.is{v} = load {self.vector}, ptr %p.from{v}, align {self.size}",
                f"store {self.vector} %p.is{v}, ptr %p.to{v}, align 16",
            )
        self._add(
            "%p.next = add i64 %p, 1",
            "%p.more = icmp slt i64 %p.next, %k",
            "br i1 %p.more, label %pack, label %rows.begin",
        )

    def _pack_turned(self) -> None:
        """The strip from columns that lie side by side: squares of a vector's lanes are transposed in registers."""
        lanes, v = self.lanes, self.vector
        self._add("%j.line = mul i64 %j, %ldb")
        self._at("bj", "%b", "%j.line")
        self._add(
            f"%k.last = sub i64 %k, {lanes}",
            "br label %pack",
            "pack:",
            "%p0 = phi i64 [ 0, %strips ], [ %p.next, %pack ]",
            "%p = call i64 @llvm.smin.i64(i64 %p0, i64 %k.last)",
        )
        self._at("p.from", "%bj", "%p")
        self._add(f"%p.row = mul i64 %p, {self.strip}")
        self._at("p.to", "%strip", "%p.row")
        for part in range(_ACROSS):
            lines = []
            for i in range(lanes):
                self._add(f"%q{part}.{i}.line = mul i64 %ldb, {part * lanes + i}")
                self._at(f"q{part}.{i}.at", "%p.from", f"%q{part}.{i}.line")
                self._add(f"%q{part}.{i} = load {v}, ptr %q{part}.{i}.at, align {self.size}")
                lines.append(f"%q{part}.{i}")
            by = 1
            while by < lanes:
                turned = list(lines)
                for i in (i for i in range(lanes) if not i & by):
                    halves = (
                        [f"i32 {e if not e & by else e - by + lanes}" for e in range(lanes)],
                        [f"i32 {e + by if not e & by else e + lanes}" for e in range(lanes)],
                    )
                    for k, order in zip((i, i + by), halves, strict=True):
                        turned[k] = f"%q{part}.{k}.by{by}"
                        self._add(
                            f"{turned[k]} = shufflevector {v} {lines[i]}, {v} {lines[i + by]}, "
                            f"<{lanes} x i32> <{', '.join(order)}>"
                        )
                lines, by = turned, 2 * by
            for i, line in enumerate(lines):
                self._at(f"q{part}.{i}.to", "%p.to", str(i * self.strip + part * lanes))
                self._add(f"store {v} {line}, ptr %q{part}.{i}.to, align 16")
        self._add(
            f"%p.next = add i64 %p0, {lanes}",
            "%p.more = icmp slt i64 %p.next, %k",
            "br i1 %p.more, label %pack, label %rows.begin",
        )

    def _rows(self) -> None:
        """Rows of `a` past the strip; the last ones of a block end with it."""
        v, rows = self.vector, range(self.rows)
        self._add("rows.begin:")
        self._at("cj", "%c", "%j")
        self._add(
            "br label %rows",
            "rows:",
            "%i0 = phi i64 [ %from, %rows.begin ], [ %i.next, %rows.end ]",
            "%i.end = call i64 @llvm.smin.i64(i64 %i0, i64 %i.last)",
            "%i = call i64 @llvm.smax.i64(i64 %i.end, i64 0)",
        )
        for r in rows:
            self._add(f"%i.{r} = add i64 %i, {r}")
            self._add(f"%a.{r}.line = mul i64 %i.{r}, {1 if self.left else '%lda'}")
            self._at(f"a.{r}", "%a", f"%a.{r}.line")
        self._add("br label %depth", "depth:", "%d = phi i64 [ 0, %rows ], [ %d.next, %depth ]")
        pairs = [(r, x) for r in rows for x in range(_ACROSS)]
        self._add(*(f"%x{r}.{x} = phi {v} [ zeroinitializer, %rows ], [ %y{r}.{x}, %depth ]" for r, x in pairs))
        self._add(f"%d.row = mul i64 %d, {self.strip}", f"%d.step = mul i64 %d, {'%lda' if self.left else 1}")
        self._at("d.at", "%strip", "%d.row")
        for x in range(_ACROSS):
            self._at(f"d.at{x}", "%d.at", str(x * self.lanes))
            self._add(f"%d.is{x} = load {v}, ptr %d.at{x}, align 16")
        for r in rows:
            self._at(f"e{r}.at", f"%a.{r}", "%d.step")
            self._add(
                f"%e{r} = load {self.type}, ptr %e{r}.at, align {self.size}",
                f"%e{r}.one = insertelement {v} poison, {self.type} %e{r}, i64 0",
                f"%e{r}.all = shufflevector {v} %e{r}.one, {v} poison, <{self.lanes} x i32> zeroinitializer",
            )
            self._add(
                *(
                    f"%y{r}.{x} = call {v} {self.fma}({v} %d.is{x}, {v} %e{r}.all, {v} %x{r}.{x})"
                    for x in range(_ACROSS)
                )
            )
        self._add(
            "%d.next = add i64 %d, 1",
            "%d.more = icmp slt i64 %d.next, %k",
            "br i1 %d.more, label %depth, label %rows.end",
            "rows.end:",
        )
        for r in rows:
            self._add(f"%c.{r}.line = mul i64 %i.{r}, %ldc")
            self._at(f"c.{r}", "%cj", f"%c.{r}.line")
            for x in range(_ACROSS):
                self._at(f"c.{r}.{x}", f"%c.{r}", str(x * self.lanes))
                self._add(f"store {v} %y{r}.{x}, ptr %c.{r}.{x}, align {self.size}")
        self._add(
            f"%i.next = add i64 %i0, {self.rows}",
            "%i.more = icmp slt i64 %i.next, %to",
            "br i1 %i.more, label %rows, label %strips.end",
            "strips.end:",
            f"%j.next = add i64 %j0, {self.strip}",
            "%j.more = icmp slt i64 %j.next, %n",
            "br i1 %j.more, label %strips, label %blocks.end",
            "blocks.end:",
            "%blocks.more = icmp slt i64 %to, %m",
            "br i1 %blocks.more, label %blocks, label %exit",
            "exit:",
            "ret void",
        )
