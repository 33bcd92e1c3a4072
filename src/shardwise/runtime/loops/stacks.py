"""Functions of stacks of small matrices, a matrix per lane: what is serial within one of them runs for a register of them at once.

Comes in: how many elements a matrix of each operand and result has, and a function that writes what is computed of them. Goes out: a
`StackLoop`, callable on dense stacks. Elements that lie side by side in memory become lanes by transposing squares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from shardwise.base.shapes import Ndarray
from shardwise.runtime import costs
from shardwise.runtime.loops.call import WorkLoop
from shardwise.runtime.loops.function import Function, lanes_of
from shardwise.runtime.machine import Lane, itemsize, thread_count

Elements = list[Lane]  # those of one matrix, row by row


class Spaced(NamedTuple):
    """An operand: bytes from one matrix to the next, and from the first element of one to each that is asked for."""

    step: int
    places: tuple[int, ...]


class StackLoop:
    """`write(writer, *elements of each operand) -> elements of each result`, for each index of stacks.

    Args:
        dtype: that of all operands; results have it or int32.
        takes: elements of one matrix per operand.
        gives: elements and dtype per result.
        shared: per operand whether there is one matrix for all.
        cost: additions per element that is read or written.
        spaced: per operand how it lies; without, matrices are dense, row by row.
    """

    def __init__(
        self,
        dtype: str,
        takes: Sequence[int],
        gives: Sequence[tuple[int, str]],
        write: Callable[..., Sequence[Elements]],
        shared: Sequence[bool] = (),
        cost: float = 1.0,
        spaced: Sequence[Spaced] = (),
    ) -> None:
        self.lanes = lanes_of(dtype)
        width = itemsize(dtype)
        spaced = spaced or [Spaced(n * width, tuple(range(0, n * width, width))) for n in takes]
        self._work = cost * (sum(takes) + sum(size for size, _ in gives))
        shared = shared or (False,) * len(takes)
        names = [f"x{i}" for i in range(len(takes))], [f"y{i}" for i in range(len(gives))]

        def body(w: Function, unit: str) -> None:
            begin = w.integer("mul", unit, "%chunk")
            end = w.least("%count", w.integer("add", begin, "%chunk"))
            last = w.integer("sub", "%count", w.width)
            ones = {
                i: [w.scalar(w.advance_address(f"%x{i}", 1, place), dtype) for place in own.places]
                for i, own in enumerate(spaced)
                if shared[i]
            }

            def group(first: str, _: list[str]) -> None:
                at = w.least(first, last)  # the last register of them ends with the stack
                read = [
                    ones[i] if i in ones else _read(w, w.advance_address(f"%x{i}", at, own.step), own, dtype)
                    for i, own in enumerate(spaced)
                ]
                for j, ((size, kind), made) in enumerate(zip(gives, write(w, *read), strict=True)):
                    _write(w, made, w.advance_address(f"%y{j}", at, size * itemsize(kind)), kind)

            w.loop(begin, end, group, step=w.width)

        self._loop = WorkLoop(("count", "chunk"), (*names[0], *names[1]), self.lanes, body)

    def __call__(self, count: int, operands: Sequence[Ndarray], results: Sequence[Ndarray]) -> None:
        """Compute for `count` matrices, of which there are as many as lanes at least."""
        threads = thread_count() if count * self._work >= costs.STACKS_SHARED else 1
        chunk = -(-count // (4 * threads if threads > 1 else 1))
        chunk = -(-chunk // self.lanes) * self.lanes
        self._loop(-(-count // chunk), (count, chunk), (*operands, *results), threads)


def _pieces(size: int, width: int, near: int) -> list[tuple[int, int]]:
    """Per register the first element of a matrix and the number of elements: `width`, or `near` for a short rest. The last register ends
    with the matrix and overlaps the one before, if the matrix has elements enough.
    """
    found = [(k, width) for k in range(0, size - near, width)]
    left = size - len(found) * width
    if left > 0:
        found.append((max(0, size - near), near))
    return [(max(0, min(k, size - n)), n) for k, n in found]


def _near(w: Function, dtype: str) -> int:
    """Elements of 128 bits, within which few instructions transpose squares, those of several groups of matrices at once."""
    return min(w.width, 16 // itemsize(dtype))


def _mask(size: int, width: int) -> str | None:
    """The lanes that a matrix of fewer elements than lanes has."""
    if size >= width:
        return None
    return "<" + ", ".join(f"i1 {'true' if i < size else 'false'}" for i in range(width)) + ">"


def _read(w: Function, place: str, spaced: Spaced, dtype: str) -> Elements:
    """The elements of matrices from `place` on: those that lie side by side together."""
    found: dict[int, Lane] = {}
    size, places = itemsize(dtype), sorted({*spaced.places})
    ends = [k for k, (a, b) in enumerate(pairwise(places), 1) if b - a != size]
    for begin, end in pairwise([0, *ends, len(places)]):
        first = w.advance_address(place, 1, places[begin])
        found.update(zip(places[begin:end], _run(w, first, end - begin, spaced.step, dtype), strict=True))
    return [found[p] for p in spaced.places]


def _run(w: Function, place: str, size: int, step: int, dtype: str) -> Elements:
    """The elements of runs of that size, `step` bytes apart."""
    if size == 1:
        return [w.read(place, (w.width,), (step,), dtype)]
    found: dict[int, Lane] = {}
    width, near = w.width, _near(w, dtype)

    def line(first: str, n: int) -> Lane:
        w.at(n)
        return w.side_by_side(
            [w.load(w.advance_address(first, 1, k * step), dtype, _mask(size, n)) for k in range(0, width, n)]
        )

    for begin, n in _pieces(size, width, near):
        lines = [line(w.advance_address(place, 1, r * step + begin * itemsize(dtype)), n) for r in range(n)]
        found.update(zip(range(begin, size), w.transpose_rows(lines, n), strict=False))
    return [found[e] for e in range(size)]


def _write(w: Function, elements: Elements, place: str, dtype: str) -> None:
    size = len(elements)
    if size == 1:
        w.store(Lane(elements[0].ref, dtype), place)
        return
    shuffled = dtype if dtype.startswith("float") else "float32"  # squares are transposed as floats
    cells = [w.bitcast(x, shuffled) for x in elements]
    width, near = w.width, _near(w, shuffled)
    if size < width and size != near:
        # The matrices fill as many registers as they have elements: to store each by itself takes longer.
        for k in range(size):
            w.store(
                w.bitcast(_interleave(w, cells, k * width), dtype), w.advance_address(place, k * width, itemsize(dtype))
            )
        return
    step = size * itemsize(dtype)
    for begin, n in _pieces(size, width, near):
        for r, row in enumerate(w.transpose_rows(cells[begin : begin + n], n)):
            first = w.advance_address(place, 1, r * step + begin * itemsize(dtype))
            for k in range(0, width, n):
                part = w.shuffle_lanes(row, width, range(k, k + n))
                w.store(w.bitcast(part, dtype), w.advance_address(first, 1, k * step))
            w.at(width)


def _interleave(w: Function, cells: Elements, begin: int) -> Lane:
    """A register of the matrices as they lie in memory, from element `begin` on."""
    size, width = len(cells), w.width
    out, v = "poison", w.vector(cells[0].type)
    for e, x in enumerate(cells):
        places = [(begin + i) // size + width if (begin + i) % size == e else i for i in range(width)]
        mask = ", ".join(f"i32 {p}" for p in places)
        out = w.value(f"shufflevector {v} {out}, {v} {x.ref}, <{width} x i32> <{mask}>")
    return Lane(out, cells[0].dtype)
