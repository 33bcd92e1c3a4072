"""Stepping: running the body of a shard_map as plain Python, once per device, on that device's own concrete arrays.

Under `disable_jit` each device gets a thread, named after it, and exactly one thread runs at a time. A device runs until it
calls a collective and waits there while the next one runs; when the last device of a group arrives, they exchange values.
So `if`, `print`, `float()`, NumPy and `breakpoint()` work inside, always in the same order.

In: a `ShardMap` and its arguments. Out: the joined results, or the first exception that a device raised. All
threads end before the call does. Devices that call different collectives get an error that names two of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base import config
from shardwise.base.shapes import DimAxes, Ndarray
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_unflatten
from shardwise.engine.array import ArrayImpl
from shardwise.engine.replicas import array_of_parts
from shardwise.engine.signature import array_type, signature
from shardwise.ir import (
    Array,
    ShapedArray,
    current_trace,
    is_eager,
)
from shardwise.ir.axis_scope import ERA, LOCAL_DERIVATIVES
from shardwise.ops.devices.parallel import AXIS_ENV, CHECK_VMA
from shardwise.ops.rules.convert import as_array
from shardwise.runtime.blocks import block_form
from shardwise.runtime.crew import Crew, DeviceStopped, Runner, SteppedCall
from shardwise.sharding import (
    AbstractMesh,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    get_concrete_mesh,
    use_mesh,
)
from shardwise.sharding.context import abstract_mesh_context
from shardwise.sharding.mesh import EMPTY_MESH
from shardwise.sharding.ownership import spans_processes
from shardwise.transforms.manual import shard_map_errors as errors
from shardwise.transforms.manual.shard_map_scope import manual_mesh, spec_dims
from shardwise.transforms.manual.stepped_device import SteppedTrace, Worker

if TYPE_CHECKING:
    from shardwise.transforms.manual.shard_map import ShardMap


def wants_stepping() -> bool:
    """Whether a shard_map called now runs its body device by device."""
    return config.jax_disable_jit and (is_eager() or isinstance(current_trace(), SteppedTrace))


# -- one call of shard_map ---------------------------------------------------------------------------------------------------


def step(
    call: ShardMap,
    mesh: Mesh | AbstractMesh,
    manual: frozenset[str],
    values: Sequence[Array],
    in_tree: PyTreeDef,
    in_dims: Sequence[DimAxes],
    types: Sequence[ShapedArray],
) -> Any:
    """Run the body once per device and join what the devices return. The arguments are checked already."""
    whole = _concrete(mesh)
    if spans_processes(whole.device_list):
        raise NotImplementedError(
            "disable_jit steps through the devices of one process; with several processes leave jit on, or step through the "
            "program as one process with as many virtual devices."
        )
    trace = current_trace()
    outer = trace.worker if isinstance(trace, SteppedTrace) else None
    values = [v if outer is None else outer.own(v) for v in values]
    axes = tuple(a for a in whole.axis_names if a in manual)
    sizes = tuple(whole.shape[a] for a in axes)
    crew = Crew() if outer is None else outer.crew
    crew.rendezvous.sizes.update(zip(axes, sizes, strict=True))
    group = SteppedCall(Runner() if outer is None else outer, int(np.prod(sizes, dtype=int)))
    meshes = _sub_meshes(whole, axes)
    parts = [_split(v, dims, axes, sizes, meshes) for v, dims in zip(values, in_dims, strict=True)]
    rests = [_automatic(v, whole, manual) for v in values]
    workers = []
    for number, at in enumerate(np.ndindex(*sizes)):
        place = (outer.place if outer else frozenset()) | frozenset(zip(axes, at, strict=True))
        sub_mesh: Mesh = meshes[at]  # type: ignore[assignment]
        blocks = [_block(part[at], t, sub_mesh, rest) for part, t, rest in zip(parts, types, rests, strict=True)]
        body = functools.partial(_body, call, whole, manual, sub_mesh, in_tree, blocks)
        workers.append(Worker(call, crew, group, number, place, sub_mesh, body))
    crew.ready.extend(workers)
    _wait(crew, group, outer)
    for worker in workers:
        worker.thread.join()
    if crew.error is not None:
        raise crew.error if outer is None else DeviceStopped
    leaves, out_tree = _agreed(call, group, workers)
    return tree_unflatten(out_tree, _join_results(call, whole, manual, axes, sizes, out_tree, leaves, outer))


def _wait(crew: Crew, group: SteppedCall, outer: Worker | None) -> None:
    """Let the devices run until all have ended."""
    crew.pass_on()
    try:
        group.parent.pause()
    except KeyboardInterrupt as error:
        if outer is None:  # the threads unwind at their next op
            crew.fail(error)
        raise


def _body(
    call: ShardMap, mesh: Mesh, manual: frozenset[str], sub_mesh: Mesh, in_tree: PyTreeDef, blocks: Sequence[Array]
) -> Any:
    """The body that one device's thread runs."""
    env = dict(AXIS_ENV.get()) | {a: mesh.shape[a] for a in mesh.axis_names if a in manual}
    context = use_mesh(sub_mesh if sub_mesh.axis_names else EMPTY_MESH)
    axes_override, check_override = AXIS_ENV.override(tuple(env.items())), CHECK_VMA.override(call.check)
    with (
        context,
        axes_override,
        check_override,
        ERA.override(call.era),
        LOCAL_DERIVATIVES.override(call.own_derivatives),
    ):
        if sub_mesh.axis_names:
            return _call_body(call, in_tree, blocks)
        with abstract_mesh_context(manual_mesh(mesh, manual)):
            return _call_body(call, in_tree, blocks)


