"""The functions that a fused group needs for loops that lie in memory as they do, and their jobs.

A row that fits into the cache goes through all passes at once; long rows, and few ones, are cut into pieces whose size depends on
the shapes alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.ir import Literal
from shardwise.runtime import costs
from shardwise.runtime.fused.frame import (
    ALIKE,
    APART,
    COLUMN,
    CONTIGUOUS,
    DENSE_COLUMN,
    HEAD,
    PAST_CACHE,
    REPEATED,
    SPACED,
    STRIDED,
    Form,
)
from shardwise.runtime.fused.joined import JoinedWriter
from shardwise.runtime.fused.space import Graph, cost_of
from shardwise.runtime.fused.writer import GroupWriter
from shardwise.runtime.loops import Call, Calls, Kernel, MemoryLoops, Met, Roles, lanes_of, spacing, streams
from shardwise.runtime.machine import llvm, thread_count

_LINE = 64  # elements that fill cache lines, whatever their size
_LINE_BYTES = 64
_ALIGNED = 8  # vectors from which it pays to begin another section for them


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The loops of a group by role: vectors run along `lane`; a unit of work consists of `inner` and the loops `around` it.

    `sizes` are the bytes of an element of each access and result, `access` says how vectors meet them. `row`: the elements of a row
    where vectors have several rows, along which there is no loop; else 0.
    """

    graph: Graph
    met: Met
    loops: MemoryLoops
    sizes: list[int]
    width: int
    roles: Roles
    access: list[str]
    row: int = 0

    @staticmethod
    def of(graph: Graph, met: Met) -> Arrangement | None:
        """For a group's loops as they are met; None where the ops' own kernels serve."""
        program, whole = graph.program, graph.space.whole
        sizes = [program.inputs[a.number].aval.dtype.itemsize for a in graph.accesses]
        sizes += [v.aval.dtype.itemsize for v in graph.outputs]
        width = lanes_of(*(a.aval.dtype.name for e in program.equations for a in (*e.inputs, *e.outputs)))
        loops = MemoryLoops.of(met)
        if whole and not met.once and (rows := _rows_in_vectors(graph, loops, sizes, width)) is not None:
            access, within = rows
            row, lane = loops.extents[-1], len(within.extents) - 1
            return Arrangement(graph, met, within, sizes, math.lcm(row, width), within.roles(lane), access, row)
        across = _across_short_rows(graph, loops, width) if whole else None
        if across is None:
            width = _shorten_vectors(loops, sizes, width, 2 if whole else 4)
        if across is not None:
            lane = across
        elif whole:
            if loops.extents[-1] < width:
                return None
            loops = loops if graph.joins else loops.cut_into_tiles(sizes, width)
            lane = len(loops.extents) - 1
        else:
            joined = {loop for loop, _ in _begins(graph, loops)}
            long = [d for d, n in enumerate(loops.extents) if n >= width and (loops.reduced[d] or d not in joined)]
            if not long:
                return None
            short = width * _short_vectors(graph)
            lane = min(
                reversed(long),
                key=lambda d: (_misses(loops, sizes, d), loops.reduced[d] and loops.extents[d] < short),
            )
        access = [
            REPEATED if own[lane] == 0 else CONTIGUOUS if own[lane] == size else STRIDED
            for own, size in zip(loops.strides, sizes, strict=True)
        ]
        if whole and across is None and any(a != CONTIGUOUS for a in access[len(graph.accesses) :]):
            return None
        if not _reads_apart(graph, loops, access, lane, width):
            return None
        if met.once and (not whole or across is not None or {*access} - {CONTIGUOUS, REPEATED}):
            return None
        found = Arrangement(graph, met, loops, sizes, width, loops.roles(lane), access)
        if not found.roles.along:
            found = replace(found, width=width * found._side_by_side())
        return replace(found, access=found._with_spacing(found._past_cache()))

    @property
    def streams(self) -> bool:
        """Whether results are written past the cache."""
        return PAST_CACHE in self.access

    @property
    def length(self) -> int:
        """Elements of a unit along its loops."""
        return self._many([*self.roles.around, self.roles.inner]) * (self.row or 1)

    @property
    def _step(self) -> int:
        """Elements of a vector along the loop of its lanes."""
        return self.width // (self.row or 1)

    @property
    def _lanes(self) -> int:
        """Lanes with results of their own."""
        return 1 if self.roles.along else self.width

    def _many(self, loops: Sequence[int]) -> int:
        return math.prod(self.loops.extents[d] for d in loops)

    def _row_bytes(self) -> int:
        """Bytes of a unit that its passes keep in the cache."""
        graph = self.graph
        read = sum(s for s, a in zip(self.sizes, graph.accesses, strict=False) if not a.row and not a.at)
        return self.length * self._lanes * (read + sum(v.aval.dtype.itemsize for kept in graph.saved for v in kept))

    def _side_by_side(self) -> int:
        """Vectors of a unit whose lanes have results of their own."""
        if STRIDED in self.access:
            return 1
        room = (costs.FUSED_CACHED // self._row_bytes() if self.graph.passes > 1 else 0) or costs.FUSED_STRIPS
        return next((k for k in (4, 2) if k <= room and self.loops.extents[self.roles.lane] >= k * self.width), 1)

    def _pairs(self) -> bool:
        """Whether vectors of rows with reductions fill two registers, which share constants and have accumulators of their own: sums are
        added up as by one register with accumulators that take turns.
        """
        graph, folds = self.graph, [e.op.fold for e in self.graph.program.equations if e.op.fold is not None]
        line = 2 * self.width * max(self.sizes) <= _LINE_BYTES  # what is written past the cache is aligned to one
        return (
            not (graph.space.whole or graph.joins or self.row or any(a.at for a in graph.accesses))
            and self.roles.along
            and len(self.access) <= costs.FUSED_PAIRED
            and not any(fold.positions for fold in folds)
            and {*self.access} <= {CONTIGUOUS, REPEATED, *((PAST_CACHE,) if line else ())}
            and self.loops.extents[self.roles.inner] % (2 * self.width) == 0
        )

    def _past_cache(self) -> list[str]:
        """`access`, with large results written past the cache where that is possible."""
        access, graph, extent = list(self.access), self.graph, self.loops.extents[self.roles.lane]
        for k, (result, var) in enumerate(zip(self.met.results, graph.outputs, strict=True), len(graph.accesses)):
            nbytes = math.prod(result.shape) * result.dtype.itemsize
            outside = [s for d, s in enumerate(self.loops.strides[k]) if d != self.roles.lane]
            if (
                self.met.streaming
                and not _cuts(graph, self.loops, self.roles.inner)
                and var in graph.full
                and access[k] == CONTIGUOUS
                and extent % self.width == 0
                and streams(nbytes, outside, extent, result.dtype.itemsize)
            ):
                access[k] = PAST_CACHE
        return access

    def _with_spacing(self, access: Sequence[str]) -> list[str]:
        """`access`, with operands of which vectors meet every second or third element, say, in dense vectors."""
        found = list(access)
        for k, operand in enumerate(self.graph.accesses):
            apart = spacing(self.loops.strides[k][self.roles.lane], self.sizes[k], self.width)
            if access[k] == STRIDED and apart and not operand.at:
                found[k] = f"{SPACED}{apart}"
        return found

    # -- results over operands -------------------------------------------------------------------------------------------

    def over(
        self, operands: Sequence[tuple[Shape, int]], forgetful: Callable[[], Graph]
    ) -> tuple[tuple[int, int], ...]:
        """Pairs (result, operand) that lie alike in memory: the result may be written over the operand. Operands by shape and itemsize.

        No pass reads such an operand after the result is written, and no vector goes back over elements that were done.
        """
        if self.loops.extents[self.roles.lane] % self._step:
            return ()
        graph, _ = self._cut(forgetful)
        met, found = self.met, list[tuple[int, int]]()
        for j, (result, var) in enumerate(zip(met.results, graph.outputs, strict=True)):
            for k, number in enumerate(met.numbers):
                shape, itemsize = operands[number]
                if (
                    var in graph.full
                    and not graph.accesses[k].at
                    and met.strides[k] == met.strides[len(met.numbers) + j]
                    and result.block == met.full == shape
                    and result.dtype.itemsize == itemsize
                    and met.numbers.count(number) == 1
                    and not any(k in graph.used(p) for p in range(graph.ready[var] + 1, graph.passes))
                ):
                    found.append((j, number))
        return tuple(found)

    # -- functions and jobs ----------------------------------------------------------------------------------------------

    def calls(self, forgetful: Callable[[], Graph], threaded: bool = True) -> Calls | None:
        """The functions and their jobs. Not `threaded`: one function for one thread, or None.

        `forgetful` gives the graph in which no pass keeps values for later ones.
        """
        loops, width, roles = self.loops, self.width, self.roles
        graph, (split, cut, piece) = self._cut(forgetful)
        if split and not threaded and not graph.space.whole:
            return None
        strips, units, work = self._strips, self._units, self.length * self._lanes
        count, rounds = loops.extents[roles.inner], self._many(roles.around)
        pieces = -(-(count if cut == "inner" else rounds) // piece)
        ragged = roles.along and count % self._step != 0
        begins, cuts = _begins(graph, loops), _cuts(graph, loops, roles.inner)
        cuts = _align_cuts(cuts, count, width) if roles.along else cuts
        pairs = not split and self._pairs()
        width = 2 * width if pairs else width
        form = self._form(width, ragged, cut, [loop for loop, _ in begins], len(cuts) + 1, pairs)
        # If a row has sections, its last vector may end behind it.
        padded = (-(-count // width) + bool(cuts)) * width if roles.along else count
        slot = rounds * padded * 8 * self._lanes
        threads = self._threads(units * work) if threaded else 1
        head = {"units": units, "grain": max(1, costs.FUSED_CHUNK // work), "size": loops.extents[roles.lane], "count": count,
                "rounds": rounds, "strips": strips, "pieces": pieces, "piece": piece, "padded": padded, "slot": slot}  # fmt: skip
        tail = [*self._numbers(), *(start for _, starts in begins for start in starts), 0, *cuts, count]

        def call(kernel: Kernel, **changed: int) -> Call:
            job = head | changed
            many = threads if job["units"] > job["grain"] else 1
            return Call(kernel, [*(job[name] for name in HEAD), *tail], len(self.access) + 3, many)

        def writer() -> GroupWriter:
            return (JoinedWriter if graph.joins else GroupWriter)(graph, form, slower)

        slower = costs.DRAFT_FUSED * units * work * (self._cost() + len(graph.program.equations))
        found = list[Call]()
        last = max([p for p in range(graph.passes) if graph.folds[p]], default=0)
        for p in range(graph.passes if split else 0):
            grain = max(1, costs.FUSED_CHUNK // (work // pieces))
            found.append(call(writer().part(p), units=units * pieces, grain=grain))
            if graph.folds[p] or (p == last and any(v not in graph.full for v in graph.outputs)):
                found.append(call(writer().finish(p, p == last), grain=max(1, units // 16)))
        if not split:
            found.append(call(writer().whole()))
        scratch = threads * slot * sum(map(len, graph.saved))
        vectors = 8 * width * units * 4 * sum(map(len, graph.folds)) if split else 0
        return Calls(found, scratch + vectors * (pieces + 1), (0, scratch, scratch + vectors * pieces))

    def _form(self, width: int, ragged: bool, cut: str, joins: Sequence[int], sections: int, pairs: bool) -> Form:
        """How the functions run over the loops. `joins` are the loops along which whole operands stand one after the other."""
        roles = self.roles
        order = [*roles.kept, *roles.around, roles.inner]
        return Form(
            width,
            roles.along,
            len(roles.kept),
            len(roles.around),
            tuple(self.access),
            ragged,
            cut,
            self.row,
            wide=llvm.target().wide,
            tables=tuple(form for _, form, _ in self.met.tables),
            joins=tuple(order.index(loop) for loop in joins),
            sections=sections,
            pairs=pairs,
            once=self.met.once,
        )

    def _numbers(self) -> Iterator[int]:
        """Of a job: extents and strides of the loops, and of the tables."""
        loops, roles = self.loops, self.roles
        around = (*roles.kept, *roles.around)
        yield from (loops.extents[d] for d in around)
        yield from (own[d] for own in loops.strides for d in (*around, roles.inner, roles.lane))
        yield from (number for *_, numbers in self.met.tables for number in numbers)

    @property
    def _strips(self) -> int:
        """Vectors of a row whose lanes have results of their own."""
        return 1 if self.roles.along else -(-self.loops.extents[self.roles.lane] // self.width)

    @property
    def _units(self) -> int:
        return self._strips * self._many(self.roles.kept)

    def _cut(self, forgetful: Callable[[], Graph]) -> tuple[Graph, tuple[bool, str, int]]:
        """Whether units are cut, along which loops, and the rounds of a piece; and the graph that is computed so. Pieces are too many to
        keep values for later passes, which compute them anew from the operands.
        """
        count, rounds = self.loops.extents[self.roles.inner], self._many(self.roles.around)
        if self.graph.space.whole:
            return self.graph, self._cut_row(count)
        cut = self._cut_unit(self._units, count, rounds)
        return (forgetful() if cut[0] and self.graph.passes > 1 else self.graph), cut

    def _cut_row(self, count: int) -> tuple[bool, str, int]:
        """Long rows of elementwise groups are cut into pieces of whole cache lines."""
        pieces = max(1, count * (self.row or 1) // costs.FUSED_CHUNK)
        piece = -(-count // pieces // _LINE) * _LINE if pieces > 1 else count
        return pieces > 1, "inner", piece

    def _cut_unit(self, units: int, count: int, rounds: int) -> tuple[bool, str, int]:
        """Units of groups with reductions are cut along the longer of their loops where they exceed the cache, or where few of them are
        large: whether they are, along which loops, and the rounds of a piece.
        """
        work = self.length * self._lanes
        exceeds = self.graph.passes > 1 and self._row_bytes() > costs.FUSED_CACHED
        split = exceeds or (units < 8 and work > 2 * costs.FUSED_PIECE)
        cut = "inner" if count >= rounds else "outer"
        piece = max(1, costs.FUSED_PIECE // (self._lanes * (rounds if cut == "inner" else count)))
        if self.roles.along and cut == "inner":
            piece = -(-piece // self.width) * self.width
        return split, cut, piece

    def _cost(self) -> int:
        """Additions for an element."""
        return sum(map(cost_of, self.graph.program.equations))

    def _moved_bytes(self) -> int:
        """Bytes that are read and written; what is repeated counts once."""
        loops, row = self.loops, self.row or 1
        found = 0
        for own, size in zip(loops.strides, self.sizes, strict=True):
            found += row * size * math.prod(n for n, stride in zip(loops.extents, own, strict=True) if stride)
        return found

    def _threads(self, elements: int) -> int:
        """How many threads pay."""
        if self.graph.space.whole:
            large = (
                elements * self._cost() >= costs.FUSED_COST_THREADED
                or self._moved_bytes() >= costs.FUSED_BYTES_THREADED
            )
            pays = large and elements > 2 * costs.FUSED_CHUNK
        else:
            pays = elements >= costs.FUSED_THREADED
        return thread_count() if pays else 1


def _reads_apart(graph: Graph, loops: MemoryLoops, access: Sequence[str], lane: int, width: int) -> bool:
    """Whether loops can read pieces where they lie: all those of a value in the same steps, and by whole vectors for the most part."""
    roles = loops.roles(lane)
    for eqn in graph.joins:
        pieces = [k for k in graph.operands[eqn] if isinstance(k, int)]
        if len({(access[k], *(loops.strides[k][d] for d in (lane, roles.inner, *roles.around))) for k in pieces}) > 1:
            return False
    cuts = _cuts(graph, loops, roles.inner)
    if not cuts or not roles.along:
        return True
    if any(a.at and access[k] != REPEATED for k, a in enumerate(graph.accesses)):
        return False  # masked vectors would read beyond the table
    ends = [0, *cuts, loops.extents[roles.inner]]
    vectors = sum(-(-(end - begin) // width) for begin, end in pairwise(ends))
    return STRIDED not in access and vectors <= costs.FUSED_SECTIONS * -(-ends[-1] // width)


def _begins(graph: Graph, loops: MemoryLoops) -> list[tuple[int, list[int]]]:
    """For each joined value the loop along which its pieces lie, and the first elements of all pieces but the first."""
    found = list[tuple[int, list[int]]]()
    for pieces in graph.joins.values():
        loop = loops.apart[pieces[0].along - len(graph.space.shape)]
        found.append((loop, [piece.start for piece in pieces[1:]]))
    return found


def _cuts(graph: Graph, loops: MemoryLoops, inner: int) -> list[int]:
    """Where pieces begin along the innermost loop of a unit."""
    return sorted({start for loop, begins in _begins(graph, loops) if loop == inner for start in begins})


def _align_cuts(cuts: Sequence[int], count: int, width: int) -> list[int]:
    """`cuts` with more of them where vectors of a long section then begin as those of the row do: fewer of them cross cache lines."""
    found = list[int]()
    for cut, end in pairwise([*cuts, count]):
        even = -(-cut // width) * width
        found += [cut, even] if even > cut and end - even >= _ALIGNED * width else [cut]
    return found


def _misses(loops: MemoryLoops, sizes: Sequence[int], lane: int) -> int:
    """How many accesses find no element of a cache line that they found before, neither along the lanes nor along the inner loop."""
    inner = loops.roles(lane).inner
    return sum(
        own[lane] not in (0, size) and min(abs(own[lane]), abs(own[inner])) > _LINE_BYTES
        for own, size in zip(loops.strides, sizes, strict=True)
    )


def _short_vectors(graph: Graph) -> int:
    """Vectors of a row up to which to merge their lanes takes longer than to read across rows."""
    folds = [e.op.fold for e in graph.program.equations if e.op.fold is not None]
    return costs.FUSED_SHORT_POSITIONS if any(fold.positions for fold in folds) else costs.FUSED_SHORT


def _across_short_rows(graph: Graph, loops: MemoryLoops, width: int) -> int | None:
    """The loop for vectors of a group that reads elements at positions where the innermost one is shorter than a vector, as colours are:
    to compute positions takes longer than to write results one by one.
    """
    if loops.extents[-1] >= width or graph.joins or not any(access.at for access in graph.accesses):
        return None
    longest = max(range(len(loops.extents)), key=lambda d: (loops.extents[d], d))
    return longest if loops.extents[longest] >= width else None


def _rows_in_vectors(
    graph: Graph, loops: MemoryLoops, sizes: Sequence[int], width: int
) -> tuple[list[str], MemoryLoops] | None:
    """How vectors of several rows meet operands and results, and the loops around rows; None where rows fill registers, or the elements
    of a row do not lie side by side. So colours meet a factor per pixel, or one per colour.
    """
    extents, row = loops.extents, loops.extents[-1]
    if len(extents) < 2 or graph.joins:
        return None
    filling = math.lcm(row, width)
    if row % width == 0 or filling > costs.FUSED_ROWS * width or extents[-2] * row < filling:
        return None
    access = list[str]()
    for own, size in zip(loops.strides, sizes, strict=True):
        apart, near = own[-2:]
        if near == size and apart in (0, row * size):
            access.append(CONTIGUOUS if apart else ALIKE)
        elif near == size and row < width:  # reversed, every second row, or rows that are cut out of longer ones
            access.append(APART)
        elif near == 0:
            access.append(DENSE_COLUMN if apart == size else COLUMN if apart else REPEATED)
        else:
            return None
    if any(a != CONTIGUOUS for a in access[len(graph.accesses) :]) or not _reads_rows(graph, access):
        return None
    return access, MemoryLoops(extents[:-1], loops.reduced[:-1], [own[:-1] for own in loops.strides])


def _reads_rows(graph: Graph, access: Sequence[str]) -> bool:
    """Whether vectors of several rows read from tables, if from any, at the same positions along each row."""
    even = graph.same_where(k for k, kind in enumerate(access) if kind in (REPEATED, DENSE_COLUMN, COLUMN))
    return all(
        access[table] in (REPEATED, ALIKE) and all(isinstance(k, Literal) or k in even for k in positions)
        for eqn in graph.program.equations
        if eqn.op.at_positions
        for table, *positions in [graph.operands[eqn]]
        if isinstance(table, int)
    )


def _shorten_vectors(loops: MemoryLoops, sizes: Sequence[int], width: int, least: int) -> int:
    """Lanes of vectors that short columns fill, from `least` on."""
    n = loops.extents[-1]
    dense = all(own[-1] in (0, size) for own, size in zip(loops.strides, sizes, strict=True))
    return 1 << (n.bit_length() - 1) if not loops.reduced[-1] and least <= n < width and dense else width
