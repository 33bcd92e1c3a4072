"""Loops of generalized ufuncs in small programs: transforms and decompositions by the functions that the ops' kernels call.

Comes in: operands and results as `Value`s, of which the last dims are the loop's own. The dims before them are gone through: one by the
ufunc's loop itself, the others around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.runtime.machine import call_loop
from shardwise.runtime.small.code import Code, Unwritable, Value


def by_gufunc(
    code: Code, ufunc: str, types: str, sizes: Sequence[int], values: Sequence[Value], ranks: Sequence[int]
) -> None:
    """Call a gufunc's loop for operands and then results, all in memory, of which each has its last `ranks` dims for the loop; `sizes`
    are those of these dims, each once, in the order of the ufunc's signature. A value without other dims is the same for all. Unwritable
    if NumPy has no such loop.
    """
    loops = max((v.shape[: len(v.shape) - rank] for v, rank in zip(values, ranks, strict=True)), key=math.prod)
    inner = max(range(len(loops)), key=lambda d: loops[d], default=None)
    steps = [_outer_steps(v, rank, len(loops)) for v, rank in zip(values, ranks, strict=True)]
    around = [d for d in range(len(loops)) if d != inner]
    own = [s for v, rank in zip(values, ranks, strict=True) for s in v.steps[len(v.shape) - rank :]]
    count = 1 if inner is None else loops[inner]
    numbers = [*(0 if inner is None else s[inner] for s in steps), *own]
    table = code.buffer((len(values),), "int64").place

    def one(places: list[str]) -> None:
        try:
            call_loop(code, ufunc, types, places, [count, *sizes], numbers, table)
        except OSError as error:  # other versions of NumPy have others
            raise Unwritable(str(error)) from None

    code.nest([loops[d] for d in around], [v.place for v in values], [tuple(s[d] for d in around) for s in steps], one)


def _outer_steps(value: Value, rank: int, count: int) -> tuple[int, ...]:
    """The bytes between neighbours along the dims before a value's last ones; 0 where it is the same."""
    outer = len(value.shape) - rank
    if not outer:
        return (0,) * count
    return tuple(0 if n == 1 else s for n, s in zip(value.shape[:outer], value.steps[:outer], strict=True))
