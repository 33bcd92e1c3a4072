"""Machine code for fused groups that read values whose pieces lie apart, such as a shifted array: its end before its beginning.

Along the loops around a row the piece is chosen by the row's index. Along the row itself, sections in which no piece ends are done one
after the other; what whole vectors leave over of a section is done under a mask.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.ir import Equation
from shardwise.runtime.fused.frame import REPEATED
from shardwise.runtime.fused.writer import GroupWriter
from shardwise.runtime.machine.lanes import Lane


class JoinedWriter(GroupWriter):
    """Writes one function of an elementwise group."""

    def _elements(
        self, p: int, low: str, high: str, q: str, indices: Sequence[str], begin: Sequence[tuple[Lane, ...]]
    ) -> list[Lane]:
        w, sections = self.w, self.form.sections
        if sections == 1:
            self._section(low, high)
            return []

        def section(s: str, _: list[str]) -> None:
            first, last = (self._number(w.integer("add", s, self.cuts + k)) for k in range(2))
            first = w.pick(w.test("slt", first, low), low, first)
            last = w.least(last, high)
            self._section(first, w.pick(w.test("slt", last, first), first, last))

        w.loop(0, sections, section)
        return []

    def _number(self, index: str) -> str:
        """A number of the job."""
        return self.w.value(f"load i64, ptr {self.w.element('%job', index, 'int64')}, align 8")

    def _section(self, low: str, high: str) -> None:
        """Elements [low, high), in which no piece ends."""
        w, form, graph = self.w, self.form, self.graph
        reads = len(graph.accesses)
        here = {k: place for k, place in enumerate(self.here) if k >= reads or graph.accesses[k].along is None}
        even = {k: self._load(k, here.pop(k)) for k in list(here) if k < reads and form.access[k] == REPEATED}
        joined = {eqn: self._chosen(e, eqn, low) for e, eqn in enumerate(graph.joins)}
        here = {k: self._element(k, place, low) for k, place in here.items()}
        joined = {eqn: self._element(self._pieces(eqn)[0], place, low) for eqn, place in joined.items()}

        def vector(i: str, mask: str | None = None) -> None:
            values = self.values | even
            places = {k: self._element(k, place, i) for k, place in here.items()}
            values |= {k: self._load(k, place, mask=mask) for k, place in places.items() if k < reads}
            for eqn in graph.needed[0]:
                if eqn in joined:
                    k = self._pieces(eqn)[0]
                    values[eqn.outputs[0]] = self._load(k, self._element(k, joined[eqn], i), mask=mask)
                else:
                    self._compute(eqn, values)
            for k, var in enumerate(graph.outputs, reads):
                self._store(k, values[var], places[k], mask=mask)
            self._prefetch(0, places, i)

        count = w.integer("sub", high, low)
        if form.sections > 1:
            w.parts(count, vector)
        elif form.ragged and form.sections == 1:
            w.row(count, vector)
        else:
            w.loop(0, count, lambda i, _: vector(i), step=w.width)

    def _pieces(self, eqn: Equation) -> list[int]:
        """The accesses that a value is put together from; all are met alike."""
        return [k for k in self.graph.operands[eqn] if isinstance(k, int)]

    def _chosen(self, e: int, eqn: Equation, low: str) -> str:
        """Where the piece begins that the unit reads of a value, from element `low` of the row on."""
        w, loop = self.w, self.form.joins[e]
        index = low if loop < 0 else self.indices[loop]
        place, *others = [self.here[k] for k in self._pieces(eqn)]
        for p, other in enumerate(others, 1):
            behind = w.test("sge", index, f"%begin{e}.{p}")
            place = w.value(f"select i1 {behind}, ptr {other}, ptr {place}", "p")
        return place
