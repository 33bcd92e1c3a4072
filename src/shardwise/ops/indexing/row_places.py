"""Positions of rows in a table, and how compiled loops read them: one by one, or in vectors.

A position is one number, or one for each of the table's leading dims. The numbers for each dim are a *column*; columns lie apart, or beside
each other in an array whose last dim has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray
from shardwise.runtime.loops import Function
from shardwise.runtime.machine import TYPES, Lane
from shardwise.runtime.strided import strided_view

_FARTHEST = 1 << 20  # elements between positions of a column; vectors count in 32 bits


@dataclass(frozen=True)
class PositionDims:
    """The dims that the numbers of a position count in.

    Attributes:
        sizes: of the dim of each number.
        steps: from one row of that dim to the next, in rows of the table.
        spans: numbers from each one on that are in the dim, too, where it is clamped; without, none but itself.
    """

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    spans: tuple[int, ...] = ()

    @classmethod
    def of(cls, shape: Sequence[int], dims: Sequence[int]) -> PositionDims:
        """The grid of a table whose leading dims have `shape`, with positions whose numbers are for the dims `dims`."""
        return cls(tuple(shape[d] for d in dims), tuple(math.prod(shape[d + 1 :]) for d in dims))


@dataclass(frozen=True)
class PositionForm:
    """The properties of positions that the text of a loop depends on.

    Attributes:
        dtype: of the numbers.
        dims: the number of columns.
        dense: whether the numbers of a column follow each other.
        wrap: whether negative numbers count from the end.
        clip: whether numbers out of bounds are clamped; else their rows are left out.
        spans: as `Grid` has them.
    """

    dtype: str
    dims: int
    dense: bool
    wrap: bool
    clip: bool
    spans: tuple[int, ...] = ()

    def span(self, c: int) -> int:
        """The numbers from one of column `c` on that are in its dim."""
        return self.spans[c] if self.spans else 1

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the numbers that a loop gets from `Places`."""
        return (*(f"size{c}" for c in range(self.dims)), *(f"step{c}" for c in range(self.dims)), "apart")

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that a loop gets from `Places`."""
        return tuple(f"position{c}" for c in range(self.dims))


@dataclass(frozen=True)
class Places:
    """The columns of positions in a grid, of one dtype, each of one dim."""

    columns: tuple[Ndarray, ...]
    grid: PositionDims

    @classmethod
    def of(cls, position: Ndarray | Sequence[Ndarray], grid: PositionDims | None, size: int) -> Places:
        """Positions in a table of `size` rows. They are an array of one dim or, with a `grid`, one whose second dim has the columns, or
        the columns.
        """
        if isinstance(position, np.ndarray):
            position = [position] if grid is None else [position[:, c] for c in range(position.shape[1])]
        grid = PositionDims((size,), (1,)) if grid is None else grid
        (apart, *others), width = {c.strides[0] for c in position}, position[0].itemsize
        if others or apart < 0 or apart % width or apart > _FARTHEST * width:
            position = [np.ascontiguousarray(c) for c in position]
        return cls(tuple(position), grid)

    @classmethod
    def like(cls, count: int, apart: int, dtype: np.dtype[Any], grid: PositionDims) -> Places:
        """Positions of that `kind`, without their numbers."""
        column = strided_view(np.zeros(1, dtype), (count,), (apart * dtype.itemsize,), writeable=False)
        return cls((column,) * len(grid.sizes), grid)

    @property
    def kind(self) -> tuple[int, int, np.dtype[Any], PositionDims]:
        """How many there are, how far apart the numbers of a column lie, their type, and the grid: a call is made for these."""
        return len(self), self._apart, self.columns[0].dtype, self.grid

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, run: slice) -> Places:
        return Places(tuple(c[run] for c in self.columns), self.grid)

    def form(self, wrap: bool, clip: bool) -> PositionForm:
        """Their properties that the text of a loop depends on."""
        return PositionForm(
            self.columns[0].dtype.name, len(self.columns), self._apart == 1, wrap, clip, self.grid.spans
        )

    @property
    def _apart(self) -> int:
        return self.columns[0].strides[0] // self.columns[0].itemsize

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that `PositionForm.numbers` names."""
        return (*self.grid.sizes, *self.grid.steps, self._apart)

    @property
    def is_readable(self) -> bool:
        """Whether loops read numbers of this type."""
        dtype = self.columns[0].dtype
        return dtype.isnative and (dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8))

    @property
    def fits_int32(self) -> bool:
        """Whether each number fits into a signed one of 32 bits."""
        dtype = self.columns[0].dtype
        return dtype.itemsize < 4 or dtype == np.int32


