"""`shardwise.experimental.layout`: the order of an array's dims in memory."""

from __future__ import annotations

from shardwise.base.listing import listing as _listing
from shardwise.ops.elementwise.layout_constraint import with_layout_constraint as with_layout_constraint
from shardwise.sharding.formats import Format as Format
from shardwise.sharding.formats import Layout as Layout

DeviceLocalLayout = Layout  # its name in JAX 0.5

__all__ = ["DeviceLocalLayout", "Format", "Layout", "with_layout_constraint"]

__dir__ = _listing(__name__)
