"""Which axis names collectives may use at this point of a program, and how their types are to be taken."""

from __future__ import annotations

from shardwise.base.config import Setting

AxisEnv = tuple[tuple[str, int], ...]

# Axes bound by the enclosing shard_map, pmap and vmap, with sizes.
AXIS_ENV: Setting[AxisEnv] = Setting("axis_env", ())

# Whether the types of the enclosing shard_map say truly where values are the same (check_vma).
CHECK_VMA: Setting[bool] = Setting("check_vma", True)

# Whether derivatives that a body takes are those of each device by itself, as in the seed era's shard_map.
LOCAL_DERIVATIVES: Setting[bool] = Setting("local_derivatives", False)

# Whether a body that runs at once prints each value once, not once per device that has it: eager shard_map today.
PRINTS_ONCE: Setting[bool] = Setting("prints_once", False)

# Axes among them that are dims of a vmap: no value is typed as varying over them.
MAPPED_AXES: Setting[frozenset[str]] = Setting("mapped_axes", frozenset())

# Mesh axes over which the dim of the vmap whose rule is running is to be split (spmd_axis_name).
SPMD_AXES: Setting[tuple[str, ...]] = Setting("spmd_axes", (), traced=False)


def is_checked(axis: str) -> bool:
    """Whether a value that is not typed as varying over this axis is known to be the same along it."""
    return axis not in MAPPED_AXES.get() and CHECK_VMA.get()
