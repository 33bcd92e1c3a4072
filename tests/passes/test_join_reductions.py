"""Partial sums are added before they are summed over devices."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import verify
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

RNG = np.random.default_rng(5)
N = 16


def compiled(f, *specs, mesh):
    """The executable of `f` on matrices in these layouts, and its result beside the one on whole matrices."""
    given = [RNG.standard_normal((N, N)).astype(np.float32) for _ in specs]
    args = [sw.device_put(x, NamedSharding(mesh, s)) for x, s in zip(given, specs, strict=True)]
    for got, want in zip(sw.tree.leaves(sw.jit(f)(*args)), sw.tree.leaves(f(*given)), strict=True):
        assert_normwise(got, want, 1e-6)
    executable = sw.jit(f).lower(*args).compile().runtime_executable()
    verify(executable.device_program, after="join_reductions")
    return executable


def kinds(executable):
    return [t.kind for t in executable.transfers]


def mesh_of(n=4):
    return Mesh(sw.devices()[:n], ("x",))


SPLIT = (P(None, "x"), P("x", None))


@pytest.mark.parametrize("terms", [2, 3, 4])
def test_products_with_split_sums_are_reduced_once(terms):
    def f(*xs):
        return reduce(add, [a @ b for a, b in zip(xs[::2], xs[1::2], strict=True)])

    found = compiled(f, *SPLIT * terms, mesh=mesh_of())
    assert kinds(found) == ["all_reduce"]
    (transfer,) = found.transfers
    assert transfer.bytes == 2 * 3 * N * N * 4 // 4
    # One process sums over devices within each product, which costs nothing besides.
    assert "sum_axes=('x',)" in str(found.folded_program) and "all_reduce" not in str(found.folded_program)


def test_parts_that_each_device_keeps():
    def f(a, b, c, d):
        return lax.with_sharding_constraint(a @ b + c @ d, NamedSharding(mesh, P("x")))

    mesh = mesh_of()
    assert kinds(compiled(f, *SPLIT * 2, mesh=mesh)) == ["reduce_scatter"]


def test_in_loops():
    def f(a, b, c, d):
        return lax.fori_loop(0, 3, lambda i, x: (x @ a) @ b + (x @ c) @ d, jnp.eye(N) / N)

    found = compiled(f, *SPLIT * 2, mesh=mesh_of())
    assert kinds(found) == ["all_reduce"] and found.transfers[0].trips == 3


def test_sums_that_others_read_stay():
    def f(a, b, c, d):
        first = a @ b
        return first + c @ d, jnp.tanh(first)

    assert kinds(compiled(f, *SPLIT * 2, mesh=mesh_of())) == ["all_reduce"] * 2


def test_sums_over_other_axes_and_of_other_types_stay():
    def f(a, b, c, d):
        wide = (a @ b).astype(jnp.bfloat16).astype(jnp.float32)
        return wide + c @ d

    mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))
    given = (P(None, "x"), P("x", None), P(None, "y"), P("y", None))
    assert len(kinds(compiled(lambda a, b, c, d: a @ b + c @ d, *given, mesh=mesh))) == 2
    assert len(kinds(sw.jit(f).lower(*[
        sw.device_put(np.ones((N, N), np.float32), NamedSharding(mesh_of(), s)) for s in SPLIT * 2
    ]).compile().runtime_executable())) == 2  # fmt: skip


def test_sums_that_the_user_wrote_stay():
    def local(a, b):
        return lax.psum(a, "x") + lax.psum(b, "x")

    mesh = mesh_of()
    f = sw.shard_map(local, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P())
    args = [sw.device_put(np.ones((N, N), np.float32), NamedSharding(mesh, P("x"))) for _ in range(2)]
    assert kinds(sw.jit(f).lower(*args).compile().runtime_executable()) == ["all_reduce"] * 2


def test_queries_keys_and_values_send_one_gradient_back():
    def loss(x, q, k, v):
        parts = [jnp.tanh(x @ w) for w in (q, k, v)]
        return jnp.sum(parts[0] * parts[1] + parts[2])

    mesh = mesh_of()
    found = compiled(sw.grad(loss), P(), *[P(None, "x")] * 3, mesh=mesh)
    assert kinds(found) == ["all_reduce"]
