"""`shardwise.experimental.shard`: where the switches between automatic and explicit mode began; they behave as in JAX 0.5."""

from typing import Any as _Any

from shardwise.base.config import BEFORE as _BEFORE
from shardwise.transforms.manual import explicit as _explicit

__all__ = ["auto_axes", "explicit_axes", "reshard"]


def reshard(xs: _Any, out_shardings: _Any) -> _Any:
    """`xs` with each leaf's explicit sharding changed, also to the devices of another mesh with the same axes."""
    return _explicit.reshard_as(_BEFORE, xs, out_shardings)


def auto_axes(f: _Any = None, /, **options: _Any) -> _Any:
    """`f` with mesh axes automatic inside; see `shardwise.sharding.auto_axes`. `out_shardings` is another word for `out_sharding`."""
    return _explicit.auto_axes_as(_BEFORE, f, **options)


def explicit_axes(f: _Any = None, /, **options: _Any) -> _Any:
    """`f` with mesh axes explicit inside; see `shardwise.sharding.explicit_axes`. `in_shardings` is another word for `in_sharding`."""
    return _explicit.explicit_axes_as(_BEFORE, f, **options)