def _call_body(call: ShardMap, in_tree: PyTreeDef, blocks: Sequence[Array]) -> Any:
    leaves, tree = tree_flatten(call.fun(*tree_unflatten(in_tree, blocks)))
    for leaf in leaves:
        errors.check_output_type(call, leaf)
    return tree_unflatten(tree, [as_array(x) for x in leaves])


def _concrete(mesh: Mesh | AbstractMesh) -> Mesh:
    if isinstance(mesh, Mesh):
        return mesh
    concrete_mesh = get_concrete_mesh()
    if concrete_mesh.axis_names != mesh.axis_names:
        raise ValueError(
            f"shard_map under disable_jit runs on devices, but got {mesh}, which has none. Pass a Mesh, or set one."
        )
    return concrete_mesh


def _sub_meshes(mesh: Mesh, axes: tuple[str, ...]) -> np.ndarray:
    """For each position along `axes`, the mesh over the other axes."""
    order = [mesh.axis_names.index(a) for a in axes]
    rest = [i for i in range(len(mesh.axis_names)) if i not in order]
    grid = np.transpose(mesh.devices, (*order, *rest))
    names = tuple(mesh.axis_names[i] for i in rest)
    types = tuple(mesh.axis_types[i] for i in rest)
    meshes = np.empty(grid.shape[: len(axes)], object)
    for at in np.ndindex(meshes.shape):
        part = np.empty(grid.shape[len(axes) :], object)
        part[...] = grid[at]
        meshes[at] = Mesh(part, names, axis_types=types)
    return meshes


def _split(
    value: Array, dims: DimAxes, axes: tuple[str, ...], sizes: tuple[int, ...], meshes: np.ndarray[Any, Any]
) -> Ndarray:
    """The value's block over the manual axes, extent n along each: a view, unless devices have copies of their own of the value."""
    assert isinstance(value, ArrayImpl)
    positions = tuple(tuple(axes.index(a) for a in split) for split in dims)
    form = block_form(value.shape, positions, sizes)
    block = form.from_dense(value.dense)
    block = np.broadcast_to(block, sizes + block.shape[len(sizes) :])
    if not value._sig.varies or not value.is_fully_replicated:
        return block
    own = {shard.device: shard.data for shard in value.addressable_shards}
    block = block.copy()
    for at in np.ndindex(*sizes):
        copy = own.get(meshes[at].devices.flat[0])  # type: ignore[union-attr]
        if copy is not None:
            part = form.from_dense(copy.dense)
            block[at] = part[tuple(i if n > 1 else 0 for i, n in zip(at, part.shape, strict=False))]
    return block


