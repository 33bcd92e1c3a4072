"""The checks of shard_map, each with a message that names the function, the spec, the value and a remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.errors import DuplicateSpecError
from shardwise.base.shapes import DimAxes
from shardwise.base.tree import keystr, tree_flatten_with_path
from shardwise.ir import Array, Literal, ShapedArray, Tracer
from shardwise.ir.references import root_of, shows_reference
from shardwise.ir.types import kept_spec
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec, get_concrete_mesh
from shardwise.transforms.jit.compiled import plain_type


def check_leaves(call: Any, specs: Any, option: str) -> None:
    """Spec trees hold PartitionSpecs; None is an empty tree, and in in_specs also leaves an argument unchanged."""
    if specs is None and option == "in_specs" and not call.rules.in_specs_may_be_none:
        raise TypeError(
            f"shard_map {option} argument must be a pytree of `jax.sharding.PartitionSpec` instances, but it was None. "
            "Use P() for a value that is whole on every device."
        )
    bad = []
    for path, leaf in tree_flatten_with_path(specs, is_leaf=lambda x: isinstance(x, PartitionSpec))[0]:
        if not isinstance(leaf, PartitionSpec):
            bad.append(f"  {option}{keystr(path)} is {leaf} of type {type(leaf).__name__}")
    if bad:
        raise TypeError(
            f"shard_map {option} argument must be a pytree of `jax.sharding.PartitionSpec` instances, but:\n\n"
            + ",\n".join(bad)
            + "\n\nUse P(...) for each value, P() for one that is whole on every device."
        )


def check_devices(mesh: Any, values: Sequence[Array]) -> None:
    """Outside of traces an abstract mesh needs an argument that has devices."""
    if isinstance(mesh, Mesh) or not get_concrete_mesh().empty:
        return
    for v in values:
        sharding = None if isinstance(v, Tracer) else getattr(v, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.shape_tuple != mesh.shape_tuple:
            raise ValueError(
                f"Mesh shape of the input {sharding.mesh.shape_tuple} does not match the mesh shape passed to shard_map {mesh.shape_tuple} "
                f"for shape {v.aval.str_short()}. An AbstractMesh says nothing of devices, so the arguments' mesh has to have its axes."
            )
    if not any(isinstance(getattr(v, "sharding", None), NamedSharding) for v in values if not isinstance(v, Tracer)):
        raise ValueError(
            "Please pass `jax.Array`s with a `NamedSharding` as input to `shard_map` when passing `AbstractMesh` to the mesh "
            "argument: nothing else says on which devices it runs."
        )


def check_inferable(mesh: Any, manual: frozenset[str]) -> None:
    """Specs can be inferred only over Explicit axes, as types name no others."""
    others = [a for a in mesh.axis_names if a in manual and a not in mesh.explicit_axes]
    if others and not getattr(mesh, "empty", False):
        advice = "" if config.dialect.meshes.make_mesh_axis_type == "Explicit" else f" {config.dialect.switch}"
        raise TypeError(
            f"in_specs (in_axes of smap) was not specified, and the axes {tuple(others)} that become manual are of type Auto in {mesh}: "
            f"types of arguments say nothing of them. Give in_specs, or make the axes Explicit.{advice}"
        )


def check_specs(call: Any, mesh: Any, manual: frozenset[str], side: str, specs: Sequence[PartitionSpec]) -> None:
    """Specs name manual axes of the mesh, each once."""
    for spec in specs:
        if any(e is PartitionSpec.UNCONSTRAINED for e in spec.partitions):
            raise ValueError(
                f"shard_map {side}_specs must refer to an axis marked as manual ({set(manual)}), but: {side}_specs has "
                f"P.UNCONSTRAINED in {spec}, which only with_sharding_constraint takes."
            )
        axes = [a for e in spec.partitions if e is not None for a in ((e,) if isinstance(e, str) else e)]
        for i, a in enumerate(axes):
            if a in axes[:i]:
                raise DuplicateSpecError(
                    f"A single {side}_specs entry can use every mesh axis once, but {spec} has duplicate entries "
                    f"for `{a}`"
                )
            if a not in mesh.axis_names or a not in manual:
                kind = ValueError if a in mesh.axis_names else call.rules.missing_axis_error
                raise kind(
                    f"shard_map {side}_specs must refer to an axis marked as manual ({set(manual)}), but: {side}_specs refers "
                    f"to {a!r} in {spec}; the mesh has axes {mesh.axis_names}."
                )


def _too_long(call: Any, side: str, lines: Sequence[str], scalar: bool) -> ValueError:
    text = (
        f"shard_map applied to the function '{call.name}' was given an {side}_specs entry which is too long to be compatible "
        f"with the corresponding {side}put value from the function:\n\n"
        + "\n\n".join(lines)
        + f"\n\nEntries in {side}_specs must be of length no greater than the number of axes in the corresponding "
        f"{side}put value."
    )
    text += " Either revise the spec to be shorter, or modify the function so that the value has enough dims."
    if scalar and side == "out":
        text += (
            "\n\nFor a scalar value (rank 0), consider using an out_specs entry of `P()`; if it differs between devices, add "
            "a singleton axis, for instance with keepdims=True or jnp.expand_dims, so that the blocks have a dim to be "
            "joined along."
        )
    elif scalar:
        text += "\n\nFor a scalar value (rank 0), use an in_specs entry of `P()`."
    return ValueError(text)


def check_in_ranks(call: Any, specs: Sequence[PartitionSpec], values: Sequence[Array], paths: Sequence[str]) -> None:
    """No spec is longer than its argument's rank."""
    lines, scalar = [], False
    for spec, value, path in zip(specs, values, paths, strict=True):
        if len(spec) > value.ndim:
            lines.append(
                f"* in_specs is {spec} which has length {len(spec)}, but args{path} has shape "
                f"{value.aval.str_short(short_dtypes=False)}, which has rank {value.ndim} (and {value.ndim} < {len(spec)})"
            )
            scalar |= value.ndim == 0
    if lines:
        raise _too_long(call, "in", lines, scalar)


