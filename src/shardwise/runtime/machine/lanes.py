"""`Lanes`: writes LLVM instructions on vectors, one element per lane, as text.

Ops say with it how they are computed in a fused loop (`Op.emit`): an emitter takes the writer and one `Lane` value per
operand, and gives back the result's. Types are those of NumPy by name; float16 and bfloat16 live in float32 lanes, bools in
single bits. A complex value is 64 or 128 bits, which move as one; arithmetic takes its halves apart (`parts_of`) and joins
them (`complex_of`).
"""

from __future__ import annotations

from shardwise.runtime.machine.arithmetic import Arithmetic
from shardwise.runtime.machine.flow import RARE
from shardwise.runtime.machine.lane import STORED, TYPES, Lane
from shardwise.runtime.machine.odd_widths import whole_width


class Lanes(Arithmetic):
    """Writes the body of one function: besides arithmetic, conversions, memory, and what runs lane by lane."""

    # -- conversions -----------------------------------------------------------------------------------------------------

    def convert(self, x: Lane, dtype: str) -> Lane:
        """`x` cast as XLA does: floats saturate into integers (NaN gives 0), integers wrap, bools are 0 and 1, complex values lose
        their imaginary parts.
        """
        source, target = x.type, TYPES[dtype]
        if x.dtype == dtype and x.complex:
            return x
        if dtype.startswith("complex"):
            part = "float32" if dtype == "complex64" else "float64"
            real, imag = self.parts_of(x) if x.complex else (x, self.constant(0.0, part))
            return self.complex_of(self.convert(real, part), self.convert(imag, part))
        if x.complex:
            return self.convert(self.parts_of(x)[0], dtype)
        if dtype == "bool":
            return x if source == "i1" else self.compare("ne", x, self.like(0, x))
        if x.floating and target in ("float", "double"):
            out = x if source == target else self._cast("fpext" if target == "double" else "fptrunc", x, dtype)
            return self.round_narrow(Lane(out.ref, dtype), x.dtype)
        if x.floating:
            return self._saturate(x, dtype)
        if target in ("float", "double"):
            out = self._cast("sitofp" if x.signed else "uitofp", x, dtype)
            return self.round_narrow(out)
        size, wanted = x.bits, int(target[1:])
        if size == wanted:
            return Lane(x.ref, dtype)
        return self._cast("trunc" if size > wanted else "sext" if x.signed else "zext", x, dtype)

    def _saturate(self, x: Lane, dtype: str) -> Lane:
        """Floats as integers. LLVM's own saturation of vectors goes lane by lane on some processors."""
        target = TYPES[dtype]
        bits, signed = int(target[1:]), dtype.startswith("int")
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        least, beyond = self.like(float(low), x), self.like(float(high), x)
        above = self.compare("ge", x, beyond)
        inside = self.binary("and", self.compare("ge", x, least), self.compare("lt", x, beyond))
        held = self.select(inside, x, self.like(0.0, x))
        wide = dtype if bits >= 32 else "int32"
        out = self._cast("fptosi" if signed or bits < 32 else "fptoui", held, wide)
        out = self.select(above, self.constant(high - 1, wide), out)
        if signed:
            out = self.select(self.compare("lt", x, least), self.constant(low, wide), out)
        return out if wide == dtype else self._cast("trunc", out, dtype)

    def round_narrow(self, x: Lane, before: str | None = None) -> Lane:
        """float32 lanes rounded to what `x.dtype` (float16, bfloat16) can hold; `before` names what they hold already."""
        if x.dtype == before:
            return x
        if x.dtype == "float16":
            half = self.let(f"fptrunc {self.vector('float')} {x.ref} to {self.vector('half')}", x.dtype)
            return self.let(f"fpext {self.vector('half')} {half.ref} to {self.vector('float')}", x.dtype)
        if x.dtype == "bfloat16":
            bits = self._bfloat16_bits(x, any_nan=before is not None)
            kept = self.binary("and", bits, self.constant(0xFFFF0000, "uint32"))
            return self.bitcast(kept, "bfloat16")
        return x

    def _bfloat16_bits(self, x: Lane, any_nan: bool) -> Lane:
        """uint32 lanes whose upper halves are `x` as bfloat16: to nearest, halves to even, NaN stays NaN.

        Where NaN come from bfloat16 values, or from operations, their lower halves are 0 and rounding does no harm.
        """
        bits = Lane(self.bitcast(Lane(x.ref, "float32"), "uint32").ref, "uint32")
        odd = self.binary("and", self.binary("lshr", bits, self.constant(16, "uint32")), self.constant(1, "uint32"))
        rounded = self.add(bits, self.add(odd, self.constant(0x7FFF, "uint32")))
        if not any_nan:
            return rounded
        quiet = self.binary("or", bits, self.constant(0x00400000, "uint32"))
        return self.select(self.isnan(x), quiet, rounded)

    # -- memory ----------------------------------------------------------------------------------------------------------

    def load_lanes(self, raw: str, dtype: str, scalar: bool = False) -> Lane:
        """A register of the type in memory as lanes; `scalar`: one element for all lanes."""
        stored = STORED[dtype]
        if scalar:
            v = self.vector(stored)
            name = "%" + self.name()
            self.line(f"{name} = insertelement {v} poison, {stored} {raw}, i64 0")
            raw = "%" + self.name()
            self.line(f"{raw} = shufflevector {v} {name}, {v} poison, <{self.width} x i32> zeroinitializer")
        if dtype == "bool":
            return self.let(f"icmp ne {self.vector('i8')} {raw}, zeroinitializer", "bool")
        if dtype == "float16":
            return self.let(f"fpext {self.vector('half')} {raw} to {self.vector('float')}", dtype)
        if dtype == "bfloat16":
            wide = self.let(f"zext {self.vector('i16')} {raw} to {self.vector('i32')}", "uint32")
            return self.bitcast(self.binary("shl", wide, self.constant(16, "uint32")), dtype)
        return Lane(raw, dtype)

    def storable(self, x: Lane) -> str:
        """`x` as a register of the type in memory."""
        if x.dtype == "bool":
            return self.let(f"zext {self.vector('i1')} {x.ref} to {self.vector('i8')}", "uint8").ref
        if x.dtype == "float16":
            return self.let(f"fptrunc {self.vector('float')} {x.ref} to {self.vector('half')}", "float16").ref
        if x.dtype == "bfloat16":  # rounded when it was computed
            bits = self.binary("lshr", self.bitcast(x, "uint32"), self.constant(16, "uint32"))
            return self.let(f"trunc {self.vector('i32')} {bits.ref} to {self.vector('i16')}", "uint16").ref
        return x.ref

    def bytes_of(self, stored: str) -> int:
        """The bytes of a vector of a type in memory."""
        return self.width * {"half": 2, "float": 4, "double": 8}.get(stored, 0) or self.width * int(stored[1:]) // 8

    def gather_strided(self, place: str, step: str, stored: str) -> str:
        """A vector of elements `step` bytes apart, the first one at `place`."""
        raw = "poison"
        for lane in range(self.width):
            one, next = "%" + self.name("one"), "%" + self.name("raw")
            self.line(f"{one} = load {stored}, ptr {place}, align 1")
            self.line(f"{next} = insertelement {self.vector(stored)} {raw}, {stored} {one}, i64 {lane}")
            raw, place = next, self.advance_address(place, 1, step)
        return raw

    def scatter_strided(self, raw: str, place: str, step: str, stored: str) -> None:
        """Store a vector's elements `step` bytes apart."""
        for lane in range(self.width):
            one = "%" + self.name("one")
            self.line(f"{one} = extractelement {self.vector(stored)} {raw}, i64 {lane}")
            self.line(f"store {stored} {one}, ptr {place}, align 1")
            place = self.advance_address(place, 1, step)

    # -- per lane --------------------------------------------------------------------------------------------------------

    def each(self, function: str, *args: Lane) -> Lane:
        """An outside `function` of every lane, one after the other: for what has no vector form, and rare cases."""
        t, n = args[0].type, self.width
        full = whole_width(n)  # vectors of other widths are handed over lane by lane
        v = f"<{full} x {t}>"
        self.declare(function, f"declare {t} @{function}({', '.join([t] * len(args))})")
        name = f"each.{function}.{n}"  # one module may have vectors of several widths
        takes = ", ".join(f"{v} %x{i}" for i in range(len(args)))
        w = Lanes(n, self.wide)
        w.start("entry")

        def lane(i: str, out: list[str]) -> list[str]:
            given = [w.value(f"extractelement {v} %x{k}, i64 {i}") for k in range(len(args))]
            y = w.value(f"call {t} @{function}({', '.join(f'{t} {one}' for one in given)})")
            return [w.value(f"insertelement {v} {out[0]}, {t} {y}, i64 {i}")]

        (out,) = w.loop(0, n, lane, [(v, "poison")])
        w.line(f"ret {v} {out}")
        self.declare(name, f"define internal {v} @{name}({takes}) noinline #0 {{\n{w.body()}\n}}")
        given = ", ".join(f"{v} {self.resize(a, n, full).ref}" for a in args)
        return self.resize(self.let(f"call {v} @{name}({given})", args[0].dtype), full, n)

    def some(self, mask: Lane) -> str:
        """Whether the bool is set in any lane: an i1."""
        v = self.vector("i1")
        name = f"llvm.vector.reduce.or.v{self.width}i1"
        self.declare(name, f"declare i1 @{name}({v})")
        return self.value(f"call i1 @{name}({v} {mask.ref})", "some")

    def unless(self, rare: Lane, x: Lane, usual: Lane, function: str) -> Lane:
        """`usual`, but `function` of `x` lane by lane if the bool `rare` is set in any lane."""

        def exact() -> list[str]:
            return [self.each(function, x).ref]

        (ref,) = self.branch(self.some(rare), exact, [usual.ref], [self.vector(usual.type)], RARE)
        return Lane(ref, usual.dtype)
