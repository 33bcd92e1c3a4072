"""Ops that only change a value's layout: sharding constraints (Auto axes) and reshard (Explicit axes)."""

from __future__ import annotations

import math
from typing import Any

from shardwise.base.shapes import DimAxes
from shardwise.ir import Equation, ShapedArray, Shown, Tracer, define_op
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.rules.derivative import cotangent_sharding, do
from shardwise.sharding import AxisType, NamedSharding, PartitionSpec, Sharding


def spec_axes(sharding: Sharding, ndim: int) -> tuple[DimAxes, tuple[bool, ...]]:
    """Per dim, the mesh axes in a NamedSharding's spec, and whether the dim is UNCONSTRAINED."""
    dims: list[tuple[str, ...]] = []
    open_dims: list[bool] = []
    for entry in sharding.spec.partitions if isinstance(sharding, NamedSharding) else ():
        free = entry is PartitionSpec.UNCONSTRAINED
        dims.append(() if entry is None or free else (entry,) if isinstance(entry, str) else tuple(entry))
        open_dims.append(free)
    missing_dims = ndim - len(dims)
    return (*dims, *((),) * missing_dims), (*open_dims, *(False,) * missing_dims)


def _divisible(shape: tuple[int, ...], dims: DimAxes, mesh: Any) -> DimAxes:
    """Drop the axes of dims that they do not divide: constraints are hints (the caller has been warned)."""
    sizes = mesh.shape
    return tuple(
        axes if n % math.prod(sizes[a] for a in axes) == 0 else () for n, axes in zip(shape, dims, strict=True)
    )


def _layout_on_grid(params: Params, grid: Any, in_types: Types, out_types: Types) -> Params:
    sharding: Sharding = params["sharding"]
    ndim = in_types[0].ndim
    if isinstance(sharding, NamedSharding):
        dims, open_dims = spec_axes(sharding, ndim)
        mesh = sharding.mesh
        whole = _divisible(in_types[0].shape, dims, mesh)
        return {**params, "dims": grid.rename(mesh.axis_names, mesh.axis_sizes, whole), "open": open_dims}
    tiling = sharding.tiling(ndim)
    dims = ((),) * ndim if tiling is None else grid.dims_of(tiling)
    return {**params, "dims": dims, "open": (False,) * ndim}


def _partition(region: Any, eqn: Equation) -> None:
    """Communication only: move the operand to the layout that propagation gave the result."""
    (operand,), (out,) = eqn.inputs, eqn.outputs
    atom, have = region.read(operand)
    want = region.placements.get(out, ((),) * out.aval.ndim)
    region.define(out, region.reshard(atom, have, want, out.aval), want)


def _constraint_type(x: ShapedArray, *, sharding: Sharding, **on_grid: Any) -> ShapedArray:
    return x


def _constraint_transpose(ct: Any, x: Any, *, sharding: Sharding) -> list[Any]:
    return [do.sharding_constraint(ct, sharding=sharding)]


