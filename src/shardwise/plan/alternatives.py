"""Layouts next to a layout: other sizes of a mesh's axes, other axes along an argument's dims.

In: the mesh and the arguments of a step. Out: meshes, and per argument the axes that split each dim; only such as divide the dims.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardwise.base.shapes import DimAxes
from shardwise.plan.roles import Argument
from shardwise.plan.step import Sizes, Step, StepLayout


def shapes(own: Sizes, count: int) -> Iterator[Sizes]:
    """All sizes of the axes whose product is `count`."""
    names = [name for name, _ in own]

    def cut(count: int, axes: int) -> Iterator[tuple[int, ...]]:
        if axes == 1:
            yield (count,)
            return
        for n in range(1, count + 1):
            if count % n == 0:
                for rest in cut(count // n, axes - 1):
                    yield (n, *rest)

    for shape in cut(count, len(names)) if names else ():
        yield tuple(zip(names, shape, strict=True))


def distance(mesh: Sizes, own: Sizes) -> float:
    """How far sizes are from the program's own: those next to it are looked at first."""
    return sum(abs(math.log2(n / m)) for (_, n), (_, m) in zip(mesh, own, strict=True))


def with_dims(step: Step, layout: StepLayout, i: int, dims: DimAxes) -> StepLayout:
    """The layout with argument `i` split that way."""
    new = {**dict(layout.dims), i: dims}
    return replace(layout, dims=tuple(sorted((k, d) for k, d in new.items() if d != step.arguments[k].dims)))


def whole_layouts(step: Step, mesh: Sizes) -> Iterator[tuple[tuple[int, DimAxes], ...]]:
    """Layouts of all arguments: state also split over each axis; over all of them with the batch over all; state whole."""
    axes = [name for name, n in mesh if n > 1]
    state = [i for i, a in enumerate(step.arguments) if a.state and a.shape]
    batch = [i for i, a in enumerate(step.arguments) if a.batch_dim is not None]
    every = split_also(step, batch, axes, mesh)
    for axis in axes:
        yield split_also(step, state, [axis], mesh)
    if len(axes) > 1:
        yield split_also(step, state, axes, mesh)
    yield _merge_layouts(split_also(step, state, axes, mesh), every)
    yield _merge_layouts(_whole(step, state), every)
    yield every


def _merge_layouts(*parts: Sequence[tuple[int, DimAxes]]) -> tuple[tuple[int, DimAxes], ...]:
    return tuple(sorted({i: dims for part in parts for i, dims in part}.items()))


def _whole(step: Step, which: Sequence[int]) -> list[tuple[int, DimAxes]]:
    return [(i, ((),) * len(step.arguments[i].shape)) for i in which if any(step.arguments[i].dims)]


def split_also(step: Step, which: Sequence[int], axes: Sequence[str], mesh: Sizes) -> tuple[tuple[int, DimAxes], ...]:
    """These arguments split over these axes, too: each over the longest part of a dim that it divides; batches along their batch."""
    sizes = dict(mesh)
    layouts: list[tuple[int, DimAxes]] = []
    for i in which:
        a = step.arguments[i]
        dims = list(a.dims)
        for axis in axes:
            if any(axis in own for own in dims):
                continue
            parts = {
                d: n // math.prod(sizes[x] for x in dims[d])
                for d, n in enumerate(a.shape)
                if n % (math.prod(sizes[x] for x in dims[d]) * sizes[axis]) == 0 and a.batch_dim in (None, d)
            }
            if parts:
                d = max(parts, key=lambda d: parts[d])
                dims[d] = (*dims[d], axis)
        if tuple(dims) != a.dims:
            layouts.append((i, tuple(dims)))
    return tuple(layouts)


def others(a: Argument, now: DimAxes | None, mesh: Sizes) -> Iterator[DimAxes]:
    """Other layouts of an argument that is laid out as `now`: an axis more, an axis less, an axis along another dim."""
    sizes = dict(mesh)
    now = a.dims if now is None else now
    for axis in [name for name, n in mesh if n > 1]:
        at = next((d for d, own in enumerate(now) if axis in own), None)
        without = tuple(tuple(x for x in own if x != axis) for own in now)
        if at is not None:
            yield without
        for d, n in enumerate(a.shape):
            ways = math.prod(sizes[x] for x in without[d]) * sizes[axis]
            if d != at and n % ways == 0:
                yield tuple((*own, axis) if k == d else own for k, own in enumerate(without))