def joined_columns(columns: Sequence[Ndarray]) -> Ndarray:
    """The vectors of positions whose columns these are, each with a last dim of size 1; the other dims broadcast."""
    if len(columns) == 1:
        return columns[0]
    shape = np.broadcast_shapes(*(c.shape for c in columns))
    return np.concatenate([np.broadcast_to(c, shape) for c in columns], -1)


def row_at(w: Function, i: str, form: PositionForm) -> tuple[str, str]:
    """The register of the row at position i, and an i1: whether each of its numbers is within its dim."""
    row, within = "0", "true"
    first = i if form.dense else w.integer("mul", i, "%apart")
    for c in range(form.dims):
        place = w.element(f"%position{c}", first, form.dtype)
        at, inside = number_at(w, place, f"%size{c}", form, form.span(c))
        if form.dims == 1:
            return at, inside
        at = w.integer("mul", at, f"%step{c}")
        row = at if c == 0 else w.integer("add", row, at)
        within = inside if within == "true" else w.value(f"and i1 {within}, {inside}")
    return row, within


def number_at(w: Function, place: str, size: str, form: PositionForm, span: int = 1) -> tuple[str, str]:
    """The register of the number at an address, and an i1: whether it, or of clamped ones `span` from it on, is in a dim of `size`."""
    at = w.value(f"load {TYPES[form.dtype]}, ptr {place}, align 1")
    if TYPES[form.dtype] != "i64":
        at = w.value(f"{'sext' if form.dtype.startswith('int') else 'zext'} {TYPES[form.dtype]} {at} to i64")
    if form.wrap:
        negative = w.test("slt", at, 0)
        at = w.pick(negative, w.integer("add", at, size), at)
    if form.clip:
        at = w.least(at, w.integer("sub", size, span))
        negative = w.test("slt", at, 0)
        return w.pick(negative, 0, at), "true"
    return at, w.test("ult", at, size)


class RowVectors:
    """Writes vectors of rows, after the values that all of them need; `index` is the type of their numbers in registers."""

    def __init__(self, w: Function, form: PositionForm, index: str) -> None:
        self.w, self.form, self.index = w, form, index
        self._zero, self._one, self._lanes = w.constant(0, index), w.constant(1, index), w.sequence(index)
        self._sizes, self._steps = (
            [self._spread(f"%{name}{c}") for c in range(form.dims)] for name in ("size", "step")
        )
        self._lasts = [w.sub(size, w.constant(form.span(c), index)) for c, size in enumerate(self._sizes)]
        self._apart = None if form.dense else self._spread("%apart")

    def _spread(self, number: str) -> Lane:
        return self.w.convert(self.w.splat(number, "int64"), self.index)

    def _numbers(self, c: int, k: str, left: str, mask: str | None) -> Lane:
        w, column, dtype = self.w, f"%position{c}", self.form.dtype
        if self._apart is None:
            return w.convert(w.load(w.element(column, k, dtype), dtype, mask), self.index)
        first = w.element(column, w.integer("mul", k, "%apart"), dtype)
        place = self._lanes if mask is None else w.minimum(self._lanes, w.sub(self._spread(left), self._one))
        return w.convert(w.gather(first, w.mul(place, self._apart), dtype), self.index)

    def at(self, k: str, left: str = "", mask: str | None = None) -> tuple[Lane, Lane | None]:
        """The rows of the positions from k on, and which of them are within the grid (None: all).

        With a `mask` there are `left` of them. The other lanes have position 0 then, or the last one.
        """
        w, form, row, within = self.w, self.form, None, None
        for c in range(form.dims):
            at = self._numbers(c, k, left, mask)
            if form.wrap:
                at = w.select(w.compare("lt", at, self._zero), w.add(at, self._sizes[c]), at)
            if form.clip:
                at = w.maximum(w.minimum(at, self._lasts[c]), self._zero)
            else:
                inside = w.binary("and", w.compare("lt", at, self._sizes[c]), w.compare("ge", at, self._zero))
                within = inside if within is None else w.binary("and", within, inside)
            at = at if form.dims == 1 else w.mul(at, self._steps[c])
            row = at if row is None else w.add(row, at)
        assert row is not None
        return row, within
