"""The memory of a conditional is that of the branch that needs most, whichever has more traffic."""

from __future__ import annotations

import pytest

import shardwise as jax
from shardwise import lax
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.target import CPU_XLA, GPU, HERE, TPU
from tests.planner.device_programs import array, device_program

N = 512
NBYTES = 4 * N * N
X, P = array(N, N), array(dtype="bool")


def long(x):
    """Traffic, and no temporary of the size of `x` that lives beside another."""
    return lax.fori_loop(0, 1000, lambda i, c: lax.sort(c), x)


def wide(x):
    """Six values that are there at once where the order is the program's, and three in any order."""
    sorted_rows = [lax.sort(lax.mul(x, float(i)), dimension=1) for i in range(6)]
    total = sorted_rows[0]
    for row in sorted_rows[1:]:
        total = lax.dot(total, row)
    return total


def here(f):
    types = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in (P, X)]
    return jax.jit(f).lower(*types).compile().memory_analysis().peak_memory_in_bytes  # type: ignore[attr-defined]


def there(target):
    def peak(f):
        program = device_program(lambda *operands: [f(*operands)], P, X)
        memory = memory_of(program, groups(program, target), target)
        assert sum(b.nbytes * b.count for b in memory.buffers) == memory.peak
        return memory.peak

    return peak


PEAKS = {HERE.name: here, **{t.name: there(t) for t in (TPU, GPU, CPU_XLA)}}


@pytest.mark.parametrize("where", PEAKS)
def test_the_branch_that_needs_most_memory_counts(where):
    peak = PEAKS[where]
    alone = peak(lambda p, x: wide(x))
    assert alone >= 4 * NBYTES
    for branches in ((wide, long), (long, wide)):
        assert alone <= peak(lambda p, x, b=branches: lax.cond(p, *b, x)) <= alone + 2 * NBYTES
