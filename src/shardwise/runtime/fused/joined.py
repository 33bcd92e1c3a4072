"""Machine code for fused groups that read values whose pieces lie apart, such as a shifted array: its end before its beginning.

Along the loops around a unit, and those of a unit around its innermost one, the index chooses the piece. Along the innermost loop,
sections in which no piece ends are done one after the other; what whole vectors leave over of a section is done under a mask.
Reductions merge the accumulators of the sections.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardwise.ir import Equation
from shardwise.runtime.fused.writer import GroupWriter
from shardwise.runtime.loops import Held, Stored, dtype_name, fold_of, part_at, regroup
from shardwise.runtime.machine import Lane


class JoinedWriter(GroupWriter):
    """Writes one function of a group that joins values."""

    def _pass(self, p: int, low: str, high: str, first: str, rounds: str) -> list[Held]:
        w, sections, inside = self.w, self.form.sections, super()._pass
        if sections == 1:
            return inside(p, low, high, first, rounds)
        folds = self.graph.folds[p]
        starts = [fold_of(e).start(w, dtype_name(e.inputs[0].aval)) for e in folds]

        def section(s: str, held: list[Lane]) -> list[Lane]:
            begin, end = (self._number(w.integer("add", s, self.cuts + k)) for k in range(2))
            begin, end = w.greatest(begin, low), w.least(end, high)

            def elements() -> list[str]:
                found = inside(p, begin, end, first, rounds)
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

    def _reads(self, p: int, low: str) -> dict[Any, Stored]:
        graph = self.graph
        pieces = {k for k, access in enumerate(graph.accesses) if access.along is not None}
        reads = {k: stored for k, stored in super()._reads(p, low).items() if k not in pieces}
        joins = enumerate(graph.joins)
        return reads | {e.outputs[0]: self._read_joined(i, e, low) for i, e in joins if e in graph.needed[p]}

    def _read_joined(self, i: int, eqn: Equation, low: str) -> Stored:
        """Joined value number `i` as the unit reads it from element `low` of its innermost loop on."""
        loop, kept = self.form.joins[i], self.form.kept
        first, *others = (
            self._stored_operand(k) for k in self.graph.operands[eqn] if isinstance(k, int)
        )  # in the same steps
        parts = [(f"%begin{i}.{p}", other.place) for p, other in enumerate(others, 1)]
        if kept <= loop < self.form.inner:
            return replace(first, parts=parts, apart=loop)
        index = self.indices[loop] if loop < kept else low
        return replace(first, place=part_at(self.w, index, first.place, parts))
