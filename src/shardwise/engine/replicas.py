"""Arrays whose copies differ: devices that by the sharding hold the same part hold values of their own.

Unchecked results of `shard_map` are such arrays, and those made of differing single-device arrays. Their signature names the axes along
which copies may differ, and so programs take each device's own; their block has an entry per device along these axes. As a whole an array
shows the first device's values.

Comes in: parts, or such an array and another signature. Goes out: an array whose equal copies are stored once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardwise.base.shapes import Ndarray, Shape
from shardwise.engine.array import ArrayImpl
from shardwise.engine.shards import shard_places
from shardwise.engine.signature import Signature, free_axes, places_in_block, signature
from shardwise.sharding.tiling import Index

_WORDS = {np.dtype(t).itemsize: t for t in (np.uint8, np.uint16, np.uint32, np.uint64)}


def with_varies(sig: Signature, varies: tuple[int, ...]) -> Signature:
    """The signature of arrays whose copies differ along these axes of its mesh."""
    return sig if sig.varies == varies else signature(sig.aval, sig.sharding, sig.committed, sig.order, varies)


def array_of_parts(sig: Signature, parts: Sequence[Ndarray]) -> ArrayImpl:
    """The array of which each device of this process, in the sharding's order, has the given part. Equal copies are stored once."""
    extents = sig.form.grid
    block = np.stack(parts).reshape(*extents, *parts[0].shape)
    varies: list[int] = []
    assert sig.tiling is not None
    place_by_axis = places_in_block(sig.tiling)
    for axis in free_axes(sig.tiling):
        first = block.take([0], place_by_axis[axis])
        if same_bits(np.broadcast_to(first, block.shape), block):
            block = first
        else:
            varies.append(axis)
    return ArrayImpl(with_varies(sig, tuple(varies)), block=block)


def same_bits(a: Ndarray, b: Ndarray) -> bool:
    """Whether two arrays of one shape and dtype are the same, NaNs and signs of zeros included."""
    words = _WORDS.get(a.dtype.itemsize)
    if words is None:
        return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
    return bool(np.array_equal(a.view(words), b.view(words)))


def under_signature(x: ArrayImpl, sig: Signature) -> ArrayImpl:
    """The value under another signature of this process's devices, without a copy where copies of `x` do not differ.

    Where they do, each device keeps its own copy if it holds the same part before and after, and all get the first copy otherwise.
    """
    own = x._sig
    if not own.varies:
        return ArrayImpl(sig, dense=x.dense, origin=x._known_origin)
    if sig.form is own.form and sig.devices == own.devices:
        return ArrayImpl(with_varies(sig, own.varies), dense=x._dense, block=x._block, origin=x._known_origin)
    shards = {shard.device: shard for shard in x.addressable_shards}
    places = shard_places(sig)
    shape = own.aval.shape
    if own.spans or any(
        p.device not in shards or _spans_of(shards[p.device].index, shape) != _spans_of(p.index, shape) for p in places
    ):
        return ArrayImpl(sig, dense=x.dense, origin=x._known_origin)
    data = [shards[p.device].data for p in places]
    parts = [part.dense for part in data if part is not None]
    if sig.tiling is None or not sig.form.grid:
        return ArrayImpl(sig, dense=parts[0])
    return array_of_parts(sig, parts)


def _spans_of(index: Index, shape: Shape) -> list[tuple[int, int, int]]:
    return [cut.indices(n) for cut, n in zip(index, shape, strict=True)]
