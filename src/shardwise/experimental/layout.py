"""`shardwise.experimental.layout`: the order of an array's dims in memory."""

from __future__ import annotations

from typing import Any

from shardwise.ops.convert import as_array, as_value
from shardwise.transforms.formats import Format as Format
from shardwise.transforms.formats import Layout as Layout

__all__ = ["Format", "Layout", "with_layout_constraint"]


def with_layout_constraint(x: Any, layout: Layout) -> Any:
    """`x`, after a check that `layout` fits it. An array's memory order is not part of its value and stays what it is.

    Raises:
        ValueError: the layout orders another number of dims than `x` has.
    """
    value = as_array(as_value(x))
    if len(layout.major_to_minor) != value.ndim:
        raise ValueError(
            f"a layout of {len(layout.major_to_minor)} dims, {layout}, does not fit an array of {value.ndim} dims."
        )
    return value
