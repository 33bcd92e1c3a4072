"""The ops: each one its type rule, sharding rule, kernel and derivatives in one place.

As `jax.ops` it also gives the reductions by segment.
"""

import importlib as _importlib
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    if name in ("segment_max", "segment_min", "segment_prod", "segment_sum"):
        return getattr(_importlib.import_module("shardwise.ops.reductions.segments"), name)
    raise AttributeError(f"module 'shardwise.ops' has no attribute {name!r}")
