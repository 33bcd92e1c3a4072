"""The ops: each one its type rule, sharding rule, kernel and derivatives in one place.

As `jax.ops` it also gives the reductions by segment.
"""

import importlib as _importlib
import typing as _typing

from shardwise.base.listing import package_listing as _listing

if _typing.TYPE_CHECKING:  # names that `__getattr__` imports
    from shardwise.ops.reductions.segments import segment_max as segment_max
    from shardwise.ops.reductions.segments import segment_min as segment_min
    from shardwise.ops.reductions.segments import segment_prod as segment_prod
    from shardwise.ops.reductions.segments import segment_sum as segment_sum

if not _typing.TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> _typing.Any:
        if name in ("segment_max", "segment_min", "segment_prod", "segment_sum"):
            return getattr(_importlib.import_module("shardwise.ops.reductions.segments"), name)
        raise AttributeError(f"module 'shardwise.ops' has no attribute {name!r}")


__dir__ = _listing(__name__, "segment_max", "segment_min", "segment_prod", "segment_sum")
