"""Copies of blocks whose rows are short, repeated or lie across: NumPy takes as long to begin a row as for some twenty elements of it.
And of large dense ones, past the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.base.caches import recent
from shardwise.base.shapes import Shape
from shardwise.runtime import costs
from shardwise.runtime.loops.build import Pass, Stored, Unit, build_nest
from shardwise.runtime.loops.call import Call, WorkLoop
from shardwise.runtime.loops.function import Function, lanes_of
from shardwise.runtime.loops.layout import MemoryLoops, Roles, merge_loops
from shardwise.runtime.loops.nest import OVERLAP, write_nest
from shardwise.runtime.loops.write import SQUARED, STREAMED, spacing
from shardwise.runtime.machine import itemsize, llvm, thread_count

_RAW = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}  # types that move as they are


@recent(512)
def copy_call(shape: Shape, into: Shape, source: Shape, size: int) -> Call | None:
    """The call, on the addresses of two blocks with these strides, that copies elements of `size` bytes; None where NumPy is as fast.

    Dims have the order that they have in the memory of the copy.
    """
    if size not in _RAW:
        return None
    extents, (there, here) = merge_loops(shape, [into, source])
    if there[-1] != size or (here[-1] in (0, size) and extents[-1] * size >= costs.COPY_ROW):
        return None
    if (turned := _turned_call(extents, there, here, size)) is not None:
        return turned
    lanes = lanes_of(_RAW[size])
    loops = MemoryLoops(extents, [False] * len(extents), [there, here]).cut_into_tiles([size, size], lanes)
    extents, (there, here) = loops.extents, loops.strides
    many = _rows_together(loops, size, lanes)
    row = extents[-1]
    if many > 1:
        tile: Shape = (many, row)
    else:  # a short row at once
        most = lanes if spacing(here[-1], size, lanes) else 4 * lanes
        tile = (row if row <= min(most, 2 * lanes) else min(most, 1 << row.bit_length() - 1),)
    kept = len(extents) - len(tile)
    near = here[-1] if here[-1] in (0, size) or many > 1 or spacing(here[-1], size, math.prod(tile)) else None
    apart = (0 if here[-2] == 0 else None if near == 0 else here[-2],) if many > 1 else ()
    known = row if row * size <= costs.COPY_ROW else 0
    loop = _copy_loop(_RAW[size], size, kept, tile, known, (*apart, near))
    each = math.prod(extents[1:]) * size
    piece = -(-costs.COPY_PIECE // each)
    if not kept:
        piece = -(-piece // tile[0]) * tile[0]
    units = -(-extents[0] // piece)
    threads = thread_count() if extents[0] * each >= costs.COPY_SHARED else 1
    numbers = piece, *extents[: kept + 1], *there[: kept + 1], *here[: kept + 1]
    return loop.call(units, numbers, min(units, threads), costs.DRAFT_MOVED * math.prod(extents))


_BLOCK = 256  # bytes that a round of a streamed copy moves


@recent(64)
def streamed_call(nbytes: int) -> Call:
    """The call, on the addresses of two dense blocks, that copies as many bytes past the cache, of `nbytes` those that fill blocks of 256.
    The copy's address is a multiple of 64.
    """
    whole = nbytes - nbytes % _BLOCK
    return _stream_loop().call(-(-whole // costs.COPY_PART), (whole, costs.COPY_PART), thread_count())


@recent(1)
def _stream_loop() -> WorkLoop:
    """Unit: a part."""
    lanes = llvm.target().bytes // 4

    def body(w: Function, number: str) -> None:
        low = w.integer("mul", number, "%part")
        high = w.least(w.integer("add", low, "%part"), "%count")

        def block(i: str, _: list[str]) -> None:
            there, here = (w.advance_address(place, i, 1) for place in ("%into", "%source"))
            steps = range(0, _BLOCK, 4 * lanes)
            for step, x in [(step, w.load(w.advance_address(here, 1, step), "uint32")) for step in steps]:
                w.write(x, w.advance_address(there, 1, step), (lanes,), (4,), hint=STREAMED)

        w.loop(low, high, block, step=_BLOCK)

    return WorkLoop(("count", "part"), ("into", "source"), lanes, body)


def _turned_call(extents: Sequence[int], there: Sequence[int], here: Sequence[int], size: int) -> Call | None:
    """The call where rows of the copy are columns of the source and a square of vectors fits into both; else None."""
    last = len(extents) - 1
    down = next((d for d in range(last) if here[d] == size), last)
    lanes = llvm.target().bytes // size
    if size not in SQUARED or here[last] in (0, size) or down == last or min(extents[down], extents[last]) < lanes:
        return None
    order = [*(d for d in range(last) if d != down), down, last]
    counts, into, source = ([own[d] for d in order] for own in (extents, there, here))
    each = math.prod(counts[1:]) * size
    piece = -(-costs.COPY_PIECE // each)
    if len(order) == 2:
        piece = -(-piece // lanes) * lanes
    threads = thread_count() if counts[0] * each >= costs.COPY_SHARED else 1
    loop = _transpose_loop(_RAW[size], len(order))
    return loop.call(
        -(-counts[0] // piece), (piece, *counts, *into, *source), threads, costs.DRAFT_MOVED * math.prod(counts)
    )


@recent(16)
def _transpose_loop(dtype: str, rank: int) -> WorkLoop:
    """Unit: a piece of the outermost loop. The source is dense along the last but one, the copy along the last."""
    counts, there, here = ([f"{name}{d}" for d in range(rank)] for name in ("count", "into", "from"))
    down, along = rank - 2, rank - 1

    def squares(w: Function, places: list[str], begin: str, end: str) -> None:
        def advance_all(found: Sequence[str], at: str, d: int) -> list[str]:
            return [w.advance_address(place, at, f"%{own[d]}") for place, own in zip(found, (there, here), strict=True)]

        def square(found: Sequence[str]) -> None:
            w.turn(found[1], f"%{here[along]}", found[0], f"%{there[down]}", dtype)

        def column(at: str, _: list[str]) -> None:
            first = advance_all(places, w.last_fits(at, f"%{counts[down]}"), down)
            w.row(f"%{counts[along]}", lambda i: square(advance_all(first, i, along)))

        w.loop(begin, end, column, step=w.width)

    def body(w: Function, number: str) -> None:
        low = w.integer("mul", number, "%piece")
        high = w.least(w.integer("add", low, "%piece"), "%count0")
        if rank == 2:
            squares(w, ["%into", "%source"], low, high)
            return
        steps = [[f"%{name}" for name in names[1:down]] for names in (there, here)]

        def outer(i: str, _: list[str]) -> None:
            places = [w.advance_address("%into", i, "%into0"), w.advance_address("%source", i, "%from0")]
            inner = [f"%{name}" for name in counts[1:down]]
            w.nest(inner, places, steps, lambda found: squares(w, found, "0", f"%{counts[down]}"))

        w.loop(low, high, outer)

    lanes = llvm.target().bytes // itemsize(dtype)
    return WorkLoop(("piece", *counts, *there, *here), ("into", "source"), lanes, body)


def _rows_together(loops: MemoryLoops, size: int, lanes: int) -> int:
    """Rows of a vector: as many as fill registers, where rows are short and the copy's follow each other."""
    if len(loops.extents) < 2:
        return 1
    row, (there, here) = loops.extents[-1], loops.strides
    many = math.lcm(row, lanes) // row
    fits = many * row <= costs.FUSED_ROWS * lanes and loops.extents[-2] >= many and there[-2] == row * size
    return many if fits and (here[-1] != size or here[-2] == 0) and row < 2 * lanes else 1


