"""Elementwise functions of dense rows of floats in machine code, for any number of elements: where NumPy takes many calls,
and so that a function has the same rounding errors whether it is called alone, fused or part of a small program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ndarray
from shardwise.runtime.loops import Function, WorkLoop, lanes_of
from shardwise.runtime.machine import Lane, thread_count

_CHUNK = 1 << 12  # elements that a thread takes at a time
_THREADS_FROM = 1 << 15  # from which a second thread pays


def compute(write: Callable[..., Lane], out: Ndarray, rows: Sequence[Ndarray], scalars: Sequence[Ndarray] = ()) -> None:
    """``out[i] = write(lanes, *[row[i] for row in rows], *scalars)``: dense 1-dimensional blocks of one float type.

    Loops are kept by `write`, a function of a module. `scalars` have one element each.
    """
    if not out.size:
        return
    threads = thread_count() if out.size >= _THREADS_FROM else 1
    loop = _loop(write, name_of(out.dtype), len(rows), len(scalars))
    # Ufuncs of 0-d blocks give NumPy's scalars, which have no address of their own.
    ones = [np.asarray(s) for s in scalars]
    loop(-(-out.size // _CHUNK), (out.size, _CHUNK), (out, *rows, *ones), threads)


@recent(16)
def _loop(write: Callable[..., Lane], dtype: str, rows: int, scalars: int) -> WorkLoop:
    """Unit: a run of elements."""
    inputs, ones = [f"row{i}" for i in range(rows)], [f"scalar{i}" for i in range(scalars)]

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        count = w.least("%chunk", w.integer("sub", "%size", begin))
        target, *sources = [w.element(f"%{name}", begin, dtype) for name in ("out", *inputs)]
        same = [w.scalar(f"%{name}", dtype) for name in ones]

        def step(i: str, mask: str | None) -> None:
            values = [w.load(w.element(place, i, dtype), dtype, mask) for place in sources]
            w.store(write(w, *values, *same), w.element(target, i, dtype), mask)

        w.parts(count, step)

    return WorkLoop(("size", "chunk"), ("out", *inputs, *ones), lanes_of(dtype), body)
