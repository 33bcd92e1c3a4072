"""Looking at layouts from inside a program: `inspect_sharding` tells, while compiling, how a value will lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.ir import Equation, ShapedArray, bind, define_op
from shardwise.ops.control.regions import no_rule
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
    """The layout of a value as a sharding over the mesh in context, or else over the first of the computation."""
    if len(grid.devices) == 1:
        return SingleDeviceSharding(grid.devices[0])
    context = get_concrete_mesh()
    if not context.empty and tuple(context.devices.flat) == grid.devices:
        mesh = context
    else:
        names, sizes = grid.mesh
        types = aval.mesh.axis_types if aval.mesh is not None and aval.mesh.axis_names == names else None
        mesh = Mesh(np.array(grid.devices, dtype=object).reshape(sizes), names, axis_types=types)
    return sharding_like(NamedSharding(mesh, PartitionSpec()), Tiling(grid.sizes, grid.names, grid.positions(dims)))


def _partition(region: Any, eqn: Equation) -> None:
    """Nothing is left of it at run time."""
    (operand,) = eqn.inputs
    _, dims = region.read(operand)
    eqn.params["callback"](_sharding_on(region.grid, dims or ((),) * operand.aval.ndim, operand.aval))


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, callback: Callable[[Sharding], Any]) -> tuple[Any, Any]:
    bind(inspect_sharding, primals[0], callback=callback)
    return [], []


def _batch(size: int, axis_name: Any, values: Sequence[Any], dims: Any, params: Any) -> tuple[list[Any], list[Any]]:
    """The whole array is looked at, mapped dims included."""
    bind(inspect_sharding, *values, **params)
    return [], []


inspect_sharding = define_op(
    "inspect_sharding",
    type_rule=lambda x, callback: (),
    multiple_results=True,
    typed=True,
    rule=no_rule,
    effects=True,
    partition=_partition,
    jvp=_jvp,
    batch=_batch,
)
