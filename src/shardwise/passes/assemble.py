"""Assembling views: the equations that give every device its part of a value that consists of parts of other values.

Comes in: a view and its target layout. Goes out: local equations, and a `halo_exchange` for each dim along which rows cross the border
between devices. Dims are resolved one by one; along each, one exchange brings all parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, DimAxes, Ints, with_entry
from shardwise.ir import Atom, Literal, ShapedArray, literal
from shardwise.ops.devices.halo_exchange import Piece
from shardwise.ops.elementwise.bitwise import and_p
from shardwise.ops.elementwise.comparison import ge_p, lt_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.iota import iota_p
from shardwise.ops.shapes.joining import concatenate_p
from shardwise.ops.shapes.pieces import slice_p
from shardwise.passes.reshard import local_shape, ways
from shardwise.passes.shared_windows import exchanged_windows
from shardwise.passes.views import PlacedValue, View, ViewPart

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


@dataclass(frozen=True, slots=True)
class DeviceWindow:
    """Device i gets positions ``[step * i + start, step * i + start + width)`` of a split dim."""

    step: int
    start: int
    width: int


Windows = Mapping[int, DeviceWindow]  # by dim
NO_WINDOWS: Windows = {}


def natural_layout(view: View, sizes: Mapping[str, int]) -> DimAxes:
    """The layout that most of a view has already. A dim that its axes do not divide is whole."""
    dims: list[Axes] = []
    used: set[str] = set()
    for d, n in enumerate(view.shape):
        axes = view.axes(d)
        fits = not used.intersection(axes) and n % ways(axes, sizes) == 0
        dims.append(axes if fits else ())
        used.update(dims[-1])
    return tuple(dims)


@dataclass
class _Operand:
    """A value whose pieces are joined along a dim that `axes` split."""

    view: View
    axes: Axes
    atom: Atom


@dataclass
class Assembler:
    """Makes the equations for views of one type."""

    region: Region
    aval: ShapedArray  # of the view, global

    def assemble(self, view: View, dims: DimAxes, fill: Atom | None = None) -> Atom:
        """The local atom of `view` in layout `dims`; positions without a part hold `fill` (None: any value)."""
        parts = list(view.parts)
        ground = literal(0, self.aval.dtype) if fill is None else fill
        if parts and parts[0].fills and _covers(parts[0], view.shape):
            ground, fill = parts[0].source.atom, parts[0].source.atom
            parts = _without_ground(parts)
        elif fill is None and (beside := _beside(parts)) is not None:
            ground, fill = beside.atom, beside.atom
            parts = [p for p in parts if not p.fills]
        if not parts:
            return self._broadcast_fill(ground, local_shape(view.shape, dims, self._sizes))
        if fill is None:
            parts = _grow_single_part(parts, view.shape)
        result = self._cut(View(view.shape, tuple(parts), view.eqn), dims, ground)
        return result if result is not None else self._paint_parts(view.shape, parts, dims, ground)

    def windows(self, view: View, dims: DimAxes, windows: Windows, fill: Atom) -> Atom | None:
        """Each device's windows of `view` along some dims, its part along the others; positions without a part hold `fill`.

        None if parts overlap each other, or lie over a value other than `fill`.
        """
        parts = list(view.parts)
        if parts and parts[0].fills and _covers(parts[0], view.shape):
            if not parts[0].source.is_same(PlacedValue(fill, (), ())):
                return None
            parts = _without_ground(parts)
        elif (beside := _beside(parts)) is not None and beside.is_same(PlacedValue(fill, (), ())):
            parts = [p for p in parts if not p.fills]
        if not parts:
            return self._broadcast_fill(fill, self._local_shape(view.shape, dims, windows))
        return self._cut(View(view.shape, tuple(parts), view.eqn), dims, fill, windows)

    def _local_shape(self, shape: Ints, dims: DimAxes, windows: Windows) -> Ints:
        """The shape of a device's part, or of its windows, of a value of this shape."""
        plain = tuple(() if d in windows else axes for d, axes in enumerate(dims))
        local = local_shape(shape, plain, self._sizes)
        return tuple(windows[d].width if d in windows else n for d, n in enumerate(local))

    @property
    def _sizes(self) -> dict[str, int]:
        return dict(self.region.sizes)

    def _type(self, shape: Ints) -> ShapedArray:
        return ShapedArray(shape, self.aval.dtype, self.aval.weak_type)

    # -- one dim after the other -----------------------------------------------------------------------------------------------

    def _cut(self, view: View, dims: DimAxes, fill: Atom, windows: Windows = NO_WINDOWS) -> Atom | None:
        """Assemble the view as consecutive smaller views along one of its moved dims; None if no dim allows this."""
        window_dims = sorted({*view.moved_dims(), *windows})
        if not window_dims:
            (part,) = view.parts
            if part.fills:
                return self._broadcast_fill(part.source.atom, local_shape(view.shape, dims, self._sizes))
            return self._lay_out_source(part.source, dims)
        if any(p.fills for p in view.parts):
            return None
        for d in sorted(window_dims, key=lambda d: (bool(dims[d] or view.axes(d)), d)):
            runs = _runs(view.parts, d)
            if runs is None:
                continue
            inner = {e: w for e, w in windows.items() if e != d}
            operands: list[_Operand] = []
            pieces: list[Piece] = []
            for parts in runs:
                first = parts[0]
                shape = with_entry(view.shape, d, first.source.shape[d])
                sub = View(shape, tuple(_whole_along(p, d) for p in parts), view.eqn)
                k = next((k for k, operand in enumerate(operands) if _same(operand.view, sub)), len(operands))
                if k == len(operands):
                    axes = self._axes_of(first.source, d, dims)
                    atom = self._cut(sub, with_entry(dims, d, axes), fill, inner)
                    if atom is None:
                        return None
                    operands.append(_Operand(sub, axes, atom))
                pieces.append((k, first.first[d], first.at[d], first.size[d]))
            return self._join_pieces(operands, d, view.shape[d], dims, pieces, fill, windows.get(d))
        return None

    def _axes_of(self, source: PlacedValue, d: int, dims: DimAxes) -> Axes:
        """The axes that split dim `d` of a source for the exchange of its parts: those of the result, or its own."""
        others = {a for e, axes in enumerate(dims) if e != d for a in axes}
        axes = source.dims[d]
        if dims[d] and axes and axes != dims[d]:
            axes = dims[d] if source.shape[d] % ways(dims[d], self._sizes) == 0 else ()
        return () if others.intersection(axes) else axes

    def _lay_out_source(self, source: PlacedValue, dims: DimAxes) -> Atom:
        if isinstance(source.atom, Literal):
            return source.atom
        return self.region.reshard(source.atom, source.dims, dims, self._type(source.shape))

    def _join_pieces(
        self,
        operands: list[_Operand],
        d: int,
        size: int,
        dims: DimAxes,
        pieces: Sequence[Piece],
        fill: Atom,
        window: DeviceWindow | None,
    ) -> Atom:
        """Join pieces of operands along dim `d`, the only dim in which their layouts differ from `dims`. Each device gets its part, or
        its `window`.
        """
        split = next((o.axes for o in operands if o.axes), ())
        if not dims[d] and split:
            for k, operand in enumerate(operands):
                rows = sum(length for s, _, _, length in pieces if s == k)
                n = operand.view.shape[d]
                if operand.axes and (operand.axes != split or 2 * rows > n):  # most of it is needed everywhere
                    # Of the other dims each device goes on holding its part, or its windows.
                    nothing: DimAxes = ((),) * len(dims)
                    piece_type = self._type(with_entry(operand.atom.aval.shape, d, n))
                    operand.atom = self.region.reshard(
                        operand.atom, with_entry(nothing, d, operand.axes), nothing, piece_type
                    )
                    operand.axes = ()
            split = next((o.axes for o in operands if o.axes), ())
        over = dims[d] or split
        if not over:
            return self._join_whole_dim([o.atom for o in operands], d, size, pieces, fill)
        if window is None:
            width = size // ways(dims[d], self._sizes)
            window = DeviceWindow(width if dims[d] else 0, 0, width)
        params = {
            "sizes": self.region.sizes_of(over),
            "dim": d,
            "step": window.step,
            "start": window.start,
            "width": window.width,
            "pieces": tuple(pieces),
            "split": tuple(bool(o.axes) for o in operands),
        }
        whole_type = self._type(operands[0].view.shape)
        return exchanged_windows(self.region, [o.atom for o in operands], fill, over, whole_type, params)

    def _join_whole_dim(self, atoms: list[Atom], d: int, size: int, pieces: Sequence[Piece], fill: Atom) -> Atom:
        """The same along a dim that is whole on each device."""
        parts: list[Atom] = []
        place = 0
        emit = self.region.emit
        local = atoms[0].aval.shape
        for k, first, at, length in pieces:
            if at > place:
                parts.append(self._broadcast_fill(fill, with_entry(local, d, at - place)))
            shape = atoms[k].aval.shape
            if length != shape[d]:
                origin = (0,) * len(shape)
                params = {
                    "start_indices": with_entry(origin, d, first),
                    "limit_indices": with_entry(shape, d, first + length),
                    "strides": None,
                }
                parts.append(emit(slice_p, [atoms[k]], params)[0])
            else:
                parts.append(atoms[k])
            place = at + length
        if place < size:
            parts.append(self._broadcast_fill(fill, with_entry(local, d, size - place)))
        return emit(concatenate_p, parts, {"dimension": d})[0] if len(parts) > 1 else parts[0]

    # -- one part over the other -----------------------------------------------------------------------------------------------

    def _paint_parts(self, shape: Ints, parts: Sequence[ViewPart], dims: DimAxes, fill: Atom) -> Atom:
        """Assemble each part alone at its place, then select between them by position."""
        local = local_shape(shape, dims, self._sizes)
        out: Atom | None = None
        for part in parts:
            if part.fills:
                here: Atom = self._broadcast_fill(part.source.atom, local)
            else:
                alone = View(shape, tuple(_grow_single_part([part], shape)), None)
                result = self._cut(alone, dims, fill)
                assert result is not None, "a single part falls apart along any dim"
                here = result
            if _covers(part, shape):
                out = here
                continue
            if out is None:
                out = self._broadcast_fill(fill, local)
            out = self.region.emit(select_n_p, [self._inside(part, shape, dims), out, here], {})[0]
        assert out is not None
        return out

    def _inside(self, part: ViewPart, shape: Ints, dims: DimAxes) -> Atom:
        """Whether a position of a value of this shape lies in `part`."""
        emit = self.region.emit
        local = local_shape(shape, dims, self._sizes)
        index, truth = np.dtype(np.int32), np.dtype(np.bool_)
        inside: Atom | None = None
        for d, n in enumerate(shape):
            for op, bound, needed in (
                (ge_p, part.at[d], part.at[d] > 0),
                (lt_p, part.at[d] + part.size[d], part.at[d] + part.size[d] < n),
            ):
                if needed:
                    params = {
                        "dtype": index,
                        "shape": local,
                        "dimension": d,
                        "out_sharding": None,
                        "shard_axes": dims[d],
                    }
                    place = emit(iota_p, [], params, frozenset(dims[d]))[0]
                    test = emit(op, [place, literal(bound, index)], {})[0]
                    inside = test if inside is None else emit(and_p, [inside, test], {})[0]
        assert inside is not None and inside.aval.dtype == truth
        return inside

    def _broadcast_fill(self, value: Atom, shape: Ints) -> Atom:
        params = {"shape": shape, "broadcast_dimensions": (), "out_sharding": None}
        return self.region.emit(broadcast_in_dim_p, [value], params)[0]


