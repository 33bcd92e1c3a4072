"""Windows of split dims are read where the devices' parts lie: nothing is put together, and no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import subprograms
from shardwise.runtime.machine import llvm
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for fused loops")
MESH = jax.make_mesh((4, 2), ("x", "y"))


def _padded(x, low, high, value=0.0):
    return lax.pad(x, jnp.asarray(value, x.dtype), ((low, high, 0), (0, 0, 0)))


def _laplacian(x):
    p = jnp.pad(x, 1)
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x


IN_PLACE = {
    "differences": lambda x: x[1:] - x[:-1],
    "shifted": lambda x: _padded(x, 2, 0)[:-2] * 2 + x,
    "other fill": lambda x: _padded(x, 0, 1, -1)[1:] + _padded(x, 3, 0, 7)[:-3],
    "both ends": lambda x: _padded(x, 2, 1)[1:-2] + x,
    "slices of rows": lambda x: jnp.pad(x, ((1, 0), (0, 0)))[:-1, 2:] + x[:, 2:],
    "Laplacian": _laplacian,
    "inside": lambda x: x.at[1:-1, 1:-1].add(0.5 * (x[2:, 1:-1] + x[:-2, 1:-1])),
    "loop": lambda x: lax.fori_loop(0, 3, lambda _, x: x + _laplacian(x) / 8, x),
}


def _ops(program, inside=False):
    """The ops of a scheduled program and of its loops, those of groups left out."""
    for eqn in program.equations:
        yield eqn.op.name
        if eqn.op.name != "fused":
            for _, inner in subprograms(eqn.params):
                yield from _ops(inner)


@pytest.mark.parametrize("spec", [P("x"), P(("y", "x")), P("x", "y")], ids=str)
@pytest.mark.parametrize("name", IN_PLACE)
def test_windows_are_read_in_place(name, spec):
    f = IN_PLACE[name]
    for dtype in (np.float32, np.int32) if name in ("differences", "other fill") else (np.float32,):
        x = np.random.default_rng(0).integers(-99, 99, (256, 128)).astype(dtype)
        placed = jax.device_put(x, NamedSharding(MESH, spec))
        got = jax.jit(lambda x: f(x))(placed)
        with config.override("shardwise_fused", "off"):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(jax.jit(lambda x: f(x))(placed)))
        run = jax.jit(lambda x: f(x)).lower(placed).compile().runtime_executable()
        if spec == P("x"):
            assert "halo_exchange" not in set(_ops(run.plan.program)), run.plan.program


@pytest.mark.parametrize(
    "program",
    [
        lambda x: lax.fori_loop(0, 2, lambda i, c: c.at[i].add(x[0]), x),
        lambda x: lax.scan(lambda c, r: (c + r, c * r), x[1], x[2:5]),
        lambda x: lax.cond(x[0, 0] > 0, lambda w: (w, w + 1), lambda w: (w, w - 1), x[1:4]),
        lambda x: lax.sort((x[2:4], x[1:3]), num_keys=1),
        lambda x: lax.top_k(x[3:9], 2),
    ],
    ids=["fori", "scan", "cond", "sort", "top_k"],
)
def test_windows_that_equations_of_several_results_read(program):
    x = np.random.default_rng(0).standard_normal((120, 300)).astype(np.float32)
    f = jax.jit(lambda x: program(x))
    jax.tree.map(np.testing.assert_array_equal, f(jax.device_put(x, NamedSharding(MESH, P("x")))), f(x))
