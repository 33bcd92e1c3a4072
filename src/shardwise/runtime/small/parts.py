"""Small programs of many devices in parts, which threads share: where devices compute apart from each other, a part holds some of them.

Comes in: a program and the leading extents of its blocks. Goes out: along which leading dim it is cut, and into how many parts
(`parts_of`), and a call that computes them (`InParts`). Both follow from shapes alone, so that results do not depend on threads.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray, Shape
from shardwise.ir import Equation, Loop, Program, region_of, subprograms
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine import run_in_parts, thread_count
from shardwise.runtime.small.cost import small_cost
from shardwise.runtime.small.leads import axes_reduced, out_leads

CHECK = ctypes.PYFUNCTYPE(ctypes.c_int)


@dataclass(frozen=True, slots=True)
class Parts:
    """A leading dim and the number of its parts."""

    dim: int
    count: int

    def leads(self, leads: Sequence[Shape]) -> list[Shape]:
        """The leading extents of blocks in a part."""
        d, n = self.dim, self.count
        return [s if s[d] == 1 else (*s[:d], s[d] // n, *s[d + 1 :]) for s in leads]


def parts_of(program: Program, leads: Sequence[Shape], env: Env) -> Parts | None:
    """How the program is cut; None where it is too short, or where devices along the first dim know of each other."""
    whole = np.broadcast_shapes((1,) * env.lead, *leads)
    dim = next((d for d, n in enumerate(whole) if n > 1), None)
    if dim is None:
        return None
    most = min(int(small_cost(program, env.spread) / costs.SMALL_PART), costs.SMALL_PARTS)
    count = max((n for n in range(1, most + 1) if whole[dim] % n == 0), default=1)
    if count == 1 or not _apart(program, env.axis_names[dim]):
        return None
    # Each part of a result lies in one piece.
    together = all(n == 1 for lead in out_leads(program, leads, env) for n in lead[:dim])
    return Parts(dim, count) if together else None


def _apart(program: Program, axis: str) -> bool:
    """Whether each device along an axis computes what it computes without the others and without its place. Loops without a known
    length are left alone: only the thread that has called can be interrupted at once.
    """
    return all(_equation_apart(e, axis) for e in program.equations)


def _equation_apart(eqn: Equation, axis: str) -> bool:
    if eqn.op.collective is not None and not eqn.op.hands_on and "axes" not in eqn.params:
        return False
    if axis in axes_reduced(eqn):
        return False
    region = region_of(eqn)
    if isinstance(region, Loop) and region.length is None:
        return False
    return not _names(eqn.params, axis) and all(_apart(inner, axis) for _, inner in subprograms(eqn.params))


def _names(param: Any, axis: str) -> bool:
    """Whether params name the axis, as those of ops do that talk to devices along it, or whose local form depends on the place there."""
    inner: list[Any] = []
    if isinstance(param, dict):
        inner = [*param.values()]
    elif isinstance(param, (tuple, list, set, frozenset)):
        inner = [*param]
    if any(_names(p, axis) for p in inner):
        return True
    return isinstance(param, str) and param == axis


class InParts:
    """Calls `run(*blocks, tools=..., r0=..., ...)`, which writes results into memory that it gets, for each part.

    `makes`: per result the function that makes its memory, its shape and dtype.
    """

    __slots__ = ("_makes", "_parts", "_run", "_table")

    def __init__(
        self,
        parts: Parts,
        run: Callable[..., object],
        makes: Sequence[tuple[Callable[..., Ndarray], Shape, Any]],
        tools: Sequence[int | None],
    ) -> None:
        self._parts, self._run, self._makes, self._table = parts, run, makes, tools

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        d, n = self._parts.dim, self._parts.count
        results = [make(shape, dtype) for make, shape, dtype in self._makes]
        caller, stopped = threading.get_ident(), False
        look = CHECK(lambda: stopped)
        own, others = table(self._table), table((*self._table[:2], ctypes.cast(look, ctypes.c_void_p).value))

        def compute(part: slice) -> None:
            nonlocal stopped
            i = part.start
            try:
                self._run(
                    *[_part(b, d, i, n) for b in blocks],
                    tools=ctypes.addressof(own if threading.get_ident() == caller else others),
                    **{
                        f"r{j}": _part(r, d, i, n) if r.shape[d] > 1 or not i else np.empty_like(r)
                        for j, r in enumerate(results)
                    },
                )
            except BaseException:  # a signal's handler raised: the others need not go on
                stopped = True
                raise

        run_in_parts(compute, n, 1, thread_count())
        return tuple(results)


def table(functions: Sequence[int | None]) -> Any:
    """The functions that a small program gets as `tools`."""
    return (ctypes.c_void_p * len(functions))(*functions)


def _part(block: Ndarray, d: int, i: int, n: int) -> Ndarray:
    """Part `i` of `n` along dim `d`; all of a block that is the same along it."""
    size = block.shape[d] // n
    return block[(slice(None),) * d + (slice(i * size, (i + 1) * size),)] if block.shape[d] > 1 else block
