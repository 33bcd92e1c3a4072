"""`out_sharding=`: the requested sharding of a result's type, and the default for results without array operands.

Comes in: a spec, a NamedSharding or None. Goes out: a NamedSharding over the abstract mesh, and parts of result types.
"""

from __future__ import annotations

import math
from typing import Any

from shardwise.base import config
from shardwise.base.errors import IndivisibleError
from shardwise.ir.types import ShapedArray, Spec
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, get_abstract_mesh


def resolve_out_sharding(out_sharding: Any, api_name: str, ndim: int) -> NamedSharding | None:
    """`out_sharding` over the abstract mesh, its spec padded to `ndim` entries; None stays None.

    Raises:
        TypeError: it is neither a PartitionSpec nor a NamedSharding.
        ValueError: the spec has no mesh in context, more entries than dims, an axis that is not Explicit, or a memory kind.
    """
    if out_sharding is None:
        return None
    if isinstance(out_sharding, PartitionSpec):
        mesh, spec = get_abstract_mesh(), out_sharding
        if mesh.empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Pass a NamedSharding to "
                f"{api_name}, or enter a mesh (set_mesh, use_mesh). Got {spec}"
            )
    elif isinstance(out_sharding, NamedSharding):
        given = out_sharding.mesh
        mesh, spec = given.abstract_mesh if isinstance(given, Mesh) else given, out_sharding.spec
        _check_context(mesh, out_sharding, api_name)
        if given is mesh and out_sharding.memory_kind is not None:
            raise ValueError(
                f"sharding with memory_kind is not allowed for {api_name}: its result is in the default memory. Move it with "
                f"device_put. Got sharding={out_sharding}"
            )
    else:
        raise TypeError(
            f"out_sharding= of {api_name} takes a NamedSharding or a PartitionSpec, got {out_sharding!r} of type "
            f"{type(out_sharding).__name__}."
        )
    if len(spec) > ndim and any(entry is not None for entry in spec.partitions[ndim:]):
        raise ValueError(f"out_sharding={spec} of {api_name} has {len(spec)} entries, but the result has {ndim} dims.")
    spec = spec.pad_to_rank(ndim) if len(spec) <= ndim else spec.update(partitions=spec.partitions[:ndim])
    sharding = NamedSharding(mesh, spec)
    _check_explicit(sharding, api_name)
    return sharding


def _check_context(mesh: AbstractMesh, sharding: NamedSharding, api_name: str) -> None:
    """ValueError if a result's mesh is not the one in context; only `reshard` and similar ops change the mesh."""
    context = get_abstract_mesh()
    same = context.shape_tuple == mesh.shape_tuple and context.axis_types == mesh.axis_types
    if not context.empty and not same and api_name not in ("reshard", "explicit_axes"):
        raise ValueError(
            f"Context mesh {context} should match the mesh of sharding {mesh} passed to {api_name}. Pass the spec {sharding.spec} alone, "
            "or reshard to the other mesh first."
        )


def _check_explicit(sharding: NamedSharding, api_name: str) -> None:
    mesh = sharding.mesh
    for entry in sharding.spec.partitions:
        if entry is PartitionSpec.UNCONSTRAINED:
            raise ValueError(
                f"PartitionSpec passed to {api_name} cannot contain P.UNCONSTRAINED: the type of the result says "
                f"how it is split. Got {sharding.spec}."
            )
        for axis in () if entry is None else (entry,) if isinstance(entry, str) else entry:
            if mesh.axis_type(axis) is not AxisType.Explicit:
                raise ValueError(
                    f"PartitionSpec passed to {api_name} cannot contain axis names that are of type Auto or Manual. Got "
                    f"PartitionSpec: {sharding.spec} with axis name: {axis} of type: {mesh.axis_type(axis)!s}. "
                    f"Use with_sharding_constraint for Auto axes.{_advice()}"
                )


def _advice() -> str:
    """Advice where `make_mesh` gave axes of another type than in the other dialect."""
    if config.dialect.meshes.make_mesh_axis_type == "Explicit":
        return ""
    return f" Axes of make_mesh are Auto here; give it axis_types=(AxisType.Explicit,) * n. {config.dialect.switch}"


def sharding_spec(sharding: NamedSharding, ndim: int) -> Spec:
    """The spec in the form that types store: the axes of each of `ndim` dims."""
    dims = sharding.dims
    return dims + ((),) * (ndim - len(dims))


def with_out_sharding(out: ShapedArray, sharding: NamedSharding | None) -> ShapedArray:
    """The type `out` with the requested sharding. ValueError if an axis does not divide its dim."""
    if sharding is None:
        return out
    mesh = sharding.mesh
    assert isinstance(mesh, AbstractMesh)
    spec = sharding_spec(sharding, out.ndim)
    for d, axes in enumerate(spec):
        ways = math.prod(mesh.axis_size(a) for a in axes)
        if out.shape[d] % ways:
            raise IndivisibleError(
                f"Sharding spec {axes} implies that array axis {d} is partitioned {ways} times, but that does not evenly divide "
                f"the dimension size {out.shape[d]}. Got shape: {out.shape} and sharding {sharding}. Pad the dim, or leave it "
                "unsplit."
            )
    if not mesh.explicit_axes:
        return out
    return out.update(
        mesh=mesh, spec=spec, unreduced=frozenset(sharding.spec.unreduced), reduced=frozenset(sharding.spec.reduced)
    )


def in_context(out: ShapedArray) -> ShapedArray:
    """The type of a value without array operands: replicated on the context mesh if that has Explicit or Manual axes."""
    mesh = get_abstract_mesh()
    if mesh.empty or out.mesh is not None or mesh.are_all_axes_auto:
        return out
    return out.update(mesh=mesh)
