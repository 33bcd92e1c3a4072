"""in_shardings and out_shardings: prefix trees of Sharding, PartitionSpec or None, resolved for one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base import config
from shardwise.base.errors import DuplicateSpecError
from shardwise.base.tree import broadcast_prefix, tree_leaves
from shardwise.engine.array import ArrayImpl
from shardwise.engine.placement import check_fits
from shardwise.engine.replicas import under_signature
from shardwise.engine.signature import Signature, array_type, free_axes, signature
from shardwise.ir import ShapedArray
from shardwise.runtime.processes import compare_value, the_world
from shardwise.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    PmapSharding,
    Sharding,
    get_concrete_mesh,
    legacy_mesh,
)
from shardwise.sharding.derive import is_abstract
from shardwise.sharding.formats import Format, Layout


class UnspecifiedSharding:
    """The default of in_shardings and out_shardings: follow the arguments, leave results to propagation."""

    def __repr__(self) -> str:
        return "UnspecifiedValue"

    def __reduce__(self) -> str:
        return "UNSPECIFIED"  # copied options hold the same one


UNSPECIFIED = UnspecifiedSharding()


def context_mesh(api: str) -> Mesh | None:
    """The mesh for bare specs of `jit` or `pjit` at this call, or None."""
    mesh = legacy_mesh() if api == "pjit" else get_concrete_mesh()
    return None if mesh.empty else mesh


def is_spec_leaf(x: Any) -> bool:
    """Whether `x` is a leaf of a sharding tree; None is a leaf too."""
    return x is None or isinstance(x, (Sharding, PartitionSpec, Format, UnspecifiedSharding))


def check_leaves(tree: Any, option: str) -> None:
    """Raise TypeError for a leaf that is no sharding; ValueError for unconstrained dims (seed: in bare specs only)."""
    for leaf in tree_leaves(tree, is_leaf=is_spec_leaf):
        if isinstance(leaf, Layout):
            raise ValueError(
                "`jax.jit` does not accept device-local layouts directly. Create a `Format` instance wrapping this device-local layout and "
                f"pass that to `jit` instead. Got {leaf}"
            )
        if not is_spec_leaf(leaf):
            raise TypeError(
                f"{option} leaf specifications are expected to be PartitionSpec instances or None, but got {leaf!r}"
            )
        check_nameable(leaf, option)
        if isinstance(leaf, PartitionSpec):
            axes = [
                a
                for entry in leaf.partitions
                if entry is not None and entry is not PartitionSpec.UNCONSTRAINED
                for a in ((entry,) if isinstance(entry, str) else entry)
            ]
            twice = [a for i, a in enumerate(axes) if a in axes[:i]]
            if twice:
                raise DuplicateSpecError(
                    f"A single {option} specification can map every mesh axis to at most one positional "
                    f"dimension, but {leaf} has duplicate entries for `{twice[0]}`"
                )
        refuses = config.dialect.jit.refuses_unconstrained_shardings
        spec = getattr(leaf, "spec", None) if refuses and not isinstance(leaf, PartitionSpec) else leaf
        if isinstance(spec, PartitionSpec) and any(entry is PartitionSpec.UNCONSTRAINED for entry in spec.partitions):
            raise ValueError(
                f"Unconstrained dims are not allowed when passed to {option}: {leaf}. "
                "Use with_sharding_constraint inside the function."
            )


def check_nameable(sharding: Any, option: str) -> None:
    """Raise ValueError for a sharding of pmap's results, which other programs take only as plain data."""
    if isinstance(sharding, PmapSharding):
        raise ValueError(
            f"One of {option} leaf specifications got sharding {sharding} which is not allowed. Name the same split with "
            "NamedSharding(mesh, PartitionSpec(...))."
        )
    if isinstance(sharding, NamedSharding) and sharding.mesh.empty:
        raise ValueError(
            f"One of {option} leaf specifications got an empty NamedSharding: {sharding} which is not allowed. Give it a mesh of devices."
        )


def resolve_leaf(leaf: Any, option: str, api: str) -> Sharding | None:
    """A leaf resolved for this call: a Sharding, or None for unspecified."""
    if isinstance(leaf, UnspecifiedSharding):
        return None
    if isinstance(leaf, Sharding):
        return leaf
    if isinstance(leaf, Format):
        return leaf.resolve_sharding(f"{api}'s {option}")
    mesh = context_mesh(api)
    if leaf is None:
        replicate = mesh is not None and (api == "pjit" or config.dialect.jit.none_replicates)
        return NamedSharding(mesh, PartitionSpec()) if replicate and mesh is not None else None
    if mesh is None:
        only = "`with mesh:`" if api == "pjit" else f"`with {config.dialect.meshes.entered_by}(mesh):`"
        raise RuntimeError(
            f"{api} requires a non-empty mesh in context if you are passing PartitionSpecs to {option}, but got {leaf} without one. "
            f"Call the function under {only}, or pass NamedSharding(mesh, {leaf}) instead."
        )
    return NamedSharding(mesh, leaf)