def check_out_ranks(call: Any, specs: Sequence[PartitionSpec], types: Sequence[ShapedArray]) -> None:
    """No spec is longer than its result's rank."""
    lines, scalar = [], False
    for spec, aval in zip(specs, types, strict=True):
        if len(spec) > aval.ndim:
            lines.append(
                f"* out_specs is {spec} which has length {len(spec)}, but the corresponding output value has shape "
                f"{plain_type(aval)}, which has rank {aval.ndim} (and {aval.ndim} < {len(spec)})"
            )
            scalar |= aval.ndim == 0
    if lines:
        raise _too_long(call, "out", lines, scalar)


def check_divisible(
    call: Any,
    mesh: Any,
    specs: Sequence[PartitionSpec],
    dims: Sequence[DimAxes],
    values: Sequence[Array],
    paths: Sequence[str],
) -> None:
    """Every split dim is a multiple of its axes' sizes."""
    lines = []
    for spec, axes_of, value, path in zip(specs, dims, values, paths, strict=True):
        for d, axes in enumerate(axes_of):
            ways = math.prod(mesh.shape[a] for a in axes)
            if value.shape[d] % ways:
                size = value.shape[d]
                axis_or_axes = axes[0] if len(axes) == 1 else axes
                lines.append(
                    f"* args{path} of shape {plain_type(value.aval)} corresponds to in_specs {spec}, which maps array axis {d} (of "
                    f"size {size}) to mesh axis {axis_or_axes!r} (of size {ways}), but {ways} does not evenly divide {size}; the "
                    f"next size that works is {-(-size // ways) * ways}"
                )
    if lines:
        raise ValueError(
            f"shard_map applied to the function '{call.name}' was given argument arrays with axis sizes that are not evenly "
            "divisible by the corresponding mesh axis sizes:\n\n"
            + "\n".join(lines)
            + "\n\nPad the arrays, or change in_specs."
        )


