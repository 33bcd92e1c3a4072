"""Every collective of shard_map over axes across processes, inside them, and both, against plain NumPy."""

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
ALL = P(("x", "y"))
A = (np.arange(128) * 7 % 31).astype(np.float32).reshape(16, 8)


def same(x, want):
    assert x.shape == want.shape, (x.shape, want.shape)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(shard.data, want[shard.index])


def lines(axis, blocks):
    """Blocks [x, y, ...] as [other, axis, ...], and the way back."""
    X, Y = blocks.shape[:2]
    rest = blocks.shape[2:]
    if axis == "x":
        return blocks.swapaxes(0, 1), lambda b: b.swapaxes(0, 1)
    if axis == "y":
        return blocks, lambda b: b
    if axis == ("x", "y"):
        return blocks.reshape(1, X * Y, *rest), lambda b: b.reshape(X, Y, *b.shape[2:])
    return (blocks.swapaxes(0, 1).reshape(1, X * Y, *rest), lambda b: b.reshape(Y, X, *b.shape[2:]).swapaxes(0, 1))


def whole(blocks):
    """Blocks [x, y, rows, ...] as the global array."""
    return blocks.reshape(-1, *blocks.shape[3:])


for order, (X, Y) in ((np.arange(8), (2, 4)), (np.arange(8), (4, 2)), (np.arange(8).reshape(2, 4).T.ravel(), (4, 2))):
    mesh = Mesh(np.array(jax.devices())[order].reshape(X, Y), ("x", "y"))

    def split(values, mesh=mesh):
        return jax.make_array_from_callback(values.shape, NamedSharding(mesh, ALL), lambda index: values[index])

    def mapped(f, out=ALL, mesh=mesh):
        return jax.jit(shard_map(f, mesh=mesh, in_specs=ALL, out_specs=out))

    for dtype in ("float32", "int32", "bfloat16", "float16"):
        values = np.asarray(jnp.asarray(A).astype(dtype))
        a, blocks = split(values), A.reshape(X, Y, 2, 8)
        same(mapped(lambda v: lax.psum(v, "x"), P("y"))(a), blocks.sum(0).reshape(-1, 8))
        same(mapped(lambda v: lax.psum(v, "y"), P("x"))(a), blocks.sum(1).reshape(-1, 8))
        same(mapped(lambda v: lax.psum(v, ("x", "y")), P())(a), blocks.sum((0, 1)))
        same(mapped(lambda v: lax.pmax(v, "x"), P("y"))(a), blocks.max(0).reshape(-1, 8))
        same(mapped(lambda v: lax.pmin(v, ("y", "x")), P())(a), blocks.min((0, 1)))
    a = split(A)
    place = mapped(lambda v: v * 0 + lax.axis_index("x") * 10 + lax.axis_index("y"))(a)
    same(place, whole(np.broadcast_to((np.arange(X)[:, None] * 10 + np.arange(Y))[..., None, None], (X, Y, 2, 8))))
    same(mapped(lambda v: lax.psum(jnp.ones(3), ("x", "y")) + 0 * v[:, :3])(a), np.full((16, 3), 8.0))
    by_pair = mapped(lambda v: lax.psum(v, ("x", "y"), axis_index_groups=[[0, 1], [2, 3], [4, 5], [6, 7]]))(a)
    same(by_pair, np.repeat(A.reshape(4, 2, 2, 8).sum(1), 2, axis=0).reshape(16, 8))
    for axis, n in (("x", X), ("y", Y), (("x", "y"), 8), (("y", "x"), 8)):
        line, back = lines(axis, A.reshape(X, Y, 2, 8))
        got = mapped(lambda v, axis=axis: lax.all_gather(v, axis, tiled=True).sum(0, keepdims=True))(a)
        same(got, whole(back(np.broadcast_to(line.sum((1, 2))[:, None, None], (*line.shape[:2], 1, 8)))))
        wide = np.arange(8 * n * 3, dtype=np.float32).reshape(8, n * 3)
        line, back = lines(axis, wide.reshape(X, Y, n, 3))
        got = mapped(lambda v, axis=axis: lax.all_to_all(v, axis, 1, 0, tiled=True))(split(wide))
        same(got, whole(back(line.swapaxes(1, 2))))
        got = mapped(lambda v, axis=axis: lax.psum_scatter(v, axis, scatter_dimension=1, tiled=True))(split(wide))
        same(got, whole(back(line.sum(1)[:, :, None])))
        ring = [(k, (k + 1) % n) for k in range(n)]
        for pairs in (ring, ring[:-1], [(0, n - 1)]):
            line, back = lines(axis, A.reshape(X, Y, 2, 8))
            moved = np.zeros_like(line)
            for source, target in pairs:
                moved[:, target] = line[:, source]
            same(mapped(lambda v, axis=axis, pairs=pairs: lax.ppermute(v, axis, pairs))(a), whole(back(moved)))
print("done", flush=True)