def _covers(part: ViewPart, shape: Ints) -> bool:
    return part.size == shape


def _without_ground(parts: list[ViewPart]) -> list[ViewPart]:
    """The parts after the first, which fills the whole view; leading parts with the same fill value are dropped."""
    ground, rest = parts[0], parts[1:]
    while rest and rest[0].fills and rest[0].source.is_same(ground.source):
        rest = rest[1:]
    return rest


def _beside(parts: Sequence[ViewPart]) -> PlacedValue | None:
    """The one value of all fill parts, if none of these lies over another kind of part; else None."""
    fills = [i for i, p in enumerate(parts) if p.fills]
    if not fills or not all(parts[i].source.is_same(parts[fills[0]].source) for i in fills):
        return None
    over = any(not under.fills and _meet(under, parts[i]) for i in fills for under in parts[:i])
    return None if over else parts[fills[0]].source


def _meet(a: ViewPart, b: ViewPart) -> bool:
    """Whether two parts overlap."""
    return all(p < q + m and q < p + n for p, n, q, m in zip(a.at, a.size, b.at, b.size, strict=True))


def _grow_single_part(parts: list[ViewPart], shape: Ints) -> list[ViewPart]:
    """A single part, grown to all of its source in dims that the view does not move: positions outside the part may hold any value."""
    if len(parts) != 1 or parts[0].fills:
        return parts
    (part,) = parts
    first, at, size = list(part.first), list(part.at), list(part.size)
    for d, n in enumerate(shape):
        if part.source.shape[d] == n and first[d] == at[d]:
            first[d], at[d], size[d] = 0, 0, n
    return [replace(part, first=tuple(first), at=tuple(at), size=tuple(size))]


