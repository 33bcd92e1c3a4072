"""Between random pairs of layouts: every value arrives, each process takes what it lacks and no more, and explain says so."""

import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

import shardwise as jax
from shardwise import debug
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
me, processes = jax.process_index(), jax.process_count()
MESHES = [((8,), np.arange(8)), ((4, 2), np.arange(8)), ((2, 4), np.arange(8)), ((2, 2, 2), np.arange(8)),
          ((4, 2), np.arange(8).reshape(2, 4).T.ravel()), ((8,), np.arange(8).reshape(2, 4).T.ravel()),
          ((2, 2, 2), np.arange(8).reshape(2, 2, 2).transpose(2, 0, 1).ravel())]  # fmt: skip
SHAPES = [(16,), (8, 8), (16, 24), (8, 8, 8), (8, 1, 16), (0, 8), (32, 8)]
DTYPES = ["float32", "bfloat16", "int8", "complex64", "bool", "float16", "int4", "uint32"]


@st.composite
def specs(draw, axes, shape, sizes):
    """A spec whose axes divide the dims."""
    dims = [[] for _ in shape]
    for a in draw(st.permutations(axes)):
        d = draw(st.integers(-1, len(shape) - 1))
        ways = int(np.prod([sizes[b] for b in dims[d]])) * sizes[a] if d >= 0 else 1
        if d >= 0 and shape[d] % ways == 0:
            dims[d].append(a)
    return P(*[tuple(d) or None for d in dims])


@st.composite
def cases(draw):
    mesh = draw(st.sampled_from(MESHES))
    axes = "xyz"[: len(mesh[0])]
    sizes = dict(zip(axes, mesh[0], strict=True))
    shape = draw(st.sampled_from(SHAPES))
    pair = draw(specs(axes, shape, sizes)), draw(specs(axes, shape, sizes))
    return mesh, axes, shape, draw(st.sampled_from(DTYPES)), pair


found = []


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(cases())
def collect(case):
    found.append(case)


def held(sharding, shape):
    """Per process which elements it holds."""
    masks = np.zeros((processes, *shape), bool)
    for device, index in sharding.devices_indices_map(shape).items():
        masks[(device.process_index, *index)] = True
    return masks


def shown_bytes(text):
    told = re.findall(r"between processes: process \d+, one of \d+, sends (\d+) bytes", text)
    return int(told[0]) if processes > 1 else 0


collect()
sent_by_all = 0
for (mesh_shape, order), axes, shape, dtype, (have, want) in found:
    mesh = Mesh(np.array(jax.devices())[order].reshape(mesh_shape), tuple(axes))
    value = np.asarray(jax.numpy.asarray(np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype))
    source, target = NamedSharding(mesh, have), NamedSharding(mesh, want)
    a = jax.make_array_from_callback(shape, source, lambda index, value=value: value[index])
    with debug.count_traffic() as traffic:
        b = jax.device_put(a, target)
    case = f"{mesh_shape} {order.tolist()} {shape} {dtype}: {have} -> {want}"
    assert b.sharding == target and b.dtype == value.dtype, case
    for shard in b.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), value[shard.index], err_msg=case)
    lacks = (held(target, shape) & ~held(source, shape)).sum() * value.dtype.itemsize
    sent = MPI.COMM_WORLD.allreduce(traffic.total_bytes)
    assert sent == lacks, f"{case}: sent {sent}, must move {lacks}"
    compiled = jax.jit(lambda v: v, out_shardings=target).lower(a).compile()
    assert shown_bytes(compiled.explain()) == traffic.total_bytes, f"{case}\n{compiled.explain()}"
    sent_by_all += sent
assert sent_by_all or processes == 1
print("done", flush=True)
