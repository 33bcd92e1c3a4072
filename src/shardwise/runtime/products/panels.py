"""How the result of a product is cut into panels that stay in the cache until they are used up.

Comes in: the extents of the loops of a group over the result, and which loops make the rows and the columns of the product, the
outermost first. Goes out: boxes of loops. The cuts depend on shapes alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.runtime import costs

_GRAIN = 16  # cuts fall on multiples of this


def _half_of_the_cache() -> int:
    """Bytes of a panel: half of a processor's second-level cache, within bounds."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size") as file:
            text = file.read().strip()
    except OSError:  # not on every system
        text = ""
    found = int(text[:-1]) << 10 if text[-1:] == "K" and text[:-1].isdigit() else 1 << 20
    return min(max(found // 2, costs.PANEL_LEAST), 1 << 20)


BYTES = _half_of_the_cache()


@dataclass(frozen=True, slots=True)
class Panel:
    """Rows and columns of the product's result, counted over all its matrices, and per loop of the group where they lie."""

    rows: range
    columns: range
    starts: Shape
    extents: Shape


@dataclass(frozen=True, slots=True)
class _Cut:
    """How panels cut one side's loops: one round of the loops before `at`, `step` rounds of that loop, all rounds of those after it."""

    axes: Shape
    at: int
    step: int

    def pieces(self, full: Shape) -> Iterator[tuple[int, int, dict[int, tuple[int, int]]]]:
        """First and last index over all the side's loops, and per loop (start, extent)."""
        inside = math.prod(full[d] for d in self.axes[self.at + 1 :])
        whole = {d: (0, full[d]) for d in self.axes[self.at + 1 :]}
        if not self.axes:
            yield 0, 1, {}
            return
        cut = self.axes[self.at]
        around = [range(full[d]) for d in self.axes[: self.at]]
        for number, index in enumerate(itertools.product(*around)):
            fixed = {d: (i, 1) for d, i in zip(self.axes, index, strict=False)}
            for start in range(0, full[cut], self.step):
                extent = min(self.step, full[cut] - start)
                first = (number * full[cut] + start) * inside
                yield first, first + extent * inside, {**fixed, cut: (start, extent), **whole}


def _cut(axes: Shape, full: Shape, whole: set[int], most: int) -> _Cut:
    """The cut of a side into pieces of about `most` indices, in which loops of `whole` are not cut."""
    needed = min([i for i, d in enumerate(axes) if d in whole], default=len(axes))
    size, at = 1, len(axes)
    while at and (at > needed or size * full[axes[at - 1]] <= most):
        at -= 1
        size *= full[axes[at]]
    if at == 0:
        return _Cut(axes, 0, full[axes[0]] if axes else 1)
    at -= 1
    n = full[axes[at]]
    count = -(-n // max(1, most // size))
    step = -(-n // count)
    if size % _GRAIN and step > _GRAIN:
        step = -(-step // _GRAIN) * _GRAIN
    return _Cut(axes, at, step)


def panel_bytes(nbytes: int) -> int:
    """About how large the panels of a result of `nbytes` are."""
    return min(BYTES, max(nbytes // costs.PANEL_SHARES, costs.PANEL_LEAST))


def most(whole_rows: int, rows: int, columns: int, itemsize: int, cut_columns: bool) -> tuple[int, int]:
    """The rows and columns of a panel, or few more: `whole_rows` is a number whose multiples they must be, 1 for any."""
    elements = panel_bytes(rows * columns * itemsize) // itemsize
    width = min(columns, max(4 * _GRAIN, min(costs.PANEL_COLUMNS, elements // whole_rows))) if cut_columns else columns
    return max(costs.PANEL_LEAST_ROWS, whole_rows, elements // width), width


def panels(
    full: Shape, rows: Shape, columns: Shape, reduced: set[int], itemsize: int, cut_columns: bool
) -> list[Panel]:
    """The panels of a result.

    Args:
        full: extents of the group's loops.
        rows: the loops that are the product's rows, with its batch, in the order of the memory; `columns` likewise.
        reduced: loops that a panel must hold whole.
        itemsize: bytes of an element of the product.
        cut_columns: whether panels may hold parts of rows.
    """
    whole = math.prod(full[d] for d in rows[min([i for i, d in enumerate(rows) if d in reduced], default=len(rows)) :])
    cut_columns = cut_columns and not reduced & set(columns)
    down, across = (math.prod(full[d] for d in side) for side in (rows, columns))
    height, width = most(whole, down, across, itemsize, cut_columns)
    of_columns, of_rows = _cut(columns, full, reduced, width), _cut(rows, full, reduced, height)
    found = list[Panel]()
    for first, last, where in of_rows.pieces(full):
        for left, right, there in of_columns.pieces(full):
            spans = [(where | there).get(d, (0, n)) for d, n in enumerate(full)]
            starts, extents = zip(*spans, strict=True)
            found.append(Panel(range(first, last), range(left, right), starts, extents))
    return found
