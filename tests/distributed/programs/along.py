"""Sorts, running reductions, searches and transforms along split dims: the values are those of one device, and no row is gathered."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.debug import count_traffic
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax.distributed.initialize(heartbeat_timeout_seconds=60)
devices = jax.devices()
processes = jax.process_count()
assert len(devices) == 8
rng = np.random.default_rng(0)
LONG, ROWS = 1 << 14, 2


def keys(dtype, shape):
    """With ties, zeros of both signs, infinities and NaNs."""
    x = rng.integers(-300, 300, shape).astype(np.float32)
    if np.dtype(dtype).kind not in "iu":
        x[..., ::7], x[..., 1::11], x[..., 5::1001], x[..., 6::1003] = -0.0, 0.0, np.nan, -np.inf
    return x.astype(dtype)


def placed(x, mesh, spec):
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda index: x[index])


def bits(x):
    """What tells zeros of both signs apart; NaNs are alike."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return x
    x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    parts = np.stack([x.real, x.imag])
    return np.where(np.isnan(parts), np.nan, parts).view(np.int64)


def check(name, f, args, mesh, spec, *, exact=True, rtol=1e-5):
    got = jax.tree_util.tree_leaves(jax.jit(f)(*[placed(x, mesh, spec) for x in args]))
    want = jax.tree_util.tree_leaves(jax.jit(f)(*args))
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype), name
        for shard in g.addressable_shards:
            of = np.asarray(w)[shard.index]
            if exact:
                np.testing.assert_array_equal(bits(shard.data), bits(of), err_msg=name)
            else:
                np.testing.assert_allclose(np.asarray(shard.data), of, rtol=rtol, atol=rtol * 100, err_msg=name)
    return got


row, rows = keys(np.float32, LONG), keys(np.float32, (ROWS, LONG))
whole = keys(np.int32, LONG)
narrow = keys(ml_dtypes.bfloat16, LONG)
pairs = np.empty(LONG, np.complex64)
pairs.real, pairs.imag = row, row[::-1]
turning = (rng.normal(size=1024) + 1j * rng.normal(size=1024)).astype(np.complex64)
smooth = rng.normal(size=(32, 64)).astype(np.float32)

EXACT: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "sort": (jnp.sort, [row]),
    "sort of integers": (jnp.sort, [whole]),
    "sort of narrow floats": (jnp.sort, [narrow]),
    "sort of complex numbers": (jnp.sort, [pairs]),
    "argsort": (jnp.argsort, [row]),
    "sort by two keys": (lambda a, b: lax.sort((a, b, -a), num_keys=2), [whole, row]),
    "top_k": (lambda a: lax.top_k(a, 5), [row]),
    "searchsorted": (lambda a: jnp.searchsorted(jnp.sort(a), jnp.array([-5.0, 0.0, jnp.inf, jnp.nan])), [row]),
    "median": (lambda a: jnp.median(jnp.nan_to_num(a)), [row]),
    "argpartition": (lambda a: jnp.argpartition(a, 300), [whole]),
    "partition": (lambda a: jnp.partition(a, 9000), [row]),
    "tile": (lambda a: jnp.tile(a, (2, 1)), [rows.T]),
    "nonzero": (lambda a: jnp.nonzero(a > 200, size=LONG)[0], [whole]),
    "a window at a computed place": (lambda a: lax.dynamic_slice_in_dim(a, jnp.argmax(jnp.nan_to_num(a)), 999), [row]),
    "rows at computed places": (lambda a: a[jnp.argsort(a)[:999]], [row]),
    "argmax": (lambda a: (jnp.argmax(a), jnp.argmin(a)), [row]),
    "gradient of sort": (jax.grad(lambda a: (jnp.sort(a) * jnp.arange(LONG)).sum()), [row]),
    "gradient of top_k": (jax.grad(lambda a: lax.top_k(a, 5)[0].sum()), [row]),
}
TRANSFORMS = (jnp.fft.fft2, jnp.fft.rfft2, lambda a: jnp.fft.irfft2(a + 1j * a), lambda a: jnp.fft.fft(a, axis=0))


def pooled(stride, padding):
    """The gradient of a loss of largest values of windows."""
    return jax.grad(lambda a: (lax.reduce_window(a, -jnp.inf, lax.max, (3, 3), (stride, stride), padding) ** 2).sum())


POOLS = [pooled(2, "SAME"), pooled(1, "VALID"), pooled(3, "VALID")]
scanned = jax.grad(lambda a: lax.cummax(a)[::2].sum())
ways = ((1, (8,), "x", "x"), (-1, (4, 2), "xy", ("x", "y")), (1, (2, 4), "xy", "y"), (-1, (2, 4), "xy", ("y", "x")))
for turn, (order, shape, names, spec) in enumerate(ways):
    mesh = Mesh(np.array(devices)[::order].reshape(shape), tuple(names))
    for name, (f, args) in list(EXACT.items())[turn % 2 :: 2]:  # each on two of the meshes
        check(name, f, args, mesh, P(spec))
    check("sort of rows", lambda a: jnp.sort(a, 1), [rows], mesh, P(None, spec))
    check("sorts of columns", jax.vmap(jnp.argsort, 1, 1), [rows.T], mesh, P(spec))
    for run in (lax.cumsum, lax.cummax, lax.cumlogsumexp):
        for x in (smooth[0], smooth[1].astype(ml_dtypes.bfloat16)):
            eps = float(ml_dtypes.finfo(x.dtype).eps)
            check("running", run, [x], mesh, P(spec), exact=False, rtol=eps if x.dtype != np.float32 else 1e-5)
    for run in TRANSFORMS[turn % 2 :: 2]:
        check("transform", run, [smooth], mesh, P(spec), exact=False)
    for run in (jnp.fft.fft, jnp.fft.ifft):
        check("transform of a row", run, [turning], mesh, P(spec), exact=False)
    for gradient in POOLS[turn % 2 :: 2]:
        check("pooling", gradient, [smooth], mesh, P(spec), exact=False)
    check("scan", scanned, [row[:512]], mesh, P(spec))

mesh = Mesh(np.array(devices), ("x",))
for name, most in (("sort", 0.6), ("argsort", 0.6), ("top_k", 0.02), ("searchsorted", 0.6)):
    f, args = EXACT[name]
    f, args = jax.jit(f), [placed(x, mesh, P("x")) for x in args]
    f(*args)
    with count_traffic() as traffic:
        f(*args)
    gathered = LONG * 4 * (processes - 1) // processes
    moved = 2 if name == "argsort" else 1
    assert traffic.total_bytes <= most * moved * gathered, (name, traffic, gathered)
if processes == 4:
    f, x = jax.jit(jnp.fft.fft), placed(turning, mesh, P("x"))
    f(x)
    with count_traffic() as traffic:
        f(x)
    assert traffic.total_bytes <= 3 * turning.nbytes // 4 < turning.nbytes * 3 // 2, traffic
print("done", flush=True)
