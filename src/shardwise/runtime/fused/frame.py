"""The frame of functions that take rows of work through passes: units of work, and how they meet memory."""

from __future__ import annotations

from dataclasses import dataclass

from shardwise.runtime.fused.codegen import CONTIGUOUS, REPEATED, STREAMED, attributes
from shardwise.runtime.fused.space import Graph
from shardwise.runtime.machine.lanes import STORED, TYPES, Lane, Lanes

HEAD = ("units", "grain", "size", "count", "rounds", "strips", "pieces", "piece", "padded", "slot")


@dataclass(frozen=True)
class Form:
    """How a group meets memory.

    `along`: lanes run along a reduced loop, else along a kept one. `kept` and `reduced` count the loops around the innermost
    reduced one. `access`: per input as read, then per output, how lanes meet it. `ragged`: lanes do not divide the row (or `count`).
    `split`: pieces are cut from the innermost loop ("inner") or from those around it ("outer").
    """

    width: int
    along: bool
    kept: int
    reduced: int
    access: tuple[str, ...]
    ragged: bool
    split: str = "inner"
    wide: bool = False


class Frame:
    """What all functions of a group have in common."""

    def __init__(self, graph: Graph, form: Form) -> None:
        self.graph = graph
        self.form = form
        self.w = Lanes(form.width, form.wide)
        self.atoms = [*(graph.program.inputs[a.number] for a in graph.accesses), *graph.outputs]
        self.here: list[str] = []  # where the unit begins in each operand and result

    def _begin(self) -> None:
        w, form = self.w, self.form
        w.start("entry")
        steps = form.kept + form.reduced + 2
        names = [*HEAD, *(f"kept{d}" for d in range(form.kept)), *(f"reduced{d}" for d in range(form.reduced))]
        names += [f"step{k}.{d}" for k in range(len(self.atoms)) for d in range(steps)]
        for i, name in enumerate(names):
            w.line(f"%job.{name} = getelementptr i64, ptr %job, i64 {i}")
            w.line(f"%{name} = load i64, ptr %job.{name}, align 8")
        extra = ("scratch", "partial", "results")
        for k, name in enumerate([*(f"base{k}" for k in range(len(self.atoms))), *extra]):
            w.line(f"%from.{name} = getelementptr ptr, ptr %pointers, i64 {k}")
            w.line(f"%{name} = load ptr, ptr %from.{name}, align 8")
        if any(self.graph.saved):
            w.line("%threads = getelementptr i64, ptr %counters, i64 1")
            w.line("%thread = atomicrmw add ptr %threads, i64 1 monotonic")
            w.line(f"%slot_bytes = mul i64 %slot, {sum(map(len, self.graph.saved))}")
            w.line("%own_offset = mul i64 %thread, %slot_bytes")
            w.line("%own = getelementptr i8, ptr %scratch, i64 %own_offset")
        w.line(f"%limit0 = sub i64 %count, {form.width}")

    def _units(self, total: str) -> None:
        """Chunks of `grain` units from the counter; the current one is %unit."""
        w = self.w
        w.line("br label %chunks")
        w.start("chunks")
        w.line("%chunk_number = atomicrmw add ptr %counters, i64 1 monotonic")
        w.line("%first = mul i64 %chunk_number, %grain")
        w.line(f"%more = icmp ult i64 %first, {total}")
        w.line("br i1 %more, label %chunk, label %exit")
        w.start("chunk")
        w.line("%full = add i64 %first, %grain")
        w.line(f"%cut = icmp ult i64 %full, {total}")
        w.line(f"%last = select i1 %cut, i64 %full, i64 {total}")
        w.line("br label %unit_loop")
        w.start("unit_loop")
        w.line("%unit = phi i64 [ %first, %chunk ], [ %unit_next, %unit_end ]")

    def _end(self) -> str:
        w = self.w
        w.line("br label %unit_end")
        w.start("unit_end")
        w.line("%unit_next = add i64 %unit, 1")
        w.line("%units_left = icmp ult i64 %unit_next, %last")
        w.line("br i1 %units_left, label %unit_loop, label %chunks")
        w.start("exit")
        w.line("ret void")
        head = "\n".join(w.declared.values())
        body = "\n".join(w.lines)
        signature = "define void @kernel(ptr noalias %job, ptr noalias %pointers, ptr %counters)"
        return f"{head}\n{signature} #0 {{\n{body}\n}}\n{attributes(self.form.wide)}"

    def _moved(self, place: str, index: str, stride: str) -> str:
        offset, moved = "%" + self.w.name("o"), "%" + self.w.name("p")
        self.w.line(f"{offset} = mul i64 {index}, {stride}")
        self.w.line(f"{moved} = getelementptr i8, ptr {place}, i64 {offset}")
        return moved

    def _place_unit(self, number: str) -> None:
        """Pointers %here to where the unit begins in each operand and result."""
        w, form = self.w, self.form
        left = number
        start = None
        if not form.along:
            w.line(f"%strip = urem i64 {left}, %strips")
            w.line(f"%left.strip = udiv i64 {left}, %strips")
            left = "%left.strip"
            w.line(f"%start0 = mul i64 %strip, {form.width}")
            w.line(f"%start_most = sub i64 %size, {form.width}")  # the last strip overlaps the one before
            w.line("%start_over = icmp sgt i64 %start0, %start_most")
            w.line("%start = select i1 %start_over, i64 %start_most, i64 %start0")
            start = "%start"
        indices = []
        for d in reversed(range(form.kept)):
            w.line(f"%k{d} = urem i64 {left}, %kept{d}")
            w.line(f"%left{d} = udiv i64 {left}, %kept{d}")
            left = f"%left{d}"
            indices.append((f"%k{d}", d))
        self.here = []
        for k in range(len(self.atoms)):
            place = f"%base{k}"
            for index, d in indices:
                place = self._moved(place, index, f"%step{k}.{d}")
            if start is not None:
                place = self._moved(place, start, self._lane_step(k))
            self.here.append(place)

    def _lane_step(self, k: int) -> str:
        return f"%step{k}.{self.form.kept + self.form.reduced + 1}"

    def _inner_step(self, k: int) -> str:
        return f"%step{k}.{self.form.kept + self.form.reduced}"

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _name(self, atom: object) -> str:
        return atom.aval.dtype.name  # type: ignore[attr-defined]

    def _load(self, k: int, place: str, single: bool = False) -> Lane:
        """Lanes of operand k from `place`; `single`: they are all one element."""
        w, dtype = self.w, self._name(self.atoms[k])
        stored, access = STORED[dtype], self.form.access[k]
        raw = "%" + w.name("raw")
        if single or access == REPEATED:
            w.line(f"{raw} = load {stored}, ptr {place}, align 1")
            return w.loaded(raw, dtype, scalar=True)
        if access == CONTIGUOUS:
            w.line(f"{raw} = load {w.vector(stored)}, ptr {place}, align 1")
            return w.loaded(raw, dtype)
        return w.loaded(w.gathered(place, self._lane_step(k), stored), dtype)

    def _store(self, k: int, x: Lane, place: str, single: bool = False) -> None:
        w = self.w
        stored, access = STORED[self._name(self.atoms[k])], self.form.access[k]
        raw = w.storable(x)
        if single or access == REPEATED:
            one = "%" + w.name("one")
            w.line(f"{one} = extractelement {w.vector(stored)} {raw}, i64 0")
            w.line(f"store {stored} {one}, ptr {place}, align 1")
        elif access in (CONTIGUOUS, STREAMED):
            hint = f"align {w.bytes_of(stored)}, !nontemporal !1" if access == STREAMED else "align 1"
            w.line(f"store {w.vector(stored)} {raw}, ptr {place}, {hint}")
        else:
            w.scattered(raw, place, self._lane_step(k), stored)

    def _slot(self, base: str, row: str, i: int, slots: int) -> str:
        """Where vector i of `row` lies in memory that holds `slots` vectors of up to 8 bytes per lane for each."""
        return self._moved(self._moved(base, row, str(slots * 8 * self.form.width)), "1", str(i * 8 * self.form.width))

    def _put(self, x: Lane, place: str) -> None:
        """A vector as it is in lanes; bools as bytes."""
        if x.type == "i1":
            x = self.w.convert(x, "int8")
        self.w.line(f"store {self.w.vector(x.type)} {x.ref}, ptr {place}, align 1")

    def _get(self, dtype: str, place: str) -> Lane:
        type = "i8" if TYPES[dtype] == "i1" else TYPES[dtype]
        raw = self.w.let(f"load {self.w.vector(type)}, ptr {place}, align 1", "int8" if type == "i8" else dtype)
        return self.w.convert(raw, dtype) if TYPES[dtype] == "i1" else Lane(raw.ref, dtype)
