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

from shardwise.ir import Equation, Fold, Literal, Var
from shardwise.runtime.fused.frame import CONTIGUOUS, REPEATED, Form, Frame
from shardwise.runtime.fused.space import Graph
from shardwise.runtime.loops.function import Kernel
from shardwise.runtime.machine.lanes import STORED, Lane, itemsize

_AHEAD, _ROWS_AHEAD = 2048, 8

_Held = list[tuple[Lane, ...]]  # per reduction its accumulators


class GroupWriter(Frame):
    """Writes one function."""

    def __init__(self, graph: Graph, form: Form) -> None:
        super().__init__(graph, form)
        self.values: dict[object, Lane] = {}  # by access number or Var: what is known everywhere from here on
        self.copies = 2
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

        return self._compiled(unit)

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

        return self._compiled(unit)

    def finish(self, p: int, last: bool) -> Kernel:
        """Join the pieces of pass p; with the last reductions known, write the results of rows."""
        w, folds = self.w, self.graph.folds[p]

        def unit(number: str) -> None:
            self._place_unit(number)
            self._load_rows()
            self._load_results(p, number)
            starts = [_fold(e).start(w, self._name(e.inputs[0])) for e in folds]
            flat = [lane for held in starts for lane in held]
            first = w.integer("mul", number, "%pieces")

            def join(k: str, held: list[Lane]) -> list[Lane]:
                piece = w.integer("add", first, k)
                more = [
                    self._get(lane.dtype, self._slot("%partial", piece, i, len(flat))) for i, lane in enumerate(flat)
                ]
                pairs = zip(folds, _like(held, starts), _like(more, starts), strict=True)
                return [lane for eqn, x, y in pairs for lane in _fold(eqn).merge(w, x, y)]

            joined = _like(w.accumulate(0, "%pieces", join, flat), starts)
            every = self._all_folds()
            for eqn, held in zip(folds, joined, strict=True):
                self._close(eqn, held)
                self._put(self.values[eqn.outputs[0]], self._slot("%results", number, every.index(eqn), len(every)))
            if last:
                for r in range(self.graph.passes + 1):
                    self._rows(r)
                self._store_rows()

        return self._compiled(unit)

    def _compiled(self, unit: Callable[[str], None]) -> Kernel:
        self.w.units("%units", unit, "%grain")
        return self.w.compiled()

    # -- rows ------------------------------------------------------------------------------------------------------------

    def _load_rows(self) -> None:
        for k, access in enumerate(self.graph.accesses):
            if access.row:
                self.values[k] = self._load(k, self.here[k], single=self.form.along)

    def _all_folds(self) -> list[Equation]:
        return [e for folds in self.graph.folds for e in folds]

    def _load_results(self, p: int, row: str) -> None:
        """What the reductions of passes before p have given."""
        folds = self._all_folds()
        for i, eqn in enumerate(folds):
            if self.graph.ready[eqn.outputs[0]] <= p:
                place = self._slot("%results", row, i, len(folds))
                self.values[eqn.outputs[0]] = self._get(self._name(eqn.outputs[0]), place)
                self.done.add(eqn)

    def _rows(self, r: int) -> None:
        for eqn in self.graph.rows[r]:
            if eqn not in self.done:
                self.done.add(eqn)
                self._compute(eqn, self.values)

    def _compute(self, eqn: Equation, values: dict[object, Lane]) -> None:
        """The equation's instructions. Narrow floats are computed as float32 and rounded after each op, as NumPy does."""
        assert eqn.op.emit is not None
        operands = [self._value(a, values) for a in self.graph.operands[eqn]]
        var = eqn.outputs[0]
        written = operands[0] if eqn.op.emit.moves else eqn.op.emit.write(self.w, *operands, **eqn.params)
        out = Lane(written.ref, self._name(var))
        values[var] = out if eqn.op.emit.exact or eqn.op.emit.moves else self.w.narrowed(out)

    def _value(self, atom: object, values: dict[object, Lane]) -> Lane:
        return self.w.constant(atom.value, self._name(atom)) if isinstance(atom, Literal) else values[atom]

    def _close(self, eqn: Equation, held: tuple[Lane, ...]) -> None:
        """The result of a reduction from its accumulators."""
        w, fold, out = self.w, _fold(eqn), eqn.outputs[0]
        if self.form.along:
            held = fold.across(w, held, self._pairs(fold)) if fold.across is not None else self._pairs(fold)(held)
        result = Lane(fold.finish(w, held, self._name(out)).ref, self._name(out))
        self.values[out] = w.first(result) if self.form.along else result  # zeros of both signs may be in the lanes

    def _pairs(self, fold: Fold) -> Callable[[tuple[Lane, ...]], tuple[Lane, ...]]:
        """Accumulators of all lanes joined by merging halves."""

        def joined(held: tuple[Lane, ...]) -> tuple[Lane, ...]:
            by = self.form.width // 2
            while by:
                held = fold.merge(self.w, held, tuple(self.w.turned(x, by) for x in held))
                by //= 2
            return held

        return joined

    def _store_rows(self) -> None:
        first = len(self.graph.accesses)
        for k, var in enumerate(self.graph.outputs):
            if var not in self.graph.full:
                self._store(first + k, self.values[var], self.here[first + k], single=self.form.along)

    # -- passes ----------------------------------------------------------------------------------------------------------

    def _pass(self, p: int, low: str, high: str, first: str, rounds: str) -> _Held:
        """The loops of pass p over elements [low, high) of rounds [first, rounds): the accumulators of its reductions."""
        w, folds = self.w, self.graph.folds[p]
        starts = [_fold(e).start(w, self._name(e.inputs[0])) for e in folds for _ in range(self.copies)]
        flat = [lane for held in starts for lane in held]
        if self.form.around:
            extents = [f"%around{d}" for d in range(self.form.around)]

            def round_(q: str, held: list[Lane]) -> list[Lane]:
                return self._elements(p, low, high, q, w.split(q, extents), _like(held, starts))

            after = w.accumulate(first, rounds, round_, flat)
        else:
            after = self._elements(p, low, high, "0", [], starts)
        copies = _like(after, starts)
        out: _Held = []
        for k, eqn in enumerate(folds):
            held, *others = copies[k * self.copies : (k + 1) * self.copies]
            for other in others:
                held = _fold(eqn).merge(w, held, other)
            out.append(held)
        return out

    def _elements(self, p: int, low: str, high: str, q: str, indices: Sequence[str], begin: _Held) -> list[Lane]:
        """The innermost loop of pass p, in round q: accumulators after it, of those before."""
        w, form, graph = self.w, self.form, self.graph
        here: dict[int, str] = {}
        for k in graph.used(p):
            here[k] = self.here[k]
            for d, index in enumerate(indices, form.kept):
                here[k] = w.moved(here[k], index, f"%step{k}.{d}")
        limit = w.integer("sub", high, form.width) if form.along and form.ragged else None
        even = [k for k in here if form.along and form.access[k] == REPEATED and k < len(graph.accesses)]
        ready = self.values | {k: self._load(k, here[k]) for k in even}

        def vector(i: str, held: list[Lane]) -> list[Lane]:
            # The last vector ends with the row: lanes that were there before do not count again.
            j = i if limit is None else w.least(i, limit)
            values = dict(ready)
            places = {k: self._element(k, place, j) for k, place in here.items() if k not in even}
            for k, place in places.items():
                if k < len(graph.accesses):
                    values[k] = self._load(k, place)
            for r, kept in enumerate(graph.saved[:p]):
                for v in kept:
                    if v in graph.reads(p):
                        values[v] = w.load(self._saved_place(r, v, i, q), self._name(v))
            for eqn in graph.needed[p]:
                self._compute(eqn, values)
            for v in graph.saved[p]:
                w.store(values[v], self._saved_place(p, v, i, q))
            for k, var in enumerate(graph.outputs, len(graph.accesses)):
                if k in places:
                    self._store(k, values[var], places[k])
            after = self._taken_in(p, values, _like(held, begin), i, j)
            self._prefetch(p, places, j)
            return after

        flat = [lane for held in begin for lane in held]
        return w.accumulate(low, high, vector, flat, form.width if form.along else 1)

    def _taken_in(self, p: int, values: dict[object, Lane], held: _Held, i: str, j: str) -> list[Lane]:
        """The accumulators after the elements from `j` on, which begin to count at `i`."""
        w, form, folds = self.w, self.form, self.graph.folds[p]
        mask = position = None
        if folds and form.along and form.ragged:
            again = w.value(f"trunc i64 {w.integer('sub', i, j)} to i32")
            mask = w.compare("ge", w.sequence("int32"), w.splat(again, "int32"))
        if any(_fold(e).positions for e in folds):
            position = w.splat(w.value(f"trunc i64 {j} to i32"), "int32")
            position = w.add(position, w.sequence("int32")) if form.along else position
        after: list[Lane] = []
        for k, eqn in enumerate(folds):
            first, *others = held[k * self.copies : (k + 1) * self.copies]
            new = _fold(eqn).step(w, first, self._value(self.graph.operands[eqn][0], values), position)
            if mask is not None:
                new = tuple(w.select(mask, a, b) for a, b in zip(new, first, strict=True))
            after += [lane for copy in (*others, new) for lane in copy]  # the copies take turns
        return after

    def _saved_place(self, p: int, v: Var, i: str, q: str) -> str:
        """Where a kept value lies in this thread's memory."""
        w, dtype = self.w, self._name(v)
        number = sum(map(len, self.graph.saved[:p])) + self.graph.saved[p].index(v)
        index = w.integer("add", w.integer("mul", q, "%padded"), i) if self.form.around else i
        size = itemsize(dtype) * (1 if self.form.along else w.width)
        return w.moved(w.moved(self.own, number, "%slot"), index, size)

    def _prefetch(self, p: int, places: dict[int, str], element: str) -> None:
        """Ask for what iterations soon will meet for the first time: long bodies leave the processor no room to look ahead."""
        w, form, graph = self.w, self.form, self.graph
        before = {k for q in range(p) for k in graph.used(q)}
        if p == 1 and form.along and form.kept and not form.around:
            # This pass finds its row in the cache: time to bring the next one.
            for k in graph.used(0):
                if k < len(graph.accesses) and form.access[k] == CONTIGUOUS:
                    place = self._element(k, self.here[k], element)
                    w.prefetch(w.moved(place, 1, f"%step{k}.{form.kept - 1}"), False, 2)
        for k, place in places.items():
            if k in before or form.access[k] != CONTIGUOUS:
                continue
            if form.along:
                ahead = w.moved(place, 1, _AHEAD)
            else:
                ahead = w.moved(place, _ROWS_AHEAD, self._inner_step(k))
            lines = 1 if form.along else max(1, w.bytes_of(STORED[self._name(self.atoms[k])]) // 64)
            for line in range(lines):
                w.prefetch(w.moved(ahead, 1, 64 * line), k >= len(graph.accesses))


def _fold(eqn: Equation) -> Fold:
    assert eqn.op.fold is not None
    return eqn.op.fold


def _like(lanes: Sequence[Lane], held: _Held) -> _Held:
    """Lanes one after the other as accumulators, as many for each as in `held`."""
    left = iter(lanes)
    return [tuple(next(left) for _ in one) for one in held]