def _constraint_batch(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> tuple[list[Any], list[int]]:
    """The mapped dim's sharding is left to propagation, or follows vmap's `spmd_axis_name`."""
    ((x,), (dim,)), sharding = (values, dims), params["sharding"]
    split = SPMD_AXES.get()
    if not isinstance(sharding, NamedSharding):
        if split:
            raise ValueError(
                "If you are using spmd_axis_name parameter of jax.vmap, a with_sharding_constraint under it takes a NamedSharding, or a "
                f"PartitionSpec under a mesh context manager. Got {sharding}"
            )
        return [x], [dim]
    clash = [a for axes in spec_axes(sharding, x.ndim - 1)[0] for a in axes if a in split]
    if clash:
        raise ValueError(
            f"vmap's spmd_axis_name {split} cannot appear in the spec of a with_sharding_constraint under it, but {clash[0]!r} is "
            f"in {sharding.spec}."
        )
    entries = list(sharding.spec.partitions) + [None] * (x.ndim - 1 - len(sharding.spec))
    entries.insert(dim, split or PartitionSpec.UNCONSTRAINED)
    return [do.sharding_constraint(x, sharding=NamedSharding(sharding.mesh, PartitionSpec(*entries)))], [dim]


sharding_constraint = define_op(
    "sharding_constraint",
    type_rule=_constraint_type,
    kernel=lambda env, x, **_: x,
    rule=same_dims,
    to_grid=_layout_on_grid,
    partition=_partition,
    constrains=lambda eqn: (eqn.params["dims"], eqn.params["open"]),
    typed=True,
    jvp="linear",
    transpose=_constraint_transpose,
    batch=_constraint_batch,
    keys=HANDS_ON,
)


def _reshard_type(
    x: ShapedArray, *, sharding: NamedSharding, concrete: Sharding | None = None, **on_grid: Any
) -> ShapedArray:
    dims, _ = spec_axes(sharding, x.ndim)
    explicit = set(sharding.mesh.explicit_axes)
    mesh: Any = sharding.mesh if explicit else None
    spec = tuple(tuple(a for a in axes if a in explicit) for axes in dims)
    unreduced_axes = frozenset(getattr(sharding.spec, "unreduced", ()) or ())
    reduced_axes = frozenset(getattr(sharding.spec, "reduced", ()) or ())
    return ShapedArray(
        x.shape, x.dtype, x.weak_type, mesh=mesh, spec=spec, vma=x.vma, unreduced=unreduced_axes, reduced=reduced_axes
    )


def _enter_auto_type(x: ShapedArray, *, axes: tuple[str, ...]) -> ShapedArray:
    if x.mesh is None:
        return x
    mesh = x.mesh.update_axis_types({a: AxisType.Auto for a in axes if a in x.mesh.axis_names})
    explicit = set(mesh.explicit_axes)
    spec = tuple(tuple(a for a in dim if a in explicit) for dim in x.spec)
    return x.update(mesh=mesh if explicit else None, spec=spec if explicit else None)


# Explicit axes become Auto axes: only the type changes. From here on propagation chooses the value's layout.
def _enter_auto_transpose(ct: Any, x: Any, *, axes: tuple[str, ...]) -> list[Any]:
    """Back on Explicit axes, the cotangent has the value's layout."""
    sharding = cotangent_sharding(x.aval)
    return [ct if sharding is None else do.reshard(ct, sharding=sharding, concrete=None)]


def _enter_auto_batch(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> tuple[list[Any], list[int]]:
    return [do.enter_auto(*values, **params)], list(dims)


enter_auto_op = define_op(
    "enter_auto",
    type_rule=_enter_auto_type,
    kernel=lambda env, x, axes: x,
    rule=same_dims,
    partition=_partition,
    typed=True,
    hands_on=True,
    jvp="linear",
    transpose=_enter_auto_transpose,
    batch=_enter_auto_batch,
)


def _reshard_transpose(ct: Any, x: Any, *, sharding: NamedSharding, concrete: Sharding | None = None) -> list[Any]:
    """Return to the operand's layout, if its type gives one."""
    back = cotangent_sharding(x.aval)
    return [ct if back is None else do.reshard(ct, sharding=back, concrete=_on_mesh_of(concrete, back))]


def _on_mesh_of(concrete: Sharding | None, sharding: NamedSharding) -> Sharding | None:
    """`sharding` on the devices of `concrete`; None if that mesh has other axes."""
    if not isinstance(concrete, NamedSharding) or concrete.mesh.shape_tuple != sharding.mesh.shape_tuple:
        return None
    return NamedSharding(concrete.mesh, sharding.spec)


def _reshard_batch(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> tuple[list[Any], list[int]]:
    """The mapped dim keeps its sharding; where its type gives none (the axes were Auto before), that of vmap's argument."""
    ((x,), (dim,)), sharding = (values, dims), params["sharding"]
    entries = list(sharding.spec.partitions) + [None] * (x.ndim - 1 - len(sharding.spec))
    split = tuple(a for a in SPMD_AXES.get() if a in sharding.mesh.explicit_axes)
    entries.insert(dim, x.aval.spec[dim] or split or None)
    spec = NamedSharding(sharding.mesh, sharding.spec.update(partitions=entries))
    return [do.reshard(x, sharding=spec, concrete=_on_mesh_of(params["concrete"], spec))], [dim]


def _reshard_layout(eqn: Equation) -> tuple[tuple[tuple[str, ...], ...], tuple[bool, ...]]:
    """The axes of each dim; Auto axes may split the value further."""
    return eqn.params["dims"], (True,) * len(eqn.params["open"])


reshard_op = define_op(
    "reshard",
    type_rule=_reshard_type,
    kernel=lambda env, x, **_: x,
    rule=same_dims,
    to_grid=_layout_on_grid,
    partition=_partition,
    constrains=_reshard_layout,
    typed=True,
    jvp="linear",
    transpose=_reshard_transpose,
    batch=_reshard_batch,
    keys=HANDS_ON,
    shown=Shown(hidden=frozenset({"sharding", "concrete"})),
)


def _device_put_jvp(primals: Any, tangents: Any, *, target: Any, src: tuple[Any, ...]) -> tuple[Any, Any]:
    """`src` is the operand's placement, if known; the cotangent returns to it."""
    (x,), (t,) = primals, tangents
    sources = src or (() if isinstance(x, Tracer) else (x.sharding,))
    return do.device_put(x, target=target, src=sources), None if t is None else do.device_put(
        t, target=target, src=sources
    )


def _device_put_transpose(ct: Any, x: Any, *, target: Any, src: tuple[Any, ...]) -> list[Any]:
    return [do.device_put(ct, target=src[0], src=(target,)) if src else ct]


def _device_put_batch(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> tuple[list[Any], list[int]]:
    return [do.device_put(*values, **params)], list(dims)


# Inside a compiled program a Sharding selects the devices that the program runs on; propagation chooses the value's layout
# on them. A bare Device has no effect there. `src` is a tuple of no or one placement, so that passes do not mistake it for
# one of the program's shardings. `eager` is set by `shardwise.engine.device_put`.
device_put_op = define_op(
    "device_put",
    type_rule=lambda x, *, target, src: x,
    kernel=lambda env, x, **_: x,
    rule=same_dims,
    typed=True,
    jvp=_device_put_jvp,
    transpose=_device_put_transpose,
    batch=_device_put_batch,
    keys=HANDS_ON,
    memory_kind=lambda params: getattr(params["target"], "memory_kind", None),
)
