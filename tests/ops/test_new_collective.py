"""A collective is one file: `ring_sum`, of which the library knows nothing, does all that psum does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base import config
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.distributed.launching import command, environment, needs_mpi
from tests.ops import ring_sum as scratch
from tests.ops.ring_sum import expected, mapped, ring_sum

X = np.arange(16 * 3, dtype=np.float32).reshape(16, 3)


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(sw.devices()[:8]), ("x",))


@pytest.fixture(scope="module")
def square():
    return Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("y", "x"))


def explained(f):
    return f.lower(X).compile().explain()


def test_runs(mesh, square):
    np.testing.assert_array_equal(mapped(lambda x: ring_sum(x, ("x",)), mesh)(X), expected(X, 8))
    both = mapped(lambda x: ring_sum(x, ("y", "x"), 3), square, P(("y", "x")), P(("y", "x")))
    np.testing.assert_array_equal(both(X), expected(X, 8, 3))


def test_partitions_over_axes_that_stay_automatic(square):
    """Only `x` is manual; `y` splits the other dim, and the partitioner leaves it so."""
    f = sw.shard_map(lambda x: ring_sum(x, ("x",)), mesh=square, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    value = sw.device_put(X[:, :2], sw.NamedSharding(square, P("x", "y")))
    compiled = sw.jit(f).lower(value).compile()
    np.testing.assert_array_equal(compiled(value), expected(X[:, :2], 4))
    transfer, *rest = compiled.runtime_executable().transfers
    assert all(t.axes == ("y",) and t.unasked for t in rest)  # out_specs say nothing of y
    assert (transfer.kind, transfer.axes, transfer.bytes, transfer.implicit) == ("ring sum", ("x",), 4 * 4, False)


def test_costs_and_explains(mesh):
    f = mapped(lambda x: ring_sum(x, ("x",)), mesh)
    compiled = f.lower(X).compile()
    cost = compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    assert cost["collective bytes"] == 2 * 3 * 4
    assert cost["flops"] == 2 * 3
    assert "ring sum over x of f32[2,3]" in explained(f)
    assert "24 bytes, written by the program" in explained(f)


def test_is_counted_under_vmap(mesh):
    f = mapped(lambda x: sw.vmap(lambda v: ring_sum(v, ("x",)), 1, 1)(x), mesh)
    assert "24 bytes, written by the program" in explained(f)
    cost = f.lower(X).compile().cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    assert cost["collective bytes"] == 24


def test_prints(mesh):
    text = str(sw.make_jaxpr(mapped(lambda x: ring_sum(x, ("x",)), mesh))(X))
    assert "pring[axis_name=('x',) step=1]" in text


@pytest.mark.parametrize("dim", [0, 1])
def test_batches(mesh, dim):
    values = np.stack([X, 2 * X, X**2], dim)
    spec = P("x", None, None) if dim else P(None, "x", None)
    f = mapped(lambda x: sw.vmap(lambda v: ring_sum(v, ("x",)), dim, dim)(x), mesh, spec, spec)
    np.testing.assert_array_equal(f(values), np.stack([expected(v, 8) for v in (X, 2 * X, X**2)], dim))


def test_refuses_an_axis_of_vmap_by_name():
    with pytest.raises(NotImplementedError, match=r"ring_sum over .*'i'.* vmap"):
        sw.vmap(lambda v: ring_sum(v, ("i",)), axis_name="i")(X)


def test_differentiates(mesh):
    f = mapped(lambda x: ring_sum(x, ("x",), 2), mesh)
    weights = np.cos(X)
    grad = sw.grad(lambda x: (f(x) * weights).sum())(X)
    np.testing.assert_allclose(grad, expected(weights, 8, -2), rtol=1e-6)
    _, tangent = sw.jvp(f, (X,), (weights,))
    np.testing.assert_allclose(tangent, expected(weights, 8, 2), rtol=1e-6)


@pytest.mark.parametrize("batched", [False, True])
def test_steps(mesh, batched):
    one = lambda x: ring_sum(x, ("x",))  # noqa: E731
    body = (lambda x: sw.vmap(one, 1, 1)(x)) if batched else one
    want = expected(X, 8)
    np.testing.assert_array_equal(mapped(body, mesh)(X), want)
    with config.override("shardwise_stepped", True):
        sw.clear_caches()
        np.testing.assert_array_equal(mapped(body, mesh)(X), want)
    with sw.disable_jit():
        np.testing.assert_array_equal(mapped(body, mesh)(X), want)


def test_devices_that_call_different_ones_are_told(mesh):
    def body(x):
        return ring_sum(x, ("x",), 1 if int(lax.axis_index("x")) else 2)

    with sw.disable_jit(), pytest.raises(RuntimeError, match=r"ring_sum over 'x' of f32\[2,3\] with step=2"):
        mapped(body, mesh)(X)


def test_may_not_stand_under_a_predicate_that_varies(mesh):
    def body(x, batched):
        call = lambda v: ring_sum(v, ("x",))  # noqa: E731
        call = sw.vmap(call) if batched else call
        return lax.cond(lax.axis_index("x") > 2, call, lambda v: lax.pvary(v + 1, "x"), x)

    for batched in (False, True):
        with pytest.raises(ValueError, match="stands inside a cond whose predicate varies over"):
            mapped(lambda x, batched=batched: body(x, batched), mesh)(X)


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
