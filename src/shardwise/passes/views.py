"""Views: values that consist of boxes of other values, as the partitioner describes them before it moves any element.

Comes in: the boxes of an op (`Op.boxes`) and the views of its operands. Goes out: the view of the result, in boxes of values that are
laid out. A slice of a concatenation of slices is one view; devices exchange only the rows that its user needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, DimAxes, Ints
from shardwise.ir import Atom, Box, Equation, Literal, exact


@dataclass(frozen=True, slots=True)
class PlacedValue:
    """A value that is laid out on the devices: its local atom, its layout and its global shape."""

    atom: Atom
    dims: DimAxes
    shape: Ints

    def is_same(self, other: PlacedValue) -> bool:
        """Whether both are the same value."""
        a, b = self.atom, other.atom
        if isinstance(a, Literal) and isinstance(b, Literal):
            return a.aval is b.aval and exact(a.value) == exact(b.value)
        return a is b


@dataclass(frozen=True, slots=True)
class ViewPart:
    """A box of `size` elements of a source, from `first` on, at position `at` of a view."""

    source: PlacedValue
    first: Ints
    at: Ints
    size: Ints

    @property
    def fills(self) -> bool:
        """Whether all its elements are equal: its source is a scalar."""
        return not self.source.shape and bool(self.size)

    def is_whole(self, d: int, size: int) -> bool:
        """Whether the part covers dim `d`, of this size in the view, and shows all of its source's dim `d`."""
        whole = self.at[d] == 0 and self.size[d] == size
        return whole and (self.fills or (self.first[d] == 0 and self.source.shape[d] == size))


@dataclass(frozen=True, slots=True)
class View:
    """A value of this shape made of parts, later parts over earlier ones; positions without a part may hold any value.

    `eqn` is the equation that made the view.
    """

    shape: Ints
    parts: tuple[ViewPart, ...]
    eqn: Equation | None

    @property
    def fills(self) -> bool:
        """Whether all its elements are one scalar: every device makes its part itself."""
        return all(p.fills and p.source.is_same(self.parts[0].source) for p in self.parts)

    def moved_dims(self) -> list[int]:
        """The dims along which elements move."""
        return [d for d, n in enumerate(self.shape) if not all(p.is_whole(d, n) for p in self.parts)]

    def axes(self, d: int) -> Axes:
        """The mesh axes that split dim `d` of the first source that is split along it."""
        return next((p.source.dims[d] for p in self.parts if not p.fills and p.source.dims[d]), ())


def view_of_source(source: PlacedValue) -> View:
    """The view that shows all of a source."""
    origin = (0,) * len(source.shape)
    return View(source.shape, (ViewPart(source, origin, origin, source.shape),), None)


def spread(scalar: PlacedValue, shape: Ints, eqn: Equation | None) -> View:
    """The view that shows a scalar everywhere."""
    origin = (0,) * len(shape)
    return View(shape, (ViewPart(scalar, origin, origin, shape),), eqn)


def compose(boxes: Sequence[Box], operands: Sequence[View], shape: Ints, eqn: Equation | None) -> View:
    """The view of a result made of these boxes of `operands`."""
    parts: list[ViewPart] = []
    for box in boxes:
        operand = operands[box.operand]
        if not operand.shape:
            (scalar,) = operand.parts
            parts.append(ViewPart(scalar.source, (0,) * len(shape), box.at, box.size))
            continue
        for part in operand.parts:
            cut = _cut(part, box.first, box.size)
            if cut is not None:
                at = tuple(a - f + b for a, f, b in zip(cut.at, box.first, box.at, strict=True))
                parts.append(replace(cut, at=at))
    view = View(shape, _visible(parts), eqn)
    return spread(view.parts[0].source, shape, eqn) if view.parts and view.fills else view


def moves_split_dims(boxes: Sequence[Box], operands: Sequence[View], shape: Ints) -> bool:
    """Whether one of these boxes moves elements along a dim that is split."""
    for box in boxes:
        operand = operands[box.operand]
        if not operand.shape:
            continue
        for d, n in enumerate(shape):
            whole = (box.first[d], box.at[d], box.size[d], operand.shape[d]) == (0, 0, n, n)
            if operand.axes(d) and not whole:
                return True
    return False


def _cut(part: ViewPart, first: Ints, size: Ints) -> ViewPart | None:
    """The elements of `part` that lie in a box of its view."""
    low = tuple(max(a, f) for a, f in zip(part.at, first, strict=True))
    high = tuple(min(a + n, f + m) for a, n, f, m in zip(part.at, part.size, first, size, strict=True))
    if any(b <= a for a, b in zip(low, high, strict=True)):
        return None
    start = tuple(f + a - b for f, a, b in zip(part.first, low, part.at, strict=True))
    return ViewPart(part.source, start, low, tuple(b - a for a, b in zip(low, high, strict=True)))


def _visible(parts: Sequence[ViewPart]) -> tuple[ViewPart, ...]:
    """The visible parts; a part is cut down if a later part covers one end of a dim."""
    out: list[ViewPart] = []
    for i, part in enumerate(parts):
        remaining: list[ViewPart] = [part]
        for over in parts[i + 1 :]:
            remaining = [piece for p in remaining for piece in _visible_rest(p, over)]
        out += remaining
    return tuple(out)


def _visible_rest(part: ViewPart, over: ViewPart) -> list[ViewPart]:
    """The visible rest of `part` under `over`: exact if `over` spans all other dims, else `part`."""
    low = [max(a, b) for a, b in zip(part.at, over.at, strict=True)]
    high = [min(a + n, b + m) for a, n, b, m in zip(part.at, part.size, over.at, over.size, strict=True)]
    if any(b <= a for a, b in zip(low, high, strict=True)):
        return [part]
    inner = [d for d in range(len(low)) if low[d] > part.at[d] or high[d] < part.at[d] + part.size[d]]
    if len(inner) > 1:
        return [part]
    pieces = []
    for d in inner:
        for begin, end in ((part.at[d], low[d]), (high[d], part.at[d] + part.size[d])):
            if begin < end:
                first = tuple(f + begin - part.at[d] if e == d else f for e, f in enumerate(part.first))
                at = tuple(begin if e == d else a for e, a in enumerate(part.at))
                pieces.append(
                    ViewPart(
                        part.source, first, at, tuple(end - begin if e == d else n for e, n in enumerate(part.size))
                    )
                )
    return pieces