def _runs(parts: Sequence[ViewPart], d: int) -> list[list[ViewPart]] | None:
    """The parts grouped by position along `d`, in order; None if two groups overlap, or sources of one group lie differently there."""
    runs: dict[tuple[int, int], list[ViewPart]] = {}
    for part in parts:
        runs.setdefault((part.at[d], part.size[d]), []).append(part)
    end = 0
    for at, size in sorted(runs):
        if at < end:
            return None
        end = at + size
        group = runs[at, size]
        if any(
            (p.first[d], p.source.shape[d], p.source.dims[d])
            != (group[0].first[d], group[0].source.shape[d], group[0].source.dims[d])
            for p in group
        ):
            return None
    return [runs[key] for key in sorted(runs)]


def _whole_along(part: ViewPart, d: int) -> ViewPart:
    """The part, grown to all of its source along `d`."""
    n = part.source.shape[d]
    return replace(
        part, first=with_entry(part.first, d, 0), at=with_entry(part.at, d, 0), size=with_entry(part.size, d, n)
    )


def _same(a: View, b: View) -> bool:
    return (
        a.shape == b.shape
        and len(a.parts) == len(b.parts)
        and all(
            p.source.is_same(q.source) and (p.first, p.at, p.size) == (q.first, q.at, q.size)
            for p, q in zip(a.parts, b.parts, strict=True)
        )
    )
