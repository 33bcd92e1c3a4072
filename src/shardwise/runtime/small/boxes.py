"""Where the elements of a value come from that is put together from others: boxes of evenly spaced elements.

Comes in: per element of the result the number of its source (`number_elements`). Goes out: boxes of the result that copy loops can fill.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.runtime.blocks import with_dim_at

_SOURCE = 40  # bits for the number of an element in its source
Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Even:
    """The box of a result from `start` on. Its elements are those of a source from number `first` on, `steps` apart along each dim;
    `source` is None for zeros.
    """

    start: Shape
    shape: Shape
    source: int | None
    first: int
    steps: Shape

    @property
    def index(self) -> tuple[slice, ...]:
        """The box as an index of the result."""
        return tuple(slice(a, a + n) for a, n in zip(self.start, self.shape, strict=True))


def number_elements(source: int, shape: Shape) -> Numbers:
    """The numbers of a source's elements; a kernel that fills with zeros leaves 0 for them."""
    return ((source + 1) << _SOURCE) + np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)


def even_boxes(numbers: Numbers, most: int) -> list[Even] | None:
    """The boxes that `numbers` consists of; None if there are more than `most`."""
    found, waiting = list[Even](), [((0,) * numbers.ndim, numbers)]
    while waiting:
        start, part = waiting.pop()
        cuts = [_cuts(part, d) for d in range(part.ndim)]
        if not any(cuts):
            found.append(_box(start, part))
            continue
        d = min((d for d in range(part.ndim) if cuts[d]), key=lambda d: len(cuts[d]))
        edges = [0, *cuts[d], part.shape[d]]
        if len(found) + len(waiting) + len(edges) > most + 1:
            return None
        for low, high in pairwise(edges):
            inside = (slice(None),) * d + (slice(low, high),)
            waiting.append(((*start[:d], start[d] + low, *start[d + 1 :]), part[inside]))
    return found


def _cuts(part: Numbers, d: int) -> list[int]:
    """The positions along dim `d` before which the spacing is another than that of most, or another source begins."""
    if part.shape[d] == 1:
        return []
    rows = with_dim_at(part, d, 0).reshape(part.shape[d], -1)
    apart = np.diff(rows, axis=0)
    values, counts = np.unique(apart[:, 0], return_counts=True)
    usual = values[counts.argmax()]
    other = (apart != usual).any(axis=1) | (np.diff(rows >> _SOURCE, axis=0) != 0).any(axis=1)
    return [int(i) + 1 for i in np.flatnonzero(other)]


def _box(start: Shape, part: Numbers) -> Even:
    first = int(part.flat[0])
    origin = (0,) * part.ndim
    steps = tuple(
        int(part[(*origin[:d], 1, *origin[d + 1 :])]) - first if n > 1 else 0 for d, n in enumerate(part.shape)
    )
    source = (first >> _SOURCE) - 1
    return Even(start, part.shape, source if source >= 0 else None, first & ((1 << _SOURCE) - 1), steps)