def is_whole(tree: Any) -> bool:
    """Whether in_shardings or out_shardings are one for all leaves, or unspecified."""
    return tree is None or isinstance(tree, (UnspecifiedSharding, Sharding, PartitionSpec, Format))


def flat_shardings(tree: Any, full: Any, option: str, api: str, whole: str) -> list[Sharding | None]:
    """`tree`, a prefix of `full`, as one resolved leaf per leaf of `full`."""
    if isinstance(tree, UnspecifiedSharding):
        return [None] * len(tree_leaves(full))
    check_leaves(tree, option)
    if is_whole(tree):
        return [resolve_leaf(tree, option, api)] * len(tree_leaves(full))
    if option == "in_shardings":
        tree = tuple(tree) if isinstance(tree, list) else tree  # the arguments are a tuple
        _check_args_prefix(tree, full)
    leaves = broadcast_prefix(tree, full, is_leaf=is_spec_leaf, name=f"pjit {whole}")
    return [resolve_leaf(leaf, option, api) for leaf in leaves]


def _check_args_prefix(tree: Any, args: Any) -> None:
    general = (
        "pjit in_shardings specification must be a tree prefix of the positional arguments tuple passed to the function"
    )
    if not isinstance(tree, (tuple, list)):
        raise ValueError(
            f"{general}, but it is not a tuple: got {type(tree)} instead. For a function of one argument it might "
            "need to be wrapped in a singleton tuple."
        )
    if len(tree) != len(args):
        raise ValueError(
            f"{general}, but it is the wrong length: got a tuple or list of length {len(tree)} for an args tuple "
            f"of length {len(args)}."
        )


def placed_signature(sig: Signature, sharding: Sharding | None, name: str) -> Signature:
    """The signature of an argument inside the program, given its in_sharding.

    Raises ValueError for a committed argument with another layout; results of pmap may be moved.
    """
    if sharding is None or sharding is sig.sharding:
        return sig
    check_fits(sharding, sig.aval, "pjit arguments", name)
    aval = array_type(sig.aval.shape, sig.aval.dtype, sig.aval.weak_type, sharding)
    if is_abstract(sharding):
        return signature(aval, sig.sharding, sig.committed)
    if sig.committed and not isinstance(sig.sharding, PmapSharding):
        mine, theirs = sharding.tiling(sig.aval.ndim), sig.tiling
        same = (
            mine is not None
            and theirs is not None
            and (mine.same_placement(theirs) or (mine.is_replicated and theirs.is_replicated))
        )
        if not same or sharding.memory_kind != sig.sharding.memory_kind:
            shape = f"{sig.aval.dtype.name}[{','.join(map(str, sig.aval.shape))}]"
            api_name, form = config.dialect.jit.name, config.dialect.jit.argument_form_text
            raise ValueError(
                f"Sharding passed to {api_name} does not match the sharding on the respective arg. "
                f"Got {api_name} sharding: {sharding},\narg sharding: {sig.sharding} for arg {name} with arg "
                f"{form}: {shape}. Move the argument there with device_put, or drop its in_shardings entry."
            )
    return signature(aval, sharding, True, varies=free_axes(sharding.tiling(aval.ndim)) if sig.varies else ())


def with_signature(x: ArrayImpl, sig: Signature) -> ArrayImpl:
    """The value under another signature; with one process, without a copy."""
    if sig.spans and not x._sig.spans:
        return _array_of_copies(x, sig)
    return under_signature(x, sig)


def _array_of_copies(x: ArrayImpl, sig: Signature) -> ArrayImpl:
    """An array over several processes from this process's copy of the value, which must be the same on all of them."""
    if not sig.sharding.is_fully_replicated:
        raise ValueError(
            f"Passing non-trivial shardings for numpy inputs is not allowed: {sig.aval.str_short()} lies on this process alone, but "
            f"{sig.sharding} cuts it over several. Make a global array of each process's part first, with "
            "make_array_from_process_local_data or multihost_utils.host_local_array_to_global_array."
        )
    origin = 0
    if config.shardwise_check_replicas and not sig.absent:
        ranks = tuple(sorted({d.process_index for d in sig.devices}))
        origin = compare_value(
            the_world(), ranks, "a jitted function", f"argument of type {sig.aval.str_short()}", x.dense
        )
    return ArrayImpl(sig, dense=sig.part_of(x.dense), origin=origin)


def check_outputs(
    types: Sequence[ShapedArray], shardings: Sequence[Sharding | None], name_of: Callable[[int], str]
) -> None:
    """Raise ValueError if an output cannot have the requested sharding; `name_of` tells what output i is called."""
    for i, (aval, sharding) in enumerate(zip(types, shardings, strict=True)):
        if sharding is not None:
            try:
                check_fits(sharding, aval, "pjit outputs", "")
            except ValueError:
                check_fits(sharding, aval, "pjit outputs", name_of(i))
