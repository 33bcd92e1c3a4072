"""A fused group without a compiler: its NumPy functions, one after the other on tiles that stay in cache, by several threads.

The stand-in for `GroupKernel` where nothing can be compiled. Loops are laid out as there; a tile is a part of them that all
functions see before the next one is begun. Values between functions live in buffers that each thread uses again for every tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Atom, Equation, Literal, Program, Var
from shardwise.runtime import costs
from shardwise.runtime.env import SINGLE
from shardwise.runtime.loops import MemoryLoops, Met, Specialization, SpecializedKernel
from shardwise.runtime.machine import helpers, thread_count
from shardwise.runtime.plan import kernel_of
from shardwise.runtime.strided import strided_view

Place = tuple[slice | int, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """One function: how it is called, and whether it takes `out`."""

    call: Callable[..., Any]
    inputs: tuple[int | Ndarray, ...]  # slots, or constants
    output: int
    dtype: Any
    takes_out: bool
    dead: tuple[int, ...]  # slots whose buffers are free afterwards


class TiledKernel(SpecializedKernel):
    """A group of elementwise equations, callable on blocks. `met` says how loops meet these; `plain` computes small ones."""

    def __init__(
        self, program: Program, met: Callable[[Sequence[Ndarray]], Met | None], plain: Callable[..., Any]
    ) -> None:
        super().__init__(self._specialize, plain, scalars=True)
        self._program = program
        self._met = met
        self._steps, self._outputs = _steps(program)

    def _work(self, tiles: Iterator[Place], views: Sequence[Ndarray]) -> None:
        count = len(self._program.inputs)
        free: dict[Any, list[Ndarray]] = {}
        with np.errstate(all="ignore"):
            for tile in tiles:
                parts = [_cut(v, tile) for v in views]
                self._compute(parts[:count], parts[count:], free)

    def _compute(self, operands: list[Ndarray], targets: list[Ndarray], free: dict[Any, list[Ndarray]]) -> None:
        """One tile."""
        values: list[Any] = [*operands, *[None] * len(self._steps)]
        wanted = {slot: target for slot, target in zip(self._outputs, targets, strict=True)}
        borrowed: dict[int, Ndarray] = {}
        for step in self._steps:
            given = [values[i] if isinstance(i, int) else i for i in step.inputs]
            target = wanted.get(step.output)
            if step.takes_out:
                if target is None:
                    shape = given[0].shape
                    if len(given) > 1 and any(x.shape != shape for x in given):
                        shape = np.broadcast_shapes(*[x.shape for x in given])
                    kept = free.setdefault((step.dtype, shape), [])
                    target = borrowed[step.output] = kept.pop() if kept else np.empty(shape, step.dtype)
                values[step.output] = step.call(*given, out=target)
            else:
                out = values[step.output] = step.call(*given)
                if target is not None:
                    target[...] = out
            for slot in step.dead:
                buffer = borrowed.pop(slot, None)
                if buffer is not None:
                    free[buffer.dtype, buffer.shape].append(buffer)
                values[slot] = None
        for slot, target in zip(self._outputs, targets, strict=True):
            if values[slot] is not target and (slot < len(operands) or wanted[slot] is not target):
                target[...] = values[slot]

    def _specialize(self, blocks: Sequence[Ndarray]) -> Specialization | None:
        """The loops and tiles for blocks like these; None where the functions are as fast on the whole."""
        met = self._met(blocks)
        if met is None or math.prod(met.full) < 2 * costs.TILED_ELEMENTS:
            return None
        nest, count = MemoryLoops.of(met), len(met.numbers)
        operands = dict(zip(met.numbers, nest.strides, strict=False))
        extents = tuple(nest.extents)
        strides = [tuple(own) for own in [*(operands[i] for i in range(count)), *nest.strides[count:]]]
        threads = thread_count() if math.prod(met.full) >= costs.TILED_SHARED else 1
        tiles = tuple(_tiles(extents))

        def run(blocks: Sequence[Ndarray], results: Sequence[Ndarray]) -> None:
            views = [_view(x, extents, own) for x, own in zip((*blocks, *results), strides, strict=True)]
            left = iter(tiles)  # each thread takes the next one
            helpers.run(lambda: self._work(left, views), threads)

        return Specialization(met.results, run)


def _tiles(extents: Sequence[int]) -> Iterator[Place]:
    """Parts of loops with about as many elements as a tile has: single steps of outer loops, a slice of one, inner ones whole."""
    at, inner = len(extents) - 1, 1
    while at and inner * extents[at] <= costs.TILED_ELEMENTS:
        inner *= extents[at]
        at -= 1
    step = max(1, costs.TILED_ELEMENTS // inner)
    for outer in np.ndindex(*extents[:at]):
        for i in range(0, extents[at], step):
            yield (*outer, slice(i, i + step), *[slice(None)] * (len(extents) - at - 1))


def _cut(x: Ndarray, tile: Place) -> Ndarray:
    """The part of a view in a tile; all of it along loops over which it does not vary."""
    if 1 not in x.shape:
        return x[tile]
    return x[
        tuple([t if n != 1 else 0 if isinstance(t, int) else slice(None) for t, n in zip(tile, x.shape, strict=True)])
    ]


def _view(x: Ndarray, extents: Shape, strides: Shape) -> Ndarray:
    """`x` seen along the loops, with extent 1 along those over which it does not vary."""
    return strided_view(x, tuple(n if s else 1 for n, s in zip(extents, strides, strict=True)), strides)


def _steps(program: Program) -> tuple[list[_Step], list[int]]:
    """The program with a number per value: inputs first, then each equation's result; and the numbers of its outputs."""
    slots: dict[Var, int] = {v: i for i, v in enumerate(program.inputs)}
    for i, eqn in enumerate(program.equations, len(program.inputs)):
        slots[eqn.outputs[0]] = i
    outputs = [slots[v] for v in program.outputs if isinstance(v, Var)]
    last: dict[int, int] = {}
    for i, eqn in enumerate(program.equations):
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                last[slots[atom]] = i
    steps = list[_Step]()
    for i, eqn in enumerate(program.equations):
        dead = [s for s, at in last.items() if at == i and s >= len(program.inputs) and s not in outputs]
        steps.append(_step(eqn, slots, tuple(dead)))
    return steps, outputs


def _step(eqn: Equation, slots: dict[Var, int], dead: tuple[int, ...]) -> _Step:
    dtype = eqn.outputs[0].aval.dtype
    call = eqn.op.ufunc_for([a.aval.dtype for a in eqn.inputs]) or kernel_of(eqn, SINGLE)

    def read(atom: Atom) -> int | Ndarray:
        return atom.value if isinstance(atom, Literal) else slots[atom]

    takes_out = isinstance(call, np.ufunc) and call.nout == 1
    return _Step(call, tuple(map(read, eqn.inputs)), slots[eqn.outputs[0]], dtype, takes_out, dead)
