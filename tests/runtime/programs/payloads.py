"""Collectives of programs over processes: element types, sizes of zero, layouts in memory, partial sums, windows, loops."""

import numpy as np

import shardwise as jax
from shardwise import debug, lax
from shardwise import numpy as jnp
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
turned = Mesh(np.array(jax.devices()).reshape(2, 4).T, ("x", "y"))  # each process has every second row
rng = np.random.default_rng(0)


def put(value, spec, mesh=mesh):
    return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])


def same(got, want):
    assert got.shape == want.shape and got.dtype == want.dtype, (got.aval, want.dtype, want.shape)
    for shard in got.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), want[shard.index])


DTYPES = ("bool", "int4", "uint4", "int8", "bfloat16", "float16", "float8_e4m3fn", "complex64", "uint32")
for number, dtype in enumerate(DTYPES):
    for turn, shape in enumerate([(8, 8), (8, 0), (8, 3, 8), (8, 8 << 12)]):
        value = np.asarray(jnp.asarray(rng.integers(0, 2, shape)).astype(dtype))
        over = (mesh, turned)[(number + turn) % 2]  # each dtype and each shape on both
        a = put(value, P(("x", "y")), over)
        f = lambda g, out, over=over: jax.jit(shard_map(g, mesh=over, in_specs=P(("x", "y")), out_specs=out))  # noqa: E731
        if dtype == "bool":
            same(f(lambda v: lax.pmax(v, ("x", "y")), P())(a), value.max(0, keepdims=True))
        elif dtype != "int4":  # sums to 8 do not fit
            wide = np.complex64 if dtype == "complex64" else np.float32
            want = np.asarray(jnp.asarray(value.astype(wide).sum(0, keepdims=True)).astype(dtype))
            same(f(lambda v: lax.psum(v, ("x", "y")), P())(a), want)
        gathered = f(lambda v: lax.all_gather(v, ("x", "y"), tiled=True)[None], P(("x", "y")))(a)
        same(gathered, np.broadcast_to(value, (8, *shape)))
        around = f(lambda v: lax.ppermute(v, "x", [(0, 1), (1, 2), (2, 3), (3, 0)]), P(("x", "y")))(a)
        same(around, np.roll(value.reshape(4, 2, *shape[1:]), 1, 0).reshape(shape))
        if not shape[1] % 8:
            a = put(value, P("x"))
            for spec in (P(None, "x"), P(), P("y", "x"), P(("y", "x")), P("x")):
                same(jax.device_put(a, NamedSharding(mesh, spec)), value)

# products whose sums go over processes
A, B = rng.integers(-4, 4, (16, 32)).astype(np.float32), rng.integers(-4, 4, (32, 8)).astype(np.float32)
whole = NamedSharding(mesh, P())
product = jax.jit(lambda a, b: a @ b, out_shardings=whole)
for left in (P(None, "x"), P(None, ("x", "y")), P("y", "x"), P(None, ("y", "x"))):
    for right in (P("x"), P(("x", "y")), P(None, "y"), P()):
        for over in (mesh, turned):
            a, b = put(A, left, over), put(B, right, over)
            same(jax.jit(lambda a, b: a @ b, out_shardings=NamedSharding(over, P()))(a, b), A @ B)
a, b = put(A, P(None, "x")), put(B, P("x"))
with debug.count_traffic() as traffic:
    product(a, b)
n = jax.process_count()
assert traffic.calls == {"all_reduce": 1} and traffic.bytes == {"all_reduce": 2 * (n - 1) * (16 * 8 * 4) // n}, traffic
text = product.lower(a, b).compile().explain()
assert "sum_axes=('x',)" in str(product.lower(a, b).compile().as_text())
assert f"sends {traffic.total_bytes} bytes in one run" in text and "dot_general and all_reduce over x" in text, text

# a loop of three sums
looped = jax.jit(
    shard_map(
        lambda v: lax.fori_loop(0, 3, lambda i, c: v * lax.psum(c, "x") * 0.0625, v),
        mesh=mesh,
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
    )
)
v = put(np.full((8, 8), 4, np.float32), P("x", "y"))
with debug.count_traffic() as traffic:
    same(looped(v), np.full((8, 8), 4, np.float32))
assert f"sends {traffic.total_bytes} bytes in one run" in looped.lower(v).compile().explain()
assert traffic.calls == {"all_reduce": 3}

# partial sums of bfloat16 are the same, bit for bit, on all processes
noise = np.asarray(jnp.asarray(rng.normal(size=(8, 70001))).astype("bfloat16"))
total = jax.jit(shard_map(lambda v: lax.psum(v, ("x", "y")), mesh=mesh, in_specs=P(("x", "y")), out_specs=P()))(
    put(noise, P(("x", "y")))
)
jax.device_put(np.asarray(total).view(np.uint16), NamedSharding(mesh, P()))  # raises where processes differ

# windows: only the rims move
image = rng.normal(size=(2, 64, 16, 3)).astype(np.float32)
kernel = np.ones((3, 3, 3, 4), np.float32)
convolve = jax.jit(
    lambda v, k: lax.conv_general_dilated(v, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
)
want = np.asarray(convolve(jnp.asarray(image), jnp.asarray(kernel)))
for over in (mesh, turned):
    a, k = put(image, P(None, "x"), over), put(kernel, P(), over)
    with debug.count_traffic() as traffic:
        got = convolve(a, k)
    for shard in got.addressable_shards:
        np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-5, atol=1e-5)
    row = 2 * 16 * 3 * 4
    assert f"sends {traffic.total_bytes} bytes in one run" in convolve.lower(a, k).compile().explain()
    assert traffic.total_bytes <= 4 * row, traffic
print("done", flush=True)
