"""Groups without a compiler: the same results by tiles, however blocks lie in memory, and whole programs in such a process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import tiled
from shardwise.runtime.fused.kernel import GroupKernel

LAYOUTS = {
    "plain": lambda r: (0, (r(64, 256), r(64, 256))),
    "leading dims with other extents": lambda r: (1, (r(8, 64, 64), r(1, 64, 64))),
    "scalar per device": lambda r: (1, (r(8, 64, 64), r(8))),
    "columns of a split array": lambda r: (1, (r(64, 4, 96).transpose(1, 0, 2), r(64, 4, 96).transpose(1, 0, 2))),
    "every second": lambda r: (0, (r(64, 512)[:, ::2], r(64, 256))),
    "backwards": lambda r: (0, (r(64, 256)[::-1, ::-1], r(64, 256))),
    "one transposed": lambda r: (0, (r(64, 256), r(256, 64).T)),
    "repeated rows and columns": lambda r: (0, (np.broadcast_to(r(1, 256), (64, 256)), np.broadcast_to(r(64, 1), (64, 256)))),
    "odd sizes": lambda r: (0, (r(129, 131), r(129, 131))),
    "odd rows with gaps": lambda r: (0, (r(131, 150)[:, 3:140], r(1, 137))),
    "four dims": lambda r: (2, (r(2, 1, 8, 64, 32), r(1, 3, 8, 1, 32))),
    "short rows": lambda r: (0, (r(9000, 5)[:, :3], r(9000, 3))),
    "all alike": lambda r: (0, (np.broadcast_to(r(1, 1), (150, 150)), r(1, 1))),
}  # fmt: skip


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def small_tiles(request, monkeypatch):
    monkeypatch.setattr(costs, "TILED_ELEMENTS", 1000)
    monkeypatch.setattr(costs, "TILED_SHARED", 0)
    monkeypatch.setattr(tiled, "thread_count", lambda: request.param)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(small_tiles, name):
    """Several results: of all operands, of one, of another type, an operand itself, and one twice."""
    rng = np.random.default_rng(12)
    lead, blocks = LAYOUTS[name](lambda *shape: rng.normal(size=shape).astype(np.float32))

    def f(x, y):
        doubled = lax.mul(x, 2.0)
        narrow = lax.convert_element_type(doubled, np.float16)
        total = lax.add(lax.sin(lax.convert_element_type(narrow, np.float32)), y)
        return total, doubled, lax.bitwise_and(lax.gt(doubled, y), lax.ne(x, 0.0)), lax.integer_pow(total, 3), doubled

    axes = frozenset("ab"[:lead])
    program = trace_program(f, [ShapedArray(b.shape[lead:], b.dtype, vma=axes) for b in blocks])[0]
    env = Env(("a", "b")[:lead], tuple(np.broadcast_shapes(*(b.shape[:lead] for b in blocks))))
    fused = GroupKernel(env, program)
    run = tiled.TiledKernel(program, fused.meet_blocks, fused.plain)
    kept = [b.copy() for b in blocks]
    plain = fused.plain(*blocks)
    for _ in range(2):
        outs = run(*blocks)
        for got, want in zip(outs, plain, strict=True):
            assert got.shape == np.broadcast_shapes(want.shape, got.shape) and got.dtype == want.dtype
            np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))
    for block, before in zip(blocks, kept, strict=True):
        np.testing.assert_array_equal(block, before)
    assert None not in run._specializations.values()


def test_small_blocks_are_computed_whole():
    x = np.ones((10, 10), np.float32)
    program = trace_program(lambda x: [lax.mul(x, 2.0)], [ShapedArray(x.shape, x.dtype)])[0]
    fused = GroupKernel(Env(), program)
    run = tiled.TiledKernel(program, fused.meet_blocks, fused.plain)
    np.testing.assert_array_equal(run(x)[0], x * 2)
    assert list(run._specializations.values()) == [None]


@pytest.mark.parametrize("extents", [(7,), (100_000,), (3, 100_000), (1000, 200), (4, 70, 1000), (5, 2, 3)])
def test_tiles_cover_all_once(extents):
    seen = np.zeros(extents, int)
    for tile in tiled._tiles(extents):
        assert seen[tile].size <= costs.TILED_ELEMENTS
        seen[tile] += 1
    assert (seen == 1).all()


PROGRAM = """
import os
import numpy as np
import shardwise as jax, shardwise.numpy as jnp
from shardwise.base import config
from shardwise.runtime import costs
from shardwise.runtime.fused import tiled
from shardwise.runtime.machine import llvm
from shardwise.sharding import NamedSharding, PartitionSpec as P

assert not llvm.available()
costs.TILED_ELEMENTS, costs.TILED_SHARED = 1 << 11, 1 << 13
calls = []
call = tiled.TiledKernel._work
tiled.TiledKernel._work = lambda self, *a: (calls.append(1), call(self, *a))

def norm(x):
    m = x.mean(-1, keepdims=True)
    return (x - m) / jnp.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5)

def adam(x):
    g = 0.5 * x
    m, v = 0.9 * x + 0.1 * g, 0.99 * x * x + 0.01 * g * g
    return x - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

functions = {
    "sine": lambda x: 2 * jnp.sin(x) + 1,
    "chain": lambda x: jax.nn.gelu(x) * jnp.tanh(x) + jnp.exp(x),
    "choices": lambda x: jnp.where(x > 0, x, -x).astype(jnp.bfloat16) * 3,
    "integers": lambda x: (x * 100).astype(jnp.int32) // 7 % 5,
    "bias": lambda x: jax.nn.relu(x + x[:1]) ** 2,
    "softmax": lambda x: jax.nn.softmax(x * 2 + 1),
    "norm": norm,
    "adam": adam,
    "gradient": jax.grad(lambda x: (norm(x) @ x.T * jnp.cos(x).sum()).sum()),
    "random": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
}
mesh = jax.make_mesh((4, 2), ("x", "y"))
host = np.random.default_rng(0).normal(size=(192, 96)).astype(np.float32)
for spec in (None, P("x", "y"), P(None, "y")):
    x = jnp.asarray(host) if spec is None else jax.device_put(host, NamedSharding(mesh, spec))
    for name, f in functions.items():
        got = jax.tree.leaves(jax.jit(lambda x: f(x))(x))
        with config.override("shardwise_fused", "off"):
            plain = jax.tree.leaves(jax.jit(lambda x: f(x))(x))
        for a, b in zip(got, plain, strict=True):
            assert a.dtype == b.dtype and a.sharding == b.sharding, name
            np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=2e-5, atol=2e-5, err_msg=name)
assert len(calls) > 20  # one per kernel at least, more where helpers come in time
assert np.allclose(jax.jit(jnp.matmul)(host, host.T), host @ host.T, atol=1e-4)
"""


def test_programs_without_a_compiler():
    env = os.environ | {"SHARDWISE_LLVM": "0", "SHARDWISE_NUM_CPU_DEVICES": "8", "SHARDWISE_DIALECT": "seed"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=200)
    assert not done.returncode, done.stderr
