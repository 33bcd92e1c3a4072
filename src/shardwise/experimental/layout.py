"""`shardwise.experimental.layout`: the order of an array's dims in memory."""

from __future__ import annotations

from typing import Any

from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_unflatten
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.sharding.formats import Format as Format
from shardwise.sharding.formats import Layout as Layout

__all__ = ["Format", "Layout", "with_layout_constraint"]


def with_layout_constraint(x: Any, layouts: Any) -> Any:
    """The tree `x`, after a check that `layouts` (one, or a prefix tree) fit it.

    An array's memory order is not part of its value and is not changed.

    Raises:
        ValueError: the layout orders another number of dims than `x` has.
    """
    leaves, tree = tree_flatten(x)
    given = broadcast_prefix(layouts, x)
    return tree_unflatten(tree, [_checked(leaf, layout) for leaf, layout in zip(leaves, given, strict=True)])


def _checked(x: Any, layout: Layout) -> Any:
    value = as_array(as_value(x))
    if len(layout.major_to_minor) != value.ndim:
        raise ValueError(
            f"a layout of {len(layout.major_to_minor)} dims, {layout}, does not fit an array of {value.ndim} dims."
        )
    return value
