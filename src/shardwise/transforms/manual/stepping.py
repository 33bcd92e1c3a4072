"""Stepping: running the body of a shard_map as plain Python, once per device, on that device's own concrete arrays.

Under `disable_jit` each device gets a thread, named after it, and exactly one thread runs at a time. A device runs until it
calls a collective and waits there while the next one runs; when the last device of a group arrives, they exchange values.
So `if`, `print`, `float()`, NumPy and `breakpoint()` work inside, always in the same order.

In: a `ShardMap` and its arguments. Out: the joined results, or the first exception that a device raised. All
threads end before the call does. Devices that call different collectives get an error that names two of them.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base import config
from shardwise.base.config import Override, thread_local
from shardwise.base.shapes import DimAxes, Ndarray
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_unflatten
from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.ir import (
    Array,
    Equation,
    Literal,
    ShapedArray,
    Trace,
    Var,
    current_trace,
    eagerly,
    infer_types,
    is_eager,
    subprograms,
    tracing,
    unwrap_op,
)
from shardwise.ir.axis_scope import ERA, LOCAL_DERIVATIVES
from shardwise.ir.op import Op
from shardwise.ir.sources import user_source
from shardwise.ops.devices.parallel import AXIS_ENV, CHECK_VMA
from shardwise.ops.rules.convert import as_array
from shardwise.runtime.blocks import block_form
from shardwise.runtime.crew import Crew, DeviceStopped, Runner, SteppedCall
from shardwise.runtime.rendezvous import CollectiveCall, Place
from shardwise.runtime.stepped import DeviceEnv, axes_used, equation_steps
from shardwise.sharding import (
    AbstractMesh,
    Device,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    get_concrete_mesh,
    use_mesh,
)
from shardwise.sharding.backend import default_device
from shardwise.sharding.context import abstract_mesh_context
from shardwise.sharding.mesh import EMPTY_MESH
from shardwise.sharding.ownership import spans_processes
from shardwise.transforms.manual import shard_map_errors as errors
from shardwise.transforms.manual.shard_map_scope import manual_mesh, spec_dims

if TYPE_CHECKING:
    from shardwise.transforms.manual.shard_map import ShardMap

with eagerly() as EAGER:
    pass  # the trace that runs ops at once


def wants_stepping() -> bool:
    """Whether a shard_map called now runs its body device by device."""
    return config.jax_disable_jit and (is_eager() or isinstance(current_trace(), SteppedTrace))


# -- one device --------------------------------------------------------------------------------------------------------------


class Worker(Runner):
    """One device (or, if some mesh axes stay automatic, one sub-mesh of devices) and its thread."""

    def __init__(
        self,
        call: ShardMap,
        crew: Crew,
        group: SteppedCall,
        number: int,
        place: Place,
        mesh: Mesh,
        body: Callable[[], Any],
    ) -> None:
        super().__init__()
        self.call = call
        self.crew = crew
        self.group = group
        self.number = number
        self.place = place
        self.coordinates = dict(place)
        self.mesh = mesh  # over the axes that stay automatic
        self.devices: tuple[Device, ...] = tuple(mesh.devices.flat)
        self.home: Sharding = (
            NamedSharding(mesh, PartitionSpec()) if mesh.axis_names else SingleDeviceSharding(self.devices[0])
        )
        self.signatures: dict[ShapedArray, Signature] = {}
        self._body = body
        self._settings = dict(thread_local.state.overrides)
        self._context = contextvars.copy_context()
        self._started = False
        name = str(self.devices[0]) + (f"..{self.devices[-1]}" if len(self.devices) > 1 else "")
        self.thread = threading.Thread(target=self._context.run, args=(self._run,), name=name, daemon=True)
        crew.workers[place] = self
        crew.rendezvous.labels[place] = name
        crew.rendezvous.ended.discard(place)

    def resume(self) -> None:
        """Start or resume the device's thread."""
        if self._started:
            super().resume()
        else:
            self._started = True
            try:
                self.thread.start()
            except RuntimeError as error:
                raise RuntimeError(
                    f"{error}: a body that is not compiled runs in a thread per device, and the system starts no more. Raise the limit "
                    "on processes (ulimit -u), use fewer devices, or wrap shard_map in jit."
                ) from error

    def _run(self) -> None:
        crew = self.crew
        try:
            if crew.error is None:
                with Override(self._settings), tracing(SteppedTrace(self)):
                    leaves, tree = tree_flatten(self._body())
                    self.group.results[self.number] = (leaves, tree)
        except DeviceStopped:
            pass
        except BaseException as error:
            crew.rendezvous.waiting.pop(self.place, None)
            if crew.error is None:
                error.add_note(
                    f"Raised on {crew.rendezvous.label(self.place)}, which ran the body of shard_map on its own."
                )
            crew.fail(error)
        finally:
            crew.rendezvous.end(self.place)
            self.group.running -= 1
            if not self.group.running:
                crew.ready.append(self.group.parent)
            crew.pass_on()

    # -- meeting others --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise, to unwind the thread, if another device has failed."""
        if self.crew.error is not None:
            raise DeviceStopped

    def switch(self) -> None:
        """Let others run until this device is resumed."""
        self.crew.pass_on()
        self.pause()
        self.check()

    def meet(self, call: CollectiveCall) -> Ndarray:
        """Wait in a collective; returns this device's result."""
        crew = self.crew
        for place, result in crew.rendezvous.arrive(self.place, call):
            other = crew.workers[place]
            other.result = result
            crew.ready.append(other)
        self.switch()
        return self.result

    # -- this device's arrays ----------------------------------------------------------------------------------------------------

    def signature_of(self, aval: ShapedArray) -> Signature:
        """The signature of a value on this device."""
        sig = self.signatures.get(aval)
        if sig is None:
            plain = array_type(aval.shape, aval.dtype, aval.weak_type, self.home)
            sig = self.signatures[aval] = signature(plain.update(vma=aval.vma), self.home, True)
        return sig

    def signature_like(self, aval: ShapedArray, operands: Sequence[Any]) -> Signature:
        """The signature of a collective's result: over automatic axes it has the layout of an operand of equal shape."""
        if self.mesh.axis_names:
            for x in operands:
                if isinstance(x, ArrayImpl) and x.shape == aval.shape and x._sig.devices == self.devices:
                    own = array_type(aval.shape, aval.dtype, aval.weak_type, x.sharding).update(vma=aval.vma)
                    return signature(own, x.sharding, True)
        return self.signature_of(aval)

    def own(self, x: Any) -> Any:
        """An operand on this device; a captured array on other devices becomes whole on every device."""
        if isinstance(x, ArrayImpl) and x.committed and x._sig.devices != self.devices:
            errors.check_captured(self.call, [x])
            return ArrayImpl(
                self.signature_of(ShapedArray(x.shape, x.dtype, x.weak_type, vma=x.aval.vma)), dense=x.dense
            )
        return x

    def sharding_here(self, sharding: Any) -> NamedSharding | None:
        """A sharding over axes of the whole mesh, restricted to this device's part of it; None if no axes remain."""
        if not self.mesh.axis_names:
            return None
        kept = [
            entry
            if entry is PartitionSpec.UNCONSTRAINED
            else tuple(a for a in axes if a in self.mesh.axis_names) or None
            for entry, axes in zip(sharding.spec.partitions, spec_dims(sharding.spec, len(sharding.spec)), strict=True)
        ]
        return NamedSharding(self.mesh, PartitionSpec(*kept))


