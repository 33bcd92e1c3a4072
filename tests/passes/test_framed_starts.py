"""Lookups and updates at computed places of dims that the mesh axes do not divide: starts count from where the dim lies in its frame."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

P = PartitionSpec
N = 32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 16)).astype(np.float32)
PLACES = np.array([-40, -31, -1, 0, 3, 3, 29, 30, 31, 32, 100, 7], np.int32)  # from both ends, and beyond them

LOOKUPS = {
    "rows": lambda x, i: x[i],
    "filled": lambda x, i: x.at[i].get(mode="fill", fill_value=7.0),
    "dropped, from the front": lambda x, i: x.at[jnp.abs(i)].get(mode="fill", wrap_negative_indices=False),
    "clipped": lambda x, i: x.at[i].get(mode="clip"),
    "small indices": lambda x, i: x[i.astype(jnp.int8)] + x[i.astype(jnp.uint8)],
    "along": lambda x, i: jnp.take_along_axis(x, jnp.abs(i)[:, None] % 16, 0),
    "both dims": lambda x, i: x[:, 1:][i, i],
    "window": lambda x, i: sum(lax.dynamic_slice(x, (j, 0), (5, 16)) for j in i),
    "known window": lambda x, i: lax.dynamic_slice(x, (30, i[4]), (1, 3)),
    "windows of a batch": lambda x, i: sw.vmap(lambda j: lax.dynamic_slice(x, (j, 0), (5, 16)))(i),
    "own window of each column": lambda x, i: sw.vmap(lambda c, j: lax.dynamic_slice(c, (j,), (5,)))(x.T[:12], i),
    "derivative": lambda x, i: sw.grad(lambda x: (x[i] ** 2).sum())(x),
}  # fmt: skip

UPDATES = {
    "set": lambda x, i: x.at[i].set(jnp.float32(1)),
    "added": lambda x, i: x.at[i].add(x[:12]),
    "greatest": lambda x, i: x.at[i].max(0.5, mode="drop"),
    "clipped": lambda x, i: x.at[i].multiply(2.0, mode="clip"),
    "applied": lambda x, i: x.at[i[4]].apply(jnp.exp),
    "window": lambda x, i: [lax.dynamic_update_slice(x, 2 * x[:3], (j, 0)) for j in i],
    "own window of each column": lambda x, i: sw.vmap(lambda c, j: lax.dynamic_update_slice(c, c[:3] * 2, (j,)))(x.T[:12], i),
}  # fmt: skip

VIEWS = {
    "behind": lambda x: x[1:],
    "before": lambda x: x[:-1],
    "differences": lambda x: jnp.diff(x, axis=0),
    "between": lambda x: x[2:-1] * 2,
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [*LOOKUPS, *(f"updates {u}" for u in UPDATES)])
def test_places_are_those_of_one_device(name, view):
    f = LOOKUPS[name] if name in LOOKUPS else UPDATES[name.removeprefix("updates ")]
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    whole = lambda x, i: f(VIEWS[view](x), i)  # noqa: E731
    expected = sw.tree.leaves(whole(jnp.asarray(X), jnp.asarray(PLACES)))
    for spec in (P("x"), P("x", "y")):
        got = sw.jit(whole)(sw.device_put(X, NamedSharding(mesh, spec)), PLACES)
        for a, b in zip(sw.tree.leaves(got), expected, strict=True):
            assert_normwise(a, b, 1e-6)


@pytest.mark.parametrize(
    "f, rows",
    [
        (lambda x, i: jnp.diff(x, axis=0)[i], 1 + 2 * 7 / 8 * 4),
        (lambda x, i: x[1:][i], 2 * 7 / 8 * 4),
        (lambda x, i: lax.dynamic_slice(x[1:], (i[0], 0), (4, 16)), 2 * 7 / 8 * 4),
        (lambda x, i: jnp.pad(x[1:].at[i].add(1.0), ((1, 0), (0, 0))).sum(), 2 * 7 / 8 / 16),
    ],
)  # fmt: skip
def test_operands_stay_where_they_lie(f, rows):
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    x = sw.ShapeDtypeStruct((64, 16), np.float32, sharding=NamedSharding(mesh, P("x")))
    i = sw.ShapeDtypeStruct((4,), np.int32)
    transfers = sw.jit(f).lower(x, i).compile().runtime_executable().transfers
    assert sum(t.bytes for t in transfers) / 64 == pytest.approx(rows, abs=0.2)