@recent(128)
def _copy_loop(dtype: str, size: int, kept: int, tile: Shape, row: int, within: tuple[int | None, ...]) -> WorkLoop:
    """Unit: a piece of the outermost loop. `row`: elements of a row, if the text has them. `within`: the source's steps along the dims of a
    vector; None: a number of the call.
    """
    counts, there, here = ([f"{name}{d}" for d in range(kept + 1)] for name in ("count", "into", "from"))
    count = str(row) if row and len(tile) == 1 else f"%{counts[-1]}"
    dense = [size * math.prod(tile[d + 1 :]) for d in range(len(tile))]
    source = [f"%{here[-1]}" if step is None else step for step in within]
    unit = Unit(Roles((), (), 0, 0), [count], tile, OVERLAP)

    def rows(w: Function, places: list[str], ends: tuple[str, str]) -> None:
        computed = Pass(
            reads={0: Stored(places[1], dtype, source)},
            writes={1: (0, Stored(places[0], dtype, dense))},
            leaf=lambda _: None,
            known={},
        )
        write_nest(w, build_nest(unit, computed), ends)

    def body(w: Function, number: str) -> None:
        low = w.integer("mul", number, "%piece")
        high = w.least(w.integer("add", low, "%piece"), "%count0")
        if not kept:
            rows(w, ["%into", "%source"], (low, high))
            return
        steps = [[f"%{name}" for name in names[1:kept]] for names in (there, here)]

        def outer(i: str, _: list[str]) -> None:
            places = [w.advance_address("%into", i, "%into0"), w.advance_address("%source", i, "%from0")]
            w.nest([f"%{name}" for name in counts[1:kept]], places, steps, lambda found: rows(w, found, ("0", count)))

        w.loop(low, high, outer)

    return WorkLoop(("piece", *counts, *there, *here), ("into", "source"), math.prod(tile), body)
