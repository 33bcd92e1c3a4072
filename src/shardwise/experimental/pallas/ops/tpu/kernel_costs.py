"""The work of attention kernels on a TPU, in blocks of queries and of keys.

In: sizes, blocks, and how much of the products is computed. Out: `Kernel`s, which plans read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, Kernel

_LANES = 128
_APART, _TOGETHER = 7, 5  # products of a backward pass as two kernels, which both make the weights, and as one


@dataclass(frozen=True)
class Blocks:
    """Rows of queries and of keys in a block."""

    queries: int
    keys: int


def forward_kernel(name: str, q: Array, k: Array, v: Array, blocks: Blocks, part: float) -> Kernel:
    """The kernel that makes means from q f[B, T, N, H], k f[B, S, K, H] and v f[B, S, K, V], and their log-sum-exp."""
    written_bytes = q.size // q.shape[3] * (v.shape[3] * q.dtype.itemsize + 4)
    return _kernel(name, q, k, v, (blocks,), part, written_bytes)


def backward_kernel(name: str, q: Array, k: Array, v: Array, blocks: Sequence[Blocks], part: float) -> Kernel:
    """The kernels that make the derivatives, counted as one: with blocks for each."""
    again = 1.0 if len(blocks) == 1 else _APART / _TOGETHER
    return _kernel(name, q, k, v, blocks, part * again, q.nbytes + k.nbytes + v.nbytes)


def _kernel(name: str, q: Array, k: Array, v: Array, blocks: Sequence[Blocks], part: float, written: int) -> Kernel:
    batch, steps, heads, size = q.shape
    keys, wide = k.shape[1], v.shape[3]
    whole = q.nbytes + k.nbytes + v.nbytes + written
    count, moved_bytes, held_bytes = 0, q.nbytes + written, 0
    for b in blocks:
        step_count = max(1, round(part * math.ceil(steps / b.queries) * math.ceil(keys / b.keys))) * batch * heads
        count += step_count
        block = min(b.keys, keys) * (size + wide) * k.dtype.itemsize
        moved_bytes += step_count * block
        held_bytes = max(
            held_bytes, 2 * (block + b.queries * size * q.dtype.itemsize) + 4 * b.queries * (wide + 2 * _LANES)
        )
    return Kernel(name, (count,), again=moved_bytes / max(whole, 1), held=held_bytes, part=part, written=written)
