"""The kernels of reductions over sliding windows.

Windows are reduced dim by dim, by shifted views of the whole block: no window is ever materialised. Short windows of large blocks are
reduced by one loop over memory, which combines the elements of a window in registers, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.shapes import Ints, Ndarray
from shardwise.base.small_integers import in_bytes
from shardwise.ir import Equation, Op, Program, ShapedArray, Var, literal
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise.binary import add_p, max_p, min_p, mul_p
from shardwise.ops.elementwise.bitwise import and_p, or_p, xor_p
from shardwise.ops.products.conv_geometry import Pads, dilated_size, window_count
from shardwise.ops.products.im2col import spread_elements
from shardwise.ops.rules.operands import dtype_kind
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import fits
from shardwise.runtime.monoids import MONOIDS

if TYPE_CHECKING:
    from shardwise.runtime.fused import GroupKernel

# A dim, the window's size along it, its stride, and the distance between its elements.
Step = tuple[int, int, int, int]

_OPS = {"sum": add_p, "prod": mul_p, "max": max_p, "min": min_p, "and": and_p, "or": or_p, "xor": xor_p}


def window_kernel(reduction: str) -> Callable[..., Ndarray]:
    """The kernel of a reduction of windows, a call of NumPy for each element of a window."""

    def kernel(
        env: Env,
        x: Ndarray,
        *,
        window_dimensions: Ints,
        window_strides: Ints,
        padding: Pads,
        base_dilation: Ints,
        window_dilation: Ints,
    ) -> Ndarray:
        wide, dtype = _compute_dtype(reduction, x.dtype), x.dtype
        fill = MONOIDS[reduction].identity(dtype)
        x = spread_elements(x, env.lead, padding, base_dilation, fill, wide)
        for d, size, stride, gap in _steps(window_dimensions, window_strides, window_dilation):
            x = _slide(MONOIDS[reduction].merger(wide), x, env.lead + d, size, stride, gap)
        if _begins_with_zero(reduction, window_dimensions, dtype):
            x = np.add(x, np.zeros((), x.dtype), out=x)
        return x.astype(dtype) if wide != dtype else x

    return kernel


def _compute_dtype(reduction: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    narrow = reduction in ("sum", "prod") and dtype.itemsize < 4 and dtype_kind(dtype) == "f"
    return np.dtype(np.float32) if narrow else in_bytes(np.empty(0, dtype)).dtype


def _steps(windows: Ints, strides: Ints, gaps: Ints) -> list[Step]:
    """The dims that windows reduce or skip elements of, those with the largest strides first: they leave the fewest elements."""
    steps = [(d, *step) for d, step in enumerate(zip(windows, strides, gaps, strict=True)) if step[:2] != (1, 1)]
    return sorted(steps, key=lambda step: -step[2])


def _begins_with_zero(reduction: str, windows: Ints, dtype: np.dtype[Any]) -> bool:
    """Sums begin with 0.0, so that they are never -0.0."""
    return reduction == "sum" and any(n > 1 for n in windows) and dtype_kind(dtype) in "fc"


def window_compile(reduction: str) -> Callable[..., Callable[[Ndarray], Ndarray]]:
    """`Op.compile` of a reduction of windows."""
    kernel = window_kernel(reduction)

    def compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[[Ndarray], Ndarray]:
        (x,), (out,), windows = in_types, out_types, params["window_dimensions"]
        by_kernel, op = partial(kernel, env, **params), _OPS[reduction]
        wide = _compute_dtype(reduction, x.dtype)
        if not _pays(env, out, windows) or op.emit is None or not fits(x.update(dtype=wide), op.emit.kinds):
            return by_kernel
        padded_shape = [
            dilated_size(n, step) + low + high
            for n, step, (low, high) in zip(x.shape, params["base_dilation"], params["padding"], strict=True)
        ]
        steps = _steps(windows, params["window_strides"], params["window_dilation"])
        positive = _begins_with_zero(reduction, windows, x.dtype)
        loop = _WindowLoop(env, op, ShapedArray(tuple(padded_shape), wide), steps, positive=positive)
        fill = MONOIDS[reduction].identity(x.dtype)

        def run(block: Ndarray) -> Ndarray:
            result = loop(spread_elements(block, env.lead, params["padding"], params["base_dilation"], fill, wide))
            return result.astype(x.dtype) if wide != x.dtype else result

        return run

    return compile


def _slide(merge: Any, x: Ndarray, dim: int, size: int, stride: int, gap: int) -> Ndarray:
    """Reduce windows of `size` elements, `gap` apart, along one dim; windows begin `stride` elements apart."""
    count = window_count(x.shape[dim], dilated_size(size, gap), stride)

    def part(y: Ndarray, start: int, number: int, step: int) -> Ndarray:
        return y[
            (np.s_[:],) * dim + (np.s_[start : start + max(number - 1, 0) * step + 1 : step] if number else np.s_[:0],)
        ]

    if _in_order(size, stride):
        out = part(x, 0, count, stride)
        for tap in range(1, size):
            shifted_part = part(x, tap * gap, count, stride)
            out = merge(out, shifted_part) if tap == 1 else merge(out, shifted_part, out=out)
        return out
    # Windows of 1, 2, 4, ... elements, each from a pair of the previous size; adjacent ones for the bits of `size` give the result.
    total: Ndarray | None = None
    taps_done = 0
    power, width = x, 1
    places = (count - 1) * stride + 1 if count else 0
    while True:
        if size & width:
            here = part(power, taps_done * gap, places, 1)
            total = here if total is None else merge(total, here)
            taps_done += width
        if taps_done == size:
            assert total is not None
            return part(total, 0, count, stride)
        left = power.shape[dim] - width * gap
        power = merge(part(power, 0, left, 1), part(power, width * gap, left, 1))
        width *= 2


class _WindowLoop:
    """The reduction of the windows of padded blocks by `op`; `positive`: a zero is 0.0, as of sums that begin with it."""

    def __init__(self, env: Env, op: Op, x: ShapedArray, steps: Sequence[Step], *, positive: bool) -> None:
        self._lead, self._steps = env.lead, steps
        shape = list(x.shape)
        for d, size, stride, gap in steps:
            shape[d] = window_count(shape[d], dilated_size(size, gap), stride)
        self._shape = tuple(shape)
        self._offsets: dict[Ints, Var] = {}
        out = x.update(shape=self._shape)
        equations: list[Equation] = []

        def combine_values(a: Var, b: Any, by: Op = op) -> Var:
            combination = Var(out)
            equations.append(Equation(by, (a, b), (combination,), {}))
            return combination

        def element(number: int, offset: Ints) -> Var:
            """The reduction along the first `number` dims, at one offset along the others."""
            if not number:
                return self._offsets.setdefault(offset, Var(out))
            d, size, stride, gap = steps[number - 1]

            def at(tap: int) -> Var:
                return element(number - 1, (*offset[:d], tap * gap, *offset[d + 1 :]))

            return _along(size, _in_order(size, stride), at, combine_values)

        total = element(len(steps), (0,) * x.ndim)
        if positive:
            total = combine_values(total, literal(0, x.dtype), add_p)
        program = Program(tuple(self._offsets.values()), tuple(equations), (total,), 0, "windows")
        from shardwise.runtime.fused import GroupKernel  # start-up time: the compiler of loops

        self._group: GroupKernel = GroupKernel(env, program)

    def __call__(self, x: Ndarray) -> Ndarray:
        """The reductions of the windows of `x`."""
        lead = (slice(None),) * self._lead
        strides = {d: stride for d, _, stride, _ in self._steps}
        views = [
            x[
                (
                    *lead,
                    *(
                        slice(first, first + (n - 1) * strides.get(d, 1) + 1, strides.get(d, 1))
                        for d, (first, n) in enumerate(zip(offset, self._shape, strict=True))
                    ),
                )
            ]
            for offset in self._offsets
        ]
        (out,) = self._group(*views)
        return out


def _in_order(size: int, stride: int) -> bool:
    """Whether the elements of a window are combined one after the other, rather than in pairs of runs of 1, 2, 4, ... elements."""
    return size < 8 or size.bit_length() * stride > size


def _along(size: int, ordered: bool, at: Callable[[int], Any], combined: Callable[[Any, Any], Any]) -> Any:
    """`size` elements combined: one after the other if they are `ordered`, else in runs of 1, 2, 4, ... elements, each from two runs."""
    if ordered:
        total = at(0)
        for tap in range(1, size):
            total = combined(total, at(tap))
        return total

    def run(first: int, width: int) -> Any:
        return at(first) if width == 1 else combined(run(first, width // 2), run(first + width // 2, width // 2))

    total, taps_done, width = None, 0, 1
    while taps_done < size:
        if size & width:
            here = run(taps_done, width)
            total = here if total is None else combined(total, here)
            taps_done += width
        width *= 2
    return total


def _pays(env: Env, out: ShapedArray, windows: Ints) -> bool:
    """Whether windows are short enough, and results many enough. Windows of one element have nothing to combine: slices do."""
    from shardwise.runtime.machine import available  # start-up time: the compiler of loops

    many = out.size * math.prod(env.axis_sizes) >= costs.FUSED_FEWEST
    return many and 1 < math.prod(windows) <= costs.FUSED_WINDOW and available()
