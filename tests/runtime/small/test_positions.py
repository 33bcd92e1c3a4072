"""Windows at computed positions of split dims, and at positions that differ from device to device: small programs give what kernels do."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime import costs
from shardwise.runtime.small.kernel import available
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
GRID = sw.make_mesh((4, 2), ("x", "y"))
PLACES = jnp.asarray([3, -1, 0, 9, 40, -40, 8], jnp.int32)  # some of them beyond an end

SPLIT = {
    "row": lambda k, c: c + c[k],
    "element": lambda k, c: c + c[k, k % 6],
    "column": lambda k, c: c - c[:, k % 6, None],
    "rows of two devices": lambda k, c: c + lax.dynamic_slice(c, (k * 2, 0), (5, 6)).sum(0),
    "part of a row": lambda k, c: c + lax.dynamic_slice(c, (k - 3, k), (1, 3)).sum(),
    "set row": lambda k, c: c.at[k].set(c[k - 1] + 1),
    "set element": lambda k, c: c.at[k, k % 6].set(7.0),
    "set by slice": lambda k, c: lax.dynamic_update_slice(c, c[:1] * 2, (k, 0)),
    "add rows": lambda k, c: c.at[PLACES + k].add(1.0),
    "largest of rows": lambda k, c: c.at[PLACES].max(c[:7], mode="clip"),
    "rows": lambda k, c: c + c.at[PLACES + k].get(mode="fill", fill_value=2.0).sum(0),
    "rows, clipped": lambda k, c: c + c.at[PLACES + k].get(mode="clip").sum(0),
    "elements": lambda k, c: c + c[PLACES, PLACES % 6].sum(),
}


def _own(k):
    return (lax.axis_index("x") + k) % 3 - 1


OWN = {
    "slice": lambda k, c: c + lax.dynamic_slice(c, (_own(k), 0), (2, 3)).sum(),
    "update": lambda k, c: lax.dynamic_update_slice(c, c[:2, :1] + 1, (_own(k), k)),
    "scatter": lambda k, c: c.at[_own(k)].add(c[0]),
    "gather": lambda k, c: c + c[_own(k)],
    "over both": lambda k, c: c.at[_own(k), lax.axis_index("y")].set(5.0),
}


def _check(made, f, x):
    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append(np.asarray(sw.jit(lambda x: f(x))(x)))
    np.testing.assert_array_equal(*found)
    assert any(e.op.region is not None for p in made for e in p.equations)  # the loop and all that is in it


def _values(*shape):
    return np.random.default_rng(3).integers(-9, 9, size=shape).astype(np.float32)


@pytest.mark.parametrize("spec", [P("x"), P(("y", "x"))], ids=str)
@pytest.mark.parametrize("name", SPLIT)
def test_positions_along_split_dims(made, name, spec):
    x = sw.device_put(_values(16, 6), NamedSharding(GRID, spec))
    _check(made, lambda x: lax.fori_loop(0, 5, SPLIT[name], x), x)


@pytest.mark.parametrize("name", OWN)
def test_positions_of_each_device(made, name):
    def body(x):
        return lax.fori_loop(0, 4, OWN[name], x)

    _check(made, sw.shard_map(body, mesh=GRID, in_specs=P("x", "y"), out_specs=P("x", "y")), _values(16, 6))


def test_scalars_of_many_devices_beside_arrays(made, monkeypatch):
    """A scalar that differs on more devices than a register has elements is computed in a loop, and then meets arrays."""
    monkeypatch.setattr(costs, "REGISTER_ELEMENTS", 4)

    def body(x):
        def step(i, c):
            return lax.clamp((lax.axis_index("x") * i - 3).astype(c.dtype), c + 1, jnp.float32(5))

        return lax.fori_loop(0, 3, step, x)

    mesh = sw.make_mesh((8,), ("x",))
    _check(made, sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")), _values(64, 3))
