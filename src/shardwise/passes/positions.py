"""Positions: the row of a frame from which each value that the mesh axes do not divide should lie, chosen for the program as a whole.

    dx, dy = x[1:, :-1] - x[:-1, :-1], x[:-1, 1:] - x[:-1, :-1]; dx * dx + dy * dy

`dx` alone may lie from row 0 or from row 1 of `x`: one row is sent either way. `dy` sends nothing if it lies from row 0, and both meet,
so row 0 is the place for both; an op at a time cannot see that.

Dims that ops keep in step are one *band*. Slices, pads and joins connect bands: aligned, they lie a known number of rows apart, and what
is missing to that is sent. Bands whose dims are split evenly lie from row 0; the others take the position at which they send least.

Comes in: the equations of a program, and the layouts that propagation chose. Goes out: a position for each dim that has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, Equation, Var
from shardwise.sharding.rule import Kind

Dim = tuple[Var, int]
Aligned = dict[Var, list[int]]  # by value that moves: the positions at which no row of it is sent

SWEEPS = 3  # a band's neighbours may move after it


@dataclass(frozen=True, slots=True)
class Shift:
    """A box of a value in a result: rows of `source` are rows of `result` if the result's band lies `rows` further on."""

    source: Dim
    result: Dim
    rows: int


@dataclass(slots=True)
class Positions:
    """The positions of a program's dims.

    Attributes:
        parents: a tree per band: of each dim another one of its band.
        lows: the position of each band, by the root of its tree.
    """

    parents: dict[Dim, Dim] = field(default_factory=dict)
    lows: dict[Dim, int] = field(default_factory=dict)

    def band(self, dim: Dim) -> Dim:
        """The dim that stands for the band of this one."""
        while (parent := self.parents.get(dim, dim)) != dim:
            self.parents[dim] = self.parents.get(parent, parent)
            dim = parent
        return dim

    def low(self, atom: Atom, d: int) -> int | None:
        """The position of dim `d` of a value, if it has one."""
        return self.lows.get(self.band((atom, d))) if isinstance(atom, Var) else None


def positions_of(equations: Sequence[Equation], placements: Mapping[Var, DimAxes]) -> Positions:
    """The positions of all dims that slices, pads and joins connect with dims that are split evenly."""
    bands = Positions()
    shifts = [shift for eqn in equations for shift in _join_bands(bands, eqn)]
    fixed_bands = {bands.band((v, d)) for v, d in _dims(equations) if d < len(p := placements.get(v, ())) and p[d]}
    around: dict[Dim, list[Shift]] = {}
    for s in shifts:
        for band in {bands.band(s.source), bands.band(s.result)} - fixed_bands:
            around.setdefault(band, []).append(s)
    bands.lows |= dict.fromkeys(fixed_bands, 0)
    for _ in range(SWEEPS):
        for band, beside in around.items():
            low = _best(bands, band, beside)
            if low is not None:
                bands.lows[band] = low
    return bands


def _dims(equations: Sequence[Equation]) -> Iterator[Dim]:
    for eqn in equations:
        for atom in (*eqn.inputs, *eqn.outputs):
            if isinstance(atom, Var):
                for d in range(atom.aval.ndim):
                    yield atom, d


def _join_bands(found: Positions, eqn: Equation) -> list[Shift]:
    """Join the dims that an equation keeps in step to bands; the shifts between the others."""
    boxes = eqn.op.boxes(eqn) if eqn.op.boxes is not None else None
    if boxes is None:
        for dims in _in_step(eqn):
            for other in dims[1:]:
                found.parents[found.band(other)] = found.band(dims[0])
        return []
    shifts: list[Shift] = []
    for result, of in zip(eqn.outputs, boxes, strict=True):
        for box in of:
            atom = eqn.inputs[box.operand]
            if not isinstance(atom, Var):
                continue
            for d, n in enumerate(atom.aval.shape):
                rows = box.first[d] - box.at[d]
                if rows == 0 and n == result.aval.shape[d]:
                    found.parents[found.band((result, d))] = found.band((atom, d))
                else:
                    shifts.append(Shift((atom, d), (result, d), rows))
    return shifts


def _in_step(eqn: Equation) -> Iterator[list[Dim]]:
    """The dims of operands and results that consist of the same factor."""
    if eqn.op.sharding_rule is None:
        return
    in_types, out_types = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
    rule = eqn.op.sharding_rule(in_types, out_types, eqn.params)
    by_factor: dict[int, list[Dim]] = {}
    for atom, tensor in zip((*eqn.inputs, *eqn.outputs), rule.tensors, strict=True):
        if not isinstance(atom, Var):
            continue
        for d, factors in enumerate(tensor):
            if len(factors) == 1 and rule.kinds[factors[0]] in (Kind.PASS, Kind.REDUCE):
                by_factor.setdefault(factors[0], []).append((atom, d))
    yield from by_factor.values()


def _best(found: Positions, band: Dim, beside: Sequence[Shift]) -> int | None:
    """The position at which a band's values send least; of several the one at which most values lie, then the one closest to the middle."""
    alignment: Aligned = {}
    middle: int | None = None  # twice the position in the middle of the first value that it is cut from
    for s in beside:
        cut = found.band(s.result) == band
        other = found.lows.get(found.band(s.source if cut else s.result))
        if other is None or found.band(s.source) == found.band(s.result):
            continue
        alignment.setdefault(s.source[0], []).append(other + s.rows if cut else other - s.rows)
        if cut and middle is None:
            (source, d), (result, e) = s.source, s.result
            middle = 2 * other + source.aval.shape[d] - result.aval.shape[e]
    if not alignment:
        return None
    weights = {v: v.aval.nbytes for v in alignment}
    have, centre = found.lows.get(band), middle or 0

    def rows_sent(low: int) -> tuple[int, int, bool, int]:
        rows = [(max(0, max(at) - low) + max(0, low - min(at))) * weights[v] for v, at in alignment.items()]
        shift_count = sum(len(at) - at.count(low) for at in alignment.values())
        return sum(rows), shift_count, low != have, abs(2 * low - centre)

    return min(dict.fromkeys(low for at in alignment.values() for low in at), key=rows_sent)
