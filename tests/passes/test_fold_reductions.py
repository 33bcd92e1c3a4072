"""Reductions over devices that the op before them does itself; the device program keeps them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P


@pytest.mark.parametrize("spec, kinds", [(P(None, "x"), ["sum"]), (P("x", None), [])])
def test_a_sum_over_devices_joins_the_product(spec, kinds):
    mesh = Mesh(sw.devices(), ("x",))
    a = sw.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, spec))
    w = sw.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P(*reversed(tuple(spec))) if kinds else P()))
    compiled = sw.jit(jnp.matmul).lower(a, w).compile()
    text = compiled.as_text()
    assert ("sum_axes=('x',)" in text) is bool(kinds)
    assert "all_reduce" not in text
    program = compiled.runtime_executable().device_program
    assert ("all_reduce" in str(program)) is bool(kinds)
    assert "sum_axes=('x',)" not in str(program)


def test_loop_bodies_too():
    """A product in a loop whose contracted dim is split."""
    mesh = Mesh(sw.devices()[:4], ("x",))
    a, w = sw.ShapeDtypeStruct((8, 8), np.float32), sw.ShapeDtypeStruct((8, 8), np.float32)
    a, w = [t.update(sharding=NamedSharding(mesh, s)) for t, s in ((a, P()), (w, P("x", None)))]
    f = sw.jit(lambda a, w: sw.lax.fori_loop(0, 5, lambda i, c: c @ w, a))
    executable = f.lower(a, w).compile().runtime_executable()
    (loop,) = [e for e in executable.folded_program.equations if e.op.name == "scan"]
    assert "reduce_scatter" not in str(loop.params["body"])
    (loop,) = [e for e in executable.device_program.equations if e.op.name == "scan"]
    assert "reduce_scatter" in str(loop.params["body"])


BETWEEN = {  # by name: a function of three matrices whose rows each device has a part of; the sums over devices that are left
    "a sum of products": (lambda a, b, c: lax.psum(a.T @ b - c.T @ a, "x"), 0),
    "each device keeps a part": (lambda a, b, c: lax.psum_scatter(a.T @ b + (a.T @ c).T, "x", tiled=True), 0),
    "padded with zeros": (lambda a, b, c: lax.psum(jnp.pad(-(a.T @ b), ((0, 3), (1, 0))), "x"), 0),
    "in a loop": (
        lambda a, b, c: lax.fori_loop(0, 3, lambda i, d: lax.psum((s := jnp.sign(d)).T @ b + b.T @ s, "x"), a),
        0,
    ),
    "the sum of two sums": (lambda a, b, c: lax.psum(a.sum(0)[:, None] + (b + c).sum(0), "x"), 0),
    "read by others": (lambda a, b, c: (s := a.T @ b + c.T @ b) @ lax.psum(s, "x"), 1),
    "a term that is no sum": (lambda a, b, c: lax.psum(a.T @ b + c[:8], "x"), 1),
    "padded with ones": (lambda a, b, c: lax.psum(jnp.pad(a.T @ b, 1, constant_values=1.0), "x"), 1),
    "wrapped before they are widened": (
        lambda a, b, c: lax.psum(lax.dot(a.T.astype(np.int8), b.astype(np.int8)).astype(np.int32), "x"),
        1,
    ),
    "rounded on purpose": (lambda a, b, c: lax.psum(lax.reduce_precision(a.T @ b, 8, 2), "x"), 1),
    "a choice": (lambda a, b, c: lax.psum(jnp.where(jnp.arange(8) > 2, a.T @ b, c.T @ a), "x"), 0),
    "a choice of each device": (lambda a, b, c: lax.psum(jnp.where(c[:8] > 2, a.T @ b, c.T @ a), "x"), 1),
    "the greatest": (lambda a, b, c: lax.pmax(a.max(0) + b.max(0), "x"), 1),
    "zeros alone": (lambda a, b, c: lax.psum(jnp.zeros(8), "x"), 0),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_sums_of_what_adds_up_products(name):
    """One value for all devices is made where each device would have one of its own."""
    f, left = BETWEEN[name]
    mesh = Mesh(sw.devices()[:4], ("x",))
    given = [np.random.default_rng(i).integers(-60, 60, (32, 8)).astype(np.float32) for i in range(3)]
    mapped = sw.jit(sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    compiled = mapped.lower(*given).compile()
    program = str(compiled.runtime_executable().folded_program)
    assert program.count("= all_reduce[") + program.count("= reduce_scatter[") == left
    with sw.disable_jit():  # device by device
        expected = np.asarray(mapped(*given))
    np.testing.assert_array_equal(compiled(*given), expected)
