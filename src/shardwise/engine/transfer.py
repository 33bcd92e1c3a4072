"""Moving an array to other devices if several processes take part: `device_put` between meshes.

Comes in: an array and a sharding over another list of devices; all processes that own devices of either call this together.
Goes out: the array on the new devices. Each process sends the pieces of its part that others need, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import physical
from shardwise.base.errors import DivergenceError
from shardwise.engine.array import ArrayImpl, nothing
from shardwise.engine.signature import Signature
from shardwise.ir.digest import encode_params
from shardwise.runtime.processes import MASK, Meeting, Route, checksum, history, number_of, the_world
from shardwise.sharding import Device, Sharding
from shardwise.sharding.ownership import is_kept_whole, local_index

Box = tuple[tuple[int, int], ...]  # begin and end of a part per dim


def processes_of(source: Iterable[Device], target: Iterable[Device]) -> tuple[int, ...]:
    """The processes that own some of the devices, ascending."""
    return tuple(sorted({d.process_index for d in source} | {d.process_index for d in target}))


def source_of(value: ArrayImpl, target: Sharding) -> int | None:
    """The number of an array that all processes move together; None if each process moves a value of its own.

    Raises:
        ValueError: some processes move one array, and others something else.
        DivergenceError: the processes that hold parts of the array made it in different ways.
    """
    ranks = processes_of(value._sig.devices, target.device_list)
    text = f"device_put of {value.dtype.name}{list(value.shape)} to {target}"
    ids = [d.id for d in value._sig.devices]
    origin = 0 if value._sig.absent else value._known_origin if value._sig.spans else checksum(value.dense)
    mine = [number_of(f"{ids} {value.sharding}"), not value._sig.spans, origin]
    announcements = the_world().gather_when_met(ranks, number_of(text), lambda: text, np.array(mine, np.int64))
    if (announcements[:, 0] == announcements[0, 0]).all():
        owners_held = {
            int(o) for o, r in zip(announcements[:, 2], ranks, strict=True) if r in _ranks(value._sig.devices)
        }
        if len(owners_held) > 1:
            history.forget(ranks)
            raise DivergenceError(
                f"{text}: the processes mean arrays that came about in different ways, and not one array."
            )
        return owners_held.pop()
    if announcements[:, 1].all():
        return None
    raise ValueError(
        f"{text}: the processes do not mean the same array, or not one of their own each: here it lies on the devices "
        f"{ids}. All processes must move the same global array, or equal values of their own."
    )


def transfer_array(value: ArrayImpl, sig: Signature, source: int) -> ArrayImpl:
    """The array under a signature over other devices; `source` identifies it on all processes."""
    ranks = processes_of(value._sig.devices, sig.devices)
    world = the_world()
    if world.rank not in ranks:
        return nothing(sig)
    moves = Route(_keepers(value._sig, ranks), _keepers(sig, ranks), _common, ranks.index(world.rank))
    own = _own_parts(value)
    text = f"device_put of {value.dtype.name}{list(value.shape)} from {len(value._sig.devices)} devices to {len(sig.devices)} others"
    what = number_of(text + encode_params((value._sig.sharding, sig.sharding)).hex())
    origin = hash((what, source)) & MASK
    kind = physical(value.dtype)
    dense = np.empty(sig.form.shape if sig.spans else value.shape, kind)
    part = lambda m: _cut(own[m.held], m.held, m.shared)  # type: ignore[index]  # noqa: E731
    into = lambda m: _cut(_home(dense, sig, m.wanted), m.wanted, m.shared)  # noqa: E731
    for message in moves.kept:
        into(message)[...] = part(message)
    shapes = [tuple(b - a for a, b in box) for box in moves.shared]
    exchange = Meeting(world, ranks, what, lambda: text).exchange
    exchange(lambda: moves.exchange(world.link(ranks), part, into, shapes, kind.itemsize, what), ())
    return nothing(sig) if sig.absent else ArrayImpl(sig, dense=dense, origin=origin)


def complete_dense(sig: Signature, dense: np.ndarray[Any, Any]) -> None:
    """Fill the whole value `dense` of an array that every process keeps whole: each has written the parts on its own devices."""
    ranks, world, shape = processes_of(sig.devices, ()), the_world(), sig.aval.shape
    moves = Route(_owners(sig, ranks), _keepers(sig, ranks), _common, ranks.index(world.rank))
    text = f"making an array of type {sig.aval.str_short()} on {len(sig.devices)} devices"
    what = number_of(text + encode_params(sig.sharding).hex())
    part = lambda m: _cut(dense, _all_of(shape), m.shared)  # noqa: E731
    shapes = [tuple(b - a for a, b in box) for box in moves.shared]
    exchange = Meeting(world, ranks, what, lambda: text).exchange
    exchange(lambda: moves.exchange(world.link(ranks), part, part, shapes, dense.itemsize, what), ())


def _own_parts(value: ArrayImpl) -> dict[Box, Any]:
    """The parts of an array that this process can send, as it keeps them."""
    if value._sig.kept_whole:
        boxes = _owners(value._sig, processes_of(value._sig.devices, ()))
        return {box: _cut(value.dense, _all_of(value.shape), box) for box in boxes}
    mine = [(shard.index, shard.data) for shard in value.addressable_shards]
    return {_box(index, value.shape): data.dense for index, data in mine if data is not None}


def _keepers(sig: Signature, among: Sequence[int]) -> dict[Box, list[int]]:
    """The different parts of an array, and the processes that keep each, by their places in `among`."""
    owners = _owners(sig, among)
    if not _is_kept_whole(sig):
        return owners
    everyone = [among.index(rank) for rank in processes_of(sig.devices, ())]
    return dict.fromkeys(owners, everyone)


def _is_kept_whole(sig: Signature) -> bool:
    """`Signature.kept_whole`, also where this process owns none of the devices."""
    return sig.tiling is not None and sig.spans and is_kept_whole(sig.devices, sig.tiling.mesh_shape)


def _all_of(shape: Sequence[int]) -> Box:
    return tuple((0, n) for n in shape)


def _ranks(devices: Iterable[Device]) -> set[int]:
    return {d.process_index for d in devices}


def _common(held: Box, wanted: Box) -> Box | None:
    part = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(wanted, held, strict=True))
    return None if any(a >= b for a, b in part) else part


def _owners(sig: Signature, among: Sequence[int]) -> dict[Box, list[int]]:
    """The different parts of an array, and the processes that hold each, by their places in `among`."""
    shape = sig.aval.shape
    ranks_by_box: dict[Box, list[int]] = {}
    for device, index in sig.sharding.devices_indices_map(shape).items():
        places = ranks_by_box.setdefault(_box(index or (), shape), [])
        place = among.index(device.process_index)
        if place not in places:
            places.append(place)
    return ranks_by_box


def _box(index: Sequence[slice], shape: Sequence[int]) -> Box:
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _cut(data: Any, of: Box, part: Box) -> Any:
    """The data of `part`, cut from the data of the box `of`."""
    return data[(*[slice(a - c, b - c) for (a, b), (c, _) in zip(part, of, strict=True)], ...)]


def _home(dense: Any, sig: Signature, box: Box) -> Any:
    """The view of this process's dense array at a box."""
    index = tuple(slice(a, b) for a, b in box)
    if sig.spans:
        assert sig.tiling is not None
        index = local_index(index, sig.aval.shape, sig.tiling.ways, sig.positions)
    return dense[(*index, ...)]
