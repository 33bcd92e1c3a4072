"""`dynamic_slice` along a split dim: each device gives its rows of the window, and the sum over devices has them all.

Comes in: an equation whose window is cut from a split dim. Goes out: `window_part`, whose results are summed, where this sends less than
all rows do. In one process the parts are a view of the whole dim, of which the window is another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shardwise.base.shapes import Axes, Ints, Ndarray
from shardwise.ir import Equation, Literal, ShapedArray, SmallForm, define_op
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.all_reduce import all_reduce, sum_across
from shardwise.ops.devices.split_dims import join
from shardwise.ops.indexing.gather_kernel import gather_kernel, sum_over_axes
from shardwise.ops.indexing.mapped_rows import mapped_rows
from shardwise.ops.indexing.slice_updates import SplitDim, clamp_start, first_start
from shardwise.ops.indexing.window_numbers import GatherDimensionNumbers, GatherScatterMode
from shardwise.ops.indexing.windows import read_windows
from shardwise.ops.rules.derivative import later
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Rule

_ALL = slice(None)


def slice_window(env: Env, operand: Ndarray, *starts: Ndarray, slice_sizes: Ints, wrap: tuple[bool, ...]) -> Ndarray:
    """The window of `slice_sizes` at `starts`: a view if these are the same on all devices."""
    lead = env.lead
    index: dict[int, slice] = {}
    varying_starts: dict[int, Ndarray] = {}
    for d, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        n = operand.shape[lead + d]
        if start.size != 1:
            varying_starts[d] = start
        elif size != n:
            first = clamp_start(start.item(), n, n - size, wrap[d])
            index[lead + d] = slice(first, first + size)
    out = operand[tuple([index.get(d, _ALL) for d in range(operand.ndim)])] if index or not varying_starts else operand
    if not varying_starts:
        return out
    shapes = {s.shape for s in varying_starts.values()}
    loops = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    if len({wrap[d] for d in varying_starts}) == 1:
        rows = mapped_rows(out, lead, varying_starts, slice_sizes, loops, wrap=wrap[next(iter(varying_starts))])
        if rows is not None:
            return rows
    for d, start in varying_starts.items():
        n = operand.shape[lead + d]
        varying_starts[d] = first_start(start, n, n - slice_sizes[d], wrap[d])
    return read_windows(out, lead, varying_starts, slice_sizes, (), loops)


def _part_type(
    operand: ShapedArray,
    *starts: ShapedArray,
    dim: int,
    axes: Axes,
    slice_sizes: Ints,
    wrap: tuple[bool, ...],
    sum_axes: Axes = (),
) -> ShapedArray:
    varying_axes = frozenset(axes).union(operand.vma, *[s.vma for s in starts])
    return ShapedArray(slice_sizes, operand.dtype, operand.weak_type, vma=varying_axes - set(sum_axes))


def _part_kernel(
    env: Env,
    operand: Ndarray,
    *starts: Ndarray,
    dim: int,
    axes: Axes,
    slice_sizes: Ints,
    wrap: tuple[bool, ...],
    sum_axes: Axes = (),
) -> Ndarray:
    """Each device's rows of the window of a dim that `axes` split, -0.0 for those of others; with `sum_axes`, the window."""
    lead = env.lead
    split = tuple(axes if d == dim else () for d in range(operand.ndim - lead))
    n = operand.shape[lead + dim] * math.prod(env.size(a) for a in axes)
    if sum_axes:
        joined_parts = join(env, operand, split, *starts) if set(sum_axes) == set(axes) else None
        if joined_parts is not None and joined_parts.block.shape[lead + dim] == n:
            return slice_window(env, joined_parts.block, *starts, slice_sizes=slice_sizes, wrap=wrap)
        part = _part_kernel(env, operand, *starts, dim=dim, axes=axes, slice_sizes=slice_sizes, wrap=wrap)
        return sum_over_axes(env, part, sum_axes)
    size = slice_sizes[dim]
    first = first_start(starts[dim], n, n - size, wrap[dim])
    here = [np.zeros((1,) * lead, np.intp) if d == dim else s for d, s in enumerate(starts)]
    rows = tuple(operand.shape[lead + d] if d == dim else m for d, m in enumerate(slice_sizes))
    operand = slice_window(env, operand, *here, slice_sizes=rows, wrap=wrap)
    others = tuple(d for d in range(len(rows)) if d != dim)
    return gather_kernel(
        env,
        operand,
        first[..., None, None] + np.arange(size)[:, None],
        dimension_numbers=GatherDimensionNumbers(others, (dim,), (dim,)),
        slice_sizes=tuple(1 if d == dim else m for d, m in enumerate(rows)),
        mode=GatherScatterMode.CLIP,
        fill_value=None,
        wrap_negative=False,
        operand_axes=split,
    )


