"""`Nest`: the loops of one way through memory, as fused groups and small programs both have them, and their text.

Extents and steps are registers where a job brings them (fused groups), numbers where they are known while the text is written (small
programs). The text is the same: vectors are read, a leaf computes, results are written and reductions gather. Loops in which nothing
gathers lie around a nest: threads share them (`Flow.units`), or one runs them all (`Writer.nest`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.ir import Fold
from shardwise.runtime.loops.write import Steps, Writer
from shardwise.runtime.machine import Lane, is_known

Held = tuple[Lane, ...]  # the accumulators of a reduction
Key = Any  # of a value: a variable, or the number of an operand or a result
Values = dict[Key, Lane]
Leaf = Callable[[Values], object]
Ahead = Callable[[dict[Key, str], str], object]  # (addresses by key, element)

WHOLE, OVERLAP, MASKED = "whole", "overlap", "masked"


@dataclass(frozen=True, slots=True)
class Access:
    """An operand or a result of a nest.

    Attributes:
        place: the address of its first element.
        dtype: the dtype's name.
        around: bytes per round of each loop around the innermost one.
        inner: bytes between neighbours along the innermost loop.
        lanes: bytes between neighbours along each dim of a vector.
        hint: how it is written, as `Writer.write` takes it.
        parts: of an operand whose elements lie in several places, for each but the first: the index along the loop `apart` (of those
            around the innermost one) from which on elements lie there, and the address.
        apart: that loop.
    """

    place: str
    dtype: str
    around: Steps
    inner: int | str
    lanes: Steps
    hint: str = ""
    parts: Sequence[tuple[str, str]] = ()
    apart: int = 0


@dataclass(frozen=True, slots=True)
class Saved:
    """Vectors that one pass over a unit of work leaves for later ones, one per element of the innermost loop and round of those around it.

    Attributes:
        place: the address of the first one.
        dtype: the dtype's name.
        round: elements per round; "" where there is one round.
        size: bytes per element.
    """

    place: str
    dtype: str
    round: str
    size: int

    def at(self, w: Writer, element: str, number: str) -> str:
        """The address of the vector at an element in a round."""
        index = w.integer("add", w.integer("mul", number, self.round), element) if self.round else element
        return w.advance_address(self.place, index, self.size)


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction of the value `source` of a nest, whose elements have this dtype."""

    fold: Fold
    source: Key
    dtype: str


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops around vectors.

    Attributes:
        around: the extents of the loops around the innermost one, in which accumulators go on.
        tile: the shape of a vector. Its first dim lies along the innermost loop if `along`, else along a loop around the nest, where
            each lane has results of its own.
        along: whether vectors follow each other along the innermost loop.
        reads: the operands by key.
        tables: operands of which the leaf reads elements at positions: it gets the address of the element at position 0.
        writes: the results by the keys of their values.
        leaf: adds to the values read at an element those that are computed of them.
        known: values that are the same everywhere.
        reductions: the reductions.
        recalls: values that other nests have saved.
        saves: values for other nests.
        tail: what becomes of elements that whole vectors leave over at the end of the innermost loop: WHOLE (there are none), OVERLAP
            (the last vector ends with the row, which has at least that many elements) or MASKED (a row of any length).
        copies: accumulators per reduction, which take turns, so that additions need not wait for each other.
        ahead: asks for memory that later rounds read.
    """

    around: Steps
    tile: Shape
    along: bool
    reads: Mapping[Key, Access]
    writes: Mapping[Key, Access]
    leaf: Leaf
    known: Values = field(default_factory=dict[Key, Lane])
    tables: Mapping[Key, Access] = field(default_factory=dict[Key, Access])
    reductions: Sequence[Reduction] = ()
    recalls: Mapping[Key, Saved] = field(default_factory=dict[Key, Saved])
    saves: Mapping[Key, Saved] = field(default_factory=dict[Key, Saved])
    tail: str = OVERLAP
    copies: int = 1
    ahead: Ahead | None = None

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return math.prod(self.tile)

    @property
    def accesses(self) -> dict[Key, Access]:
        """The operands, tables and results by key."""
        return {**self.reads, **self.tables, **self.writes}


def write_nest(w: Writer, nest: Nest, elements: tuple[str, str], rounds: tuple[str, str] | None = None) -> list[Held]:
    """Write the loops: the accumulators of each reduction after them.

    Args:
        w: where the text goes.
        nest: the loops.
        elements: the first element of the innermost loop and the end of the last one.
        rounds: likewise of all loops around it, which are counted through as one; without them all their rounds run.
    """
    w.at(nest.width)
    starts = [r.fold.start(w, r.dtype) for r in nest.reductions for _ in range(nest.copies)]
    after = regroup(_rounds(w, nest, elements, rounds, starts), starts)
    found: list[Held] = []
    for k, reduction in enumerate(nest.reductions):
        held, *others = after[k * nest.copies : (k + 1) * nest.copies]
        for other in others:
            held = reduction.fold.merge(w, held, other)
        found.append(held)
    return found


def _rounds(
    w: Writer,
    nest: Nest,
    elements: tuple[str, str],
    rounds: tuple[str, str] | None,
    starts: list[Held],
) -> list[Lane]:
    """The accumulators after the loops around the innermost one."""
    accesses = nest.accesses
    places = {key: [access.place, *(place for _, place in access.parts)] for key, access in accesses.items()}

    def advance(here: dict[Key, list[str]], index: str, d: int) -> dict[Key, list[str]]:
        found: dict[Key, list[str]] = {}
        for key, parts in here.items():
            access = accesses[key]
            parts = [w.advance_address(place, index, access.around[d]) for place in parts]
            if access.parts and access.apart == d:
                begins = [begin for begin, _ in access.parts]
                parts = [part_at(w, index, parts[0], list(zip(begins, parts[1:], strict=True)))]
            found[key] = parts
        return found

    def elements_of(here: dict[Key, list[str]], number: str, held: list[Lane]) -> list[Lane]:
        places = {key: place for key, (place,) in here.items()}
        return _Elements(w, nest, places, number).write(*elements, regroup(held, starts))

    if rounds is not None and nest.around:

        def count_places(number: str, held: list[Lane]) -> list[Lane]:
            here = places
            for d, index in enumerate(w.split(number, nest.around)):
                here = advance(here, index, d)
            return elements_of(here, number, held)

        return w.accumulate(*rounds, count_places, _flat(starts))

    def nest_loops(d: int, here: dict[Key, list[str]], held: list[Lane]) -> list[Lane]:
        if d == len(nest.around):
            return elements_of(here, "0", held)
        return w.at(nest.width).accumulate(
            0, nest.around[d], lambda i, held: nest_loops(d + 1, advance(here, i, d), held), held
        )

    return nest_loops(0, places, _flat(starts))


def part_at(w: Writer, index: str, first: str, parts: Sequence[tuple[str, str]]) -> str:
    """The address of the part that has the elements at an index: the last of `parts` (index and address) that begins there or before."""
    place = first
    for begin, other in parts:
        place = w.value(f"select i1 {w.test('sge', index, begin)}, ptr {other}, ptr {place}", "p")
    return place


class _Elements:
    """Writes the innermost loop in one round of those around it."""

    def __init__(self, w: Writer, nest: Nest, places: dict[Key, str], number: str) -> None:
        self.w, self.nest, self.number = w, nest, number
        w.at(nest.width)
        fixed = {k for k, access in nest.reads.items() if access.inner == 0}
        self.values = nest.known | {k: self._read(k, places[k]) for k in fixed}
        self.places = {k: place for k, place in places.items() if k not in fixed}

    def write(self, low: str, high: str, begin: list[Held]) -> list[Lane]:
        """The accumulators after elements [low, high)."""
        w, nest = self.w, self.nest
        step = nest.tile[0] if nest.along else 1
        flat = _flat(begin)

        def whole(i: str, held: list[Lane]) -> list[Lane]:
            return self._vector(i, regroup(held, begin))

        if not nest.along or nest.tail == WHOLE:
            return w.accumulate(low, high, whole, flat, step)
        if nest.tail == MASKED:
            return self._mask_tail(low, high, begin)
        known = low == "0" and is_known(high)
        assert not known or int(high) >= step, f"a vector of {step} elements would begin before its row of {high}"
        if known and (nest.reductions or int(high) % step == 0):
            count, rest = int(high), int(high) % step
            after = w.accumulate(0, count - rest, whole, flat, step)
            last = str(count - step)
            return self._vector(last, regroup(after, begin), again=str(step - rest)) if rest else after
        limit = w.integer("sub", high, step)

        def vector(i: str, held: list[Lane]) -> list[Lane]:
            j = w.least(i, limit)
            again = w.integer("sub", i, j) if nest.reductions else None
            return self._vector(j, regroup(held, begin), again=again)

        return w.accumulate(low, high, vector, flat, step)

    def _mask_tail(self, low: str, high: str, begin: list[Held]) -> list[Lane]:
        w, nest = self.w, self.nest
        kinds = [w.vector(x.type) for x in _flat(begin)]
        rest = w.integer("urem", w.integer("sub", high, low), nest.width)
        end = w.integer("sub", high, rest)

        def whole(i: str, held: list[Lane]) -> list[Lane]:
            return self._vector(i, regroup(held, begin))

        after = w.accumulate(low, end, whole, _flat(begin), nest.width, occurs=False)

        def last() -> list[str]:
            return [x.ref for x in self._vector(end, regroup(after, begin), mask=Lane(w.below(rest), "bool"))]

        refs = w.branch(w.test("ne", rest, 0), last, [x.ref for x in after], kinds)
        return [Lane(ref, x.dtype) for ref, x in zip(refs, after, strict=True)]

    def _read(self, key: Key, place: str, mask: Lane | None = None) -> Lane:
        access = self.nest.reads[key]
        return self.w.read(place, self.nest.tile, access.lanes, access.dtype, None if mask is None else mask.ref)

    def _vector(self, i: str, held: list[Held], again: str | None = None, mask: Lane | None = None) -> list[Lane]:
        """The accumulators after the vector at element `i`.

        Its first `again` elements have been there before; with a `mask`, it has those lanes only.
        """
        w, nest = self.w, self.nest
        w.at(nest.width)
        accesses = nest.accesses
        places = {key: w.advance_address(place, i, accesses[key].inner) for key, place in self.places.items()}
        values = dict(self.values)
        for key, place in places.items():
            if key in nest.reads:
                values[key] = self._read(key, place, mask)
            elif key in nest.tables:
                values[key] = Lane(place, accesses[key].dtype)
        w.at(nest.width)
        for key, saved in nest.recalls.items():
            values[key] = w.load(saved.at(w, i, self.number), saved.dtype)
        nest.leaf(values)
        w.at(nest.width)
        for key, saved in nest.saves.items():
            w.store(values[key], saved.at(w, i, self.number))
        for key, access in nest.writes.items():
            value, only = Lane(values[key].ref, access.dtype), None if mask is None else mask.ref
            w.write(value, places[key], nest.tile, access.lanes, only, access.hint)
        if again is not None:
            few = w.constant(int(again), "int32") if is_known(again) else w.splat(_low_half(w, again), "int32")
            mask = w.compare("ge", w.sequence("int32"), few)
        after = self._gather_masked(values, held, i, mask)
        if nest.ahead is not None:
            nest.ahead(places, i)
        return after

    def _gather_masked(self, values: Values, held: list[Held], i: str, mask: Lane | None) -> list[Lane]:
        """The accumulators with the lanes of a mask."""
        w, nest, position = self.w, self.nest, None
        if any(r.fold.positions for r in nest.reductions):
            position = w.splat(_low_half(w, i), "int32")
            position = w.add(position, w.sequence("int32")) if nest.along else position
        after: list[Lane] = []
        for k, reduction in enumerate(nest.reductions):
            first, *others = held[k * nest.copies : (k + 1) * nest.copies]
            new = reduction.fold.step(w, first, values[reduction.source], position)
            if mask is not None:
                new = tuple(w.select(mask, a, b) for a, b in zip(new, first, strict=True))
            after += [lane for copy in (*others, new) for lane in copy]  # the copies take turns
        return after


def _low_half(w: Writer, number: str) -> str:
    return w.value(f"trunc i64 {number} to i32")


# -- accumulators --------------------------------------------------------------------------------------------------------


def merge_lanes(w: Writer, fold: Fold, held: Held) -> Held:
    """Accumulators of all lanes, of the present width, merged into one lane, which is the width from here on."""
    width = w.width
    if fold.across is None:
        return merge_rows(w, fold, held, width, 1)

    def pairs(part: Held) -> Held:
        if width & (width - 1):
            return merge_rows(w, fold, part, width, 1)
        by = width // 2
        while by:
            part = fold.merge(w, part, tuple(w.rotate_lanes(x, by) for x in part))
            by //= 2
        return part

    out = fold.across(w, held, pairs)
    left = w.width
    return tuple(w.shuffle_lanes(x, left, [0]) for x in out)


def merge_rows(w: Writer, fold: Fold, held: Held, rows: int, n: int) -> Held:
    """Accumulators of `rows` times `n` lanes merged into `n` lanes: one half with the other until one row is left."""
    left: list[Held] = []

    def part(first: int, count: int) -> Held:
        lanes = list(range(first * n, (first + count) * n))
        return tuple(w.shuffle_lanes(x, rows * n, lanes) for x in held)

    while rows > 1:
        half = rows // 2
        if rows % 2:
            left.append(part(rows - 1, 1))
        low, high = part(0, half), part(half, half)
        held, rows = fold.merge(w.at(half * n), low, high), half
    for other in left:
        held = fold.merge(w.at(n), held, other)
    return held


def finish_reduction(w: Writer, fold: Fold, held: Held, dtype: str, across: bool = False) -> Lane:
    """The result of a reduction per lane, of the present width; if `across`, of all lanes in one, which is the width then."""
    if across:
        held = merge_lanes(w, fold, held)
    return Lane(fold.finish(w, held, dtype).ref, dtype)


def _flat(held: Sequence[Held]) -> list[Lane]:
    return [lane for one in held for lane in one]


def regroup(lanes: Sequence[Lane], held: Sequence[Held]) -> list[Held]:
    """Lanes one after the other as accumulators, as many for each as in `held`."""
    left = iter(lanes)
    return [tuple(next(left) for _ in one) for one in held]
