"""Machine code for fused groups that read values whose pieces lie apart, such as a shifted array: its end before its beginning.

Along the loops around a unit, and those of a unit around its innermost one, the index chooses the piece. Along the innermost loop,
sections in which no piece ends are done one after the other; what whole vectors leave over of a section is done under a mask.
Reductions merge the accumulators of the sections.
"""

from __future__ import annotations

from dataclasses import replace

from shardwise.ir import Equation
from shardwise.runtime.fused.writer import GroupWriter, fold_of
from shardwise.runtime.loops import MASKED, Access, Held, Nest, Values, part_at, regroup, write_nest
from shardwise.runtime.machine import Lane


class JoinedWriter(GroupWriter):
    """Writes one function of a group that joins values."""

    def _pass(self, p: int, low: str, high: str, first: str, rounds: str) -> list[Held]:
        w, sections = self.w, self.form.sections
        if sections == 1:
            return write_nest(w, self._section(p, low), (low, high), (first, rounds))
        folds = self.graph.folds[p]
        starts = [fold_of(e).start(w, self._name(e.inputs[0])) for e in folds]

        def section(s: str, held: list[Lane]) -> list[Lane]:
            begin, end = (self._number(w.integer("add", s, self.cuts + k)) for k in range(2))
            begin, end = w.greatest(begin, low), w.least(end, high)

            def elements() -> list[str]:
                found = write_nest(w, self._section(p, begin), (begin, end), (first, rounds))
                merged = [
                    lane
                    for eqn, before, here in zip(folds, regroup(held, starts), found, strict=True)
                    for lane in fold_of(eqn).merge(w, before, here)
                ]
                return [lane.ref for lane in merged]

            kinds = [w.vector(lane.type) for lane in held]
            refs = w.branch(w.test("slt", begin, end), elements, [lane.ref for lane in held], kinds)
            return [Lane(ref, lane.dtype) for ref, lane in zip(refs, held, strict=True)]

        return regroup(w.accumulate(0, sections, section, [lane for held in starts for lane in held]), starts)

    def _number(self, index: str) -> str:
        """A number of the job."""
        return self.w.value(f"load i64, ptr {self.w.element('%job', index, 'int64')}, align 8")

    def _section(self, p: int, low: str) -> Nest:
        """The loops of pass p from element `low` on, up to where a piece ends."""
        nest, graph = self._nest(p), self.graph
        reads = {k: access for k, access in nest.reads.items() if graph.accesses[k].along is None}
        joined = {e.outputs[0]: self._chosen(i, e, low) for i, e in enumerate(graph.joins) if e in graph.needed[p]}
        return replace(nest, reads=reads | joined, tail=MASKED if self.form.sections > 1 else nest.tail)

    def _compute(self, eqn: Equation, values: Values) -> None:
        if eqn not in self.graph.joins:  # those are read
            super()._compute(eqn, values)

    def _chosen(self, i: int, eqn: Equation, low: str) -> Access:
        """How the unit reads joined value number `i` from element `low` of its innermost loop on."""
        loop, kept = self.form.joins[i], self.form.kept
        first, *others = (self._access(k) for k in self.graph.operands[eqn] if isinstance(k, int))  # in the same steps
        parts = [(f"%begin{i}.{p}", other.place) for p, other in enumerate(others, 1)]
        if kept <= loop < kept + self.form.around:
            return replace(first, parts=parts, apart=loop - kept)
        index = self.indices[loop] if loop < kept else low
        return replace(first, place=part_at(self.w, index, first.place, parts))
