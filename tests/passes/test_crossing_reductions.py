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


HALOS = {  # by name: how what each device reads beside its part is joined to it; whether the reduction over devices stays apart
    "rows of a neighbour": (0, lambda x, row: jnp.concatenate([row(x[-1:]), x[:-1]]), True),
    "rows of its own": (0, lambda x, row: jnp.concatenate([x[-1:], x[:-1]]), False),
    "columns": (1, lambda x, row: jnp.concatenate([row(x[:, -1:]), x[:, :-1]], 1), False),
}


@pytest.mark.parametrize("reduce, over, combine", [("sum", sw.lax.psum, np.sum), ("max", sw.lax.pmax, np.max)])
@pytest.mark.parametrize("name", HALOS)
def test_reductions_of_pieces_that_lie_apart_stay_apart(name, reduce, over, combine):
    """Loops within devices read them where they lie; values are joined in memory for none."""
    dim, shifted, apart = HALOS[name]
    mesh = Mesh(sw.devices(), ("x",))
    spec = P("x") if dim == 0 else P(None, "x")
    ring = [(i, (i + 1) % 8) for i in range(8)]

    def body(x):
        moved = shifted(x, lambda part: sw.lax.ppermute(part, "x", ring))
        return over(getattr(jnp, reduce)(sw.lax.integer_pow(x - moved, 2)), "x")

    x = np.random.default_rng(0).integers(-9, 9, (512, 64)).astype(np.float32)
    mapped = sw.jit(sw.shard_map(body, mesh=mesh, in_specs=spec, out_specs=P()))
    executable = mapped.lower(x).compile().runtime_executable()
    out = with_crossing_reductions(executable.folded_program, ENV)
    assert ("all_reduce" in names(out)) is apart
    previous = np.roll(x, 1, dim)
    if name == "rows of its own":
        previous = np.roll(x.reshape(8, 64, 64), 1, 1).reshape(x.shape)
    assert mapped(x) == combine(np.square(x - previous))
