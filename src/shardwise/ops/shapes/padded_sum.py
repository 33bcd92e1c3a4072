"""Sums of padded values, each element of which is written once: no pad is made, and no zeros are added.

    pad([a, b], before each) + pad([c, d], after each)      elements 0, 2 are c, d; elements 1, 3 are a, b

The slopes of slices with strides are such sums. The positions of the result are cut into cells: along each dim, those that leave one
remainder by the strides, in sections in which no operand begins or ends. A cell is the sum of parts of the operands that reach it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Equation, Literal, Program, ShapedArray, Var, define_op
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise.binary import add_p
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.env import Env
from shardwise.runtime.machine import available
from shardwise.runtime.memory import pool
from shardwise.sharding.rule import Rule

PadConfig = tuple[tuple[int, int, int], ...]
Index = tuple[slice, ...]
Cell = tuple[Index, tuple[tuple[int, Index], ...]]  # where it is; the operands that reach it, with their parts
Write = Callable[[Sequence[Ndarray], Ndarray], object]  # (operands, sum): writes a cell


def cells(shape: Shape, shapes: tuple[Shape, ...], configs: tuple[PadConfig, ...]) -> list[Cell]:
    """The cells of a sum of this shape of operands of these shapes, padded so."""
    along = [_sections(n, [(s[d], c[d]) for s, c in zip(shapes, configs, strict=True)]) for d, n in enumerate(shape)]
    found_cells: list[Cell] = []
    for sections in itertools.product(*along):
        parts = [(i, tuple(reach[i] for _, reach in sections)) for i in range(len(shapes))]
        reached_parts = tuple((i, tuple(s for s in part if s)) for i, part in parts if all(part))
        found_cells.append((tuple(at for at, _ in sections), reached_parts))
    return found_cells


def count_cells(shape: Shape, shapes: tuple[Shape, ...], configs: tuple[PadConfig, ...]) -> int:
    """The number of cells."""
    return math.prod(
        len(_sections(n, [(s[d], c[d]) for s, c in zip(shapes, configs, strict=True)])) for d, n in enumerate(shape)
    )


def _sections(
    size: int, operands: list[tuple[int, tuple[int, int, int]]]
) -> list[tuple[slice, tuple[slice | None, ...]]]:
    """The sections of a dim, and the part of each operand that reaches it, or None."""
    steps = [between + 1 if n > 1 else 1 for n, (_, _, between) in operands]
    stride = math.lcm(*steps)
    sections: list[tuple[slice, tuple[slice | None, ...]]] = []
    for rest in range(min(stride, size)):
        rounds = len(range(rest, size, stride))
        # Of each operand the first element at such positions, how many, in which steps, and the round of the first.
        reach: list[tuple[int, int, int, int]] = []
        for (n, (low, _, _)), step in zip(operands, steps, strict=True):
            each = stride // step
            first = next((k for k in range(min(each, n)) if (low + k * step) % stride == rest), n)
            reach.append((first, len(range(first, n, each)), each, (low + first * step - rest) // stride))
        cuts = {0, rounds, *[k for _, m, _, at in reach if m for k in (at, at + m)]}
        for begin, end in itertools.pairwise(sorted(cuts)):
            parts = [
                slice(first + (begin - at) * each, first + (end - 1 - at) * each + 1, each)
                if m and at <= begin and end <= at + m
                else None
                for first, m, each, at in reach
            ]
            sections.append((slice(rest + begin * stride, rest + (end - 1) * stride + 1, stride), tuple(parts)))
    return sections


def _type(*xs: ShapedArray, shape: Shape, configs: tuple[PadConfig, ...]) -> ShapedArray:
    del configs
    return ShapedArray(shape, xs[0].dtype, all(x.weak_type for x in xs))


@dataclass(frozen=True, slots=True)
class _Part:
    """How one cell is written: `at` is where it lies in the sum, `parts` are the operands that reach it. `zero` is added to it, or None."""

    at: Index
    parts: tuple[tuple[int, Index], ...]
    zero: Ndarray | None

    def by_numpy(self, xs: Sequence[Ndarray], out: Ndarray) -> None:
        """Write it operand by operand."""
        here = out[(..., *self.at)]
        values = [xs[i][(..., *part)] for i, part in self.parts]
        if self.zero is not None:
            values.append(self.zero)
        if len(values) == 1:
            here[...] = values[0]
        else:
            np.add(values[0], values[1], out=here)
            for value in values[2:]:
                np.add(here, value, out=here)

    def choose_write(self, env: Env, xs: Sequence[Ndarray], out: Ndarray) -> Write:
        """The function that writes the cell for blocks with these strides: a compiled loop, or NumPy where that is as fast."""
        from shardwise.runtime.fused import GroupKernel, fits  # start-up time: the compiler of loops

        if len(self.parts) + (self.zero is not None) < 2 or not fits(ShapedArray((), out.dtype), "iufc"):
            return self.by_numpy
        *views, here = self._views(xs, out)
        group = GroupKernel(env, _sum_program([v.shape[env.lead :] for v in views], out.dtype, self.zero))
        call = group.call_into(views, here)
        if call is None:
            return self.by_numpy
        offsets = [(i, address(view) - address(xs[i])) for (i, _), view in zip(self.parts, views, strict=True)]
        start = address(here) - address(out)

        def write(xs: Sequence[Ndarray], out: Ndarray) -> None:
            call(*[address(xs[i]) + offset for i, offset in offsets], address(out) + start)

        return write

    def _views(self, xs: Sequence[Ndarray], out: Ndarray) -> list[Ndarray]:
        """The operands' parts that reach the cell, repeated on devices that share it, and the cell."""
        here = out[(..., *self.at)]
        return [*[np.broadcast_to(xs[i][(..., *part)], here.shape) for i, part in self.parts], here]


