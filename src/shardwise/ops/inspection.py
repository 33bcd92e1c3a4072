"""Looking at layouts from inside a program: `inspect_sharding` reports, while compiling, how a value will lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import Equation, ShapedArray, bind, define_op
from shardwise.ops.collective import _same_dims
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding


def _type(x: ShapedArray, *, callback: Any) -> tuple[()]:
    return ()


def _partition(region: Any, eqn: Equation) -> None:
    (operand,) = eqn.inputs
    _, dims = region.read(operand)
    eqn.params["callback"](_sharding(region.grid, dims))


def _sharding(grid: Any, dims: tuple[tuple[str, ...], ...]) -> Sharding:
    """The layout over the program's device grid, in the mesh that has its axes."""
    if not grid.names:
        return SingleDeviceSharding(grid.devices[0])
    mesh = Mesh(np.array(grid.devices, dtype=object).reshape(grid.sizes), grid.names)
    entries = [None if not axes else axes[0] if len(axes) == 1 else axes for axes in dims]
    while entries and entries[-1] is None:
        entries.pop()
    return NamedSharding(mesh, PartitionSpec(*entries))


def _batch(size: int, axis_name: Any, values: Any, dims: Any, params: Any) -> tuple[list[Any], list[Any]]:
    bind(inspect_sharding, *values, **params)
    return [], []


def _rule(in_types: Any, out_types: Any, params: Any) -> Any:
    rule = _same_dims(in_types, in_types, params)
    return type(rule)(rule.inputs, (), rule.sizes, rule.kinds)


inspect_sharding = define_op("inspect_sharding", type_rule=_type, rule=_rule, multiple_results=True, typed=True, effects=True,
                             partition=_partition, batch=_batch)  # fmt: skip
