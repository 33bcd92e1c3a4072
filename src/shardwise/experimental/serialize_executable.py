"""`shardwise.experimental.serialize_executable`: compiled functions as bytes, which another process loads and runs.

In: a `Compiled`. Out: bytes with its program, the types and shardings of its arguments and results, and the values that it captured. The
process that loads them compiles the program anew, which takes milliseconds: no machine code is in the bytes, so the processor may be
another one.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import PyTreeDef
from shardwise.engine.array import ArrayImpl
from shardwise.engine.compile import compile_program
from shardwise.engine.signature import Signature, signature
from shardwise.export.codec import op_of_name
from shardwise.ir import Op, all_ops
from shardwise.passes import inline_calls
from shardwise.sharding import Device, Mesh
from shardwise.sharding import devices as all_devices
from shardwise.sharding.device import Client
from shardwise.transforms.jit.compiled import Compiled
from shardwise.transforms.jit.entry import Entry
from shardwise.transforms.jit.stage import Stage
from shardwise.transforms.jit.stages import Lowered
from shardwise.version import __version__

__all__ = ["deserialize_and_load", "serialize"]

_MARK = b"shardwise executable "
# What bytes may name besides modules of ours: plain values.
_PLAIN = {
    "builtins": {"complex", "frozenset", "range", "set", "slice"},
    "collections": {"OrderedDict"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
}


def serialize(compiled: Any) -> tuple[bytes, PyTreeDef, PyTreeDef]:
    """A compiled function as bytes, and the trees of its arguments and of its results, which are handed over separately.

    Args:
        compiled: what ``jit(f).lower(...).compile()`` gives.

    Raises:
        ValueError: the program calls functions of this process (callbacks), which bytes cannot hold.
        TypeError: `compiled` is no compiled function.

    >>> import shardwise as jax
    >>> f = jax.jit(lambda x: 2 * x).lower(1.0).compile()
    >>> float(deserialize_and_load(*serialize(f))(3.0))
    6.0
    """
    if not isinstance(compiled, Compiled):
        raise TypeError(
            f"serialize takes what jit(f).lower(...).compile() gives, not {compiled!r} of type {type(compiled).__name__}."
        )
    entry, lowered_program = compiled._entry, compiled._lowered
    executable = entry.executable
    devices = executable.grid.devices
    parts = {
        "program": inline_calls(entry.program),
        "signatures": [(s.aval, s.sharding, s.committed, None, s.varies) for s in executable.in_sigs],
        "wanted": entry.wanted,
        "argument names": ["a captured constant"] * len(entry.consts) + [lowered_program._names[i] for i in entry.kept],
        "owned": executable.owned,
        "constants": [np.asarray(x.dense) for x in entry.consts],
        "kept": entry.kept,
        "donated": entry.donated,
        "stage": (compiled._avals, compiled.donate_argnums, compiled._out_avals, compiled.fun_name, compiled._chosen),
        "names": tuple(lowered_program._names),
        "statics": lowered_program._has_statics,
        "argument orders": tuple(lowered_program._orders),
        "result orders": entry.orders,
    }
    buffer = io.BytesIO()
    head = (devices[0].platform, devices[0].device_kind, [d.id for d in devices])
    try:
        pickle.dump(head, buffer)
        _Pickler(buffer, protocol=5).dump(parts)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"Compilation does not support serialization: {compiled.fun_name} holds what only this process has ({error}). Leave "
            "callbacks out of it, or compile it where it runs."
        ) from error
    return _MARK + __version__.encode() + b"\n" + buffer.getvalue(), compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes,
    in_tree: PyTreeDef,
    out_tree: PyTreeDef,
    backend: str | Client | None = None,
    execution_devices: Sequence[Device] | None = None,
) -> Compiled:
    """The compiled function of these bytes.

    .. warning::
       Load bytes that you trust only. They are a pickle: names of functions outside of the library and of NumPy are refused, but bytes made
       for the purpose can still do harm.

    Args:
        serialized: what `serialize` gave.
        in_tree: the tree of the arguments, from `serialize`.
        out_tree: the tree of the results.
        backend: the platform, or the client, whose devices it runs on; None: the default one.
        execution_devices: the devices in the order of those that it was compiled for; None: those with the same ids.

    Raises:
        ValueError: these are no such bytes, or of another version; the devices belong to another backend, are of another platform, or
            too few.

    >>> from shardwise.experimental.serialize_executable import serialize
    >>> compiled = jax.jit(lambda x: x + 1).lower(jnp.arange(3)).compile()
    >>> jax.experimental.serialize_executable.deserialize_and_load(*serialize(compiled))(jnp.arange(3))
    Array([1, 2, 3], dtype=int32)
    """
    mark, _, rest = bytes(serialized).partition(b"\n")
    if not mark.startswith(_MARK):
        raise ValueError("deserialize_and_load: these bytes are none that serialize gave.")
    version = mark[len(_MARK) :].decode()
    if version != __version__:
        raise ValueError(
            f"deserialize_and_load: the bytes are of version {version}, and this is {__version__}. Compile and serialize the function anew."
        )
    client = all_devices(backend)[0].client if backend is None or isinstance(backend, str) else backend
    if execution_devices and execution_devices[0].client is not client:
        if backend is not None:
            raise ValueError(
                f"Execution devices belong to a client other than `backend`: {execution_devices[0]} is of "
                f"{execution_devices[0].platform!r}, backend of {client.platform!r}. Give one of the two."
            )
        client = execution_devices[0].client
    buffer = io.BytesIO(rest)
    platform, kind, ids = _Unpickler(buffer, {}).load()
    if client.platform != platform:
        raise ValueError(
            f"deserialize_and_load: the function was compiled for {platform!r} ({kind}), and the devices are {client.platform!r}. Pass "
            "execution_devices of that platform, such as those of experimental.topologies."
        )
    devices = _devices(
        ids, client.devices() if execution_devices is None else list(execution_devices), execution_devices is None
    )
    parts = _Unpickler(buffer, devices).load()
    entry = _compile_anew(parts, out_tree, None if execution_devices is None else devices[ids[0]])
    return Compiled(_LoadedProgram(parts, in_tree, out_tree, entry))


class _LoadedProgram(Lowered):
    """A lowered function that was traced in another process."""

    def __init__(self, parts: Mapping[str, Any], in_tree: PyTreeDef, out_tree: PyTreeDef, entry: Entry) -> None:
        avals, donated_args, out_avals, name, chosen = parts["stage"]
        if in_tree.num_leaves != len(avals) or out_tree.num_leaves != len(out_avals):
            raise ValueError(
                f"deserialize_and_load: the function has {len(avals)} arguments and {len(out_avals)} results, the trees have "
                f"{in_tree.num_leaves} and {out_tree.num_leaves} leaves. Pass the trees that serialize gave with the bytes."
            )
        Stage.__init__(self, in_tree, avals, donated_args, out_tree, out_avals, name, chosen)
        self._entry = entry
        self._names = parts["names"]
        self._has_statics = parts["statics"]
        self._orders = parts["argument orders"]
        self._parts = parts

    def entry_of(self, values: Sequence[Any]) -> Entry:
        """The program compiled anew for arguments like these, copies of some of which differ."""
        count = len(self._parts["constants"])
        sigs = self._parts["signatures"]
        given = [
            (x._sig.aval, x._sig.sharding, x._sig.committed, None, x._sig.varies)
            if isinstance(x, ArrayImpl) and x._sig.varies
            else fields
            for x, fields in zip([values[i] for i in self._parts["kept"]], sigs[count:], strict=True)
        ]
        return _compile_anew({**self._parts, "signatures": [*sigs[:count], *given]}, self.out_tree, None)


def _compile_anew(parts: Mapping[str, Any], out_tree: PyTreeDef, device: Device | None) -> Entry:
    """The program compiled anew; `device`: the first one, where the caller chose."""
    sigs: list[Signature] = [signature(*fields) for fields in parts["signatures"]]
    consts = [
        ArrayImpl(sig, dense=value) for value, sig in zip(parts["constants"], sigs, strict=False)
    ]  # they come first
    is_committed = any(sig.committed for sig in sigs) or any(s is not None for s in parts["wanted"])
    owned_inputs = parts["owned"]
    executable = compile_program(
        parts["program"],
        sigs,
        parts["wanted"],
        names=parts["argument names"],
        default_mesh=None if is_committed or device is None else Mesh(device, ()),
        owned=lambda shards, out_sigs, many: owned_inputs,
        jitted=True,
    )
    return Entry(
        executable,
        consts,
        parts["kept"],
        [],
        parts["donated"],
        out_tree,
        len(parts["stage"][0]),
        parts["program"],
        parts["wanted"],
        parts["result orders"],
    )


def _devices(ids: Sequence[int], given: Sequence[Device], by_id: bool) -> dict[int, Device]:
    """The device for each id that the bytes hold."""
    device_by_id = {d.id: d for d in given}
    if not by_id and len(given) == len(ids):
        return {**device_by_id, **dict(zip(ids, given, strict=True))}
    missing_ids = [i for i in ids if i not in device_by_id]
    if missing_ids:
        raise ValueError(
            f"deserialize_and_load: the function was compiled for the {len(ids)} devices {list(ids)}, and there are {len(given)}. Run with "
            "as many devices, or pass execution_devices of that number."
        )
    return device_by_id


class _Pickler(pickle.Pickler):
    """Ops by name, devices by id."""

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, Device):
            return "device", obj.id
        if isinstance(obj, Op):
            if all_ops().get(obj.name) is not obj:
                raise pickle.PicklingError(f"the op {obj.name} is this process's own")
            return "op", obj.name
        return None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (FunctionType, BuiltinFunctionType)) and not _may_be_named(obj.__module__, obj.__qualname__):
            raise pickle.PicklingError(f"the function {obj.__qualname__}")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    """The reverse, which knows names of ours and plain values only."""

    def __init__(self, file: io.BytesIO, devices: Mapping[int, Device]) -> None:
        super().__init__(file)
        self._devices = devices

    def persistent_load(self, pid: Any) -> Any:
        kind, name = pid
        if kind == "op":
            return op_of_name(name)
        return self._devices[name] if name in self._devices else next(iter(self._devices.values()))

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if _may_be_named(module_name, global_name):
            try:
                class_found = super().find_class(module_name, global_name)
            except AttributeError:
                class_found = None
            # A name that a module of ours imports, or a dotted one, may be another package's.
            if _may_be_named(getattr(class_found, "__module__", None), global_name):
                return class_found
        raise pickle.UnpicklingError(
            f"the bytes name {module_name}.{global_name}, which no executable holds; do not load them."
        )


def _may_be_named(module: str | None, name: str) -> bool:
    """Whether bytes may hold a class or a function by this name."""
    package = (module or "").partition(".")[0]
    return package in (__name__.partition(".")[0], "ml_dtypes") or name in _PLAIN.get(module or "", ())


__dir__ = _listing(__name__)
