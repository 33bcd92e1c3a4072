"""The frame of functions that take rows of work through passes: units of work, and how they meet memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardwise.runtime.fused.space import Graph
from shardwise.runtime.loops.function import Function
from shardwise.runtime.loops.write import STREAMED
from shardwise.runtime.machine.lanes import Lane, itemsize

HEAD = ("units", "grain", "size", "count", "rounds", "strips", "pieces", "piece", "padded", "slot")

# How lanes meet an operand or a result.
CONTIGUOUS, REPEATED, STRIDED = "contiguous", "repeated", "strided"
PAST_CACHE = "past the cache"  # a contiguous result that nobody reads soon


@dataclass(frozen=True)
class Form:
    """How a group meets memory.

    `along`: lanes run along the innermost loop of a unit of work, else along a kept one. `kept` and `around` count the loops
    around a unit, and those of a unit around its innermost one. `access`: per input as read, then per output, how lanes meet it.
    `ragged`: lanes do not divide the row (or `count`). `split`: pieces are cut from the innermost loop ("inner") or from those
    around it ("outer"). `joins`: per value whose pieces lie apart the loop along which they do, a kept one or -1 for the innermost;
    `sections` of that have pieces of their own.
    """

    width: int
    along: bool
    kept: int
    around: int
    access: tuple[str, ...]
    ragged: bool
    split: str = "inner"
    wide: bool = False
    joins: tuple[int, ...] = ()
    sections: int = 1


class Frame:
    """What all functions of a group have in common. Registers have the names of the job's numbers."""

    def __init__(self, graph: Graph, form: Form) -> None:
        self.graph = graph
        self.form = form
        self.atoms = [*(graph.program.inputs[a.number] for a in graph.accesses), *graph.outputs]
        steps = form.kept + form.around + 2
        numbers = [*HEAD, *(f"kept{d}" for d in range(form.kept)), *(f"around{d}" for d in range(form.around))]
        numbers += [f"step{k}.{d}" for k in range(len(self.atoms)) for d in range(steps)]
        for e, pieces in enumerate(graph.joins.values()):
            numbers += [f"begin{e}.{p}" for p in range(1, len(pieces))]
        self.cuts = len(numbers)  # where the job says where sections begin and end
        pointers = [f"base{k}" for k in range(len(self.atoms))]
        if graph.remembers:
            pointers += ["scratch", "partial", "results"]
        self.w = Function(form.width, numbers, pointers, form.wide)
        self.own = ""  # the memory of this thread
        if any(graph.saved):
            thread = self.w.ticket(self.w.element("%counter", 1, "int64"))
            self.own = self.w.moved("%scratch", thread, self.w.integer("mul", "%slot", sum(map(len, graph.saved))))
        self.indices: list[str] = []  # of the unit along the kept loops
        self.here: list[str] = []  # where it begins in each operand and result

    def _place_unit(self, number: str) -> None:
        """Find where the unit begins in each operand and result."""
        w, form = self.w, self.form
        extents = [f"%kept{d}" for d in range(form.kept)]
        indices = w.split(number, extents if form.along else [*extents, "%strips"])
        start = None
        if not form.along:  # the last strip overlaps the one before
            start = w.least(w.integer("mul", indices.pop(), form.width), w.integer("sub", "%size", form.width))
        self.indices, self.here = indices, []
        for k in range(len(self.atoms)):
            place = f"%base{k}"
            for d, index in enumerate(indices):
                place = w.moved(place, index, f"%step{k}.{d}")
            self.here.append(place if start is None else w.moved(place, start, self._lane_step(k)))

    def _lane_step(self, k: int) -> str:
        return f"%step{k}.{self.form.kept + self.form.around + 1}"

    def _inner_step(self, k: int) -> str:
        return f"%step{k}.{self.form.kept + self.form.around}"

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _name(self, atom: Any) -> str:
        return atom.aval.dtype.name

    def _element(self, k: int, place: str, index: str) -> str:
        """Where element `index` of the innermost loop is, from its first one on."""
        if self.form.along and self.form.access[k] in (CONTIGUOUS, PAST_CACHE):
            return self.w.element(place, index, self._name(self.atoms[k]))
        return self.w.moved(place, index, self._inner_step(k))

    def _load(self, k: int, place: str, single: bool = False, mask: str | None = None) -> Lane:
        """Lanes of operand k from `place`, those of a mask; `single`: they are all one element."""
        w, dtype, access = self.w, self._name(self.atoms[k]), self.form.access[k]
        if single or access == REPEATED:
            return w.scalar(place, dtype)
        return (
            w.load(place, dtype, mask)
            if access == CONTIGUOUS
            else w.read(place, (w.width,), (self._lane_step(k),), dtype)
        )

    def _store(self, k: int, x: Lane, place: str, single: bool = False, mask: str | None = None) -> None:
        w, access = self.w, self.form.access[k]
        x = Lane(x.ref, self._name(self.atoms[k]))
        if single or access == REPEATED:
            w.write(x, place, (w.width,), (0,))
        elif access == STRIDED:
            w.write(x, place, (w.width,), (self._lane_step(k),))
        else:
            hint = STREAMED if access == PAST_CACHE else ""
            w.write(x, place, (w.width,), (itemsize(x.dtype),), mask, hint)

    def _slot(self, base: str, row: str, i: int, slots: int) -> str:
        """Where vector i of `row` lies in memory that holds `slots` vectors of up to 8 bytes per lane for each."""
        nbytes = 8 * self.form.width
        return self.w.moved(self.w.moved(base, row, slots * nbytes), 1, i * nbytes)

    def _put(self, x: Lane, place: str) -> None:
        """A vector as it is in lanes: 16-bit floats are not rounded."""
        self.w.store(Lane(x.ref, _as_lanes(x.dtype)), place)

    def _get(self, dtype: str, place: str) -> Lane:
        return Lane(self.w.load(place, _as_lanes(dtype)).ref, dtype)


def _as_lanes(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype
