"""The layouts of a pmap's arguments and results on its devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import Signature, signature
from shardwise.ir import ShapedArray
from shardwise.sharding import (
    Chunked,
    Mesh,
    NamedSharding,
    NoSharding,
    PartitionSpec,
    PmapSharding,
    Replicated,
    ShardedAxis,
    Sharding,
    ShardingSpec,
)
from shardwise.transforms.jit.jit_shardings import with_signature

Axis = int | None


def lay_out_argument(x: ArrayImpl, sig: Signature) -> ArrayImpl:
    """An argument laid out over the devices; with several processes it is this process's part."""
    if not sig.spans:
        return with_signature(x, sig)
    if x._sig.spans:
        raise ValueError(
            f"pmap over the devices of several processes takes each process's own rows, but got {x.aval.str_short()} that lies on "
            "all of them already. Use jit or shard_map for global arrays."
        )
    return ArrayImpl(sig, dense=x.dense)


def resign_result(x: Any, sig: Signature) -> Any:
    """A result in the caller's form; float0 is a host's array in any."""
    if not isinstance(x, ArrayImpl):
        return x
    if x._sig.spans:
        data = {"block": x.block} if sig.varies else {"dense": x.dense}
        return ArrayImpl(sig, **data, origin=x._known_origin)
    return ArrayImpl(sig, block=x.block) if sig.form is x._sig.form else with_signature(x, sig)


def out_signature(sig: Signature, axis: Axis, mesh: Mesh) -> Signature:
    """The signature of a result. The dialect decides whether it has a PmapSharding. Each of several processes gets its own rows, on its
    own devices.
    """
    aval = sig.aval
    if sig.spans:
        own = [d for d in mesh.devices.flat if d.is_local]
        shape = list(aval.shape)
        if axis is not None:
            axis %= aval.ndim
            shape[axis] = len(own)
        mesh = Mesh(np.array(own, object), mesh.axis_names, axis_types=mesh.axis_types)
        aval = ShapedArray(shape, aval.dtype, aval.weak_type)
        own_sharding = NamedSharding(mesh, axis_spec(axis, mesh.axis_names[0]))
        sig = signature(aval, own_sharding, True, varies=sig.varies if mesh.size > 1 else ())
    if not config.dialect.shard_map.pmap_results_wear_pmap_sharding:
        return sig
    return signature(sig.aval, pmap_sharding(mesh, sig.aval.ndim, axis), True, varies=sig.varies)


def pmap_sharding(mesh: Mesh, ndim: int, axis: Axis) -> Sharding:
    """A slice of length one per device along `axis`, or the whole array on each."""
    cuts: list[Any] = [NoSharding()] * ndim
    grid = mesh.devices.ravel()
    if axis is None:
        return PmapSharding(grid, ShardingSpec(cuts, (Replicated(mesh.size),)))
    cuts[axis] = Chunked((mesh.size,))
    return PmapSharding(grid, ShardingSpec(cuts, (ShardedAxis(0),)))


def axis_spec(axis: Axis, name: Any) -> PartitionSpec:
    """The spec that splits one dim, or none."""
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, name)
