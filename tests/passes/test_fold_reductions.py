"""Reductions over devices that the op before them does itself; the device program keeps them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
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
