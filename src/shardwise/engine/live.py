"""The arrays of this process that are alive, and the memory that they hold."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from shardwise.engine.array import ArrayImpl
from shardwise.runtime.memory import is_pooled, pool
from shardwise.sharding import device as _device


def live_arrays(platform: str | None = None) -> list[ArrayImpl]:
    """All live arrays of this process, of any sharding, except deleted and donated ones.

    `platform` may be None or 'cpu', the only platform; ValueError for any other.

    >>> x = jnp.arange(3)
    >>> any(x is y for y in jax.live_arrays())
    True
    """
    if platform not in (None, "cpu"):
        raise ValueError(f"live_arrays: platform {platform!r} is not present; use 'cpu' or leave it out.")
    return [x for x in gc.get_objects() if type(x) is ArrayImpl and hasattr(x, "_sig") and not x.is_deleted()]


def _memory_stats() -> dict[str, Any]:
    """The pool's counts, and the bytes of arrays that live in other memory, NumPy's say. All devices share one memory."""
    stats = pool.stats()
    roots: dict[int, np.ndarray[Any, Any]] = {}
    for x in live_arrays():
        for buffer in (x._dense, x._block):
            if isinstance(buffer, np.ndarray) and not is_pooled(buffer):
                root = buffer
                while isinstance(root.base, np.ndarray):
                    root = root.base
                roots[id(root)] = root
    stats["bytes_in_use"] += sum(root.nbytes for root in roots.values())
    stats["peak_bytes_in_use"] = max(stats["peak_bytes_in_use"], stats["bytes_in_use"])
    return stats


_device.install_kept(arrays=live_arrays)
_device.memory_stats_source = lambda _: _memory_stats()
