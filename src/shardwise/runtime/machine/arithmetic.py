"""`Arithmetic`: writes LLVM instructions that compute with vectors, one element per lane, and move elements between lanes."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from shardwise.runtime.machine.flow import Flow, flat
from shardwise.runtime.machine.lane import SHORT, TYPES, Lane, complex_bits, scalar_text
from shardwise.runtime.machine.odd_widths import carry_whole, is_odd, shuffle

_HAS_PARTS = "lanes of complex values hold bits: take_apart gives the parts, with which one computes"


class Arithmetic(Flow):
    """Writes the body of one function, `width` lanes per vector at present; `wide`: for a processor with AVX-512."""

    def __init__(self, width: int, wide: bool = False) -> None:
        super().__init__()
        self.width = width
        self.wide = wide
        self._constants: dict[tuple[Any, str], Lane] = {}
        self._by_width = {width: self._constants}
        self._numbers: dict[str, float] = {}  # float constants by their text
        self._made_of: dict[str, tuple[Lane, Lane]] = {}  # of complex values that were made of them

    def at(self, width: int) -> Self:
        """Write vectors of that many lanes from here on."""
        self.width = width
        self._constants = self._by_width.setdefault(width, {})
        return self

    # -- text ------------------------------------------------------------------------------------------------------------

    def body(self) -> str:
        if any(map(is_odd, self._by_width)):
            return "\n".join(carry_whole(flat(self.lines)))
        return super().body()

    def vector(self, type: str) -> str:
        """The LLVM type of a vector of `type`."""
        return f"<{self.width} x {type}>"

    def let(self, text: str, dtype: str) -> Lane:
        """Append an instruction with a result."""
        name = "%" + self.name()
        self.lines.append(f"  {name} = {text}")
        return Lane(name, dtype)

    # -- values ----------------------------------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: str) -> Lane:
        """`value` in every lane."""
        item = np.asarray(value).item()
        if dtype.startswith("complex"):
            item = complex_bits(item, dtype)
        key = (struct.pack("<d", item) if isinstance(item, float) else item, dtype)
        found = self._constants.get(key)
        if found is None:
            type = TYPES[dtype]
            word = scalar_text(item, type)
            found = self._constants[key] = Lane("<" + ", ".join([f"{type} {word}"] * self.width) + ">", dtype)
            if found.floating:
                self._numbers[found.ref] = struct.unpack(">d", bytes.fromhex(word[2:]))[0]
        return found

    def is_whole_number(self, x: Lane) -> bool:
        """Whether all lanes are one integer that the text has."""
        return not x.floating and any((y.ref, y.dtype) == (x.ref, x.dtype) for y in self._constants.values())

    def sequence(self, dtype: str) -> Lane:
        """0, 1, 2 and so on, of an integer dtype."""
        type = TYPES[dtype]
        return Lane("<" + ", ".join([f"{type} {i}" for i in range(self.width)]) + ">", dtype)

    def like(self, value: Any, x: Lane) -> Lane:
        """`value` in every lane, of the dtype of `x`."""
        return self.constant(value, x.dtype)

    def splat(self, scalar: str, dtype: str) -> Lane:
        """A scalar register in every lane."""
        v = self.vector(TYPES[dtype])
        first = self.let(f"insertelement {v} poison, {TYPES[dtype]} {scalar}, i64 0", dtype)
        return self.let(f"shufflevector {v} {first.ref}, {v} poison, <{self.width} x i32> zeroinitializer", dtype)

    def splat_as(self, number: str, dtype: str) -> Lane:
        """An i64 in every lane, as an integer of at most as many bits."""
        if TYPES[dtype] != "i64":
            number = self.value(f"trunc i64 {number} to {TYPES[dtype]}")
        return self.splat(number, dtype)

    # -- instructions ----------------------------------------------------------------------------------------------------

    def parts_of(self, x: Lane) -> tuple[Lane, Lane]:
        """The real and the imaginary parts of complex lanes."""
        found = self._made_of.get(x.ref)
        if found is None:
            n, part = self.width, "float32" if x.type == "i64" else "float64"
            raw = self.value(f"bitcast {self.vector(x.type)} {x.ref} to <{2 * n} x {TYPES[part]}>")
            real, imag = (self._take_lanes(raw, raw, range(k, 2 * n, 2), 2 * n, part) for k in (0, 1))
            return real, imag
        return found

    def complex_of(self, real: Lane, imag: Lane) -> Lane:
        """Complex lanes of these parts."""
        n = self.width
        dtype = "complex64" if real.type == "float" else "complex128"
        both = self._take_lanes(real.ref, imag.ref, [i // 2 + i % 2 * n for i in range(2 * n)], n, real.dtype)
        out = self.let(f"bitcast <{2 * n} x {real.type}> {both.ref} to {self.vector(TYPES[dtype])}", dtype)
        self._made_of[out.ref] = real, imag
        return out

    def take_apart(self, x: Lane) -> Sequence[Lane]:
        """The parts of complex lanes; other lanes as they are."""
        return self.parts_of(x) if x.complex else (x,)

    def join_parts(self, parts: Sequence[Lane]) -> Lane:
        """The lanes that `take_apart` gave."""
        return self.complex_of(*parts) if len(parts) == 2 else parts[0]

    def resize(self, x: Lane, lanes: int, wanted: int) -> Lane:
        """The first lanes of a vector; where more are wanted than it has, the last ones hold anything."""
        if lanes == wanted:
            return x
        return self.let(shuffle(x.ref, (lanes, x.type), wanted), x.dtype)

    def _take_lanes(self, first: str, second: str, places: Sequence[int], n: int, dtype: str) -> Lane:
        """Lanes of two vectors of `n` floats."""
        mask = ", ".join(f"i32 {p}" for p in places)
        v = f"<{n} x {TYPES[dtype]}>"
        return self.let(f"shufflevector {v} {first}, {v} {second}, <{len(places)} x i32> <{mask}>", dtype)

    def binary(self, instruction: str, x: Lane, y: Lane, dtype: str | None = None) -> Lane:
        """`instruction` of two vectors of one type."""
        return self.let(f"{instruction} {self.vector(x.type)} {x.ref}, {y.ref}", dtype or x.dtype)

    def call(self, intrinsic: str, *args: Lane, dtype: str | None = None, more: str = "") -> Lane:
        """An LLVM intrinsic overloaded on the type of its first argument, which is its result's too."""
        x = args[0]
        v = self.vector(x.type)
        name = f"llvm.{intrinsic}.v{self.width}{SHORT.get(x.type, x.type)}"
        types = ", ".join([v] * len(args)) + (", i1" if more else "")
        self.declare(name, f"declare {v} @{name}({types})")
        given = ", ".join(f"{v} {a.ref}" for a in args) + more
        return self.let(f"call {v} @{name}({given})", dtype or x.dtype)

    def add(self, x: Lane, y: Lane) -> Lane:
        """Sum; of bools, or."""
        assert not x.complex, _HAS_PARTS
        return self.binary("fadd" if x.floating else "or" if x.type == "i1" else "add", x, y)

    def sub(self, x: Lane, y: Lane) -> Lane:
        """Difference."""
        assert not x.complex, _HAS_PARTS
        return self.binary("fsub" if x.floating else "sub", x, y)

    def mul(self, x: Lane, y: Lane) -> Lane:
        """Product; of bools, and."""
        assert not x.complex, _HAS_PARTS
        return self.binary("fmul" if x.floating else "and" if x.type == "i1" else "mul", x, y)

    def div(self, x: Lane, y: Lane) -> Lane:
        """Quotient of floats."""
        return self.binary("fdiv", x, y)

    def fma(self, x: Lane, y: Lane, z: Lane) -> Lane:
        """``x * y + z``; of floats rounded once."""
        return self.call("fma", x, y, z) if z.floating else self.add(self.mul(x, y), z)

    def neg(self, x: Lane) -> Lane:
        """Negation."""
        assert not x.complex, _HAS_PARTS
        if x.floating:
            return self.let(f"fneg {self.vector(x.type)} {x.ref}", x.dtype)
        return self.sub(self.like(0, x), x)

    def abs(self, x: Lane) -> Lane:
        """Absolute value; the least integer stays."""
        assert not x.complex, _HAS_PARTS
        return self.call("fabs", x) if x.floating else self.call("abs", x, more=", i1 false")

    def compare(self, condition: str, x: Lane, y: Lane) -> Lane:
        """`condition` (eq, ne, lt, le, gt, ge) as bools; false where a float is NaN, but ne is true."""
        assert not x.complex, _HAS_PARTS
        v = self.vector(x.type)
        if x.floating:
            return self.let(f"fcmp {'une' if condition == 'ne' else 'o' + condition} {v} {x.ref}, {y.ref}", "bool")
        order = condition if condition in ("eq", "ne") else ("s" if x.signed else "u") + condition
        return self.let(f"icmp {order} {v} {x.ref}, {y.ref}", "bool")

    def isnan(self, x: Lane) -> Lane:
        """Where a float is NaN."""
        return self.let(f"fcmp uno {self.vector(x.type)} {x.ref}, {x.ref}", "bool")

    def fill_bits(self, x: Lane, dtype: str) -> Lane:
        """Bools as integers, of which all bits are set or none. Where registers hold no bools, loops carry these at less cost."""
        return self._cast("sext", x, dtype)

    def select(self, mask: Lane, yes: Lane, no: Lane) -> Lane:
        """`yes` where the bool `mask` is set."""
        v = self.vector(yes.type)
        return self.let(f"select {self.vector('i1')} {mask.ref}, {v} {yes.ref}, {v} {no.ref}", yes.dtype)

    def maximum(self, x: Lane, y: Lane) -> Lane:
        """The greater one, of zeros 0.0; some NaN if either is. Of bools, or."""
        return self.binary("or", x, y) if x.type == "i1" else self._extremum("gt", x, y)

    def minimum(self, x: Lane, y: Lane) -> Lane:
        """The lesser one, of zeros -0.0; some NaN if either is. Of bools, and."""
        return self.binary("and", x, y) if x.type == "i1" else self._extremum("lt", x, y)

    def _extremum(self, condition: str, x: Lane, y: Lane) -> Lane:
        """Of floats, ``x > y ? x : y`` is one instruction, which gives `y` if they are equal or one is NaN. With the operands
        exchanged it gives the same bits, unless both are zero or one is NaN. So the two are joined bit by bit: by or, which leaves
        NaN as such, but the signs of maxima by and.
        """
        if x.ref in self._numbers:
            x, y = y, x
        number = self._numbers.get(y.ref, math.nan)
        if not math.isnan(number):
            loses = number == 0 and (math.copysign(1, number) < 0) == (condition == "gt")  # to the other zero
            order = f"u{condition[0]}e" if loses else f"u{condition}"
            taken = self.let(f"fcmp {order} {self.vector(x.type)} {x.ref}, {y.ref}", "bool")
            return self.select(taken, x, y)
        if self.orders_zeros(x):
            either = self.floats_of(self.binary("or", self.bits_of(x), self.bits_of(y)), x.dtype)
            unordered = self.let(f"fcmp uno {self.vector(x.type)} {x.ref}, {y.ref}", "bool")
            return self.select(unordered, either, self.beyond(condition == "gt", x, y))
        first = self.select(self.compare(condition, x, y), x, y)
        if not x.floating:
            return first
        second = self.select(self.compare(condition, y, x), y, x)
        a, b = self.bits_of(first), self.bits_of(second)
        either = self.binary("or", a, b)
        if condition == "gt":
            unsigned = self.like((1 << (x.bits - 1)) - 1, either)
            either = self.binary("or", self.binary("and", a, b), self.binary("and", either, unsigned))
        return self.floats_of(either, x.dtype)

    def orders_zeros(self, x: Lane) -> bool:
        """Whether the processor has `beyond` for such vectors."""
        return x.floating and self._fills_registers(x)

    def beyond(self, largest: bool, x: Lane, y: Lane) -> Lane:
        """The greater or the lesser of two floats, -0.0 being less than 0.0; the number beside NaN."""
        return self._in_registers("range", (x, y), f"i32 {5 if largest else 4}, ")

    def rotate_lanes(self, x: Lane, by: int) -> Lane:
        """Lane i takes the value of lane ``i + by``, counted in a circle."""
        v = self.vector(x.type)
        places = ", ".join([f"i32 {(i + by) % self.width}" for i in range(self.width)])
        return self.let(f"shufflevector {v} {x.ref}, {v} poison, <{self.width} x i32> <{places}>", x.dtype)

    def first(self, x: Lane) -> Lane:
        """The value of the first lane in all lanes."""
        v = self.vector(x.type)
        return self.let(f"shufflevector {v} {x.ref}, {v} poison, <{self.width} x i32> zeroinitializer", x.dtype)

    def transpose_rows(self, rows: Sequence[Lane], size: int = 0) -> list[Lane]:
        """The columns of a square of float vectors: as many rows as a vector has lanes; or of squares of `size` rows side by side, which
        have 128 bits in a row.

        Each shuffle is one instruction: squares within 128 bits by interleaving rows, then 128 bits as a whole by taking every second of
        two rows.
        """
        n = self.width
        near = min(n, 128 // rows[0].bits)
        low = [i + k for i in range(0, n, near) for j in range(near // 2) for k in (j, n + j)]
        even = [k + j for k in range(0, 2 * n, 2 * near) for j in range(near)]
        each = [rows[k : k + near] for k in range(0, size or n, near)]
        inside = [x for some in each for x in self._shuffle_rows(some, low, near // 2, zipped=True)]
        if size == near:
            return inside
        found = [self._shuffle_rows(inside[k::near], even, near, zipped=False) for k in range(near)]
        return [found[k][i] for i in range(n // near) for k in range(near)]

    def sum_rows(self, rows: Sequence[Lane]) -> Lane:
        """The sums of the lanes of each row, one per lane: as many rows as a vector has lanes, a power of two.

        Each step adds what two shuffles have of two vectors, first within 128 bits, then 128 bits as a whole.
        """
        n, near = self.width, min(self.width, 128 // rows[0].bits)
        lines, size = list(rows), 1
        while size < n:
            if size < near:
                firsts = [i + j + k for i in range(0, n, near) for j in range(0, near // 2, size) for k in (0, n)]
                places, beyond = [p + r for p in firsts for r in range(size)], near // 2
            else:
                places, beyond = [i + j for i in range(0, 2 * n, 2 * near) for j in range(near)], near
            lines = [
                self.add(*(self._shuffle_floats(x, y, places, by) for by in (0, beyond)))
                for x, y in zip(lines[::2], lines[1::2], strict=True)
            ]
            size *= 2
        return lines[0]

    def side_by_side(self, parts: Sequence[Lane]) -> Lane:
        """Vectors of the present width, a power of two of them, as one, of which the width becomes the present one."""
        parts = list(parts)
        while len(parts) > 1:
            v, n = self.vector(parts[0].type), 2 * self.width
            places = ", ".join(f"i32 {i}" for i in range(n))
            self.at(n)
            parts = [
                self.let(f"shufflevector {v} {x.ref}, {v} {y.ref}, <{n} x i32> <{places}>", x.dtype)
                for x, y in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def _shuffle_rows(self, rows: Sequence[Lane], places: Sequence[int], beyond: int, *, zipped: bool) -> list[Lane]:
        """Pairs of rows shuffled into two each, until each row has met each: the lanes at `places`, and those so far beyond them."""
        lines, half = list(rows), len(rows) // 2
        for _ in range(half.bit_length()):
            first, second = (lines[:half], lines[half:]) if zipped else (lines[::2], lines[1::2])
            made = [
                [self._shuffle_floats(x, y, places, by) for by in (0, beyond)]
                for x, y in zip(first, second, strict=True)
            ]
            lines = [pair[k] for pair in made for k in (0, 1)] if zipped else [pair[k] for k in (0, 1) for pair in made]
        return lines

    def _shuffle_floats(self, x: Lane, y: Lane, places: Sequence[int], by: int) -> Lane:
        """Lanes of two float vectors, at places from `by` on."""
        v, mask = self.vector(x.type), ", ".join(f"i32 {p + by}" for p in places)
        made = self.let(f"shufflevector {v} {x.ref}, {v} {y.ref}, <{self.width} x i32> <{mask}>", x.dtype)
        # No instruction. It keeps LLVM from looking for shuffles that do as much as several: half of its time for a square of 16.
        return self.call("arithmetic.fence", made)

    def bitcast(self, x: Lane, dtype: str) -> Lane:
        """The same bits as another type of that size."""
        if x.type == TYPES[dtype]:
            return Lane(x.ref, dtype)
        return self.let(f"bitcast {self.vector(x.type)} {x.ref} to {self.vector(TYPES[dtype])}", dtype)

    def bits_of(self, x: Lane) -> Lane:
        """The bits of float lanes as integers: of float16 and bfloat16 those of float32."""
        return self.let(f"bitcast {self.vector(x.type)} {x.ref} to {self.vector(f'i{x.bits}')}", f"int{x.bits}")

    def floats_of(self, bits: Lane, dtype: str) -> Lane:
        """Float lanes of these bits, as `bits_of` gives them."""
        return self.let(f"bitcast {self.vector(bits.type)} {bits.ref} to {self.vector(TYPES[dtype])}", dtype)

    def _cast(self, instruction: str, x: Lane, dtype: str) -> Lane:
        return self.let(f"{instruction} {self.vector(x.type)} {x.ref} to {self.vector(TYPES[dtype])}", dtype)

    def copysign(self, size: Lane, sign: Lane) -> Lane:
        """`size` with the sign bit of `sign`."""
        return self.call("copysign", size, sign)

    def scales(self, x: Lane) -> bool:
        """Whether the processor has `scale_by_power` for such vectors."""
        return self._fills_registers(x)

    def scale_by_power(self, x: Lane, n: Lane) -> Lane:
        """``x * 2**n`` for whole floats `n`, rounded once, subnormal and infinite where it should be."""
        return self._in_registers("scalef", (x, n))

    def _fills_registers(self, x: Lane) -> bool:
        return self.wide and self.width * x.bits % 512 == 0

    def _in_registers(self, instruction: str, args: tuple[Lane, Lane], more: str = "") -> Lane:
        """An instruction of AVX-512 on floats, register by register."""
        x = args[0]
        lanes = 512 // x.bits
        v = f"<{lanes} x {x.type}>"
        kind, mask = ("ps", "i16") if x.type == "float" else ("pd", "i8")
        name = f"llvm.x86.avx512.mask.{instruction}.{kind}.512"
        takes = f"{v}, {v}, {'i32, ' if more else ''}{v}, {mask}, i32"
        self.declare(name, f"declare {v} @{name}({takes})")
        parts: list[str] = []
        for k in range(self.width // lanes):
            a, b = (self._part(y, k, lanes) for y in args)
            given = f"{v} {a}, {v} {b}, {more}{v} zeroinitializer, {mask} -1, i32 4"
            parts.append(self.let(f"call {v} @{name}({given})", x.dtype).ref)
        while len(parts) > 1:
            v = f"<{lanes} x {x.type}>"
            places = ", ".join(f"i32 {i}" for i in range(2 * lanes))
            parts += ["poison"] * (len(parts) % 2)
            parts = [
                self.let(f"shufflevector {v} {a}, {v} {b}, <{2 * lanes} x i32> <{places}>", x.dtype).ref
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            lanes *= 2
        return self.resize(Lane(parts[0], x.dtype), lanes, self.width)

    def _part(self, x: Lane, k: int, lanes: int) -> str:
        """The k-th group of `lanes` lanes."""
        if lanes == self.width:
            return x.ref
        v, places = self.vector(x.type), ", ".join(f"i32 {i}" for i in range(k * lanes, (k + 1) * lanes))
        return self.let(f"shufflevector {v} {x.ref}, {v} poison, <{lanes} x i32> <{places}>", x.dtype).ref

    def poly(self, x: Lane, coefficients: Sequence[float]) -> Lane:
        """The polynomial with these coefficients, the highest power's first."""
        out = self.like(coefficients[0], x)
        for c in coefficients[1:]:
            out = self.fma(out, x, self.like(c, x))
        return out
