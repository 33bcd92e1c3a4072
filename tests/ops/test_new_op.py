"""An op is one definition: three of which the library knows nothing fuse, split, batch and run as its own do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.runtime.small.kernel import available
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.distributed.launching import command, environment, needs_mpi
from tests.ops import new_ops as scratch
from tests.ops.new_ops import behind, expected, max_size, scaled, softsign

compiled_loops = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
SMALL = np.cos(np.arange(4 * 6, dtype=np.float32)).reshape(4, 6)
LARGE = np.cos(np.arange(256 * 512, dtype=np.float32)).reshape(256, 512)


def ops_of(program) -> list[str]:
    return [e.op.name for e in program.equations]


def compiled(f, *args):
    """`f` compiled, its per-device program, and what of it is joined."""
    done = sw.jit(f).lower(*args).compile()
    executable = done.runtime_executable()
    return done, executable.device_program, executable.plan.program


@pytest.mark.parametrize("x", [SMALL, LARGE], ids=["small", "large"])
def test_runs(x):
    np.testing.assert_allclose(scaled(x), expected(x), rtol=1e-6)
    np.testing.assert_allclose(sw.jit(scaled)(x), expected(x), rtol=1e-6)


@compiled_loops
def test_all_three_fuse():
    """One loop over memory holds the reduction, the move and what is elementwise."""
    done, _, joined = compiled(scaled, LARGE)
    (group,) = joined.equations
    assert {"max_size", "behind", "softsign"} <= set(ops_of(group.params["program"]))
    np.testing.assert_allclose(done(LARGE), expected(LARGE), rtol=1e-6)


@compiled_loops
@pytest.mark.parametrize("loop", [False, True])
def test_all_three_are_written_in_small_programs(loop):
    def f(x):
        if loop:
            return lax.fori_loop(0, 3, lambda i, x: scaled(x), x)
        return scaled(scaled(scaled(x)))

    done, _, joined = compiled(f, SMALL)
    assert ops_of(joined) == ["small"]
    np.testing.assert_allclose(done(SMALL), expected(expected(expected(SMALL))), rtol=1e-5)


@pytest.mark.parametrize("spec", [P("y"), P(None, "x"), P("y", "x"), P(None, ("y", "x"))], ids=str)
@pytest.mark.parametrize("size", [(8, 16), (512, 512)], ids=["small", "large"])
def test_on_eight_devices(spec, size):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("y", "x"))
    x = np.cos(np.arange(np.prod(size), dtype=np.float32)).reshape(size)
    value = sw.device_put(x, sw.NamedSharding(mesh, spec))
    done, program, _ = compiled(scaled, value)
    np.testing.assert_allclose(done(value), expected(x), rtol=1e-6)
    assert ("all_reduce" in str(program)) == (spec != P("y"))  # rows that are whole on a device need no other


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_under_vmap(dim):
    x = np.stack([SMALL, 2 * SMALL, SMALL - 1], dim)
    want = np.stack([expected(SMALL), expected(2 * SMALL), expected(SMALL - 1)], dim)
    for f in (scaled, sw.jit(scaled)):
        np.testing.assert_allclose(sw.vmap(f, dim, dim)(x), want, rtol=1e-6)


def test_each_alone_under_vmap_of_vmap():
    x = np.stack([SMALL, 3 * SMALL])
    twice = lambda f: sw.vmap(sw.vmap(f, 1), 0)  # noqa: E731
    turned = x.transpose(0, 2, 1)
    np.testing.assert_array_equal(twice(max_size)(x), np.abs(turned).max(-1))
    np.testing.assert_array_equal(twice(behind)(x), turned[..., None])
    np.testing.assert_allclose(twice(softsign)(x), turned / (1 + np.abs(turned)), rtol=1e-6)


def test_the_elementwise_one_differentiates():
    slope = 1 / (1 + np.abs(SMALL)) ** 2
    np.testing.assert_allclose(sw.grad(lambda x: jnp.sum(softsign(x)))(SMALL), slope, rtol=1e-6)
    _, tangent = sw.jit(lambda x: sw.jvp(softsign, (x,), (2 * x,)))(SMALL)
    np.testing.assert_allclose(tangent, 2 * SMALL * slope, rtol=1e-6)
    twice = sw.grad(lambda x: jnp.sum(sw.grad(lambda x: jnp.sum(softsign(x)))(x)))(SMALL)
    np.testing.assert_allclose(twice, -2 * np.sign(SMALL) / (1 + np.abs(SMALL)) ** 3, rtol=1e-5)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=needs_mpi)])
def test_over_processes(processes):
    program = [sys.executable, str(Path(scratch.__file__))]
    done = subprocess.run(
        command(processes, program),
        env=environment(8 // processes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == processes
