"""Planning reductions over devices: the steps from partial results to the reduced value in its target layout.

Comes in: the layout of a result that is partial over some axes, and its target layout. Goes out: the dims along which it is
reduce-scattered, the axes over which it is all-reduced, and the layout after both, from which it is resharded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, DimAxes
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.reduce_scatter import psum_scatter_op
from shardwise.passes.reshard import bytes_sent, local_shape, resharding_bytes, ways


@dataclass(frozen=True, slots=True)
class ReductionSteps:
    """The steps that finish a partial result.

    Attributes:
        scatters: (dim, axes) pairs to reduce-scatter, in order.
        rest: the axes over which it is all-reduced afterwards.
        dims: the layout after both.
        bytes_sent: the bytes that a device sends, including the reshard to the target layout.
    """

    scatters: tuple[tuple[int, Axes], ...]
    rest: Axes
    dims: DimAxes
    bytes_sent: int


def plan_reduction(
    dims: DimAxes,
    placed: DimAxes,
    partial: Axes,
    shape: tuple[int, ...],
    itemsize: int,
    sizes: Mapping[str, int],
    *,
    scatters: bool,
) -> ReductionSteps:
    """The reduction that sends the fewest bytes, from layout `dims`, partial over `partial`, to layout `placed`.

    `scatters`: whether the result may be reduce-scattered, as sums may.
    """
    return _plan(dims, placed, partial, shape, itemsize, tuple(sizes.items()), scatters)


@recent(4096)
def _plan(
    dims: DimAxes,
    placed: DimAxes,
    partial: Axes,
    shape: tuple[int, ...],
    itemsize: int,
    sizes: tuple[tuple[str, int], ...],
    scatters: bool,
) -> ReductionSteps:
    mesh = dict(sizes)
    plans = [_size_plan(s, dims, placed, partial, shape, itemsize, mesh) for s in _choices(placed, partial, scatters)]
    return min((p for p in plans if p is not None), key=lambda p: (p.bytes_sent, len(p.scatters)))


def _choices(placed: DimAxes, partial: Axes, scatters: bool) -> Iterator[tuple[tuple[int, Axes], ...]]:
    """The axes of each dim that are both wanted and partial, and so may be scattered, in all combinations of dims."""
    scatter_axes = [(d, tuple(a for a in want if a in partial)) for d, want in enumerate(placed)] if scatters else []
    scatter_axes = [(d, axes) for d, axes in scatter_axes if axes]
    for n in range(len(scatter_axes), -1, -1):
        yield from itertools.combinations(scatter_axes, n)


def _size_plan(
    scatters: tuple[tuple[int, Axes], ...],
    dims: DimAxes,
    placed: DimAxes,
    partial: Axes,
    shape: tuple[int, ...],
    itemsize: int,
    mesh: Mapping[str, int],
) -> ReductionSteps | None:
    """The plan with these scatters; None if the axes do not divide a dim."""
    local = math.prod(local_shape(shape, dims, mesh)) * itemsize
    sent_bytes, rest = 0, partial
    for d, axes in scatters:
        n = ways(axes, mesh)
        if shape[d] % (n * ways(dims[d], mesh)):
            return None
        sent_bytes += bytes_sent(psum_scatter_op, local, n)
        local //= n
        dims = (*dims[:d], (*dims[d], *axes), *dims[d + 1 :])
        rest = tuple(a for a in rest if a not in axes)
    if rest:
        sent_bytes += bytes_sent(all_reduce, local, ways(rest, mesh))
    return ReductionSteps(scatters, rest, dims, sent_bytes + resharding_bytes(dims, placed, shape, itemsize, mesh))
