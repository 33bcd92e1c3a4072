"""`with_sharding_constraint`: the layout of a value over the automatic axes of a mesh."""

from __future__ import annotations

import math
import warnings
from typing import Any

from shardwise.base import config
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_unflatten
from shardwise.engine.array import ArrayImpl
from shardwise.engine.device_put import check_placeable, place
from shardwise.engine.guards import guard_moves
from shardwise.engine.placement import incompatible_devices
from shardwise.ir import Array, bind, is_eager
from shardwise.ir.types import kept_spec
from shardwise.ops.devices.layout import sharding_constraint, spec_axes
from shardwise.ops.rules.convert import as_array
from shardwise.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    get_abstract_mesh,
    get_concrete_mesh,
    legacy_mesh,
)
from shardwise.sharding.derive import is_abstract
from shardwise.sharding.formats import Format
from shardwise.transforms.jit.jit_shardings import UnspecifiedSharding, check_nameable


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, (Sharding, PartitionSpec, UnspecifiedSharding))


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The tree `x`, each leaf laid out by `shardings` (a Sharding, a spec under a mesh, or a prefix tree).

    Under `jit`, propagation obeys the layout and carries it back to the operands; eagerly, the result is a copy with that layout.
    Propagation decides dims marked ``P.UNCONSTRAINED``. Under `jit`, a dim that its axes do not divide stays whole, with a warning.

    Raises:
        ValueError: a leaf of `shardings` is None, or does not fit its value; eagerly also if a dim is not divisible, or if
            `x` is committed to other devices.
        NotImplementedError: under `jit`, a user-defined sharding whose parts form no grid.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> rows = jax.NamedSharding(mesh, jax.P("x"))
    >>> jax.jit(lambda x: lax.with_sharding_constraint(x, rows))(jnp.arange(4)).sharding.spec
    PartitionSpec('x',)
    """
    leaves, tree = tree_flatten(x)
    targets = [shardings] * len(leaves) if _is_leaf(shardings) else broadcast_prefix(shardings, x, is_leaf=_is_leaf)
    return tree_unflatten(tree, [_constrain(v, t) for v, t in zip(leaves, targets, strict=True)])


def _constrain(given: Any, target: Any) -> Array:
    x = as_array(given)
    if isinstance(target, UnspecifiedSharding):
        return x
    if target is None:
        raise ValueError(
            "One of the shardings of with_sharding_constraint is None, which is not allowed: pass a Sharding or a "
            "PartitionSpec for each value, P.UNCONSTRAINED for dims that are left open."
        )
    sharding = _resolve_target(target)
    sharding.check_compatible_aval(x.shape)
    if isinstance(sharding, NamedSharding) and _explicit(sharding, x):
        return x
    if isinstance(x, ArrayImpl) and is_eager():
        return _at_once(x, _on_mesh_of(x, sharding, given) if is_abstract(sharding) else sharding)
    if isinstance(sharding, NamedSharding):
        sharding = _even(x, sharding)
    elif sharding.tiling(x.ndim) is None:
        raise NotImplementedError(
            f"with_sharding_constraint inside jit takes shardings that a device grid describes, and {sharding!r} gives parts that "
            "form none. Name it in jit's out_shardings, or lay the result out so with device_put."
        )
    return bind(sharding_constraint, x, sharding=sharding)


def _at_once(x: ArrayImpl, sharding: Sharding) -> Array:
    """The eager form: `x` with this layout, over its own devices if it is committed."""
    check_placeable(sharding, x.aval, "with_sharding_constraint arguments")
    if x.committed and x._sig.devices != sharding.device_list:
        shape = f"{x.dtype.name}[{','.join(map(str, x.shape))}]"
        raise incompatible_devices(
            "with_sharding_constraint",
            f"argument x of with_sharding_constraint with shape {shape}",
            x._sig.devices,
            "explicit output sharding",
            sharding.device_list,
        )
    guard_moves("with_sharding_constraint", [x], sharding.device_list)
    if not _open(sharding):
        return x if x.sharding == sharding and x.committed else place(x, sharding)
    return bind(sharding_constraint, x, sharding=sharding)


def _on_mesh_of(x: ArrayImpl, sharding: Any, given: Any) -> NamedSharding:
    """A sharding over an abstract mesh, put on the devices of the mesh of `x`."""
    what = "The target sharding of with_sharding_constraint contains an `AbstractMesh`, which names no devices"
    shape = x.aval.str_short()
    if not isinstance(given, Array):
        raise ValueError(
            f"{what}; it requires the input passed should be a `jax.Array`. Got {type(given)} with shape {shape}"
        )
    here = x.sharding
    if not isinstance(here, NamedSharding):
        raise TypeError(
            f"{what}. The sharding on the input must be a `NamedSharding`. Got {type(here)} for shape {shape}"
        )
    if here.mesh.shape_tuple != sharding.mesh.shape_tuple:
        raise ValueError(
            f"Mesh shape of the input {here.mesh.shape_tuple} does not match the mesh shape of the target sharding "
            f"{sharding.mesh.shape_tuple} for shape {shape}"
        )
    return NamedSharding(here.mesh, sharding.spec)


def _resolve_target(target: Any) -> Sharding:
    if isinstance(target, Format) and target.sharding is not None:
        return _resolve_target(target.sharding)  # values inside of a program have no order in memory
    if isinstance(target, Sharding):
        check_nameable(target, "shardings")
        return target
    if not isinstance(target, PartitionSpec):
        raise TypeError(
            f"with_sharding_constraint takes a Sharding or a PartitionSpec, got {target!r} of type {type(target).__name__}."
        )
    concrete, abstract = get_concrete_mesh(), get_abstract_mesh()
    if not abstract.empty and (concrete.empty or abstract.manual_axes):
        return NamedSharding(abstract, target)
    mesh = concrete if not concrete.empty else legacy_mesh()
    if mesh is concrete and not mesh.empty and abstract != mesh.abstract_mesh:  # inside of auto_axes, use_abstract_mesh
        mesh = Mesh(mesh.devices.reshape(abstract.axis_sizes), abstract.axis_names, axis_types=abstract.axis_types)
    if mesh.empty:
        raise RuntimeError(
            f"with_sharding_constraint requires a non-empty mesh in context if you are passing `PartitionSpec`s, but got "
            f"{target} without one. Use `with mesh:`, set a mesh, or pass NamedSharding(mesh, {target})."
        )
    return NamedSharding(mesh, target)


def _open(sharding: Sharding) -> bool:
    return isinstance(sharding, NamedSharding) and any(
        e is PartitionSpec.UNCONSTRAINED for e in sharding.spec.partitions
    )


def _explicit(sharding: NamedSharding, x: Array) -> bool:
    """Whether the constraint asserts the type: on all-explicit meshes, if the dialect has this and such a mesh is in context. Otherwise
    naming a non-Auto axis is an error.
    """
    mesh = sharding.mesh
    types = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    dims, _ = spec_axes(sharding, x.ndim)
    around = frozenset(get_abstract_mesh().manual_axes)
    if manual := [a for axes in dims for a in axes if a in around or types[a] is AxisType.Manual]:
        raise ValueError(
            f"pspec {sharding.spec} contains a manual axes {tuple(manual)} of mesh which is not allowed. A constraint inside shard_map "
            "may name the axes of the mesh that are automatic there; values are split over the manual ones already."
        )
    bad = [a for axes in dims for a in axes if types[a] is not AxisType.Auto]
    context = get_abstract_mesh()
    in_context = bool(context.axis_names) and all(t is AxisType.Explicit for t in context.axis_types)
    asserts = config.dialect.explicit.constraint_asserts_type and (in_context or not bad)
    changes = bool(sharding.spec.unreduced or sharding.spec.reduced)
    if x.aval.mesh is None and not (bad or in_context or changes):
        return False
    if asserts and mesh.axis_names and all(t is AxisType.Explicit for t in mesh.axis_types):
        if changes:
            raise ValueError(
                f"with_sharding_constraint takes no spec with unreduced or reduced axes, got {sharding.spec}. Use reshard to change them."
            )
        if x.aval.spec != kept_spec(mesh.abstract_mesh, dims):
            raise AssertionError(
                f"with_sharding_constraint on explicit axes asserts the type, but the value is "
                f"{x.aval.str_short()} and the "
                f"constraint {sharding.spec}. Use reshard to move it."
            )
        return True
    if bad:
        refused_here_alone = not asserts and all(t is AxisType.Explicit for t in mesh.axis_types)
        advice = f" {config.dialect.switch}" if refused_here_alone else ""
        raise ValueError(
            f"The spec of NamedSharding passed to with_sharding_constraint can only refer to Auto axes of the mesh. Got spec="
            f"{sharding.spec} and mesh={mesh}: axis {bad[0]!r} is {types[bad[0]].name}. Use reshard for "
            f"Explicit axes.{advice}"
        )
    return False


def _even(x: Array, sharding: NamedSharding) -> NamedSharding:
    dims, open_dims = spec_axes(sharding, x.ndim)
    entries: list[Any] = []
    for d, (n, axes, free) in enumerate(zip(x.shape, dims, open_dims, strict=True)):
        ways = math.prod(sharding.mesh.shape[a] for a in axes)
        if n % ways:
            warnings.warn(
                f"with_sharding_constraint: dim {d} of {x.aval.str_short()} (size {n}) is not divisible by the {ways} devices of "
                f"{axes}, so it stays whole on each. Pad it to {-(-n // ways) * ways} to split "
                f"it.",
                UserWarning,
                stacklevel=4,
            )
            axes = ()
        entries.append(
            PartitionSpec.UNCONSTRAINED if free else None if not axes else axes[0] if len(axes) == 1 else axes
        )
    if all(n % math.prod(sharding.mesh.shape[a] for a in axes) == 0 for n, axes in zip(x.shape, dims, strict=True)):
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec(*entries))
