"""One device of a shard_map that runs as plain Python: its thread, and the trace that runs ops on its own arrays.

In: a body and the arrays of one device. Out: the body's results, in the `SteppedCall` that the device is part of.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base.config import Override, thread_local
from shardwise.base.shapes import Ndarray
from shardwise.base.tree import tree_flatten
from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.ir import (
    Equation,
    Literal,
    ShapedArray,
    Trace,
    Var,
    eagerly,
    infer_types,
    subprograms,
    tracing,
    unwrap_op,
)
from shardwise.ir.op import Op
from shardwise.ir.sources import user_source
from shardwise.runtime.crew import Crew, DeviceStopped, Runner, SteppedCall
from shardwise.runtime.rendezvous import CollectiveCall, Place
from shardwise.runtime.stepped import DeviceEnv, axes_used, equation_steps
from shardwise.sharding import (
    Device,
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from shardwise.sharding.backend import default_device
from shardwise.transforms.manual import shard_map_errors as errors
from shardwise.transforms.manual.shard_map_scope import spec_dims

if TYPE_CHECKING:
    from shardwise.transforms.manual.shard_map import ShardMap

with eagerly() as EAGER:
    pass  # the trace that runs ops at once


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
        kept_entries = [
            entry
            if entry is PartitionSpec.UNCONSTRAINED
            else tuple(a for a in axes if a in self.mesh.axis_names) or None
            for entry, axes in zip(sharding.spec.partitions, spec_dims(sharding.spec, len(sharding.spec)), strict=True)
        ]
        return NamedSharding(self.mesh, PartitionSpec(*kept_entries))


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
        is_varying = any(a.aval.vma for a in args)
        types = infer_types(op, tuple(a.aval for a in args), params) if is_varying else None
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
