"""Machine code for fused groups: functions that take units of work through the passes of a `Graph`.

Without reductions a unit is a row, or a piece of one, and there is one pass. With reductions, lanes run along a reduced loop (rows:
accumulators are joined across lanes in the end) or along a kept one (columns: each lane has a result of its own). Three kinds of
function:

* whole: units one after the other, each through all passes while it is in the cache;
* part: one pass over one piece of a long row, whose accumulators it leaves in memory;
* finish: joins the accumulators of all pieces of each row.

Threads take units of work from the first counter until none is left; the second numbers the threads that came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.ir import Equation, Literal, Var
from shardwise.runtime.fused.frame import CONTIGUOUS, REPEATED, Form, GroupFrame
from shardwise.runtime.fused.space import Graph
from shardwise.runtime.loops import (
    Held,
    Kernel,
    Pass,
    Read,
    Saved,
    Stored,
    Table,
    Values,
    build_nest,
    compute,
    dtype_name,
    finish_reduction,
    fold_of,
    leaf_of,
    reduction_of,
    regroup,
    write_nest,
)
from shardwise.runtime.machine import STORED, Lane, itemsize

_AHEAD, _ROWS_AHEAD = 2048, 8


class GroupWriter(GroupFrame):
    """Writes one function. `slower`: nanoseconds that its first call would take longer as a draft."""

    def __init__(self, graph: Graph, form: Form, slower: float) -> None:
        super().__init__(graph, form)
        self._slower = slower
        self.values: Values = {}  # by access number or Var: known in all that follows
        # Where each lane has results of its own, vectors side by side wait for nothing, and more accumulators than registers would
        # cost more than they save. Those of positions take long.
        positions = any(e.op.fold is not None and e.op.fold.positions for e in graph.program.equations)
        self.unit = form.unit(2 if (form.along and not form.pairs) or positions else 1)
        self.done: set[Equation] = set()

    # -- the three functions ---------------------------------------------------------------------------------------------

    def whole(self) -> Kernel:
        """All passes over each unit."""

        def unit(number: str) -> None:
            self._place_unit(number)
            self._load_rows()
            for p in range(self.graph.passes):
                self._rows(p)
                for eqn, held in zip(self.graph.folds[p], self._pass(p, "0", "%count", "0", "%rounds"), strict=True):
                    self._close(eqn, held)
            self._rows(self.graph.passes)
            self._store_rows()

        return self._compile_unit(unit)

    def part(self, p: int) -> Kernel:
        """Pass p over one piece of a unit: its accumulators go to where the pointer `partial` says."""
        w, inner = self.w, self.form.split == "inner"

        def unit(number: str) -> None:
            row, piece = w.split(number, ["%units", "%pieces"])
            self._place_unit(row)
            low = w.integer("mul", piece, "%piece")
            high = w.least(w.integer("add", low, "%piece"), "%count" if inner else "%rounds")
            self._load_rows()
            self._load_results(p, row)
            for r in range(p + 1):
                self._rows(r)
            ends = (low, high, "0", "%rounds") if inner else ("0", "%count", low, high)
            out = [lane for held in self._pass(p, *ends) for lane in held]
            for i, lane in enumerate(out):
                self._put(lane, self._slot("%partial", number, i, len(out)))

        return self._compile_unit(unit)

    def finish(self, p: int, last: bool) -> Kernel:
        """Join the pieces of pass p; with the last reductions known, write the results of rows."""
        w, folds = self.w, self.graph.folds[p]

        def unit(number: str) -> None:
            self._place_unit(number)
            self._load_rows()
            self._load_results(p, number)
            starts = [fold_of(e).start(w, dtype_name(e.inputs[0].aval)) for e in folds]
            flat = [lane for held in starts for lane in held]
            first = w.integer("mul", number, "%pieces")

            def join(k: str, held: list[Lane]) -> list[Lane]:
                piece = w.integer("add", first, k)
                more = [
                    self._get(lane.dtype, self._slot("%partial", piece, i, len(flat))) for i, lane in enumerate(flat)
                ]
                pairs = zip(folds, regroup(held, starts), regroup(more, starts), strict=True)
                return [lane for eqn, x, y in pairs for lane in fold_of(eqn).merge(w, x, y)]

            joined = regroup(w.accumulate(0, "%pieces", join, flat), starts)
            every = self._all_folds()
            for eqn, held in zip(folds, joined, strict=True):
                self._close(eqn, held)
                self._put(self.values[eqn.outputs[0]], self._slot("%results", number, every.index(eqn), len(every)))
            if last:
                for r in range(self.graph.passes + 1):
                    self._rows(r)
                self._store_rows()

        return self._compile_unit(unit)

    def _compile_unit(self, unit: Callable[[str], None]) -> Kernel:
        self.w.units("%units", unit, "%grain")
        return self.w.compile_function(self._slower)

    # -- rows ------------------------------------------------------------------------------------------------------------

    def _load_rows(self) -> None:
        for k, access in enumerate(self.graph.accesses):
            if access.row:
                self.values[k] = self._load_row(k)

    def _all_folds(self) -> list[Equation]:
        return [e for folds in self.graph.folds for e in folds]

    def _load_results(self, p: int, row: str) -> None:
        """Load the results of reductions in passes before p."""
        folds = self._all_folds()
        for i, eqn in enumerate(folds):
            if self.graph.ready[eqn.outputs[0]] <= p:
                place = self._slot("%results", row, i, len(folds))
                self.values[eqn.outputs[0]] = self._get(dtype_name(eqn.outputs[0].aval), place)
                self.done.add(eqn)

    def _rows(self, r: int) -> None:
        for eqn in self.graph.rows[r]:
            if eqn not in self.done:
                self.done.add(eqn)
                compute(self.w, eqn, self.graph.operands[eqn], self.values)

    def _close(self, eqn: Equation, held: Held) -> None:
        """The result of a reduction from its accumulators."""
        w, along = self.w, self.form.along
        result = finish_reduction(w, fold_of(eqn), held, dtype_name(eqn.outputs[0].aval), across=along)
        self.values[eqn.outputs[0]] = w.shuffle_lanes(result, 1, [0] * self.form.width) if along else result

    def _store_rows(self) -> None:
        first = len(self.graph.accesses)
        for k, var in enumerate(self.graph.outputs):
            if var not in self.graph.full:
                self._store_row(first + k, self.values[var])

    # -- passes ----------------------------------------------------------------------------------------------------------

    def _pass(self, p: int, low: str, high: str, first: str, rounds: str) -> list[Held]:
        """The loops of pass p over elements [low, high) of rounds [first, rounds): the accumulators of its reductions."""
        graph, count = self.graph, len(self.graph.accesses)
        computed = Pass(
            reads=self._reads(p, low),
            writes={count + k: (graph.outputs[k], self._stored_operand(count + k)) for k in graph.stores[p]},
            leaf=leaf_of(self.w, graph.pass_equations(p), graph.operands.__getitem__, self._reader(p)),
            known=self.values,
            tables={k: self._stored_operand(k) for k in graph.used(p) if k in self.table_forms},
            reductions=[reduction_of(e, graph.operands[e][0]) for e in graph.folds[p]],
            recalls={v: self._saved_place(q, v) for q in range(p) for v in graph.saved[q] if v in graph.reads(p)},
            saves={v: self._saved_place(p, v) for v in graph.saved[p]},
        )
        nest = build_nest(self.unit, computed, lambda places, element: self._prefetch(p, places, element))
        return write_nest(self.w, nest, (low, high), (first, rounds))

    def _reads(self, p: int, low: str) -> dict[Any, Stored]:
        """The operands that pass p reads, from element `low` on."""
        return {
            k: self._stored_operand(k)
            for k in self.graph.used(p)
            if k < len(self.graph.accesses) and k not in self.table_forms
        }

    def _reader(self, p: int) -> Read:
        """Reads elements of the tables of pass p."""
        graph, form = self.graph, self.form
        tables = {
            k: Table(
                self.w,
                self.table_forms[k],
                [f"%{name}" for name in self.table_forms[k].names(k)],
                dtype_name(self.atoms[k].aval),
                form.tile,
                self._stored_operand(k).steps[form.lane :],
            )
            for k in graph.used(p)
            if k in self.table_forms
        }

        fixed = graph.same_where(k for k, kind in enumerate(form.access) if kind == REPEATED)

        def read(eqn: Equation, keys: Sequence[Any], values: Sequence[Lane]) -> Lane:
            assert eqn.op.element_read is not None
            how = eqn.op.element_read(eqn)
            assert how is not None
            table, *positions = keys
            same = [isinstance(k, Literal) or k in fixed for k in positions]
            return tables[table].read(values[0].ref, values[1:], how, same)

        return read

    def _saved_place(self, p: int, v: Var) -> Saved:
        """Where pass p keeps a value: in this thread's memory."""
        w, dtype = self.w, dtype_name(v.aval)
        number = sum(map(len, self.graph.saved[:p])) + self.graph.saved[p].index(v)
        size = itemsize(dtype) * (1 if self.form.along else w.width)
        return Saved(w.advance_address(self.own, number, "%slot"), dtype, "%padded" if self.form.around else "", size)

    def _prefetch(self, p: int, places: dict[Any, str], element: str) -> None:
        """Prefetch memory that later iterations read first: long bodies leave the processor no room to look ahead."""
        w, form, graph = self.w, self.form, self.graph
        before = {k for q in range(p) for k in graph.used(q)}
        if p == 1 and form.along and form.kept and not form.around:
            # This pass finds its row in the cache: time to bring the next one.
            for k in graph.used(0):
                if k < len(graph.accesses) and form.access[k] == CONTIGUOUS and k not in self.table_forms:
                    place = w.advance_address(self.here[k], element, itemsize(dtype_name(self.atoms[k].aval)))
                    ahead = w.advance_address(place, 1, f"%step{k}.{form.kept - 1}")
                    for line in range(self._lines(k)):
                        w.prefetch(w.advance_address(ahead, 1, 64 * line), False, 2)
        for k, place in places.items():
            if not isinstance(k, int) or k in before or k in self.table_forms or form.access[k] != CONTIGUOUS:
                continue
            if form.along:
                ahead = w.advance_address(place, 1, _AHEAD)
            else:
                ahead = w.advance_address(place, _ROWS_AHEAD, self._inner_step(k))
            for line in range(self._lines(k)):
                w.prefetch(w.advance_address(ahead, 1, 64 * line), k >= len(graph.accesses))

    def _lines(self, k: int) -> int:
        """Lines of the cache that a vector of an access takes; along a row they follow each other."""
        paired = self.form.pairs or not self.form.along
        return max(1, self.w.bytes_of(STORED[dtype_name(self.atoms[k].aval)]) // 64) if paired else 1
