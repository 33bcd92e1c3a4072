"""Where arrays lie, told to a callback or drawn: at once for concrete arrays, while compiling for traced ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from shardwise.base.tree import tree_leaves
from shardwise.debug.visualize import check_drawable, visualize_sharding
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, bind
from shardwise.ops.control.inspection import inspect_sharding
from shardwise.ops.rules.convert import as_array
from shardwise.sharding import Sharding


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Call ``callback(sharding)`` for each array of the tree `value`.

    For a concrete array (or a NumPy array or scalar, as it would be placed) at once; for a traced one when the program is
    compiled, with the sharding that it chose, and not again on later calls.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> x = jax.device_put(jnp.arange(4), jax.NamedSharding(mesh, jax.P("x")))
    >>> jax.debug.inspect_array_sharding(x, callback=lambda sharding: print(sharding.spec))
    PartitionSpec('x',)
    """
    for leaf in tree_leaves(value):
        array = _concrete(as_array(leaf))
        if isinstance(array, ArrayImpl):
            callback(array.sharding)
        else:
            bind(inspect_sharding, array, callback=callback)


def _concrete(array: Array) -> Array:
    """The array beneath the tracers of derivatives, which hold one."""
    while hasattr(type(array), "primal"):
        array = cast(Any, array).primal
    return array


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Draw how `arr`, of rank 1 or 2, lies over devices: a traced array when its program is compiled.

    `kwargs` are those of `visualize_sharding`. ValueError for other ranks.

    >>> jax.debug.visualize_array_sharding(jnp.arange(4))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    array = as_array(arr)
    shape = tuple(array.shape)
    check_drawable(shape)
    inspect_array_sharding(array, callback=lambda sharding: visualize_sharding(shape, sharding, **kwargs))
