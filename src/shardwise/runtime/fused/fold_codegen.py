"""Machine code for fused groups with reductions: LLVM functions that take rows of work through the passes of a `Graph`.

Lanes run along a reduced loop (rows: accumulators are joined across lanes in the end) or along a kept one (columns: each lane has
a result of its own). Three kinds of function, all ``void kernel(i64 *job, void **pointers, i64 *counters)``:

* whole: rows one after the other, each through all passes while it is in the cache;
* part: one pass over one piece of a long row, whose accumulators it leaves in memory;
* finish: joins the accumulators of all pieces of each row.

Threads take units of work from the first counter until none is left; the second numbers the threads that came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwise.ir import Equation, Fold, Literal, Var
from shardwise.runtime.fused.codegen import CONTIGUOUS
from shardwise.runtime.fused.frame import Form, Frame
from shardwise.runtime.fused.space import Graph
from shardwise.runtime.machine.lanes import STORED, Lane

_AHEAD, _ROWS_AHEAD = 2048, 8


class FoldWriter(Frame):
    """Writes one function."""

    def __init__(self, graph: Graph, form: Form) -> None:
        super().__init__(graph, form)
        self.values: dict[object, Lane] = {}  # by access number or Var: what is known everywhere from here on
        self.copies = 2
        self.done: set[Equation] = set()

    # -- the three functions ---------------------------------------------------------------------------------------------

    def whole(self) -> str:
        """All passes over each unit."""
        self._begin()
        self._units("%units")
        self._place_unit("%unit")
        self._load_rows()
        for p in range(self.graph.passes):
            self._rows(p)
            for eqn, held in zip(self.graph.folds[p], self._pass(p, "0", "%count", "0", "%rounds"), strict=True):
                self._close(eqn, held)
        self._rows(self.graph.passes)
        self._store_rows()
        return self._end()

    def part(self, p: int) -> str:
        """Pass p over one piece of a unit: its accumulators go to where the first extra pointer says."""
        w = self.w
        self._begin()
        self._units("%units")
        w.line("%piece_number = urem i64 %unit, %pieces")
        w.line("%row_number = udiv i64 %unit, %pieces")
        self._place_unit("%row_number")
        whole = "%count" if self.form.split == "inner" else "%rounds"
        w.line("%low = mul i64 %piece_number, %piece")
        w.line("%high0 = add i64 %low, %piece")
        w.line(f"%over = icmp ugt i64 %high0, {whole}")
        w.line(f"%high = select i1 %over, i64 {whole}, i64 %high0")
        self._load_rows()
        self._load_results(p, "%row_number")
        for r in range(p + 1):
            self._rows(r)
        inner = self.form.split == "inner"
        ends = ("%low", "%high", "0", "%rounds") if inner else ("0", "%count", "%low", "%high")
        out = [lane for held in self._pass(p, *ends) for lane in held]
        for i, lane in enumerate(out):
            self._put(lane, self._slot("%partial", "%unit", i, len(out)))
        return self._end()

    def finish(self, p: int, last: bool) -> str:
        """Join the pieces of pass p; with the last reductions known, write the results of rows."""
        w, folds = self.w, self.graph.folds[p]
        self._begin()
        self._units("%units")
        self._place_unit("%unit")
        self._load_rows()
        self._load_results(p, "%unit")
        starts = [e.op.fold.start(w, self._name(e.inputs[0])) for e in folds if e.op.fold is not None]
        flat = [lane for held in starts for lane in held]
        before = w.label
        w.line("%first_piece = mul i64 %unit, %pieces")
        w.line("br label %pieces_loop")
        w.start("pieces_loop")
        at = len(w.lines)
        w.line("%at_piece = add i64 %first_piece, %k")
        more = [self._get(lane.dtype, self._slot("%partial", "%at_piece", i, len(flat))) for i, lane in enumerate(flat)]
        held = [Lane(f"%sum{i}", lane.dtype) for i, lane in enumerate(flat)]
        merged: list[Lane] = []
        for eqn, start in zip(folds, starts, strict=True):
            assert eqn.op.fold is not None
            k = len(merged)
            merged += eqn.op.fold.merge(w, tuple(held[k : k + len(start)]), tuple(more[k : k + len(start)]))
        w.line("%k_next = add i64 %k, 1")
        w.line("%pieces_left = icmp ult i64 %k_next, %pieces")
        phis = [f"  %k = phi i64 [ 0, %{before} ], [ %k_next, %{w.label} ]"]
        for lane, first, after in zip(held, flat, merged, strict=True):
            phis.append(
                f"  {lane.ref} = phi {w.vector(lane.type)} [ {first.ref}, %{before} ], [ {after.ref}, %{w.label} ]"
            )
        w.lines[at:at] = phis
        w.line("br i1 %pieces_left, label %pieces_loop, label %pieces_done")
        w.start("pieces_done")
        for eqn, start in zip(folds, starts, strict=True):
            self._close(eqn, merged[: len(start)])
            del merged[: len(start)]
            result = self.values[eqn.outputs[0]]
            self._put(result, self._slot("%results", "%unit", self._all_folds().index(eqn), len(self._all_folds())))
        if last:
            for r in range(self.graph.passes + 1):
                self._rows(r)
            self._store_rows()
        return self._end()

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
        operands = [self._read(a, values) for a in self.graph.operands[eqn]]
        var = eqn.outputs[0]
        written = operands[0] if eqn.op.emit.moves else eqn.op.emit.write(self.w, *operands, **eqn.params)
        out = Lane(written.ref, self._name(var))
        values[var] = out if eqn.op.emit.exact or eqn.op.emit.moves else self.w.narrowed(out)

    def _read(self, atom: object, values: dict[object, Lane]) -> Lane:
        return self.w.constant(atom.value, self._name(atom)) if isinstance(atom, Literal) else values[atom]

    def _close(self, eqn: Equation, held: Sequence[Lane]) -> None:
        """The result of a reduction from its accumulators."""
        w, fold, out = self.w, eqn.op.fold, eqn.outputs[0]
        assert fold is not None
        held = tuple(held)
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

    def _pass(self, p: int, low: str, high: str, first: str, rounds: str) -> list[list[Lane]]:
        """The loops of pass p over elements [low, high) of rounds [first, rounds): the accumulators of its reductions."""
        w, form, graph = self.w, self.form, self.graph
        folds = graph.folds[p]
        starts = [
            [fold.start(w, self._name(e.inputs[0])) for _ in range(self.copies)]
            for e in folds
            if (fold := e.op.fold) is not None
        ]
        flat = [lane for copies in starts for held in copies for lane in held]
        tag = f"p{p}"
        if form.reduced:
            w.line(f"br label %{tag}.before")
            w.start(f"{tag}.before")
            outside = w.label
            w.line(f"br label %{tag}.round")
            w.start(f"{tag}.round")
            outer_at = len(w.lines)
            outer = [Lane(f"%{tag}.o{i}", lane.dtype) for i, lane in enumerate(flat)]
            left = f"%{tag}.q"
            indices = []
            for d in reversed(range(form.reduced)):
                w.line(f"%{tag}.r{d} = urem i64 {left}, %reduced{d}")
                w.line(f"%{tag}.l{d} = udiv i64 {left}, %reduced{d}")
                left = f"%{tag}.l{d}"
                indices.append((f"%{tag}.r{d}", form.kept + d))
            begin = outer
        else:
            indices, begin = [], flat
        used = self._used(p)
        here = {}
        for k in used:
            place = self.here[k]
            for index, d in indices:
                place = self._moved(place, index, f"%step{k}.{d}")
            here[k] = place
        w.line(f"br label %{tag}.pre")
        w.start(f"{tag}.pre")
        step = form.width if form.along else 1
        if form.along:
            w.line(f"%{tag}.limit = sub i64 {high}, {form.width}")
        w.line(f"br label %{tag}.loop")
        w.start(f"{tag}.loop")
        at = len(w.lines)
        inner = [Lane(f"%{tag}.a{i}", lane.dtype) for i, lane in enumerate(flat)]
        i = j = f"%{tag}.i"
        mask = None
        if form.along and form.ragged:
            # The last vector ends with the row: lanes that were there before do not count again.
            j = f"%{tag}.j"
            w.line(f"%{tag}.inside = icmp slt i64 {i}, %{tag}.limit")
            w.line(f"{j} = select i1 %{tag}.inside, i64 {i}, i64 %{tag}.limit")
            if flat:
                again = w.let(f"sub i64 {i}, {j}", "int64")
                narrow = w.let(f"trunc i64 {again.ref} to i32", "int32")
                mask = w.compare("ge", w.sequence("int32"), w.splat(narrow.ref, "int32"))
        values = dict(self.values)
        places: dict[int, str] = {}
        for k in used:
            places[k] = self._moved(here[k], j, self._inner_step(k))
            if k < len(graph.accesses):
                values[k] = self._load(k, places[k])
        for q, kept in enumerate(graph.saved[:p]):
            for v in kept:
                if self._wants(p, v):
                    stored = STORED[self._name(v)]
                    raw = w.let(
                        f"load {w.vector(stored)}, ptr {self._saved_place(q, v, i, f'%{tag}.q')}, align 1", "int8"
                    )
                    values[v] = w.loaded(raw.ref, self._name(v))
        for eqn in graph.needed[p]:
            self._compute(eqn, values)
        for v in graph.saved[p]:
            raw = w.storable(values[v])
            place = self._saved_place(p, v, i, f"%{tag}.q")
            w.line(f"store {w.vector(STORED[self._name(v)])} {raw}, ptr {place}, align 1")
        for k in graph.stores[p]:
            atom = len(graph.accesses) + k
            self._store(atom, values[graph.outputs[k]], places[atom])
        position = None
        if any(e.op.fold is not None and e.op.fold.positions for e in folds):
            base = w.splat(w.let(f"trunc i64 {j} to i32", "int32").ref, "int32")
            position = w.add(base, w.sequence("int32")) if form.along else base
        after: list[Lane] = []
        k = 0
        for eqn, copies in zip(folds, starts, strict=True):
            fold, n = eqn.op.fold, len(copies[0])
            assert fold is not None
            mine = [tuple(inner[k + c * n : k + (c + 1) * n]) for c in range(self.copies)]
            x = self._read(graph.operands[eqn][0], values)
            new = fold.step(w, mine[0], x, position)
            if mask is not None:
                new = tuple(w.select(mask, a, b) for a, b in zip(new, mine[0], strict=True))
            after += [lane for held in (*mine[1:], new) for lane in held]  # the copies take turns
            k += n * self.copies
        w.line(f"br label %{tag}.latch")
        w.start(f"{tag}.latch")
        self._prefetch(p, places, j)
        w.line(f"%{tag}.i_next = add i64 {i}, {step}")
        w.line(f"%{tag}.again = icmp slt i64 %{tag}.i_next, {high}")
        w.line(f"br i1 %{tag}.again, label %{tag}.loop, label %{tag}.after")
        phis = [f"  {i} = phi i64 [ {low}, %{tag}.pre ], [ %{tag}.i_next, %{tag}.latch ]"]
        phis += [
            f"  {x.ref} = phi {w.vector(x.type)} [ {a.ref}, %{tag}.pre ], [ {b.ref}, %{tag}.latch ]"
            for x, a, b in zip(inner, begin, after, strict=True)
        ]
        w.lines[at:at] = phis
        w.start(f"{tag}.after")
        if form.reduced:
            w.line(f"%{tag}.q_next = add i64 %{tag}.q, 1")
            w.line(f"%{tag}.rounds_left = icmp slt i64 %{tag}.q_next, {rounds}")
            w.line(f"br i1 %{tag}.rounds_left, label %{tag}.round, label %{tag}.done")
            phis = [f"  %{tag}.q = phi i64 [ {first}, %{outside} ], [ %{tag}.q_next, %{tag}.after ]"]
            phis += [
                f"  {x.ref} = phi {w.vector(x.type)} [ {a.ref}, %{outside} ], [ {b.ref}, %{tag}.after ]"
                for x, a, b in zip(outer, flat, after, strict=True)
            ]
            w.lines[outer_at:outer_at] = phis
            w.start(f"{tag}.done")
        out = []
        k = 0
        for eqn, copies in zip(folds, starts, strict=True):
            fold, n = eqn.op.fold, len(copies[0])
            assert fold is not None
            held = tuple(after[k : k + n])
            for c in range(1, self.copies):
                held = fold.merge(w, held, tuple(after[k + c * n : k + (c + 1) * n]))
            out.append(list(held))
            k += n * self.copies
        return out

    def _used(self, p: int) -> list[int]:
        """The operands that pass p loads in its loop, and the outputs that it stores."""
        atoms = [a for e in self.graph.needed[p] for a in self.graph.operands[e]] + self.graph.sinks(p)
        loads = sorted({a for a in atoms if isinstance(a, int) and not self.graph.accesses[a].row})
        return loads + [len(self.graph.accesses) + k for k in self.graph.stores[p]]

    def _wants(self, p: int, v: Var) -> bool:
        """Whether pass p reads the kept value."""
        atoms = [a for e in self.graph.needed[p] for a in self.graph.operands[e]] + self.graph.sinks(p)
        return v in [a for a in atoms if isinstance(a, Var)]

    def _saved_place(self, p: int, v: Var, i: str, q: str) -> str:
        """Where a kept value lies in this thread's memory."""
        w = self.w
        number = sum(map(len, self.graph.saved[:p])) + self.graph.saved[p].index(v)
        index = i
        if self.form.reduced:
            row = w.let(f"mul i64 {q}, %padded", "int64").ref
            index = w.let(f"add i64 {row}, {i}", "int64").ref
        size = w.bytes_of(STORED[self._name(v)]) // (w.width if self.form.along else 1)
        return self._moved(self._moved("%own", str(number), "%slot"), index, str(size))

    def _prefetch(self, p: int, places: dict[int, str], element: str) -> None:
        """Ask for what iterations soon will meet for the first time."""
        w = self.w
        w.declare("llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        before = {k for q in range(p) for k in self._used(q)}
        if p == 1 and self.form.along and self.form.kept and not self.form.reduced:
            # This pass finds its row in the cache: time to bring the next one.
            for k in self._used(0):
                if k < len(self.graph.accesses) and self.form.access[k] == CONTIGUOUS:
                    place = self._moved(self.here[k], element, self._inner_step(k))
                    ahead = self._moved(place, "1", f"%step{k}.{self.form.kept - 1}")
                    w.line(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 2, i32 1)")
        for k, place in places.items():
            j = k - len(self.graph.accesses)
            if k in before or self.form.access[k] != CONTIGUOUS:
                continue
            if self.form.along:
                ahead = self._moved(place, "1", str(_AHEAD))
            else:
                ahead = self._moved(place, str(_ROWS_AHEAD), self._inner_step(k))
            lines = 1 if self.form.along else max(1, w.bytes_of(STORED[self._name(self.atoms[k])]) // 64)
            for line in range(lines):
                at = self._moved(ahead, "1", str(64 * line)) if line else ahead
                w.line(f"call void @llvm.prefetch.p0(ptr {at}, i32 {int(j >= 0)}, i32 3, i32 1)")
