"""A large maximum within devices, and over them right after, is one reduction; a sum is not, for what several devices hold counts."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.passes.crossing_reductions import with_crossing_reductions
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for fused loops")


def device_program(f, n=1 << 16):
    mesh = Mesh(sw.devices(), ("x",))
    x = sw.device_put(np.arange(n, dtype=np.float32), NamedSharding(mesh, P("x")))
    compiled = sw.jit(f).lower(x).compile()
    return compiled._entry.executable.device_program


ENV = Env(("x",), (8,))


def names(program):
    return [e.op.name for e in program.equations]


@pytest.mark.parametrize("f, name", [(jnp.max, "reduce_max"), (jnp.min, "reduce_min")])
def test_an_extremum_and_its_all_reduce_are_one(f, name):
    program = device_program(f)
    assert names(program) == [name, "all_reduce"]
    out = with_crossing_reductions(program, ENV)
    assert names(out) == [name]
    assert out.equations[0].params["sum_axes"] == ("x",)
    assert out.outputs == program.outputs


def test_small_ones_stay():
    program = device_program(jnp.max, 64)
    assert names(with_crossing_reductions(program, ENV)) == names(program)


def test_results_that_are_read_in_between_stay(monkeypatch):
    monkeypatch.setattr(costs, "FUSED_FEWEST", 8)

    def f(x):
        mesh = Mesh(sw.devices(), ("x",))

        def body(v):
            top = sw.lax.reduce_max(v, (0,))
            return sw.lax.pmax(top, "x"), sw.lax.neg(top)[None]

        return sw.experimental.shard_map.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=(P(), P("x")))(x)

    out = with_crossing_reductions(device_program(f), ENV)
    assert "all_reduce" in names(out)


def test_one_device_has_nothing_to_join():
    program = device_program(jnp.max)
    assert with_crossing_reductions(program, Env()) is program
