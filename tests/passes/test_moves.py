"""A value that is moved twice in the same way is moved once, and a slice gets what it lacks from the whole."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
ROWS, COLUMNS, WHOLE = (NamedSharding(MESH, spec) for spec in (P("x"), P(None, "x"), P()))
X = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


def checked(f, *args):
    """The transfers of a function, whose results are those without any layout."""
    compiled = sw.jit(f).lower(*args).compile()
    for got, plain in zip(compiled(*args), f(*map(np.asarray, args)), strict=True):
        np.testing.assert_allclose(got, plain, rtol=1e-6)
    return compiled.runtime_executable().transfers


def test_two_readers_in_one_layout():
    def again(x):
        y = lax.with_sharding_constraint(x * 2, COLUMNS)
        z = lax.with_sharding_constraint(x * 2, COLUMNS)
        return y + 1, z - 1

    assert len(checked(again, sw.device_put(X, ROWS))) == 1


def test_a_slice_of_a_whole_value_sends_nothing():
    def f(x):
        part = lax.with_sharding_constraint(x, ROWS)
        return part + 1, lax.with_sharding_constraint(part, COLUMNS) + 1, lax.with_sharding_constraint(part, WHOLE)

    assert checked(f, sw.device_put(X, WHOLE)) == ()


@pytest.mark.parametrize("spec", [P("x"), P("x", "y"), P("y", "x"), P(None, "x")])
def test_rows_that_one_device_has_are_a_value_of_their_own(spec):
    """Sorting moves a device's own rows along the other dim; what it gets is no layout of the whole."""

    def f(x):
        return sw.vmap(lambda row: jnp.unique(row, size=5, return_counts=True, return_inverse=True))(x)

    whole = np.random.default_rng(0).integers(-3, 3, (4, 8)).astype(np.int32)
    for got, plain in zip(sw.jit(f)(sw.device_put(whole, NamedSharding(MESH, spec))), f(whole), strict=True):
        np.testing.assert_array_equal(got, plain)
