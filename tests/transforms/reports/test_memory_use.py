"""What `memory_analysis` says of the peak is what a run takes."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.runtime.memory import pool
from shardwise.sharding import NamedSharding, PartitionSpec

K = 512


def _square(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape or (K, K)).astype(np.float32))


def _loss(layers, x):
    for w in layers:
        x = jax.nn.relu(x @ w)
    return (x**2).sum()


def _step(layers, x):
    loss, grads = jax.value_and_grad(_loss)(layers, x)
    return [w - 1e-3 * g for w, g in zip(layers, grads, strict=True)], loss


CASES = {
    "one loop": (lambda x: 2 * jnp.sin(x) + 1, lambda: (_square(),), ()),
    "in place": (lambda x: x + 1, lambda: (_square() * 1,), 0),
    "temporaries": (lambda x: jnp.sort(jnp.tanh(jnp.sort(x) * 2)), lambda: (_square(),), ()),
    "products": (lambda x: ((x @ x) @ x) @ x, lambda: (_square(),), ()),
    "views": (lambda x: (x.T @ x).reshape(-1), lambda: (_square(),), ()),
    "softmax": (lambda x: jax.nn.softmax(x @ x) @ x, lambda: (_square(),), ()),
    "attention": (
        lambda q: jax.nn.softmax(q @ q.swapaxes(-1, -2) / 8) @ q,
        lambda: (_square(4, 8, K, 64),),
        (),
    ),
    "16-bit floats": (
        lambda x: x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16),
        lambda: (_square(4 * K, 2 * K),),
        (),
    ),
    "buffers kept for others of their size": (
        _loss,
        lambda: ([_square(K, n * K) if n == 2 else _square(2 * K, K) for n in (2, 1)], _square(4 * K, K)),
        (),
    ),
    "a constant with updates": (lambda x: jnp.zeros((4 * K, K)).at[jnp.arange(K)].add(x), lambda: (_square(),), ()),
    "convolution": (
        jax.grad(lambda x, w: (jax.lax.conv(x, w, (1, 1), "SAME") ** 2).sum(), (0, 1)),
        lambda: (_square(16, 16, 64, 64), _square(16, 16, 3, 3)),
        (),
    ),
    "training": (_step, lambda: ([_square() for _ in range(3)], _square(2 * K, K)), ()),
    "training, donated": (_step, lambda: ([_square() * 1 for _ in range(3)], _square(2 * K, K)), 0),
}


def _peak(compiled, arguments):
    """Bytes that one run takes beside its arguments."""
    gc.collect()
    pool.trim(0)
    tracemalloc.start()
    try:
        compiled(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", CASES)
def test_peak(name):
    fun, make, donated = CASES[name]
    arguments = make()
    compiled = jax.jit(fun, donate_argnums=donated).lower(*arguments).compile()
    del arguments
    compiled(*make())  # what is made once: machine code, plans of products
    measured = min(_peak(compiled, make()) for _ in range(3))  # other threads may allocate meanwhile
    said = compiled.memory_analysis()
    whole = measured + said.argument_size_in_bytes
    assert abs(said.peak_memory_in_bytes - whole) < 0.1 * whole
    assert said.output_size_in_bytes + said.temp_size_in_bytes >= 0.9 * measured
    assert (said.alias_size_in_bytes > 0) == (donated == 0 and donated != ())


def test_pool_gives_back_beyond_its_limit():
    before = pool.limit
    try:
        pool.limit = 1 << 20
        held = [pool.empty((1 << 20,), np.uint8) for _ in range(4)]
        del held
        stats = pool.stats()
        assert stats["pool_bytes"] - stats["bytes_in_use"] <= 1 << 20
    finally:
        pool.limit = before


def test_device_memory_stats():
    stats = jax.devices()[0].memory_stats() or {}
    x = jax.jit(lambda x: x + 1)(_square())
    later = jax.devices()[0].memory_stats() or {}
    assert later["bytes_in_use"] >= stats["bytes_in_use"] + x.nbytes
    assert later["peak_bytes_in_use"] >= later["bytes_in_use"]
    assert set(stats) >= {"num_allocs", "bytes_in_use", "peak_bytes_in_use", "bytes_limit"}


def test_a_replicated_array_is_kept_once():
    x = np.ones((1024, 1024), np.float32)
    mesh = jax.make_mesh((len(jax.devices()),), ("i",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    tracemalloc.start()
    try:
        y = jax.device_put(x, everywhere)
        y = jax.jit(lambda y: y * 2)(y)
        measured = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert y.is_fully_replicated and measured < 2.5 * x.nbytes
