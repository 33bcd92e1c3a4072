"""Placing values: `device_put`, `device_get`, and the target of creation functions' `device=`.

Comes in: trees of host values, Arrays or tracers. Goes out: committed Arrays on the target. With one process a move between
shardings only changes the signature: the data stays in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import Bounded, at_clear, recent
from shardwise.base.config import context_token
from shardwise.base.dtypes import canonicalize, is_key_dtype, physical
from shardwise.base.errors import IndivisibleError, InvalidInputException
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map, tree_unflatten
from shardwise.engine.array import ArrayImpl, host_array, new_array, nothing
from shardwise.engine.compile import compile_program
from shardwise.engine.executable import Executable
from shardwise.engine.guards import guard_explicit_move
from shardwise.engine.host_values import allows_host_values
from shardwise.engine.ordered import checked_order, in_order
from shardwise.engine.placement import check_fits
from shardwise.engine.planned import check_attached
from shardwise.engine.replicas import under_signature
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.engine.transfer import source_of, transfer_array
from shardwise.ir import Array, Literal, Program, ShapedArray, Tracer, Var, bind, in_trace, is_eager
from shardwise.ops.devices.layout import device_put_op, reshard_op, sharding_constraint
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.runtime.copies import copy_dense
from shardwise.runtime.handout import is_constant
from shardwise.runtime.processes import checksum, number_of, the_world
from shardwise.sharding import (
    Device,
    Mesh,
    NamedSharding,
    PartitionSpec,
    PmapSharding,
    Sharding,
    SingleDeviceSharding,
    get_concrete_mesh,
)
from shardwise.sharding.backend import default_device
from shardwise.sharding.formats import Format, Layout
from shardwise.sharding.ownership import spans_processes
from shardwise.sharding.spaces import Space
from shardwise.sharding.tiling import common_refinement, indivisible_text

_MOVES = config.setting("jax_transfer_guard_device_to_device")
_blank = ArrayImpl.__new__


def check_placeable(sharding: Sharding, aval: ShapedArray, what: str) -> None:
    """Raise ValueError if a value of this shape cannot have this sharding."""
    if config.dialect.jit.device_put_has_own_errors:
        tiling = None
        try:
            sharding.check_compatible_aval(aval.shape)
            tiling = sharding.tiling(aval.ndim)
        except ValueError as error:
            raise ValueError(
                f"One of {what} is incompatible with its sharding annotation {sharding}: {error}"
            ) from error
        for dim, (size, ways) in enumerate(zip(aval.shape, tiling.ways, strict=True)) if tiling is not None else ():
            if size % ways:
                raise IndivisibleError(indivisible_text(sharding, dim, aval.shape, tiling.ways))  # type: ignore[union-attr]
    else:
        check_fits(sharding, aval, what)


def as_target(device: Any) -> Sharding | None:
    """A device, sharding, spec or None as a Sharding or None; ValueError for anything else."""
    if device is None:
        return None
    if isinstance(device, Device):
        return SingleDeviceSharding(device)
    if isinstance(device, Sharding):
        if isinstance(device, NamedSharding) and not isinstance(device.mesh, Mesh):
            mesh = get_concrete_mesh()
            if not is_eager() and not mesh.empty and mesh.abstract_mesh == device.mesh:
                return NamedSharding(mesh, device.spec, memory_kind=device.memory_kind)
            raise ValueError(
                f"device_put needs devices, but got a sharding over an AbstractMesh: {device}. Use a NamedSharding over a Mesh."
            )
        return device
    if isinstance(device, PartitionSpec):
        mesh = get_concrete_mesh()
        if mesh.empty:
            raise ValueError(
                f"Please set a mesh via `{config.dialect.meshes.entered_by_path}` if a PartitionSpec is passed to device_put; "
                f"got {device} without one."
            )
        return NamedSharding(mesh, device)
    if isinstance(device, Format):
        if device.layout is Layout.AUTO:
            raise ValueError(f"sharding and layout in `Layout` instance should be concrete. Got layout: {device}.")
        return device.resolve_sharding("device_put")
    if isinstance(device, Space):
        return None  # where a value lies decides: see `_in_space`
    raise ValueError(
        "`jax.device_put` only accepts `None`, `jax.sharding.Sharding`, `jax.Device`, "
        "`jax.sharding.PartitionSpec` or a pytree "
        f"of these values. Received invalid value: {device}"
    )


def is_target_leaf(x: Any) -> bool:
    """Whether `x` is a leaf in a tree of targets."""
    return x is None or isinstance(x, (Device, Sharding, PartitionSpec, Format, Space))


def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """The tree `x` with each leaf on its target: a Device, a Sharding, a PartitionSpec (under a context mesh), a Format, or
    None.

    A `memory.Space` as a target leaves a value on its devices, in another memory; in a traced function it changes nothing, since a CPU has
    one memory. `device` and `src` may be prefix trees of targets. With a target the result is committed; without one Arrays come back
    unchanged and host values go uncommitted to the default device. `src` is the target of cotangents (by default the
    value's own placement). `may_alias=False` forces a copy; `donate` is a hint without effect on the argument here, since
    moving costs nothing; both may be prefix trees of bools. Raises ValueError if a value cannot have its target.

    >>> jax.device_put(jnp.arange(3), jax.devices()[1]).devices()
    {CpuDevice(id=1)}
    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> jax.device_put(jnp.arange(4), jax.NamedSharding(mesh, jax.P("x"))).addressable_shards[1].data
    Array([2, 3], dtype=int32)
    """
    leaves, tree = tree_flatten(x)
    targets = _per_leaf(device, x, len(leaves), "device")
    if src is None and may_alias is None and type(donate) is bool and is_eager():
        placed_leaves = _place_leaves(leaves, targets)
        if placed_leaves is not None:
            return tree_unflatten(tree, placed_leaves)
    sources = _per_leaf(src, x, len(leaves), "source")
    flags = [_flags(f, x, tree) for f in (donate, may_alias)]
    if any(d and a for d, a in zip(*flags, strict=True)):
        raise ValueError("may_alias and donate cannot be True at the same time.")
    target_list, origins = _resolve_targets(targets), _resolve_targets(sources)
    values = [_leaf(v) for v in leaves]
    target_list = [
        _in_space(v, given) if isinstance(given, Space) else target
        for v, given, target in zip(values, targets, target_list, strict=True)
    ]
    orders = [None] * len(values)
    if Format in {*map(type, targets)}:
        orders = [t.order if type(t) is Format else None for t in targets]
    for leaf, value, target, given in zip(leaves, values, target_list, targets, strict=True):
        if type(given) is Format and isinstance(given.layout, Layout):
            checked_order(given.layout, value.shape, "device_put's arguments")
        if target is not None:
            check_placeable(target, value.aval, "device_put args")
            if type(leaf) is ArrayImpl and leaf._sig.devices != target.device_list:
                guard_explicit_move(leaf._sig, target.device_list)
    puts = zip(values, target_list, targets, origins, flags[1], strict=True)
    return tree_unflatten(
        tree,
        [
            _put_leaf(v, t, a is not None and not a, order)
            if not isinstance(v, Tracer) and is_eager()
            else _put_traced(v, t, given, origin)
            for (v, t, given, origin, a), order in zip(puts, orders, strict=True)
        ],
    )


def _in_space(x: Any, space: Space) -> Sharding | None:
    """The sharding of `x` with another memory; None for traced values, and if the value is in that memory already."""
    if space.value is None or isinstance(x, Tracer) or not is_eager():
        return None
    if isinstance(x, ArrayImpl):
        return x.sharding.with_memory_kind(space.value)
    return SingleDeviceSharding(default_device(), memory_kind=space.value)


def _resolve_targets(targets: Sequence[Any]) -> list[Sharding | None]:
    """The shardings of targets; repeated objects are resolved once."""
    target_by_id = {id(t): as_target(t) for t in targets}
    return [target_by_id[id(t)] for t in targets]


def _place_leaves(leaves: Sequence[Any], targets: Sequence[Any]) -> list[Any] | None:
    """Host arrays, and arrays of this process, on targets of its devices; None where there is another leaf, or more to do."""
    if _MOVES.get() is not None or not allows_host_values():
        return None
    token = context_token()
    placed_leaves: list[Any] = []
    given = target = None
    for x, wanted_target in zip(leaves, targets, strict=True):
        if target is None or wanted_target is not given:
            target = as_target(wanted_target) if isinstance(wanted_target, (Sharding, Device)) else None
            if target is None or spans_processes(target.device_list):
                return None
            check_attached(target)
            given = wanted_target
        kind = type(x)
        if kind is np.ndarray:
            sig, dtype = _placed_signature(token, x.shape, x.dtype, target)
            dense = x if dtype is x.dtype and is_constant(x) else copy_dense(x, dtype)
        elif kind is ArrayImpl and not x._sig.spans and not x._sig.varies:
            sig = _moved_signature(token, x._sig, target)
            if sig is None:
                x._check_alive()
                placed_leaves.append(x)
                continue
            dense = x.dense
        else:
            return None
        new_array = _blank(ArrayImpl)
        new_array._sig, new_array._dense, new_array._origin = sig, dense, 0
        new_array._block = new_array._npy = new_array._shards = None
        placed_leaves.append(new_array)
    return placed_leaves


@recent(4096)
def _placed_signature(
    token: object, shape: tuple[int, ...], dtype: Any, target: Sharding
) -> tuple[Signature, np.dtype[Any]]:
    """The signature of a host array on `target`, and the dtype of its values there."""
    del token  # part of the key: errors depend on the settings
    kept_dtype = canonicalize(dtype)
    check_placeable(target, ShapedArray(shape, kept_dtype), "device_put args")
    return signature(array_type(shape, kept_dtype, False, target), target, True), physical(kept_dtype)


@recent(4096)
def _moved_signature(token: object, own: Signature, target: Sharding) -> Signature | None:
    """The signature of this process's arrays of signature `own` on `target`; None if they are there."""
    del token
    check_placeable(target, own.aval, "device_put args")
    return None if _is_there(own, target) else _signature_at(own, target)


def _is_there(own: Signature, target: Sharding) -> bool:
    return own.sharding == target and own.committed and len(own.devices) > 1


def _signature_at(own: Signature, target: Sharding) -> Signature:
    aval = array_type(own.aval.shape, own.aval.dtype, own.aval.weak_type, target)
    return signature(aval, target, True, own.order if own.sharding == target else None)


def _per_leaf(spec: Any, x: Any, leaves: int, what: str) -> list[Any]:
    """A prefix tree of targets, as a list of one target for each of the `leaves` leaves of `x`."""
    if is_target_leaf(spec):
        return [spec] * leaves
    for leaf in tree_flatten(spec, is_leaf=is_target_leaf)[0]:
        as_target(leaf)
    try:
        return broadcast_prefix(spec, x, is_leaf=is_target_leaf, name=f"device_put {what}")
    except ValueError as error:
        raise ValueError(
            f"device_put {what} specification must be a tree prefix of the corresponding value, got specification "
            f"{spec} for a value with structure {tree_flatten(x)[1]}. {error}"
        ) from None


def _flags(given: Any, x: Any, tree: Any) -> list[Any]:
    whole = given is None or isinstance(given, (bool, np.bool_))
    return [given] * tree.num_leaves if whole else broadcast_prefix(given, x)


def _leaf(x: Any) -> Array | Literal | Any:
    if isinstance(x, np.ndarray):
        return new_array(x, explicit=True)
    try:
        return as_value(x)
    except TypeError:
        raise InvalidInputException(
            f"Argument '{x}' of type {type(x)} is not a valid JAX type. Pass arrays or scalars."
        ) from None


def _put_leaf(x: Any, target: Sharding | None, copy: bool, order: tuple[int, ...] | None = None) -> Array:
    value = as_array(x)
    assert isinstance(value, ArrayImpl)
    value._check_alive()
    if order is not None:
        placed_value = _put_leaf(value, target, copy)
        assert isinstance(placed_value, ArrayImpl)
        return in_order(placed_value, order)
    if target is None:
        return value._copy_dense() if copy else value
    if not copy and _is_there(value._sig, target):
        return value
    if copy and value._sig.varies:
        return place(value._copy_dense(), target)
    return place(value, target, copy_dense(value.dense) if copy else value.dense)


def _put_across(value: ArrayImpl, target: Sharding) -> ArrayImpl:
    """Move `value` to, or from, devices of several processes."""
    own = value._sig
    owners = {d.process_index for d in own.devices}
    if len(owners) > 1 and isinstance(target, SingleDeviceSharding):
        raise ValueError(
            f"device_put's first argument must be a fully addressable array to go to one device, but it lies on the devices of "
            f"several processes: {value.sharding}. Use multihost_utils.process_allgather for its value."
        )
    sig = signature(array_type(value.shape, value.dtype, value.weak_type, target), target, True)
    if _on_one_grid(own, sig) and (own.kept_whole or not sig.kept_whole):
        return reshard_array(value, target)
    if own.absent and sig.absent:
        return nothing(sig)
    if own.committed and len(owners | {d.process_index for d in target.device_list}) > 1:
        source = source_of(value, target)
        if source is not None:
            return transfer_array(value, sig, source)
    origin = 0 if sig.absent else check_same(value.dense, target, type(value).__name__)
    return ArrayImpl(sig, dense=sig.part_of(value.dense), origin=origin)


def _on_one_grid(own: Signature, sig: Signature) -> bool:
    """Whether two arrays over several processes lie on the same devices, on meshes with a common refinement."""
    if not own.spans or own.devices != sig.devices or own.tiling is None or sig.tiling is None:
        return False
    return common_refinement(own.tiling.mesh_shape, sig.tiling.mesh_shape) is not None


def check_same(value: np.ndarray, target: Sharding, kind: str) -> int:
    """A number that identifies the value; AssertionError if the processes of `target` do not all pass the same value."""
    ranks = tuple(sorted({d.process_index for d in target.device_list}))
    if len(ranks) == 1 or not config.shardwise_check_replicas:
        return 0
    text = f"device_put of {value.dtype.name}{list(value.shape)} to {target}"
    own_checksum = checksum(value)
    sums = the_world().gather_when_met(ranks, number_of(text), lambda: text, np.array([own_checksum], np.int64))
    if (sums != sums[0]).any():
        differ = [r for r, s in zip(ranks, sums.ravel().tolist(), strict=True) if s != sums[0, 0]]
        raise AssertionError(
            f"{kind} passed to device_put is not the same on each process. Make sure you are passing the same value of {kind} on "
            f"each process: the processes {differ} pass another one than process {ranks[0]}. For a value of which each process has "
            "a part use make_array_from_process_local_data."
        )
    return own_checksum


def reshard_array(value: ArrayImpl, target: Sharding) -> ArrayImpl:
    """An array over several processes resharded over the same devices; processes exchange the data that must move."""
    key = (value._sig, target)
    move = _moves.get(key)
    if move is None:
        var = Var(value.aval)
        program = Program((var,), (), (var,), 0, "device_put")
        move = _moves[key] = compile_program(program, [value._sig], [target])
    return move.call([value])[0]


_moves: Bounded[Any, Executable] = Bounded()
at_clear(_moves.clear)


def place(value: ArrayImpl, target: Sharding, dense: Any = None) -> ArrayImpl:
    """`value` committed to `target`, sharing its data; several processes exchange the data that must move."""
    check_attached(target)
    if value._sig.spans or spans_processes(target.device_list):
        return _put_across(value, target)
    sig = _signature_at(value._sig, target)
    if value._sig.varies:
        return under_signature(value, sig)
    return ArrayImpl(sig, dense=value.dense if dense is None else dense)


def _put_traced(x: Any, target: Sharding | None, given: Any, origin: Sharding | None) -> Array:
    if target is None:
        return in_trace(x)
    if isinstance(target, NamedSharding) and target.mesh.explicit_axes:
        return bind(reshard_op, x, sharding=abstract(target), concrete=target)
    return bind(
        device_put_op, x, target=given if isinstance(given, Device) else target, src=() if origin is None else (origin,)
    )


def _put_eagerly(x: Any, *, target: Any, src: Any) -> Array:
    sharding = as_target(target)
    assert sharding is not None
    check_placeable(sharding, x.aval, "device_put args")
    return _put_leaf(x, sharding, copy=False)


device_put_op.eager = _put_eagerly


def abstract(sharding: NamedSharding) -> NamedSharding:
    """The sharding with the same spec over the abstract mesh."""
    mesh = sharding.mesh
    return NamedSharding(mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh, sharding.spec)


def device_get(x: Any) -> Any:
    """The tree `x` with Arrays as (read-only) NumPy arrays; keys, traced arrays and other leaves are unchanged.

    >>> jax.device_get({'a': jnp.arange(2)})
    {'a': array([0, 1], dtype=int32)}
    """
    return tree_map(_fetch_leaf, x)


def copy_to_host_async(x: Any) -> Any:
    """The tree `x` itself: its arrays are in host memory already. Leaves of other classes that have a method of this name get its call.

    >>> jax.copy_to_host_async({"a": jnp.arange(2)})
    {'a': Array([0, 1], dtype=int32)}
    """
    for leaf in tree_leaves(x):
        copy = getattr(leaf, "copy_to_host_async", None)
        if copy is not None:
            copy()
    return x


def _fetch_leaf(leaf: Any) -> Any:
    if isinstance(leaf, np.generic) or (isinstance(leaf, ArrayImpl) and not is_key_dtype(leaf.dtype)):
        return np.asarray(leaf)
    return leaf


def place_created(value: Array, device: Any) -> Array:
    """A new array moved to a creation function's `device=` (a Device, Sharding or PartitionSpec), or unmoved for None."""
    if device is None:
        return value
    target = as_target(device)
    assert target is not None
    if isinstance(value, Tracer) or not is_eager():
        explicit = isinstance(target, NamedSharding) and target.mesh.explicit_axes
        return (
            _put_traced(value, target, device, None) if explicit else bind(sharding_constraint, value, sharding=target)
        )
    check_placeable(target, value.aval, "the array's device=")
    return _put_leaf(value, target, copy=False)


def device_put_sharded(shards: Any, devices: Any) -> Any:
    """The trees `shards`, one for each of `devices`, stacked along a new leading dim that is split over the devices.

    All have one structure, and their leaves one shape and dtype: k times f32[n] -> f32[k, n].

    Raises:
        ValueError: there are no devices, not as many as shards, or shards differ in structure, shape or dtype.

    >>> jax.device_put_sharded([jnp.zeros(2), jnp.ones(2)], jax.devices()[:2])
    Array([[0., 0.],
           [1., 1.]], dtype=float32)
    """
    shards, devices = list(shards), list(devices)
    _require_devices("device_put_sharded", devices)
    if len(shards) != len(devices):
        raise ValueError(
            f"len(shards) must be equal len(devices), got {len(shards)} shards and {len(devices)} devices."
        )

    def stack_parts(*parts: Any) -> Array:
        values = [np.asarray(p) for p in parts]
        if len({(v.shape, v.dtype) for v in values}) > 1:
            types = ", ".join(f"{v.dtype.name}[{','.join(map(str, v.shape))}]" for v in values)
            raise ValueError(f"device_put_sharded takes shards of one shape and dtype, got {types}.")
        dense = np.stack(values)
        value = host_array(dense, explicit=True)
        return place(value, PmapSharding.default(value.shape, devices=devices))

    return tree_map(stack_parts, *shards)


def device_put_replicated(x: Any, devices: Any) -> Any:
    """A copy of each leaf of the tree `x` for each of `devices`, stacked along a new leading dim.

    Each result has one part on each device: f32[n] -> f32[k, n]. ValueError for no devices.

    >>> jax.device_put_replicated(jnp.arange(2), jax.devices()[:2])
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    devices = list(devices)
    _require_devices("device_put_replicated", devices)
    return device_put_sharded([x] * len(devices), devices)


def _require_devices(api: str, devices: list[Any]) -> None:
    if not devices:
        raise ValueError(f"{api} needs at least one device, got none. Take jax.devices().")