def _sum_program(shapes: Sequence[Shape], dtype: Any, zero: Ndarray | None) -> Program:
    """The sum of values of these shapes, and of `zero`, in order."""
    values = [Var(ShapedArray(shape, dtype)) for shape in shapes]
    total, *others = [*values, *([] if zero is None else [Literal(zero, ShapedArray((), dtype))])]
    equations = list[Equation]()
    for other in others:
        new_total = Var(values[0].aval)
        equations.append(Equation(add_p, (total, other), (new_total,)))
        total = new_total
    return Program(tuple(values), tuple(equations), (total,), 0, "padded_sum")


def _compile_sum(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Ndarray]:
    shape, lead = params["shape"], env.lead
    zero = np.zeros((), in_types[0].dtype)
    all_cells = cells(shape, tuple(t.shape for t in in_types), params["configs"])
    # Where an operand does not reach, zeros are added, so that no sum is -0.0.
    parts = [_Part(at, parts, zero if len(parts) < len(in_types) else None) for at, parts in all_cells]
    # Per strides of the operands: first the bytes that NumPy has written so far, later the functions that write each cell.
    writes = Bounded[tuple[tuple[Shape, Shape], ...], int | list[Write]](LAYOUTS)

    def find_writes(xs: Sequence[Ndarray], out: Ndarray) -> list[Write] | None:
        key = tuple([(x.shape, x.strides) for x in xs])
        choices = writes.get(key, 0)
        if isinstance(choices, int):
            if choices < costs.COPY_CODE_FROM or not available():
                writes[key] = choices + out.nbytes
                return None
            choices = writes[key] = [part.choose_write(env, xs, out) for part in parts]
        return choices

    def run(*xs: Ndarray) -> Ndarray:
        out = pool.empty((*np.broadcast_shapes(*[x.shape[:lead] for x in xs]), *shape), xs[0].dtype)
        for write in find_writes(xs, out) or [part.by_numpy for part in parts]:
            write(xs, out)
        return out

    return run


# Passes insert it in per-device programs. The operands are added in order, padded with zeros as `pad` does.
padded_sum_p = define_op(
    "padded_sum",
    type_rule=_type,
    kernel=lambda env, *xs, **params: _compile_sum(env, tuple(map(_type_of(env), xs)), (), params)(*xs),
    compile=_compile_sum,
    rule=lambda ins, outs, params: Rule(tuple(((),) * t.ndim for t in ins), (((),) * len(params["shape"]),), (), ()),
    makes_nan=True,
)


def _type_of(env: Env) -> Callable[[Any], ShapedArray]:
    return lambda x: ShapedArray(x.shape[env.lead :], x.dtype)
