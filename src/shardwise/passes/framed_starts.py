"""Starts of windows in frames: lookups and updates at computed places of a dim that the mesh axes do not divide.

    y = x[1:]; y[i]          y lies in x from row 1 on: its row i is row i + 1 there

A frame is longer than the dim that it holds, so starts are brought into the dim's own bounds first: negative ones count from its end, and
those beyond it are clamped or, where such windows are dropped, put beyond the frame.

Comes in: an equation whose op says where windows start (`Op.indexed`), its operands in their frames, and the frames along operand 0. Goes
out: its operands with the starts in these frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, Equation, Literal, Op, ShapedArray, Var, literal
from shardwise.ir.indexed import IndexedWindows
from shardwise.ops.elementwise.binary import add_p, max_p, min_p
from shardwise.ops.elementwise.bitwise import and_p
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.ops.elementwise.comparison import ge_p, le_p, lt_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import slice_p

if TYPE_CHECKING:
    from shardwise.passes.frames import Frame
    from shardwise.passes.partition import Region

_INT32 = np.dtype(np.int32)
_BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, slots=True)
class _Place:
    """The starts of windows of `window` positions along a dim of `size`, in a frame of `whole` that holds the dim from `low` on."""

    size: int
    window: int
    low: int
    whole: int
    wraps: bool
    drops: bool

    @property
    def last(self) -> int:
        """The last start of a window in bounds."""
        return max(0, self.size - self.window)

    def frame_start(self, start: int) -> int:
        """A known start in the frame."""
        start = start + self.size if self.wraps and start < 0 else start
        if self.drops and not 0 <= start <= self.last:
            return self.whole
        return min(max(start, 0), self.last) + self.low


def looked_up_dims(eqn: Equation) -> dict[int, int]:
    """The dims of operand 0 along which windows that do not cover it start at computed places; of each, the number of its start."""
    at = _indexing_of(eqn)
    if at is None:
        return {}
    shape = eqn.inputs[0].aval.shape
    return {d: k for k, (d, size) in enumerate(zip(at.dims, at.sizes, strict=True)) if size != shape[d]}


def _indexing_of(eqn: Equation) -> IndexedWindows | None:
    op = eqn.op
    return None if op.indexed is None else op.indexed(eqn.params, tuple([a.aval for a in eqn.inputs]))


def with_shifted_starts(
    region: Region, eqn: Equation, inputs: Sequence[Atom], frames: Mapping[int, Frame]
) -> list[Atom]:
    """The operands `inputs` of an equation with starts along the dims `frames` of operand 0 moved into these frames."""
    at = _indexing_of(eqn)
    assert at is not None
    numbers, shape = looked_up_dims(eqn), eqn.inputs[0].aval.shape
    places = {
        k: _Place(shape[d], at.sizes[k], frames[d].low, frames[d].size, at.wrap[k], at.drops)
        for d, k in numbers.items()
        if d in frames
    }
    new_inputs = list(inputs)
    if at.vectors:
        new_inputs[at.first] = _Shift(region, eqn, new_inputs[at.first]).vectors(places)
        return new_inputs
    starts = range(at.first, at.first + len(at.dims))
    if any(np.iinfo(new_inputs[i].aval.dtype).bits < _INT32.itemsize * 8 for i in starts):  # all are of one dtype
        for i in starts:
            new_inputs[i] = _Shift(region, eqn, new_inputs[i]).wide(new_inputs[i])
    for k, place in places.items():
        new_inputs[at.first + k] = _Shift(region, eqn, new_inputs[at.first + k]).scalar(place)
    return new_inputs


@dataclass(frozen=True, slots=True)
class _Shift:
    """Makes the equations that move the starts `atom`, which keep its layout."""

    region: Region
    eqn: Equation
    atom: Atom

    def vectors(self, places: Mapping[int, _Place]) -> Atom:
        """The starts, one of each vector along the last dim, with those at `places` moved."""
        atom = self.wide(self.atom)
        *outer, count = atom.aval.shape
        if count == 1:
            return self._move(atom, places[0])
        columns: list[Atom] = []
        for k in range(count):
            begin, end = (*[0] * len(outer), k), (*outer, k + 1)
            cut = {"start_indices": begin, "limit_indices": end, "strides": None}
            column = self._make(slice_p, (atom,), (*outer, 1), atom.aval.dtype, cut)
            columns.append(self._move(column, places[k]) if k in places else column)
        return self._make(concatenate_p, columns, (*outer, count), atom.aval.dtype, {"dimension": len(outer)})

    def scalar(self, place: _Place) -> Atom:
        """A single start, moved."""
        atom = self.wide(self.atom)
        if isinstance(atom, Literal):
            return literal(place.frame_start(int(atom.value)), atom.aval.dtype)
        return self._move(atom, place)

    def wide(self, atom: Atom) -> Atom:
        """Starts of a dtype that holds any position of a frame."""
        if np.iinfo(atom.aval.dtype).bits >= _INT32.itemsize * 8:
            return atom
        if isinstance(atom, Literal):
            return literal(int(atom.value), _INT32)
        params = {"new_dtype": _INT32, "weak_type": False}
        return self._make(convert_element_type_p, (atom,), atom.aval.shape, _INT32, params)

    def _move(self, atom: Atom, place: _Place) -> Atom:
        """Starts that an operand holds, moved."""
        shape, dtype = atom.aval.shape, atom.aval.dtype
        is_signed = dtype.kind == "i"

        def make(op: Op, *inputs: Atom | int, to: np.dtype[Any] = dtype) -> Atom:
            atoms = [literal(a, dtype) if isinstance(a, int) else a for a in inputs]
            return self._make(op, atoms, shape, to, {})

        if place.wraps and is_signed:
            atom = make(select_n_p, make(lt_p, atom, 0, to=_BOOL), atom, make(add_p, atom, place.size))
        if place.drops:
            inside = make(le_p, atom, place.last, to=_BOOL)
            if is_signed:
                inside = make(and_p, make(ge_p, atom, 0, to=_BOOL), inside, to=_BOOL)
            return make(select_n_p, inside, place.whole, make(add_p, atom, place.low))
        atom = make(min_p, atom, place.last)
        atom = make(max_p, atom, 0) if is_signed else atom
        return make(add_p, atom, place.low)

    def _make(
        self, op: Op, inputs: Sequence[Atom], shape: Sequence[int], dtype: np.dtype[Any], params: dict[str, Any]
    ) -> Atom:
        """The result of an op on starts, in their layout; vectors are whole."""
        have = self.region.read(self.atom)[1]
        dims: DimAxes = (*have[:-1], ()) if have else ((),) * len(shape)
        out = Var(ShapedArray(tuple(shape), dtype))
        self.region.with_placements({out: dims}).equation(Equation(op, tuple(inputs), (out,), params, self.eqn.source))
        return out
