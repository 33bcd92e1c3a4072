"""Ops that only change where a value lies: sharding constraints (automatic axes) and reshard (explicit axes)."""

from __future__ import annotations

from typing import Any

from shardwise.ir import Equation, ShapedArray, define_op
from shardwise.ir.op import Params, Types
from shardwise.ops.collective import _same_dims
from shardwise.sharding import NamedSharding, PartitionSpec, Sharding

DimAxes = tuple[tuple[str, ...], ...]


def spec_axes(sharding: Sharding, ndim: int) -> tuple[DimAxes, tuple[bool, ...]]:
    """Per dim the mesh axes of a NamedSharding's spec, and whether the dim is left open (UNCONSTRAINED)."""
    dims: list[tuple[str, ...]] = []
    opened: list[bool] = []
    for entry in tuple(sharding.spec) if isinstance(sharding, NamedSharding) else ():
        free = entry is PartitionSpec.UNCONSTRAINED
        dims.append(() if entry is None or free else (entry,) if isinstance(entry, str) else tuple(entry))
        opened.append(free)
    missing = ndim - len(dims)
    return (*dims, *((),) * missing), (*opened, *(False,) * missing)


def _layout_on_grid(params: Params, grid: Any, in_types: Types, out_types: Types) -> Params:
    sharding: Sharding = params["sharding"]
    ndim = in_types[0].ndim
    if isinstance(sharding, NamedSharding):
        dims, opened = spec_axes(sharding, ndim)
        mesh = sharding.mesh
        return {**params, "dims": grid.rename(mesh.axis_names, mesh.axis_sizes, dims), "open": opened}
    tiling = sharding.tiling(ndim)
    dims = ((),) * ndim if tiling is None else grid.dims_of(tiling)
    return {**params, "dims": dims, "open": (False,) * ndim}


def _partition(region: Any, eqn: Equation) -> None:
    """Communication only: the operand moves to the layout that propagation gave the result."""
    (operand,), (out,) = eqn.inputs, eqn.outputs
    atom, have = region.read(operand)
    want = region.placements.get(out, ((),) * out.aval.ndim)
    region.define(out, region.reshard(atom, have, want, out.aval), want)


def _constraint_type(x: ShapedArray, *, sharding: Sharding, **on_grid: Any) -> ShapedArray:
    return x


sharding_constraint = define_op(
    "sharding_constraint", type_rule=_constraint_type, kernel=lambda env, x, **_: x, rule=_same_dims,
    to_grid=_layout_on_grid, partition=_partition, typed=True,
)  # fmt: skip


def _reshard_type(x: ShapedArray, *, sharding: NamedSharding, concrete: Sharding | None = None, **on_grid: Any) -> ShapedArray:
    dims, _ = spec_axes(sharding, x.ndim)
    explicit = set(sharding.mesh.explicit_axes)
    mesh = sharding.mesh if explicit else None
    spec = tuple(tuple(a for a in axes if a in explicit) for axes in dims)
    unreduced = frozenset(getattr(sharding.spec, "unreduced", ()) or ())
    reduced = frozenset(getattr(sharding.spec, "reduced", ()) or ())
    return ShapedArray(x.shape, x.dtype, x.weak_type, mesh=mesh, spec=spec, vma=x.vma, unreduced=unreduced, reduced=reduced)


reshard_op = define_op(
    "reshard", type_rule=_reshard_type, kernel=lambda env, x, **_: x, rule=_same_dims, to_grid=_layout_on_grid,
    partition=_partition, typed=True,
)  # fmt: skip
