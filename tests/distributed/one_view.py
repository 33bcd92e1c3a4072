"""Reading arrays of several processes as if one process had them: so that programs written for one run unchanged on many.

What one process reads at once (values, texts, shards) is here brought together from all processes, which therefore must read
the same arrays in the same order. None of the library's own exchanges is used for it, and copies that should be equal are
compared. Devices are numbered 0, 1, ... as on one process, in one of two orders.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from shardwise.engine.array import ArrayImpl, nothing
from shardwise.engine.shards import Shard, ShardPlace
from shardwise.engine.signature import signature
from shardwise.ir import ShapedArray
from shardwise.runtime.handout import read_only
from shardwise.runtime.processes.comm import the_world
from shardwise.sharding import SingleDeviceSharding
from shardwise.sharding.backend import backend, default_device


def number_devices(interleaved: bool) -> None:
    """Number the devices 0, 1, ...: first the first process's, or else (interleaved) one of each process in turn."""
    client: Any = backend()
    devices = list(client._devices)
    if interleaved:
        devices.sort(key=lambda d: (d.local_index, d.process_index))
    for i, device in enumerate(devices):
        device.id = i
    client._devices = tuple(devices)
    client.local_devices = lambda p=None: [
        d for d in devices if d.process_index == (client.process_index_ if p is None else p)
    ]
    client.first_local_device = lambda: client.local_devices()[0]


_NAMES = ("_value", "_is_partial", "addressable_shards", "global_shards", "is_fully_addressable", "__iter__")
_own: dict[str, Any] = {name: vars(ArrayImpl)[name] for name in _NAMES}


@contextmanager
def one_view() -> Generator[None]:
    """Within, arrays read as on one process; all processes have to read the same."""
    together = {
        "_value": property(_value),
        "_is_partial": property(lambda x: False),
        "addressable_shards": property(_every_shard),
        "global_shards": property(_every_shard),
        "is_fully_addressable": property(lambda x: True),
        "__iter__": _iterate,
    }
    for name, value in together.items():
        setattr(ArrayImpl, name, value)
    try:
        yield
    finally:
        for name, value in _own.items():
            setattr(ArrayImpl, name, value)


def _apart(x: Any) -> bool:
    """Whether an array may be held by some processes only: then all tell what they have."""
    return x._npy is None and (
        x._sig.spans or x._sig.committed or x._sig.devices[0] is not backend().first_local_device()
    )


def _value(x: Any) -> np.ndarray[Any, Any]:
    x._key_guard()
    return _host(x)


def _held(x: Any) -> np.ndarray[Any, Any]:
    """What this process holds."""
    if x._npy is None:
        x._npy = read_only(x.dense)
    return x._npy


def _host(x: Any) -> np.ndarray[Any, Any]:
    if not _apart(x):
        return _held(x)
    x._check_alive()
    shards = [] if x._sig.absent else _own["addressable_shards"].fget(x)
    mine = [(shard.device.id, shard.index, _held(shard.data)) for shard in shards]
    x._shards = None
    told = [part for parts in the_world().comm.allgather(mine) for part in parts]
    if {device for device, _, _ in told} != {d.id for d in x._sig.devices}:
        return _held(x)  # each process has one of its own
    whole = np.empty(x.shape, told[0][2].dtype)
    for _, index, value in told:
        whole[(*index, ...)] = value
    for device, index, value in told:
        assert whole[(*index, ...)].tobytes() == value.tobytes(), f"device {device} holds another copy of {x.aval}"
    whole.flags.writeable = False
    x._npy = whole
    return whole


def _every_shard(x: Any) -> list[Any]:
    whole = _host(x)
    own = {} if x._sig.absent else {shard.device: shard for shard in _own["addressable_shards"].fget(x)}
    if x._npy is None:
        return list(own.values())
    seen: dict[str, int] = {}
    found = []
    for device, index in x.sharding.devices_indices_map(x.shape).items():
        replica = seen.get(str(index), 0)
        seen[str(index)] = replica + 1
        part = whole[(*index, ...)]
        shard = own.get(device)
        if shard is None:
            shard = Shard(x, ShardPlace(x._sig, (), device, index, replica, nothing=False))
            aval = ShapedArray(part.shape, x.dtype, x.weak_type)
            shard._data = nothing(signature(aval, SingleDeviceSharding(device), True))
        data: Any = shard.data
        data._npy = part
        found.append(shard)
    return found


def _iterate(x: Any) -> Any:
    if not x._sig.spans or not x.ndim:
        return _own["__iter__"](x)
    aval = ShapedArray(x.shape[1:], x.dtype, x.weak_type)
    sig = signature(aval, SingleDeviceSharding(default_device()), False)
    return (ArrayImpl(sig, dense=row) for row in _host(x))
