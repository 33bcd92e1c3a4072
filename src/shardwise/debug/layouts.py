"""Where a value lies, told or drawn: at once for concrete arrays, while compiling for traced ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.array import ArrayImpl
from shardwise.base.tree import tree_leaves
from shardwise.debugging.visualize import visualize_sharding
from shardwise.ir import bind
from shardwise.ops.convert import as_array
from shardwise.ops.inspection import inspect_sharding
from shardwise.sharding import Sharding


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Call `callback` with the sharding of each array in the tree `value`.

    Concrete arrays (NumPy and Python values too) are reported at once. Inside `jit` the call comes once, while the
    function is compiled, with the sharding that propagation chose; never on cache hits.
    """
    for leaf in tree_leaves(value):
        x = as_array(leaf)
        if isinstance(x, ArrayImpl):
            callback(x.sharding)
        else:
            bind(inspect_sharding, x, callback=callback)


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Draw how an array lies over its devices; see `visualize_sharding` for the keywords. Works inside `jit`."""
    x = as_array(arr)
    inspect_array_sharding(x, callback=lambda sharding: visualize_sharding(x.shape, sharding, **kwargs))