def _automatic(value: Array, mesh: Mesh, manual: frozenset[str]) -> DimAxes:
    """The axes of the mesh, other than manual ones, that split each dim of the value."""
    sharding = getattr(value, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.mesh.axis_names != mesh.axis_names:
        return ((),) * value.ndim
    dims = spec_dims(sharding.spec, value.ndim)
    return tuple(tuple(a for a in split if a not in manual) for split in dims)


def _block(dense: Ndarray, aval: ShapedArray, mesh: Mesh, rest: DimAxes) -> ArrayImpl:
    """One device's argument."""
    sharding: Sharding = SingleDeviceSharding(mesh.devices.flat[0])
    if mesh.axis_names:
        sharding = NamedSharding(mesh, PartitionSpec(*[split or None for split in rest]))
    own = array_type(aval.shape, aval.dtype, aval.weak_type, sharding).update(vma=aval.vma)
    return ArrayImpl(signature(own, sharding, True), dense=dense)


def _agreed(call: ShardMap, group: SteppedCall, workers: Sequence[Worker]) -> tuple[list[list[ArrayImpl]], PyTreeDef]:
    """Each device's results; ValueError if devices return different trees, shapes or dtypes."""
    results = [r for r in group.results if r is not None]
    leaves, tree = results[0]
    type_texts = [f"{x.dtype.name}[{','.join(map(str, x.shape))}]" for x in leaves]
    for worker, (others, other_tree) in zip(workers, results, strict=True):
        theirs = [f"{x.dtype.name}[{','.join(map(str, x.shape))}]" for x in others]
        if other_tree != tree or theirs != type_texts:
            label = worker.crew.rendezvous.label
            raise ValueError(
                f"shard_map applied to the function '{call.name}': {label(workers[0].place)} returned {tree} of {type_texts}, but "
                f"{label(worker.place)} returned {other_tree} of {theirs}. All devices must return values of the same types."
            )
    return [[worker_leaves[i] for worker_leaves, _ in results] for i in range(len(leaves))], tree  # type: ignore[misc]


def _join_results(
    call: ShardMap,
    mesh: Mesh,
    manual: frozenset[str],
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    out_tree: PyTreeDef,
    leaves: Sequence[Sequence[ArrayImpl]],
    outer: Worker | None,
) -> list[ArrayImpl]:
    """The results as arrays over the whole mesh, after the same checks as in the traced form."""
    specs = call.flat_out_specs(out_tree, [xs[0] for xs in leaves])
    errors.check_specs(call, mesh, manual, "out", specs)
    blocks = [np.stack([x.dense for x in xs]).reshape(sizes + xs[0].shape) for xs in leaves]
    types = [xs[0].aval.update(vma=frozenset().union(*[x.aval.vma for x in xs])) for xs in leaves]
    errors.check_out_ranks(call, specs, types)
    dims = [spec_dims(s, t.ndim) for s, t in zip(specs, types, strict=True)]
    if call.check:
        seen_types = [t.update(vma=t.vma | _differing_axes(b, axes)) for t, b in zip(types, blocks, strict=True)]
        errors.check_replication(call, mesh, manual, specs, dims, seen_types)
    return [
        _result(xs[0], block, t, d, mesh, axes, sizes, outer)
        for xs, block, t, d in zip(leaves, blocks, types, dims, strict=True)
    ]


def _differing_axes(block: Ndarray, axes: tuple[str, ...]) -> frozenset[str]:
    """The axes along which devices actually hold different values."""
    different_axes = set()
    for d, axis in enumerate(axes):
        first = np.broadcast_to(block.take([0], d), block.shape)
        if np.ascontiguousarray(first).tobytes() != np.ascontiguousarray(block).tobytes():
            different_axes.add(axis)
    return frozenset(different_axes)


def _result(
    first: ArrayImpl,
    block: Ndarray,
    aval: ShapedArray,
    dims: DimAxes,
    mesh: Mesh,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    outer: Worker | None,
) -> ArrayImpl:
    ways = [int(np.prod([mesh.shape[a] for a in split], dtype=int)) for split in dims]
    shape = tuple(n * w for n, w in zip(aval.shape, ways, strict=True))
    positions = tuple(tuple(axes.index(a) for a in split) for split in dims)
    sharding = first.sharding
    rest = spec_dims(sharding.spec, len(shape)) if isinstance(sharding, NamedSharding) else ((),) * len(shape)
    entries = [m + r for m, r in zip(dims, rest, strict=True)]
    if not mesh.explicit_axes:  # explicit types repeat the spec at full rank
        while entries and not entries[-1]:
            entries.pop()
    result_sharding = NamedSharding(mesh, PartitionSpec(*[e if len(e) > 1 else e[0] if e else None for e in entries]))
    vma = aval.vma - set(axes) if outer is not None else frozenset()
    own = array_type(shape, aval.dtype, aval.weak_type, result_sharding).update(vma=vma)
    sig = signature(own, result_sharding, True)
    if outer is None and axes == mesh.axis_names:
        return array_of_parts(sig, [block[at] for at in np.ndindex(*sizes)])
    return ArrayImpl(sig, dense=block_form(shape, positions, sizes).to_dense(block))
