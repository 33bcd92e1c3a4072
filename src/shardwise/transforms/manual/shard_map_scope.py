"""The scope of a shard_map's body: its mesh, its axis names, and the types of blocks."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shardwise.base.shapes import DimAxes
from shardwise.ir import ShapedArray, current_trace
from shardwise.ir.axis_scope import ERA
from shardwise.ops.devices.parallel import AXIS_ENV, CHECK_VMA
from shardwise.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec, get_abstract_mesh
from shardwise.sharding.context import abstract_mesh_context


@contextmanager
def body_scope(
    mesh: Mesh | AbstractMesh, manual: frozenset[str], check: bool, era: str | None = None
) -> Generator[None]:
    """The context for tracing a body, for the first time or to transform it.

    `era` is that of its shard_map, by default the enclosing one's.
    """
    inner = manual_mesh(mesh, manual | frozenset(get_abstract_mesh().manual_axes))
    env = dict(AXIS_ENV.get()) | {a: mesh.shape[a] for a in mesh.axis_names if a in manual}
    rules = ERA.override(ERA.get() if era is None else era)
    with abstract_mesh_context(inner), AXIS_ENV.override(tuple(env.items())), CHECK_VMA.override(check), rules:
        yield


def manual_mesh(mesh: Mesh | AbstractMesh, manual: frozenset[str]) -> AbstractMesh:
    """The abstract mesh inside the body: its manual axes have the type Manual."""
    types = tuple(AxisType.Manual if a in manual else t for a, t in zip(mesh.axis_names, mesh.axis_types, strict=True))
    device = mesh.abstract_mesh.abstract_device if isinstance(mesh, Mesh) else mesh.abstract_device
    return AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=types, abstract_device=device)


def spec_dims(spec: PartitionSpec, ndim: int) -> DimAxes:
    """The axes that split each dim."""
    dims = tuple(() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec.partitions)
    return dims + ((),) * (ndim - len(dims))


def local_type(aval: ShapedArray, dims: DimAxes, mesh: Mesh | AbstractMesh, manual: frozenset[str]) -> ShapedArray:
    """The type of one device's block: dims divided, varying over the axes of its spec, other explicit axes kept."""
    shape = tuple(n // math.prod(mesh.shape[a] for a in axes) for n, axes in zip(aval.shape, dims, strict=True))
    vma = aval.vma | {a for axes in dims for a in axes}
    rest = tuple(tuple(a for a in axes if a not in manual) for axes in aval.spec)
    explicit = set(mesh.explicit_axes) - manual
    if not explicit:
        return ShapedArray(shape, aval.dtype, aval.weak_type, vma=vma)
    return ShapedArray(shape, aval.dtype, aval.weak_type, mesh=manual_mesh(mesh, manual), spec=rest, vma=vma)


def global_type(aval: ShapedArray, dims: DimAxes, mesh: Mesh | AbstractMesh, manual: frozenset[str]) -> ShapedArray:
    """The type of the result that the blocks form."""
    shape = tuple(n * math.prod(mesh.shape[a] for a in axes) for n, axes in zip(aval.shape, dims, strict=True))
    vma = aval.vma - manual
    explicit = set(mesh.explicit_axes)
    if not explicit:
        return ShapedArray(shape, aval.dtype, aval.weak_type, vma=vma)
    spec = tuple(tuple(a for a in axes if a in explicit) + rest for axes, rest in zip(dims, aval.spec, strict=True))
    abstract = mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
    return ShapedArray(shape, aval.dtype, aval.weak_type, mesh=abstract, spec=spec, vma=vma)


def split_by_vmaps() -> frozenset[str]:
    """The mesh axes over which surrounding vmaps split their dims."""
    vmap_axes: set[str] = set()
    trace: Any = current_trace()
    while trace is not None:
        vmap_axes.update(getattr(trace, "spmd", ()))
        trace = getattr(trace, "parent", None)
    return frozenset(vmap_axes)
