"""The law of kernels: loop dims are independent runs of the kernel without loop dims."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from shardwise.runtime.env import SINGLE, Env

# Loop extents of operand after operand; they mix, and broadcast against each other.
LEADS = {
    0: [[(), (), (), ()]],
    1: [[(1,), (1,), (1,), (1,)], [(2,), (1,), (2,), (1,)], [(1,), (2,), (1,), (2,)], [(2,), (2,), (2,), (2,)]],
    2: [[(2, 1), (1, 3), (1, 1), (2, 3)], [(1, 3), (2, 3), (2, 1), (1, 1)], [(2, 3), (1, 1), (1, 3), (2, 1)]],
}
CASES = [(lead, mix) for lead, mixes in LEADS.items() for mix in mixes]


def env_of(lead: int) -> Env:
    """A grid of `lead` axes."""
    return Env(tuple("xyz"[:lead]), (2, 3, 2)[:lead])


def spread(value: np.ndarray, extents: tuple[int, ...], change: Any) -> np.ndarray:
    """A block whose loop index i holds `change(value, i)`."""
    out = np.empty((*extents, *value.shape), value.dtype)
    for k, at in enumerate(itertools.product(*map(range, extents))):
        out[at] = change(value, k)
    return out


def check_law(kernel: Any, blocks: list[np.ndarray], lead: int, **params: Any) -> None:
    """`kernel` on the blocks equals `kernel` on each loop index alone; operands stay as they were."""
    before = [b.copy() for b in blocks]
    for b in blocks:
        b.flags.writeable = False
    got = kernel(env_of(lead), *blocks, **params)
    gots = got if isinstance(got, tuple) else (got,)
    extents = np.broadcast_shapes(*(b.shape[:lead] for b in blocks))
    for at in itertools.product(*map(range, extents)):
        alone = [b[tuple(min(i, n - 1) for i, n in zip(at, b.shape[:lead], strict=True))] for b in blocks]
        want = kernel(SINGLE, *alone, **params)
        for g, w in zip(gots, want if isinstance(want, tuple) else (want,), strict=True):
            assert g.dtype == w.dtype and g.shape[:lead] == extents, (g.shape, extents)
            np.testing.assert_array_equal(g[at], w)
    for b, old in zip(blocks, before, strict=True):
        np.testing.assert_array_equal(b, old)