class SteppedTrace(Trace):
    """Runs ops immediately on one device's arrays; collectives wait for the other devices."""

    __slots__ = ("worker",)

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.worker = worker

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        worker = self.worker
        worker.check()
        args = tuple(worker.own(a) for a in args)
        if unwrap_op(op, params)[0].collective is not None or _needs_others(params):
            outs = self._together(op, args, params)
            return outs if op.multiple_results else outs[0]
        if any(isinstance(v, NamedSharding) for v in params.values()):
            params = {k: worker.sharding_here(v) if isinstance(v, NamedSharding) else v for k, v in params.items()}
            if op.constrains is not None and params["sharding"] is None:
                return args[0]
        varying = any(a.aval.vma for a in args)
        types = infer_types(op, tuple(a.aval for a in args), params) if varying else None
        alone_on_device = not worker.mesh.axis_names
        out = EAGER.process(op, tuple(map(_anywhere, args)) if alone_on_device else args, params)
        for i, x in enumerate(out if op.multiple_results else (out,)):
            aval = x._sig.aval if types is None else x._sig.aval.update(vma=types[i].vma)
            x._sig = (
                worker.signature_of(aval) if alone_on_device else signature(aval, x._sig.sharding, x._sig.committed)
            )
        return out

    def _together(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> list[ArrayImpl]:
        """Run an op that exchanges values with other devices, itself or in an inner program."""
        worker = self.worker
        source = user_source()
        types = infer_types(op, tuple(a.aval for a in args), params)
        operands = [a.value if isinstance(a, Literal) else a.dense for a in args]
        sizes = worker.crew.rendezvous.sizes
        at = worker.coordinates
        env = DeviceEnv(tuple(at), tuple(sizes[a] for a in at), 0, tuple(at.values()))
        equation = Equation(op, tuple(Var(a.aval) for a in args), tuple(Var(t) for t in types), params, source)
        results = self._drive(equation, operands, env)
        sigs = [worker.signature_like(t, args) for t in types]
        return [ArrayImpl(sig, dense=np.asarray(x)) for sig, x in zip(sigs, results, strict=True)]

    def _drive(self, equation: Equation, operands: Sequence[Ndarray], env: DeviceEnv) -> list[Ndarray]:
        steps = equation_steps(equation, operands, env)
        result: Any = None
        while True:
            try:
                call = steps.send(result)
            except StopIteration as done:
                return done.value
            result = self.worker.meet(call)


def _anywhere(x: Any) -> Any:
    """A device's value, uncommitted, so that all devices share the compiled ops."""
    if not isinstance(x, ArrayImpl):
        return x
    sig = x._sig
    plain = ArrayImpl(
        signature(ShapedArray(sig.aval.shape, sig.aval.dtype, sig.aval.weak_type), _default(default_device()), False)
    )
    plain._block, plain._dense = x._block, x._dense
    return plain


@functools.lru_cache(maxsize=64)
def _default(device: Device) -> SingleDeviceSharding:
    return SingleDeviceSharding(device)


def _needs_others(params: Mapping[str, Any]) -> bool:
    """Whether an inner program exchanges values over axes that the equation itself does not bind."""
    bound = params.get("manual") or frozenset()
    return any(axes_used(p) - bound for _, p in subprograms(params))


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
    parts = [_split(v, dims, axes, sizes) for v, dims in zip(values, in_dims, strict=True)]
    rests = [_automatic(v, whole, manual) for v in values]
    meshes = _sub_meshes(whole, axes)
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
    named, checked = AXIS_ENV.override(tuple(env.items())), CHECK_VMA.override(call.check)
    with context, named, checked, ERA.override(call.era), LOCAL_DERIVATIVES.override(call.own_derivatives):
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
    known = get_concrete_mesh()
    if known.axis_names != mesh.axis_names:
        raise ValueError(
            f"shard_map under disable_jit runs on devices, but got {mesh}, which has none. Pass a Mesh, or set one."
        )
    return known


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


def _split(value: Array, dims: DimAxes, axes: tuple[str, ...], sizes: tuple[int, ...]) -> Ndarray:
    """The value's block over the manual axes, extent n along each: a view."""
    assert isinstance(value, ArrayImpl)
    positions = tuple(tuple(axes.index(a) for a in split) for split in dims)
    form = block_form(value.shape, positions, sizes)
    block = form.from_dense(value.dense)
    return np.broadcast_to(block, sizes + block.shape[len(sizes) :])


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
    shown = [f"{x.dtype.name}[{','.join(map(str, x.shape))}]" for x in leaves]
    for worker, (others, other_tree) in zip(workers, results, strict=True):
        theirs = [f"{x.dtype.name}[{','.join(map(str, x.shape))}]" for x in others]
        if other_tree != tree or theirs != shown:
            label = worker.crew.rendezvous.label
            raise ValueError(
                f"shard_map applied to the function '{call.name}': {label(workers[0].place)} returned {tree} of {shown}, but "
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
        seen = [t.update(vma=t.vma | _differing_axes(b, axes)) for t, b in zip(types, blocks, strict=True)]
        errors.check_replication(call, mesh, manual, specs, dims, seen)
    return [
        _result(xs[0], block, t, d, mesh, axes, sizes, outer)
        for xs, block, t, d in zip(leaves, blocks, types, dims, strict=True)
    ]


def _differing_axes(block: Ndarray, axes: tuple[str, ...]) -> frozenset[str]:
    """The axes along which devices actually hold different values."""
    found = set()
    for d, axis in enumerate(axes):
        first = np.broadcast_to(block.take([0], d), block.shape)
        if np.ascontiguousarray(first).tobytes() != np.ascontiguousarray(block).tobytes():
            found.add(axis)
    return frozenset(found)


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
    dense = block_form(shape, positions, sizes).to_dense(block)
    sharding = first.sharding
    rest = spec_dims(sharding.spec, len(shape)) if isinstance(sharding, NamedSharding) else ((),) * len(shape)
    entries = [m + r for m, r in zip(dims, rest, strict=True)]
    if not mesh.explicit_axes:  # explicit types repeat the spec at full rank
        while entries and not entries[-1]:
            entries.pop()
    placed = NamedSharding(mesh, PartitionSpec(*[e if len(e) > 1 else e[0] if e else None for e in entries]))
    vma = aval.vma - set(axes) if outer is not None else frozenset()
    own = array_type(shape, aval.dtype, aval.weak_type, placed).update(vma=vma)
    return ArrayImpl(signature(own, placed, True), dense=dense)