def check_explicit_inputs(specs: Sequence[PartitionSpec], dims: Sequence[DimAxes], values: Sequence[Array]) -> None:
    """If all axes of the mesh are Explicit and become manual, in_specs must repeat the arguments' types; the type of an uncommitted
    array is whole.
    """
    for spec, axes_of, value in zip(specs, dims, values, strict=True):
        kept_axes = axes_of if value.aval.mesh is None else kept_spec(value.aval.mesh, axes_of)
        if value.aval.spec != kept_axes or (value.aval.unreduced, value.aval.reduced) != (spec.unreduced, spec.reduced):
            raise ValueError(
                f"in_specs passed to shard_map: {spec} does not match the specs of the input: {value.aval.sharding.spec} for "
                f"{value.aval.str_short()}. Reshard the input first, or leave in_specs out."
            )


def check_output_type(call: Any, leaf: Any) -> None:
    """Results are arrays."""
    if shows_reference(leaf):
        raise root_of(leaf).return_error(call.name, "shard_map")
    try:
        as_value(leaf)
    except TypeError:
        raise TypeError(
            f"shard_map applied to the function '{call.name}' returned a value of type {type(leaf)}, which is no array. "
            "Return arrays, scalars and containers of them."
        ) from None


def check_captured(call: Any, consts: Sequence[Any]) -> None:
    """Arrays that the body closes over enter whole; explicitly sharded ones must be passed as arguments."""
    for c in consts:
        if isinstance(c, Literal):
            continue
        sharding = getattr(c, "sharding", None) if hasattr(c, "_sig") else None
        if c.aval.mesh is not None and any(c.aval.spec) and isinstance(sharding, NamedSharding):
            raise NotImplementedError(
                f"shard_map's function '{call.name}' closes over an explicitly sharded array "
                f"({c.aval.str_short()}). Pass it as an argument with its own in_specs entry."
            )


def check_replication(
    call: Any,
    mesh: Any,
    manual: frozenset[str],
    specs: Sequence[PartitionSpec],
    dims: Sequence[DimAxes],
    types: Sequence[ShapedArray],
) -> None:
    """A result that may vary over an axis must mention the axis in its out_spec."""
    lines = []
    for spec, axes_of, aval in zip(specs, dims, types, strict=True):
        mentioned_axes = {a for axes in axes_of for a in axes}
        unmentioned_axes = [a for a in mesh.axis_names if a in manual and a not in mentioned_axes]
        varying_axes = [a for a in unmentioned_axes if a in aval.vma]
        if not varying_axes:
            continue
        text = f"* out_specs is {spec} which implies that the corresponding output value is "
        if call.rules.errors_speak_of_vma:
            text += (
                f"only varying across mesh axes {{{','.join(sorted(mentioned_axes))}}} and not "
                f"{{{','.join(varying_axes)}}}, but it was inferred "
                f"to be possibly varying over {{{','.join(sorted(aval.vma & manual))}}}"
            )
        elif len(unmentioned_axes) > 1:
            known_axes = [a for a in unmentioned_axes if a not in aval.vma]
            inference_text = (
                f"only infer replication over {{{','.join(known_axes)}}}"
                if known_axes
                else "not infer replication over any axes"
            )
            text += (
                f"replicated across mesh axes {{{','.join(unmentioned_axes)}}}, but could {inference_text}, "
                f"which is missing the required axes {{{','.join(varying_axes)}}}"
            )
        else:
            text += (
                f"replicated across mesh axis '{unmentioned_axes[0]}', but could not infer replication over any axes"
            )
        lines.append(text)
    if lines:
        check = f"{call.rules.check_option}=False"
        raise ValueError(
            f"shard_map applied to the function '{call.name}' was given out_specs which require replication which can't be statically "
            f"inferred given the mesh:\n\nThe mesh given has shape {mesh.axis_sizes} with corresponding axis names {mesh.axis_names}.\n\n"
            + "\n".join(lines)
            + f"\n\nReduce the value over the axis (psum, pmax, ...), mention the axis in out_specs, or pass {check} if the value "
            "really is the same on every device."
        )