class WindowKernel:
    """The kernel of the summed parts where this process has all of them: the window is a view of one part, or of the parts joined if
    they lie side by side in memory; else its pieces are put together.
    """

    __slots__ = ("_axes", "_compute", "_dim", "_order", "_others", "_part", "_size", "_whole")

    def __init__(self, env: Env, operand: ShapedArray, params: Params) -> None:
        dim, axes, sizes, wrap = params["dim"], params["axes"], params["slice_sizes"], params["wrap"]
        lead, shape = env.lead, operand.shape
        self._compute = partial(_part_kernel, env, **params)
        self._part = SplitDim(env, dim, shape[dim], sizes[dim], wrap[dim], axes)
        self._dim, self._size = lead + dim, shape[dim] * math.prod(map(env.size, axes))
        # Per dim of the rest that is cut: the start, the dim of the block, its size, the last start, whether starts count from the end.
        self._others = [
            (d, lead + d, n, n - sizes[d], wrap[d]) for d, n in enumerate(shape) if d != dim and sizes[d] != n
        ]
        self._whole: list[slice] = [slice(None)] * (lead + len(shape))
        # Per axis: its leading dim, its size, and its stride in elements of the dim where the parts lie side by side.
        after = [math.prod(map(env.size, axes[i + 1 :])) for i in range(len(axes))]
        self._axes = [(env.dim(a), env.size(a), shape[dim] * n) for a, n in zip(axes, after, strict=True)]
        split = [d for d, _, _ in self._axes]
        rest = [d for d in range(lead + len(shape)) if d not in split]
        at = rest.index(self._dim)
        self._order = (*rest[:at], *split, *rest[at:])

    def __call__(self, operand: Ndarray, *starts: Ndarray) -> Ndarray:
        shape, first = operand.shape, starts[self._part.dim]
        if first.size != 1 or any([shape[d] != n for d, n, _ in self._axes]):
            return self._compute(operand, *starts)
        index = self._whole.copy()
        for k, d, n, limit, wraps in self._others:
            if starts[k].size != 1:
                return self._compute(operand, *starts)
            begin = clamp_start(starts[k].item(), n, limit, wraps)
            index[d] = slice(begin, begin + n - limit)
        places = self._part.places(first.item())
        if len(places) > 1:
            joined_block = self._join_parts(operand)
            if joined_block is not None:
                begin = self._part.first(first.item())
                index[self._dim] = slice(begin, begin + self._part.size)
                return joined_block[tuple(index)]
        pieces: list[Ndarray] = []
        for place in places:
            index[self._dim] = place.window
            for axis, at in place.devices:
                index[axis] = at
            pieces.append(operand[tuple(index)])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, self._dim)

    def _join_parts(self, operand: Ndarray) -> Ndarray | None:
        """The parts as one dim, a view; None where they lie apart."""
        steps, d = operand.strides, self._dim
        if any([n > 1 and steps[axis] != steps[d] * m for axis, n, m in self._axes]):
            return None
        shape = list(operand.shape)
        for axis, _, _ in self._axes:
            shape[axis] = 1
        shape[d] = self._size
        return operand.transpose(self._order).reshape(shape)


def _part_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Ndarray]:
    del out_types
    axes = params["axes"]
    here = env.lead == len(env.axis_names) and all(env.extent(a) == env.size(a) for a in axes)
    if here and set(params.get("sum_axes", ())) == set(axes):
        return WindowKernel(env, in_types[0], params)
    return partial(_part_kernel, env, **params)


window_part = define_op(
    "window_part",
    type_rule=_part_type,
    typed=True,
    kernel=_part_kernel,
    compile=_part_compile,
    rule=lambda ins, outs, params: Rule(tuple(((),) * t.ndim for t in ins), tuple(((),) * t.ndim for t in outs), (), ()),
    across=sum_across(_part_kernel, lambda env, ins, outs, params: partial(_part_kernel, env, **params)),
    absorbs=all_reduce,
    small=SmallForm(
        later("shardwise.runtime.small", "window_part"),
        later("shardwise.runtime.small", "part_fits"),
        sums=later("shardwise.runtime.small", "axes_joined"),
    ),
    extracts="window",
)  # fmt: skip


def slice_partition(region: Any, eqn: Equation) -> None:
    """Partition a slice at a computed place of a split dim as a sum of the devices' parts, or gather the operand."""
    operand = eqn.inputs[0]
    have = () if isinstance(operand, Literal) or region.is_view(operand) else region.layout(operand)
    sizes = eqn.params["slice_sizes"]
    cut = [d for d, axes in enumerate(have or ()) if axes and sizes[d] != operand.aval.shape[d]]
    if len(cut) != 1 or not eqn.outputs[0].aval.size:
        return region.generic(eqn)
    dim, (out,) = cut[0], eqn.outputs

    def sum_parts(region: Any) -> None:
        local = [region.read(a)[0] for a in eqn.inputs]
        shape, here = operand.aval.shape, local[0].aval.shape
        window = tuple(here[d] if d != dim and n == shape[d] else n for d, n in enumerate(sizes))
        params = {"dim": dim, "axes": have[dim], "slice_sizes": window, "wrap": eqn.params["wrap"]}
        (part,) = region.emit(window_part, local, params)
        rest = tuple(() if d == dim else axes for d, axes in enumerate(have))
        region.define(out, part, rest)
        region.finish(eqn, out, rest, region.placements.get(out, rest), have[dim])

    region.cheapest(sum_parts, lambda region: region.generic(eqn), lambda region: region.with_whole(eqn, 0, cut))
