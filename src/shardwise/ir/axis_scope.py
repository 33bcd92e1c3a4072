"""The axis names that collectives may use at this point of a program, and the meaning of their types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwise.base import config
from shardwise.base.config import Setting
from shardwise.base.dialect import Types

if TYPE_CHECKING:
    from shardwise.ir.types import ShapedArray

AxisEnv = tuple[tuple[str, int], ...]

# Axes bound by the enclosing shard_map, pmap and vmap, with sizes.
AXIS_ENV: Setting[AxisEnv] = Setting("axis_env", ())

# Whether the enclosing shard_map checks types (check_vma): a value not typed as varying is the same on all devices.
CHECK_VMA: Setting[bool] = Setting("check_vma", True)

# The dialect whose rules hold in the body of the enclosing shard_map; None: the current one.
ERA: Setting[str | None] = Setting("era", None)

# Whether derivatives taken in a body are per device, as in the seed era's shard_map.
LOCAL_DERIVATIVES: Setting[bool] = Setting("local_derivatives", False)

# Whether a body that runs eagerly prints each value once instead of once per device, as eager shard_map does today.
PRINTS_ONCE: Setting[bool] = Setting("prints_once", False)

# The axes of these that are dims of a vmap: no value is typed as varying over them.
MAPPED_AXES: Setting[frozenset[str]] = Setting("mapped_axes", frozenset())

# Mesh axes over which the dim of the vmap whose rule is running is to be split (spmd_axis_name).
SPMD_AXES: Setting[tuple[str, ...]] = Setting("spmd_axes", (), traced=False)


def types_table() -> Types:
    """The rules for the types of values at this point of a program."""
    return config.dialect_of(ERA.get()).types


def checks_variance() -> bool:
    """Whether carries, branches and operands must agree in the axes over which they vary."""
    return CHECK_VMA.get() and types_table().vma_checked


def is_checked(axis: str) -> bool:
    """Whether a value that is not typed as varying over this axis is known to be the same along it."""
    return axis not in MAPPED_AXES.get() and CHECK_VMA.get()


def visible_type(aval: ShapedArray) -> ShapedArray:
    """The type as programs see it: where types are not checked, they do not say over which axes values vary."""
    return aval if CHECK_VMA.get() or not aval.vma else aval.update(vma=frozenset())
