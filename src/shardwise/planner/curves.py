"""Figures of a machine that change with the size of what is touched: between measured sizes they grow as a power of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

Point = tuple[float, float]


class Rates(NamedTuple):
    """Bytes/s of kernels of elementwise work by the bytes that they touch, in the order of those.

    Attributes:
        copied: of one that reads as well as writes.
        read, written: of one that only reads or writes.
        down: of a sum over other dims than the last.
        packed: of the right operand of a product with few rows.
    """

    copied: tuple[Point, ...]
    read: tuple[Point, ...]
    written: tuple[Point, ...]
    down: tuple[Point, ...]
    packed: tuple[Point, ...]


class PlaceCosts(NamedTuple):
    """Seconds of a place that is looked up or updated, with its bytes.

    Attributes:
        widths: bytes of a place, in order.
        curves: for each width the seconds by the bytes of the table.
    """

    widths: tuple[int, ...]
    curves: tuple[tuple[Point, ...], ...]

    def at(self, width: float, span: float) -> float:
        """The seconds of a place of so many bytes, anywhere in a table of so many; those of wide places grow with their bytes."""
        values_at_size = [at_size(curve, span) for curve in self.curves]
        if width <= self.widths[0] or len(values_at_size) == 1:
            return values_at_size[0]
        for (a, low), (b, high) in pairwise(zip(self.widths, values_at_size, strict=True)):
            if width <= b:
                return low + (high - low) * (width - a) / (b - a)
        return values_at_size[-1] * width / self.widths[-1]


def at_size(points: Sequence[Point], size: float) -> float:
    """The figure at a size; outside what was measured that of the nearest size."""
    before = points[0]
    for point in points:
        if size <= point[0]:
            break
        before = point
    else:
        return before[1]
    if point is before:
        return point[1]
    share = math.log(size / before[0]) / math.log(point[0] / before[0])
    low, high = (max(figure, 1e-15) for figure in (before[1], point[1]))
    return low * (high / low) ** share


def curves_by_name(figures: Mapping[str, float]) -> dict[str, tuple[Point, ...]]:
    """Figures under a name and a size as a curve per name."""
    found: dict[str, list[Point]] = {}
    for figure, value in figures.items():
        name, _, size = figure.rpartition(" ")
        found.setdefault(name, []).append((float(size), value))
    return {name: tuple(sorted(points)) for name, points in found.items()}
