"""A collective that the library does not have, in one file: on a ring, each device adds what the device `step` places on has.

Run as a program it checks itself over any number of processes.
"""

from __future__ import annotations

import numpy as np

import shardwise
from shardwise.ir import Collective, ShapedArray, Shown, bind
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.devices.fronts import merge_axes, unmerge_axes
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.rules.derivative import do
from shardwise.sharding import PartitionSpec as P


def _type(x: ShapedArray, *, axes, step):
    return x.update(vma=x.vma | set(axes))


def _kernel(env, x, *, axes, step):
    front, _, dims = merge_axes(env, x, axes)
    return unmerge_axes(env, front + np.roll(front, -step, 0), axes, dims)


def _exchange(operands, params):
    xs = [x for (x,) in operands]
    return [x + xs[(i + params["step"]) % len(xs)] for i, x in enumerate(xs)]


def _transpose(ct, x, *, axes, step):
    return [do.ring_sum(ct, axes=axes, step=-step)]


ring_sum_p = define_collective(
    "ring_sum",
    type_rule=_type,
    kernel=_kernel,
    rule=same_dims,
    jvp="linear",
    transpose=_transpose,
    collective=Collective("ring sum", sent=lambda nbytes, n: nbytes, computes=True, exchange=_exchange, told=("step",)),
    shown=Shown("pring", renamed={"axes": "axis_name"}),
)


def ring_sum(x, axes, step=1):
    return bind(ring_sum_p, shardwise.numpy.asarray(x), axes=axes, step=step)


def expected(x: np.ndarray, n: int, step: int = 1) -> np.ndarray:
    parts = x.reshape(n, -1, *x.shape[1:])
    return (parts + np.roll(parts, -step, 0)).reshape(x.shape)


SPLIT = P("x")


def mapped(body, mesh, in_specs=SPLIT, out_specs=SPLIT):
    return shardwise.jit(shardwise.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs))


if __name__ == "__main__":
    shardwise.distributed.initialize()
    devices = np.array(shardwise.devices())
    x = np.arange(2 * len(devices) * 3, dtype=np.float32).reshape(-1, 3)
    for grid, names, axes in (
        (devices, ("x",), ("x",)),
        (devices.reshape(2, -1), ("y", "x"), ("x",)),
        (devices.reshape(2, -1), ("y", "x"), ("y",)),
        (devices.reshape(2, -1), ("y", "x"), ("y", "x")),
    ):
        mesh = shardwise.sharding.Mesh(grid, names)
        spec, n = P(axes), int(np.prod([mesh.shape[a] for a in axes]))
        value = shardwise.make_array_from_callback(x.shape, shardwise.NamedSharding(mesh, spec), lambda index: x[index])
        functions = {
            1: lambda v, axes=axes: ring_sum(v, axes),
            2: lambda v, axes=axes: shardwise.vmap(lambda w: ring_sum(w, axes, 2), 1, 1)(v),
        }
        for step, body in functions.items():
            out = mapped(body, mesh, spec, spec)(value)
            want = expected(x, n, step)
            for shard in out.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), want[shard.index])
    print("done", flush=True)
