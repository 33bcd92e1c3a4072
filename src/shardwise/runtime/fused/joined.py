"""Machine code for fused groups that read values whose pieces lie apart, such as a shifted array: its end before its beginning.

Along the loops around a row the piece is chosen by the row's index. Along the row itself, sections in which no piece ends are done one
after the other; what whole vectors leave over of a section is done under a mask.
"""

from __future__ import annotations

from dataclasses import replace

from shardwise.ir import Equation
from shardwise.runtime.fused.writer import GroupWriter
from shardwise.runtime.loops import MASKED, Access, Held, Values, write_nest


class JoinedWriter(GroupWriter):
    """Writes one function of an elementwise group."""

    def _pass(self, p: int, low: str, high: str, first: str, rounds: str) -> list[Held]:
        w, sections = self.w, self.form.sections
        if sections == 1:
            self._section(low, high)
            return []

        def section(s: str, _: list[str]) -> None:
            begin, end = (self._number(w.integer("add", s, self.cuts + k)) for k in range(2))
            begin = w.pick(w.test("slt", begin, low), low, begin)
            end = w.least(end, high)
            self._section(begin, w.pick(w.test("slt", end, begin), begin, end))

        w.loop(0, sections, section)
        return []

    def _number(self, index: str) -> str:
        """A number of the job."""
        return self.w.value(f"load i64, ptr {self.w.element('%job', index, 'int64')}, align 8")

    def _section(self, low: str, high: str) -> None:
        """Elements [low, high), in which no piece ends."""
        nest = self._nest(0)
        reads = {k: access for k, access in nest.reads.items() if self.graph.accesses[k].along is None}
        joined = {eqn.outputs[0]: self._chosen(e, eqn, low) for e, eqn in enumerate(self.graph.joins)}
        nest = replace(
            nest,
            reads={k: self._from(access, low) for k, access in (reads | joined).items()},
            writes={k: self._from(access, low) for k, access in nest.writes.items()},
            tail=MASKED if self.form.sections > 1 else nest.tail,
        )
        write_nest(self.w, nest, ("0", self.w.integer("sub", high, low)))

    def _compute(self, eqn: Equation, values: Values) -> None:
        if eqn not in self.graph.joins:  # those are read
            super()._compute(eqn, values)

    def _from(self, access: Access, low: str) -> Access:
        """The access from element `low` of the innermost loop on."""
        return replace(access, place=self.w.moved(access.place, low, access.inner))

    def _chosen(self, e: int, eqn: Equation, low: str) -> Access:
        """The piece that the unit reads of a value, from element `low` of the row on."""
        w, loop = self.w, self.form.joins[e]
        index = low if loop < 0 else self.indices[loop]
        pieces = [self._access(k) for k in self.graph.operands[eqn] if isinstance(k, int)]  # all are met alike
        place = pieces[0].place
        for p, other in enumerate(pieces[1:], 1):
            behind = w.test("sge", index, f"%begin{e}.{p}")
            place = w.value(f"select i1 {behind}, ptr {other.place}, ptr {place}", "p")
        return replace(pieces[0], place=place)
