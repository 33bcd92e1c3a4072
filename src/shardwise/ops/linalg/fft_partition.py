"""Fourier transforms along split dims: each dim is transformed where it is whole; before that the axes that split it move to another dim.

    fft over dims 0 and 1 of c64[8@x, 6]      dim 1 where it lies; x moves from dim 0 to dim 1, padded to 8; dim 0; x moves back

Where no other dim takes these axes the devices transform the dim together (`split_fft`).

Comes in: an equation of which a transformed dim is split. Goes out: transforms of whole dims, and all-to-alls between them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes, Shape
from shardwise.ir import Equation, literal
from shardwise.ops.devices.split_fft import split_fft
from shardwise.ops.shapes.pieces import pad_p, slice_p
from shardwise.ops.shapes.transpose import transpose_p


@dataclass(frozen=True, slots=True)
class Transform:
    """Of `dims` of a value that lies as `layout`, where they are whole; `last`: the last dim, whose size may change, is one of them.

    `padded_shape` is the value's shape before the move to `layout`: greater than its own where axes split a dim that they do not divide.
    """

    layout: DimAxes
    padded_shape: Shape
    dims: tuple[int, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class Order:
    """The last `count` dims are transformed; the last one first of all or last of all if that is asked for, and has `size` then."""

    count: int
    size: int
    last_first: bool
    last_last: bool

    def ready(self, left: Collection[int], last: int, layout: DimAxes) -> tuple[list[int], list[int]]:
        """The remaining dims that may be transformed now, and those to gather if there are none."""
        due = list(left)
        if last in left and self.last_first and layout[last]:
            due = [last]
        elif self.last_last and any(layout[d] for d in left if d != last):
            due = [d for d in left if d != last]
        return [d for d in due if not layout[d]], due


def split_transforms(
    shape: Shape, order: Order, layout: DimAxes, wanted: DimAxes, sizes: Mapping[str, int]
) -> list[Transform] | None:
    """The transforms of a value of this shape and layout, one after the other; None if no other dim takes the axes of one of them."""
    last, own = len(shape) - 1, shape
    left = set(range(len(shape) - order.count, len(shape)))
    transforms: list[Transform] = []
    padded_shape = own
    while left:
        ready, due = order.ready(left, last, layout)
        if ready:
            transforms.append(Transform(layout, padded_shape, tuple(sorted(ready)), last in ready))
            if last in ready:
                own = (*own[:-1], order.size)
            left -= set(ready)
            padded_shape = tuple(n if axes else m for n, m, axes in zip(padded_shape, own, layout, strict=True))
            continue
        move = _move_axes_off(due, left, layout, wanted, own, padded_shape, sizes)
        if move is None:
            return None
        layout, padded_shape = move
    return transforms


def _move_axes_off(
    due: Collection[int],
    left: Collection[int],
    layout: DimAxes,
    wanted: DimAxes,
    own: Shape,
    padded: Shape,
    sizes: Mapping[str, int],
) -> tuple[DimAxes, Shape] | None:
    """A layout where another dim, one that is not `left` if possible, has taken over the axes of one of the dims `due`.

    A dim is padded for that if none fits.
    """

    def ways(axes: Sequence[str]) -> int:
        return math.prod(sizes[a] for a in axes)

    for d in sorted((d for d in due if layout[d]), reverse=True):
        free = [e for e in range(len(own)) if e != d]
        whole = [e for e in free if not layout[e]]
        fitting_dims = [e for e in free if padded[e] % ways((*layout[e], *layout[d])) == 0]
        by_worth = lambda e, d=d: (e not in left, not set(layout[d]).isdisjoint(wanted[e]), own[e])  # noqa: E731
        e = max(fitting_dims, key=by_worth, default=max(whole, key=by_worth, default=None))
        if e is not None:
            axes = (*layout[e], *layout[d])
            lay = tuple(() if i == d else axes if i == e else have for i, have in enumerate(layout))
            sizes_now = [n if have else m for n, m, have in zip(padded, own, lay, strict=True)]
            sizes_now[e] = -(-padded[e] // ways(axes)) * ways(axes)
            return lay, tuple(sizes_now)
    return None


def fft_partition(region: Any, eqn: Equation) -> None:
    """All-to-alls, where they send less than a gather."""
    if region.compute_in_frames(eqn):
        return None
    (operand,), (out,) = eqn.inputs, eqn.outputs
    kind, count = eqn.params["fft_type"], len(eqn.params["fft_lengths"])
    atom, have = region.read(operand)
    if not have or not any(have[-count:]) or not operand.aval.size or not out.aval.size:
        return region.generic(eqn)
    placement = region.placements.get(out, ((),) * out.aval.ndim)
    order = Order(count, out.aval.shape[-1], kind is type(kind).RFFT, kind is type(kind).IRFFT)
    transforms = split_transforms(operand.aval.shape, order, have, placement, dict(region.sizes))
    if transforms is None:
        return _along_split(region, eqn, have)

    def along(region: Any) -> None:
        x, layout, aval = atom, have, operand.aval
        for each in transforms:
            x = _move_padded(region, x, aval, layout, each.layout, each.padded_shape)
            x, layout = _transform_dims(region, x, each, eqn), each.layout
            aval = out.aval if each.last else aval
            aval = aval.update(shape=(*out.aval.shape[:-1], aval.shape[-1]), dtype=x.aval.dtype)
        is_padded = [
            bool(axes) and n != m
            for n, m, axes in zip(transforms[-1].padded_shape, out.aval.shape, layout, strict=True)
        ]
        plain = tuple(() if more else axes for more, axes in zip(is_padded, placement, strict=True))
        x = _move_padded(region, x, out.aval, layout, plain, out.aval.shape)
        region.define(out, region.reshard(x, plain, placement, out.aval), placement)

    region.cheapest(along, lambda region: region.generic(eqn))


def _along_split(region: Any, eqn: Equation, have: DimAxes) -> None:
    """A transform along a split dim that the devices compute together, if their parts can be exchanged evenly."""
    (operand,), (out,), kind = eqn.inputs, eqn.outputs, eqn.params["fft_type"]
    dim, sizes = operand.aval.ndim - 1, region.sizes_of(have[-1])
    alone = len(eqn.params["fft_lengths"]) == 1 and kind in (type(kind).FFT, type(kind).IFFT)
    if not alone or operand.aval.shape[dim] % math.prod(sizes) ** 2:
        return region.generic(eqn)

    def along(region: Any) -> None:
        params = {"axes": have[-1], "sizes": sizes, "dim": dim, "inverse": kind is type(kind).IFFT}
        atom = region.collective(split_fft, [region.read(operand)[0]], have[-1], operand.aval, params)
        placement = region.placements.get(out, have)
        region.define(out, region.reshard(atom, have, placement, out.aval), placement)

    region.cheapest(along, lambda region: region.generic(eqn))


def _move_padded(region: Any, x: Any, aval: Any, have: DimAxes, want: DimAxes, padded: Shape) -> Any:
    """A value of type `aval` from one layout to another; dims that axes split have, and get, the sizes `padded`."""
    local = list(x.aval.shape)
    grown_shape = [
        n if axes and not before else m for n, m, axes, before in zip(padded, local, want, have, strict=True)
    ]
    if grown_shape != local:
        edges = tuple((0, n - m, 0) for n, m in zip(grown_shape, x.aval.shape, strict=True))
        (x,) = region.emit(pad_p, [x, literal(0, x.aval.dtype)], {"padding_config": edges})
    ways = [math.prod(region.sizes_of(axes)) for axes in have]
    x = region.reshard(x, have, want, aval.update(shape=tuple(n * w for n, w in zip(x.aval.shape, ways, strict=True))))
    limits = tuple(n if axes else m for n, m, axes in zip(x.aval.shape, aval.shape, want, strict=True))
    if limits != x.aval.shape:
        cut = {"start_indices": (0,) * len(limits), "limit_indices": limits, "strides": None}
        (x,) = region.emit(slice_p, [x], cut)
    return x


def _transform_dims(region: Any, x: Any, each: Transform, eqn: Equation) -> Any:
    """The transform of some dims of a local value: these last, and back again."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    first = x.aval.ndim - len(lengths)
    order = (*[d for d in range(x.aval.ndim) if d not in each.dims], *each.dims)
    straight = order == tuple(range(len(order)))
    if not straight:
        (x,) = region.emit(transpose_p, [x], {"permutation": order})
    given = {
        "fft_type": kind if each.last else kind.complex_one,
        "fft_lengths": tuple(lengths[d - first] for d in each.dims),
    }
    (x,) = region.emit(eqn.op, [x], given)
    if not straight:
        back = tuple(order.index(d) for d in range(len(order)))
        (x,) = region.emit(transpose_p, [x], {"permutation": back})
    return x
