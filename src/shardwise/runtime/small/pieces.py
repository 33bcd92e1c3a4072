"""The op 'in_pieces': a loop over large values whose elements along a dim do not meet, as a small program per piece of that dim.

Each piece goes through all rounds of the loop while it is in the cache, and threads share the pieces. `passes.loop_pieces` finds such
loops.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded
from shardwise.base.dtypes import physical
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import free_lock
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Program, ShapedArray, define_op
from shardwise.ir.op import Types
from shardwise.runtime.env import Env
from shardwise.runtime.machine import run_in_parts, thread_count
from shardwise.runtime.memory import pool
from shardwise.runtime.plan import Plan
from shardwise.runtime.small.code import Unwritable
from shardwise.runtime.small.kernel import TOOLS, compiled
from shardwise.runtime.small.leads import out_leads
from shardwise.runtime.small.parts import CHECK, table


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A loop in parts along a dim, which follow each other in memory.

    Attributes:
        sizes: of the parts along the dim, the first one's first.
        programs: by size that of a part, whose operands and results have dims of their own for the pieces that it goes through.
        operands, results: where each of the loop has the dim; None: it has none, and is the same for all parts.
    """

    sizes: tuple[int, ...]
    programs: Mapping[int, Program]
    operands: tuple[int | None, ...]
    results: tuple[int | None, ...]


class _Kernel:
    """Callable on blocks."""

    def __init__(self, env: Env, pieces: Pieces, out_types: Types) -> None:
        self._env, self._pieces, self._types = env, pieces, out_types
        self._starts = list(itertools.accumulate(pieces.sizes, initial=0))
        self._made: dict[int, Callable[..., object]] = {}
        self._layouts = Bounded[tuple[Shape, ...], tuple[list[tuple[Shape, Any]], list[Shape]]](LAYOUTS)
        self._lock = free_lock()

    def _function(self, size: int) -> Callable[..., object]:
        with self._lock:
            if size not in self._made:
                program = self._pieces.programs[size]
                leads = [(1,) * self._env.lead] * len(program.inputs)
                try:
                    self._made[size] = compiled(program, leads, self._env, in_parts=True).run
                except Unwritable:
                    self._made[size] = _by_kernels(program, self._env)
            return self._made[size]

    def _laid_out(self, leads: tuple[Shape, ...]) -> tuple[list[tuple[Shape, Any]], list[Shape]]:
        """The shapes and dtypes of the results for operands with these leading extents, and the places of all parts."""
        found = self._layouts.get(leads)
        if found is None:
            lead, pieces = self._env.lead, self._pieces
            outs = out_leads(pieces.programs[pieces.sizes[0]], leads, self._env)
            shapes = [((*ext, *t.shape), physical(t.dtype)) for ext, t in zip(outs, self._types, strict=True)]
            whole = np.broadcast_shapes((1,) * lead, *leads)
            places: list[Shape] = list(itertools.product(*map(range, (*whole, len(pieces.sizes)))))
            found = self._layouts[leads] = shapes, places
        return found

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        shapes, places = self._laid_out(tuple([b.shape[: self._env.lead] for b in blocks]))
        results = [pool.empty(shape, dtype) for shape, dtype in shapes]
        caller, stopped = threading.get_ident(), False
        look = CHECK(lambda: stopped)
        own, others = table([*TOOLS]), table((*TOOLS[:2], ctypes.cast(look, ctypes.c_void_p).value))

        def compute(numbers: slice) -> None:
            nonlocal stopped
            number: int = numbers.start
            mine = own if threading.get_ident() == caller else others
            try:
                self._compute(places[number], blocks, results, ctypes.addressof(mine))
            except BaseException:  # a signal's handler raised: the others need not go on
                stopped = True
                raise

        try:
            run_in_parts(compute, len(places), 1, thread_count())
        except BaseException:  # also while this thread waited for the others
            stopped = True
            raise
        return tuple(results)

    def _compute(self, place: Sequence[int], blocks: Sequence[Ndarray], results: Sequence[Ndarray], tools: int) -> None:
        """The part at a place: a number along each leading dim, and the part's own."""
        pieces, lead, k = self._pieces, self._env.lead, place[-1]
        size = pieces.sizes[k]
        program, rows = pieces.programs[size], slice(self._starts[k], self._starts[k] + size)
        given = [
            _part(b, place[:-1], d, rows).reshape((*(1,) * lead, *v.aval.shape))
            for b, d, v in zip(blocks, pieces.operands, program.inputs, strict=True)
        ]
        memory: dict[str, Ndarray] = {}
        for j, (r, d, v) in enumerate(zip(results, pieces.results, program.outputs, strict=True)):
            shape = (*(1,) * lead, *v.aval.shape)
            shared = any(n == 1 and i for n, i in zip(r.shape[:lead], place, strict=False)) or (d is None and k > 0)
            # What is the same for several parts is written by the first.
            memory[f"r{j}"] = np.empty(shape, r.dtype) if shared else _part(r, place[:-1], d, rows).reshape(shape)
        self._function(size)(*given, tools=tools, **memory)


def _by_kernels(program: Program, env: Env) -> Callable[..., object]:
    run = Plan(program, env).run

    def called(*blocks: Ndarray, tools: int, **memory: Ndarray) -> None:
        for into, value in zip(memory.values(), run(*blocks), strict=True):
            into[...] = value

    return called


def _part(block: Ndarray, place: Sequence[int], dim: int | None, rows: slice) -> Ndarray:
    """The part of a block at a place of its leading dims, with these rows along `dim`."""
    lead = len(place)
    index: list[Any] = [slice(i, i + 1) if n > 1 else slice(None) for n, i in zip(block.shape, place, strict=False)]
    index += [slice(None)] * (block.ndim - lead)
    if dim is not None:
        index[lead + dim] = rows
    return block[(*index, ...)]  # of a scalar, too, an array


def _type(*types: ShapedArray, program: Program, pieces: Pieces) -> tuple[ShapedArray, ...]:
    return program.out_types


def _compile(env: Env, in_types: Types, out_types: Types, params: Any) -> _Kernel:
    return _Kernel(env, params["pieces"], out_types)


in_pieces = define_op("in_pieces", type_rule=_type, compile=_compile, multiple_results=True)
