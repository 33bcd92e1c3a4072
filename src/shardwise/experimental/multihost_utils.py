"""`shardwise.experimental.multihost_utils`: conversion between host-local and global arrays, and barriers.

A host-local value is whole on its process; a global array has one shape on all processes, of which each holds some
shards. With one process the two are the same, exchanges are conversions to NumPy, and barriers return at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import canonicalize
from shardwise.base.errors import DivergenceError
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_leaves, tree_map, tree_unflatten
from shardwise.distributed import is_initialized
from shardwise.engine.array import ArrayImpl
from shardwise.engine.device_put import device_put
from shardwise.engine.make_array import make_array_from_process_local_data, make_array_from_single_device_arrays
from shardwise.ir import Tracer
from shardwise.runtime.processes import as_bytes, number_of, preemption, the_world, total_traffic, world
from shardwise.sharding import Device, Mesh, NamedSharding, PartitionSpec, process_count

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "live_devices",
    "process_allgather",
    "reached_preemption_sync_point",
    "sync_global_devices",
]


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Take each process's values as its part of global arrays.

    A dim that `pspecs` splits over several processes grows by their number: local (4,) with P('x') over two processes
    is global (8,). Dims that are not split must hold the same on every process. Arrays that span processes already
    come back as they are.

    Args:
        local_inputs: a tree of arrays or NumPy values.
        global_mesh: the mesh over all processes.
        pspecs: a `PartitionSpec` for each value, or a prefix of the tree.

    Raises:
        ValueError: a spec is None, fits its value badly, or `pspecs` is no prefix of `local_inputs`.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> jax.experimental.multihost_utils.host_local_array_to_global_array(jnp.arange(4), mesh, jax.P("x")).sharding.spec
    PartitionSpec('x',)
    """
    return _map_with_specs(lambda x, spec: _to_global(x, global_mesh, spec), local_inputs, pspecs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """The inverse of `host_local_array_to_global_array`: the part of each global array that this process holds.

    Arrays that lie on this process alone come back as they are; others are laid out over `global_mesh` by `pspecs`
    first.

    Raises:
        ValueError: a spec is None, fits its value badly, or `pspecs` is no prefix of `global_inputs`.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> jax.experimental.multihost_utils.global_array_to_host_local_array(jnp.arange(4), mesh, jax.P("x"))
    Array([0, 1, 2, 3], dtype=int32)
    """
    return _map_with_specs(lambda x, spec: _to_host_local(x, global_mesh, spec), global_inputs, pspecs)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The trees `in_tree` of all processes, as NumPy arrays on each of them.

    Host-local values, of equal shapes, are stacked along a new dim 0, or joined along dim 0 if `tiled` (scalars are
    stacked). Of an array over several processes it is the whole value.

    Raises:
        ValueError: under the dialect 0.10, an array over several processes without `tiled`.

    >>> jax.experimental.multihost_utils.process_allgather(jnp.arange(2))
    array([[0, 1]], dtype=int32)
    """
    return tree_map(lambda x: _gather_value(x, tiled), in_tree)


def _gather_value(x: Any, tiled: bool) -> np.ndarray:
    if isinstance(x, ArrayImpl) and not x.is_fully_addressable:
        if not tiled and config.dialect.arrays.allgather_needs_tiled:
            raise ValueError(
                "Gathering global non-fully-addressable arrays only supports tiled=True: the result is the array's whole value."
            )
        if x.is_fully_replicated:
            return np.asarray(x)
        if not isinstance(x.sharding, NamedSharding):
            x = device_put(x, NamedSharding(Mesh(np.array(x.sharding.device_list), ("_all",)), PartitionSpec()))
        else:
            x = device_put(x, NamedSharding(x.sharding.mesh, PartitionSpec()))
        return np.asarray(x)
    value = np.asarray(x)
    processes = world()
    if processes is None:
        count = process_count()  # in a planned run this process stands for all
        if count == 1:
            return value if tiled else value[np.newaxis]
        return np.concatenate([value] * count) if tiled and value.ndim else np.stack([value] * count)
    value = _canonical(value)
    total_traffic.add("all_gather", value.nbytes * (processes.size - 1))
    what = f"process_allgather of {value.dtype.name}{list(value.shape)}"
    rows = processes.gather_when_met(_everyone(), number_of(what), lambda: what, value)
    return rows.reshape(-1, *value.shape[1:]) if tiled and value.ndim else rows


def _canonical(value: np.ndarray) -> np.ndarray:
    """A host value as an array holds it, which is what goes between processes: without x64 numbers of 64 bits become ones of 32."""
    kind: Any = canonicalize(value.dtype)
    return value.astype(kind, copy=False)


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The tree `in_tree` of one process (the first, or the one that says `is_source`), as NumPy arrays on all of
    them.

    Raises:
        ValueError: not exactly one process says that it is the source.

    >>> jax.experimental.multihost_utils.broadcast_one_to_all(jnp.arange(2))
    array([0, 1], dtype=int32)
    """
    processes = world()
    leaves, structure = tree_flatten(in_tree)
    values = [np.asarray(x) for x in leaves]
    if processes is None:
        if is_source is False:
            raise ValueError(
                "broadcast_one_to_all: the only process says that it is not the source; nobody has the values."
            )
        return tree_unflatten(structure, values)
    values = [_canonical(value) for value in values]
    with processes.turn:
        return tree_unflatten(structure, _broadcast(values, is_source))


def _broadcast(values: list[np.ndarray], is_source: bool | None) -> list[np.ndarray]:
    processes = the_world()
    what = f"broadcast_one_to_all of ({', '.join(f'{v.dtype.name}{list(v.shape)}' for v in values)})"
    mine = processes.rank == 0 if is_source is None else bool(is_source)
    sources = np.flatnonzero(processes.gather_when_met(_everyone(), number_of(what), lambda: what, np.array(mine)))
    if len(sources) != 1:
        raise ValueError(
            f"broadcast_one_to_all: one process must say is_source=True, but these do: {sources.tolist()}."
        )
    total_traffic.add("broadcast", sum(v.nbytes for v in values) * (processes.size - 1) if mine else 0)
    out = []
    for value in values:
        send_buffer = value.copy() if mine else np.empty(value.shape, value.dtype)
        if send_buffer.nbytes:
            processes.comm.Bcast(as_bytes(send_buffer), root=int(sources[0]))
        is_widened = send_buffer.dtype == np.bool_ and config.dialect.arrays.broadcast_bools_are_ints
        out.append(send_buffer.astype(np.int32) if is_widened else send_buffer)
    return out


def sync_global_devices(name: str) -> None:
    """Wait until every process is here. `name` tells the barriers apart: all processes must give the same.

    Raises:
        AssertionError: another process waits at a barrier of another name.
        RuntimeError: the processes have computed different things with arrays that they share.

    >>> jax.experimental.multihost_utils.sync_global_devices("saved")
    """
    if world() is None:
        return
    try:
        _meet(f"sync_global_devices({name!r})")
    except DivergenceError as error:
        raise AssertionError(f"sync_global_devices name mismatch ({name!r}). {error}") from None
    the_world().compare_histories()


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Check that all processes pass the same `in_tree`, a tree of arrays or numbers.

    Raises:
        AssertionError: they do not; the message begins with `fail_message`.

    >>> jax.experimental.multihost_utils.assert_equal({"step": 3}, fail_message="steps differ")
    """
    first_tree = broadcast_one_to_all(in_tree)
    for have, want in zip(tree_leaves(in_tree), tree_leaves(first_tree), strict=True):
        if not np.array_equal(np.asarray(have), want):
            raise AssertionError(f"{fail_message} Expected: {first_tree}; got: {in_tree}.")


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether the processes, all of which call this at every step, are to save now: one of them got SIGTERM since the last step.

    True on all of them at one and the same step, once for each notice. From the first call on SIGTERM no longer ends the process;
    a handler that the program has set is still called. The processes tell each other in a small exchange, so that all must call it
    with the same `step_id`. In a program that has not called `distributed.initialize` there is no listener, and the result is False.

    Raises:
        RuntimeError: another process does something else, or the first call is not in the main thread.

    >>> jax.experimental.multihost_utils.reached_preemption_sync_point(0)
    False
    """
    return is_initialized() and preemption.reached_end(int(step_id))


@contextmanager
def live_devices(devices: Sequence[Device]) -> Generator[list[Device]]:
    """The `devices` whose processes are alive: all of them. All processes meet here, and once more at the end.

    A process that has died, or does not come, ends the job, with its rank in a message: no program goes on without it.

    Raises:
        RuntimeError: another of these processes does something else.

    >>> with jax.experimental.multihost_utils.live_devices(jax.devices()) as alive:
    ...     print(len(alive) == len(jax.devices()))
    True
    """
    device_list, processes = list(devices), world()
    ranks = tuple(sorted({d.process_index for d in device_list}))
    if processes is None or processes.rank not in ranks:
        yield device_list
        return
    processes.meet(ranks, number_of("live_devices"), lambda: "the begin of live_devices")
    yield device_list
    processes.meet(ranks, number_of("live_devices, the end"), lambda: "the end of live_devices")


def _map_with_specs(convert: Callable[[Any, PartitionSpec], Any], tree: Any, pspecs: Any) -> Any:
    leaves, structure = tree_flatten(tree)
    specs = broadcast_prefix(pspecs, tree, is_leaf=lambda x: x is None)
    for spec in specs:
        if spec is None:
            raise ValueError("`None` is no spec: for values that are replicated pass jax.sharding.PartitionSpec().")
        if not isinstance(spec, PartitionSpec):
            raise TypeError(
                f"pspecs takes jax.sharding.PartitionSpec at its leaves, got {spec!r} of type {type(spec)}."
            )
    return tree_unflatten(structure, [convert(x, spec) for x, spec in zip(leaves, specs, strict=True)])


def _to_global(x: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    sharding = NamedSharding(mesh, spec)
    if isinstance(x, Tracer) or (isinstance(x, ArrayImpl) and not x.is_fully_addressable):
        return x
    if not mesh.is_multi_process:
        return device_put(x, sharding)
    local = np.asarray(x)
    # The local shape holds one shard for each local way of splitting, so that the global shape follows from one shard.
    shard = NamedSharding(mesh.local_mesh, spec).shard_shape(local.shape)
    return make_array_from_process_local_data(sharding, local, _joined_shape(shard, sharding))


def _to_host_local(x: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    if isinstance(x, Tracer) or x.is_fully_addressable:
        return x
    x = device_put(x, NamedSharding(mesh, spec))
    local = NamedSharding(mesh.local_mesh, spec)
    shards = [shard.data for shard in x.addressable_shards]
    return make_array_from_single_device_arrays(_joined_shape(shards[0].shape, local), local, shards)


def _joined_shape(shard: tuple[int, ...], sharding: NamedSharding) -> tuple[int, ...]:
    """The shape of an array of this sharding whose shards have the shape `shard`."""
    tiling = sharding.tiling(len(shard))
    assert tiling is not None
    return tuple(size * ways for size, ways in zip(shard, tiling.ways, strict=True))


def _everyone() -> tuple[int, ...]:
    return tuple(range(the_world().size))


def _meet(what: str) -> None:
    the_world().meet(_everyone(), number_of(what), lambda: what)


__dir__ = _listing(__name__)
