"""Tables: operands whose elements a nest reads at positions that it computes."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.ir import ElementRead
from shardwise.runtime.loops.write import Steps, Writer
from shardwise.runtime.machine import Lane, gathers_pay, itemsize

_NARROW = 16, 8  # bits of positions that tables may have an element for each of
_MOST = (1 << 31) - 2  # elements from the first one of a table to the last, for positions of 32 bits


@dataclass(frozen=True, slots=True)
class TableForm:
    """The form of a table, which the text of a nest depends on.

    `index`: the dtype that positions are computed in. Per dim that positions count along, `dense`: whether elements follow each other;
    `bits`: of positions without a sign that are in bounds, whatever they are (0: there are none).
    """

    index: str
    dense: tuple[bool, ...]
    bits: tuple[int, ...]

    @classmethod
    def of(
        cls, shape: Sequence[int], steps: Sequence[int], at: Sequence[int], spans: Sequence[int], size: int
    ) -> tuple[TableForm, tuple[int, ...]] | None:
        """For a table of that shape with these strides in bytes, and elements of `size` bytes: the form, and the numbers of a job.

        None where strides are no multiples of elements.
        """
        if any(step % size for step in steps):
            return None
        steps = [step // size for step in steps]
        reach = sum((n - 1) * abs(step) for n, step in zip(shape, steps, strict=True))
        last = [shape[d] - span for d, span in zip(at, spans, strict=True)]
        index = "int32" if max(reach, *shape) <= _MOST else "int64"
        bits = tuple(next((bits for bits in _NARROW if most + 1 >> bits), 0) for most in last)
        form = cls(index, tuple(steps[d] == 1 for d in at), bits)
        return form, tuple(k for d, most in zip(at, last, strict=True) for k in (shape[d], most, steps[d]))

    def names(self, k: int | str) -> list[str]:
        """The names of the numbers of table k: per dim its size, the last position, and elements from one position to the next."""
        return [f"{name}{k}.{i}" for i in range(len(self.dense)) for name in ("size", "last", "apart")]


class Table:
    """Reads elements; what all reads need is written when it is made.

    Args:
        w: where the text goes.
        form: what the text says of the table.
        numbers: the registers of the numbers that the form names.
        dtype: the elements' dtype.
        tile: the shape of a vector. Of two dims, lanes along the second one have the same positions.
        steps: bytes between the elements of neighbouring lanes at one position: per dim of the tile; along the first of two 0.
    """

    def __init__(
        self, w: Writer, form: TableForm, numbers: Sequence[str], dtype: str, tile: Shape, steps: Steps
    ) -> None:
        self.w, self.form, self.dtype, self.tile, self.steps = w, form, dtype, tile, steps
        spread = [w.splat_as(number, form.index) for number in numbers]
        self._bounds = list(zip(spread[::3], spread[1::3], spread[2::3], strict=True))
        self._zero = w.constant(0, form.index)
        self._lanes: Lane | None = None
        if len(tile) == 1 and steps[0] != 0:
            step = w.splat_as(w.integer("sdiv", steps[0], itemsize(dtype)), form.index)
            self._lanes = w.mul(w.sequence(form.index), step)

    def read(self, place: str, positions: Sequence[Lane], read: ElementRead, same: Sequence[bool]) -> Lane:
        """The elements at positions from `place` on, which has the element at position 0; `same`, per position: all lanes have it."""
        w, within = self.w, None
        offset: Lane | None = None
        narrow = any(map(self._stays_narrow, positions))
        clamped = read.fill is None or all(same) or len(self.tile) == 2 or itemsize(self.dtype) < 4 or narrow
        for d, (position, (size, last, apart)) in enumerate(zip(positions, self._bounds, strict=True)):
            free = not position.signed and position.bits <= self.form.bits[d]
            at = self._index(position)
            if read.wraps and position.signed:
                at = w.select(w.compare("lt", at, self._zero), w.add(at, size), at)
            if read.fill is not None and not free:
                inside = w.compare("le", at, last)
                if position.signed:
                    inside = w.binary("and", inside, w.compare("ge", at, self._zero))
                within = inside if within is None else w.binary("and", within, inside)
            if narrow:
                at = position if free else self._clamp_narrow(position, last)
            elif (clamped or same[d]) and not free:
                at = w.minimum(at, last)
                if position.signed or read.fill is not None:  # a table without elements has last positions below 0
                    at = w.maximum(at, self._zero)
            at = at if self.form.dense[d] else w.mul(at, apart)
            if same[d]:
                place = self._advance(place, at)
            else:
                offset = at if offset is None else w.add(offset, at)
        fill = None if read.fill is None else w.constant(read.fill, self.dtype)
        if offset is None:
            found = w.read(place, self.tile, self.steps, self.dtype)
        elif len(self.tile) == 2:
            found = w.gather_rows(place, offset, self.tile[1], int(self.steps[1]), self.dtype)
        else:
            offset = offset if self._lanes is None else w.add(offset, self._lanes)
            found = w.gather(place, offset, self.dtype, *(() if clamped else (within, fill)))
        return found if fill is None or within is None or not clamped else w.select(within, found, fill)

    def _stays_narrow(self, position: Lane) -> bool:
        """Whether positions themselves say where elements lie: lanes of few bits leave a register many at a time."""
        alone = self.form.dense == (True,) and self._lanes is None and len(self.tile) == 1
        return alone and not gathers_pay() and not position.signed and position.bits in _NARROW

    def _clamp_narrow(self, position: Lane, last: Lane) -> Lane:
        w = self.w
        most = w.minimum(w.maximum(last, self._zero), w.like((1 << position.bits) - 1, last))
        return w.minimum(position, w.convert(most, position.dtype))

    def _advance(self, place: str, offset: Lane) -> str:
        """The address as many elements on as all lanes say."""
        w = self.w
        number = w.value(f"extractelement {w.vector(offset.type)} {offset.ref}, i64 0")
        number = number if offset.type == "i64" else w.value(f"sext {offset.type} {number} to i64")
        return w.element(place, number, self.dtype)

    def _index(self, x: Lane) -> Lane:
        """Positions in the dtype of the form; those that it does not hold are out of bounds as its greatest or least numbers."""
        w, index = self.w, self.form.index
        bits = 32 if index == "int32" else 64
        most = (1 << (bits - 1)) - 1
        if x.bits > bits - (not x.signed):
            x = w.minimum(x, w.like(most, x))
            if x.signed:
                x = w.maximum(x, w.like(-most - 1, x))
        return w.convert(x, index)
