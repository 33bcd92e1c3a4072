"""``x[...]`` of arrays that exist, without an op: views of the dense value, and the slices of a pmap's devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import Bounded, at_clear
from shardwise.base.config import context_token
from shardwise.base.dtypes import is_key_dtype
from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import Signature, signature
from shardwise.ir import Array
from shardwise.lax import GatherScatterMode
from shardwise.numpy._indexer import Cut, Item, Pick, check_static_index, parse, settle_item
from shardwise.sharding import SingleDeviceSharding

_MOST_COPIED = 1 << 12  # bytes
_BOUNDS = {int, type(None)}
# Of parts of arrays, by the arrays' signatures, the context, and the forms of the indices or the parts' shapes.
view_signatures: Bounded[Any, Signature] = Bounded()
at_clear(view_signatures.clear)


def pmap_piece(x: ArrayImpl, index: Any) -> Array | None:
    """``x[index]``, on its device, if a device of a pmap holds just that slice; else None."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(type(p) in (int, slice) for p in parts):
        return None
    wanted_index = tuple(slice(p, p + 1) if type(p) is int else p for p in parts) + (slice(None),) * (
        x.ndim - len(parts)
    )
    for shard in x.addressable_shards:
        if shard.index == wanted_index and shard.data is not None:
            dense = shard.data.dense[(*(0 if type(p) is int else slice(None) for p in parts), ...)]
            sharding = SingleDeviceSharding(shard.device, memory_kind=x.sharding.memory_kind)
            aval = shard.data.aval.update(shape=dense.shape)
            return ArrayImpl(signature(aval, sharding, False), dense=dense)
    return None


def is_watched(x: Array) -> bool:
    """Whether `x` holds keys whose reuse is checked: then parts must come from ops that name them."""
    return is_key_dtype(x.dtype) and config.jax_debug_key_reuse


def checks_results() -> bool:
    """Whether results are checked for NaNs or infinities: then parts must come from ops, too."""
    return config.jax_debug_nans or config.jax_debug_infs


def basic_view(x: ArrayImpl, index: Any) -> Array | None:
    """``x[index]`` of a single-device array that exists; None if `index` has arrays, or an op has to read it."""
    if type(index) is not int:
        parts = index if isinstance(index, tuple) else (index,)
        if not all(p is None or p is Ellipsis or type(p) is int or type(p) is slice for p in parts):
            return None
    data = basic_data(x, index)
    key = x._sig, context_token(), data.shape
    sig = view_signatures.get(key)
    if sig is None:
        if is_watched(x) or checks_results():
            return None
        sig = view_signatures[key] = signature(x.aval.update(shape=data.shape), x.sharding, x.committed)
    return ArrayImpl(sig, dense=data)


def basic_data(x: ArrayImpl, index: Any) -> np.ndarray[Any, Any]:
    """The dense value of ``x[index]`` for an index without arrays: a view, but a copy of a small part, as a view keeps all of
    `x` in memory."""
    if type(index) is int and x.ndim and (n := x.shape[0]) and -(2**31) <= index < 2**31:
        at = index + n if index < 0 else index
        if not 0 <= at < n:
            check_static_index(index, 0, n)
            at = min(max(at, 0), n - 1)
        data = x.dense[(at, ...)]
    else:
        items = [
            settle_item(item, x.shape, GatherScatterMode.CLIP, True, checked=True) for item in parse(x.shape, index)
        ]
        data = x.dense[(*[_numpy_index(item) for item in items], ...)]
    return data.copy() if data.nbytes <= _MOST_COPIED else data


def basic_form(index: Any) -> Any:
    """The key of an index without arrays: all that the type and the layout of ``x[index]`` depend on. None for other indices."""
    if type(index) is int:
        return int
    form: list[Any] = []
    for part in index if type(index) is tuple else (index,):
        kind = type(part)
        if kind is int:
            form.append(int)
        elif kind is slice:
            bounds = part.start, part.stop, part.step
            if not {*map(type, bounds)} <= _BOUNDS:
                return None
            form.append(bounds)
        elif part is None or part is Ellipsis:
            form.append(part)
        else:
            return None
    return tuple(form)


def index_key(index: Any) -> tuple[Any, ...] | None:
    """An index without arrays as a key, slices as tuples; None for others."""
    parts: list[Any] = []
    for part in index if type(index) is tuple else (index,):
        kind = type(part)
        if kind is slice:
            bounds = part.start, part.stop, part.step
            if not {*map(type, bounds)} <= _BOUNDS:
                return None
            parts.append(bounds)
        elif kind is int or part is None or part is Ellipsis:
            parts.append(part)
        else:
            return None
    return tuple(parts)


def is_dense(x: ArrayImpl) -> bool:
    """Whether the global value of `x` is there without a copy, or small."""
    block = x._block
    if x._dense is not None or block is None or block.nbytes <= _MOST_COPIED:
        return True
    order = x._sig.form.order
    return block.flags.c_contiguous and order == tuple(range(len(order)))


def _numpy_index(item: Item) -> Any:
    if isinstance(item, Pick):
        return item.index
    if isinstance(item, Cut):
        stop = item.start + item.step * item.size
        return slice(item.start, stop if stop >= 0 else None, item.step) if item.size else slice(0, 0)
    return None
