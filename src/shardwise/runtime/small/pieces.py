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
from shardwise.base.shapes import Axes, Ndarray, Shape
from shardwise.ir import Program, ShapedArray, define_op
from shardwise.ir.op import Types
from shardwise.runtime.env import Env
from shardwise.runtime.machine import run_in_parts, thread_count
from shardwise.runtime.memory import pool
from shardwise.runtime.plan import Plan
from shardwise.runtime.small.code import Unwritable
from shardwise.runtime.small.kernel import TOOLS, compile_program
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


Rows = tuple[int, int]
Cut = tuple[tuple[Any, ...] | None, Shape]  # an index into a block (None: memory of its own), and the shape of the part
Part = tuple[int, Sequence[Cut], Sequence[Cut]]  # its size, its reads, its writes


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """For operands with some leading extents the results' shapes and dtypes, and the parts."""

    results: Sequence[tuple[Shape, Any]]
    parts: Sequence[Part]


class _Kernel:
    """Callable on blocks."""

    def __init__(self, env: Env, pieces: Pieces, out_types: Types) -> None:
        self._env, self._pieces, self._types = env, pieces, out_types
        self._names = [f"r{j}" for j in range(len(out_types))]
        self._made: dict[int, Callable[..., object]] = {}
        self._layouts = Bounded[tuple[Shape, ...], _Layout](LAYOUTS)
        self._lock = free_lock()

    def _function(self, size: int) -> Callable[..., object]:
        with self._lock:
            if size not in self._made:
                program = self._pieces.programs[size]
                leads = [(1,) * self._env.lead] * len(program.inputs)
                try:
                    self._made[size] = compile_program(program, leads, self._env, in_parts=True).run
                except Unwritable:
                    self._made[size] = _by_kernels(program, self._env)
            return self._made[size]

    def _lay_out(self, leads: tuple[Shape, ...]) -> _Layout:
        found = self._layouts.get(leads)
        if found is None:
            lead, pieces = self._env.lead, self._pieces
            outs = out_leads(pieces.programs[pieces.sizes[0]], leads, self._env)
            whole = np.broadcast_shapes((1,) * lead, *leads)
            starts = list(itertools.accumulate(pieces.sizes, initial=0))
            parts = [
                self._part(place, rows, leads, outs)
                for place in itertools.product(*map(range, whole))
                for rows in itertools.pairwise(starts)
            ]
            results = [((*ext, *t.shape), physical(t.dtype)) for ext, t in zip(outs, self._types, strict=True)]
            found = self._layouts[leads] = _Layout(results, parts)
        return found

    def _part(self, place: Sequence[int], rows: Rows, leads: Sequence[Shape], outs: Sequence[Shape]) -> Part:
        """The part at a place of the leading dims, with these rows."""
        pieces, size = self._pieces, rows[1] - rows[0]
        program, ones = pieces.programs[size], (1,) * len(place)
        operands, results = list[Cut](), list[Cut]()
        for ext, d, v in zip(leads, pieces.operands, program.inputs, strict=True):
            operands.append((_index(ext, place, d, rows), (*ones, *v.aval.shape)))
        for ext, d, v in zip(outs, pieces.results, program.outputs, strict=True):
            # What is the same for several parts is written by the first.
            shared = any(n == 1 and i for n, i in zip(ext, place, strict=True)) or (d is None and rows[0] > 0)
            results.append((None if shared else _index(ext, place, d, rows), (*ones, *v.aval.shape)))
        return size, operands, results

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        lead = self._env.lead
        layout = self._lay_out(tuple([b.shape[:lead] for b in blocks]))
        results = [pool.empty(shape, dtype) for shape, dtype in layout.results]
        caller, stopped = threading.get_ident(), False
        look = CHECK(lambda: stopped)
        own, others = table([*TOOLS]), table((*TOOLS[:2], ctypes.cast(look, ctypes.c_void_p).value))

        def compute(numbers: slice) -> None:
            nonlocal stopped
            mine = own if threading.get_ident() == caller else others
            number: int = numbers.start
            size, reads, writes = layout.parts[number]
            try:
                memory = {
                    name: np.empty(shape, r.dtype) if index is None else r[index].reshape(shape)
                    for name, r, (index, shape) in zip(self._names, results, writes, strict=True)
                }
                given = [b[index].reshape(shape) for b, (index, shape) in zip(blocks, reads, strict=True)]
                self._function(size)(*given, tools=ctypes.addressof(mine), **memory)
            except BaseException:  # a signal's handler raised: the others need not go on
                stopped = True
                raise

        try:
            run_in_parts(compute, len(layout.parts), 1, thread_count())
        except BaseException:  # also while this thread waited for the others
            stopped = True
            raise
        return tuple(results)


class _JoinedKernel:
    """`_Kernel` with the parts of all devices along axes as one, which is a view where they follow each other in memory."""

    def __init__(self, env: Env, pieces: Pieces, out_types: Types, joined: Axes) -> None:
        size = sum(pieces.sizes)
        self._ones, self._size = (1,) * env.lead, size
        self._extents = tuple([env.size(a) if a in joined else 1 for a in env.axis_names])
        self._pieces, self._shapes = pieces, [t.shape for t in out_types]
        wide = [_resize_dim(t, d, size) for t, d in zip(out_types, pieces.results, strict=True)]
        self._run = _Kernel(env, pieces, tuple(wide))

    def _whole(self, block: Ndarray, d: int | None) -> Ndarray:
        if d is None:
            return block
        own = block.shape[len(self._ones) :]
        if block.shape[: len(self._ones)] != self._extents:
            block = np.broadcast_to(block, (*self._extents, *own))
        return block.reshape(*self._ones, *own[:d], self._size, *own[d + 1 :])

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        found = self._run(*map(self._whole, blocks, self._pieces.operands))
        return tuple(
            [
                r if d is None else r.reshape(*self._extents, *shape)
                for r, d, shape in zip(found, self._pieces.results, self._shapes, strict=True)
            ]
        )


def _resize_dim(aval: ShapedArray, d: int | None, size: int) -> ShapedArray:
    return aval if d is None else aval.update(shape=(*aval.shape[:d], size, *aval.shape[d + 1 :]))


def _by_kernels(program: Program, env: Env) -> Callable[..., object]:
    run = Plan(program, env).run

    def call_kernels(*blocks: Ndarray, tools: int, **memory: Ndarray) -> None:
        for into, value in zip(memory.values(), run(*blocks), strict=True):
            into[...] = value

    return call_kernels


def _index(extents: Shape, place: Sequence[int], dim: int | None, rows: Rows) -> tuple[Any, ...]:
    """Where the part of a block with these leading extents is, for a place of them and rows along `dim`."""
    index: list[Any] = [slice(i, i + 1) if n > 1 else slice(None) for n, i in zip(extents, place, strict=True)]
    if dim is not None:
        index += [slice(None)] * dim + [slice(*rows)]
    return (*index, ...)  # of a scalar, too, an array


def _type(*types: ShapedArray, program: Program, pieces: Pieces, joined: Axes) -> tuple[ShapedArray, ...]:
    return program.out_types


def _compile(env: Env, in_types: Types, out_types: Types, params: Any) -> Callable[..., tuple[Ndarray, ...]]:
    if params["joined"]:
        return _JoinedKernel(env, params["pieces"], out_types, params["joined"])
    return _Kernel(env, params["pieces"], out_types)


in_pieces = define_op("in_pieces", type_rule=_type, compile=_compile, multiple_results=True)
