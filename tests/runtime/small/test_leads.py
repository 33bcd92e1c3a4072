"""Over which devices results of small programs vary: updates, of what all devices hold alike, write on one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh

ROWS = 10


def _zeros(mesh: Any) -> Any:
    return lax.with_sharding_constraint(jnp.zeros((ROWS, 3)), NamedSharding(mesh, P("x")))


UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "row": lambda zeros, t: zeros.at[0].set(t[0]),
    "last row": lambda zeros, t: zeros.at[ROWS - 1].set(t[0]),
    "sum": lambda zeros, t: zeros.at[0].add(t[0]),
    "maximum": lambda zeros, t: zeros.at[0].max(t[0]),
    "rows": lambda zeros, t: zeros.at[jnp.array([0, ROWS - 1])].set(t[:2]),
    "slice": lambda zeros, t: lax.dynamic_update_slice(zeros, t[:3], (4, 0)),
    "computed": lambda zeros, t: lax.dynamic_update_slice(zeros, t[:1], (abs(t[0, 0]).astype("int32"), 0)),
    "loop": lambda zeros, t: lax.fori_loop(0, 3, lambda i, c: c.at[i].add(t[0]), zeros),
}


@pytest.mark.parametrize("devices", [2, 5])
@pytest.mark.parametrize("of", ["one", "mapped", "mapped twice"])
@pytest.mark.parametrize("update", UPDATES)
def test_updates_of_constants(update: str, of: str, devices: int) -> None:
    mesh = make_mesh((devices,), ("x",), axis_types=(AxisType.Auto,), devices=sw.devices()[:devices])
    x = np.random.default_rng(0).standard_normal((ROWS, 3)).astype(np.float32)

    def program(a: Any) -> Any:
        one = lambda t: UPDATES[update](_zeros(mesh), t) + t  # noqa: E731
        if of == "one":
            return one(a)
        mapped = sw.vmap(one)
        return mapped(jnp.stack([a, -a])) if of == "mapped" else sw.vmap(mapped)(jnp.stack([a, -a])[None])

    expected = np.asarray(program(jnp.asarray(x)))
    for spec in (P("x"), P()):
        np.testing.assert_allclose(sw.jit(program)(sw.device_put(x, NamedSharding(mesh, spec))), expected, rtol=1e-6)


@pytest.mark.parametrize("rows", [4, 10])
def test_a_mapped_cotangent_of_one_row(rows: int) -> None:
    mesh = make_mesh((2,), ("x",), axis_types=(AxisType.Auto,), devices=sw.devices()[:2])
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    add = lambda x: x.at[0].add(0.5)  # noqa: E731
    cotangents = sw.jit(lambda x: sw.vmap(lambda t: sw.vjp(add, x)[1](t)[0])(jnp.stack([x, -x])))
    np.testing.assert_array_equal(cotangents(sw.device_put(x, NamedSharding(mesh, P("x")))), np.stack([x, -x]))
