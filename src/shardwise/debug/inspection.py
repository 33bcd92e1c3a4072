"""Which sharding an array has, or gets when a program is compiled: told to a callback, or drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.debug.visualize import check_drawable, visualize_sharding
from shardwise.ir import Array, Equation, ShapedArray, Tracer, bind, define_op
from shardwise.ops.convert import as_array
from shardwise.ops.regions import no_rule
from shardwise.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    Tiling,
    get_concrete_mesh,
)
from shardwise.sharding.derive import sharding_like


def _sharding_on(grid: Any, dims: Any, aval: ShapedArray) -> Sharding:
    """The layout of a value as a sharding over the computation's first mesh."""
    if len(grid.devices) == 1:
        return SingleDeviceSharding(grid.devices[0])
    context = get_concrete_mesh()
    if not context.empty and tuple(context.devices.flat) == grid.devices:
        mesh = context
    else:
        names, sizes = next(iter(grid.meshes), (grid.names, grid.sizes))
        types = aval.mesh.axis_types if aval.mesh is not None and aval.mesh.axis_names == names else None
        mesh = Mesh(np.array(grid.devices, dtype=object).reshape(sizes), names, axis_types=types)
    return sharding_like(NamedSharding(mesh, PartitionSpec()), Tiling(grid.sizes, grid.names, grid.positions(dims)))


def _partition(region: Any, eqn: Equation) -> None:
    """Nothing is left of it at run time."""
    (operand,) = eqn.inputs
    _, dims = region.read(operand)
    eqn.params["callback"](_sharding_on(region.grid, dims or ((),) * operand.aval.ndim, operand.aval))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, callback: Callable[[Sharding], Any]) -> tuple[Any, Any]:
    inspect_array_sharding(primals[0], callback=callback)
    return [], []


inspect_p = define_op(
    "inspect_sharding", type_rule=lambda x, callback: (), multiple_results=True, typed=True, rule=no_rule,
    partition=_partition, effects=True, jvp=_jvp,
    batch=lambda size, axis_name, values, dims, params: (bind(inspect_p, *values, **params), []),
)  # fmt: skip


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], Any]) -> None:
    """Call ``callback(sharding)`` with the sharding of `value`.

    For a concrete array (or a NumPy array or scalar, as it would be placed) at once; for a traced one when the program is
    compiled, with the sharding that it chose, and not again on later calls.
    """
    if isinstance(value, Tracer):
        bind(inspect_p, value, callback=callback)
    else:
        callback(as_array(value).sharding)  # type: ignore[attr-defined]


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Draw how `arr`, of rank 1 or 2, lies over devices: a traced array when its program is compiled.

    Keyword arguments are those of `visualize_sharding`. ValueError for other ranks.
    """
    array = arr if isinstance(arr, Array) else as_array(arr)
    shape = tuple(array.shape)
    check_drawable(shape)
    inspect_array_sharding(array, callback=lambda sharding: visualize_sharding(shape, sharding, **kwargs))
