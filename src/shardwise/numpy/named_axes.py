"""Axes of reductions that are names, of `vmap`, `shard_map` or `pmap`, beside those that are positions.

In: an `axis` argument. Out: positions and names; a reduction runs over the positions first, then over the names.
"""

from __future__ import annotations

from typing import Any

from shardwise.numpy._promote import Axis

MAY_NAME = (str, tuple, list)  # other axes are positions
_NONE: tuple[str, ...] = ()


def split_names(axis: Any) -> tuple[Axis, tuple[str, ...]]:
    """The positions and the names in `axis`."""
    if isinstance(axis, str):
        return (), (axis,)
    if isinstance(axis, tuple | list):
        names = tuple(a for a in axis if isinstance(a, str))
        if names:
            return tuple(a for a in axis if not isinstance(a, str)), names
    return axis, _NONE


def refuse_names(name: str, axis: Any) -> None:
    """NotImplementedError if `axis` holds names, for reductions that no collective does."""
    if isinstance(axis, MAY_NAME) and split_names(axis)[1]:
        raise NotImplementedError(
            f"Named reductions not implemented for jnp.{name}(); gather along {axis!r} with lax.all_gather."
        )
