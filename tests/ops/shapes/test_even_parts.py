"""Pieces of split values whose size the axes do not divide are sorted, turned round and joined where they lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

P = PartitionSpec
MESH = Mesh(np.array(sw.devices()[:8]), ("x",))
RNG = np.random.default_rng(0)


def run(f, x, *, outs=None):
    """The result, and the kinds of transfers."""
    placed = sw.device_put(x, NamedSharding(MESH, P("x")))
    compiled = sw.jit(f, out_shardings=outs).lower(placed).compile()
    return compiled(placed), [t for t in compiled.runtime_executable().transfers if t.implicit]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.concatenate([x[:101], lax.sort(x[101:])]),
        lambda x: jnp.concatenate([x[:101], x[101:][::-1]]),
        lambda x: jnp.concatenate([-jnp.sort(-x[300:]), x[:300]]),
        lambda x: jnp.argpartition(x, 100),
        lambda x: jnp.partition(x, 700),
        lambda x: lax.sort((x[5:] // 8, jnp.arange(4091)), num_keys=1)[1].sum(),
    ],
)
def test_uneven_pieces_are_not_gathered(f):
    x = RNG.integers(-99, 99, 4096).astype(np.int32)
    got, transfers = run(f, x, outs=None)
    np.testing.assert_array_equal(got, f(x))
    assert "all_gather" not in {t.kind for t in transfers}


@settings(max_examples=30, deadline=None)
@given(st.integers(16, 70), st.data(), st.sampled_from([np.int8, np.uint32, np.int32]))
def test_the_greatest_elements_stay_before_what_is_added(n, data, dtype):
    """Elements as great as those behind them keep their places and their payloads."""
    n = n // 8 * 8
    first = data.draw(st.integers(0, n - 16))
    greatest = np.iinfo(dtype).max
    x = data.draw(st.lists(st.sampled_from([0, 1, greatest - 1, greatest]), min_size=n, max_size=n))
    x = np.array(x, dtype)

    def f(x):
        keys, places = lax.sort((x[first:], jnp.arange(n - first)), num_keys=1)
        return keys, places, x[first:][::-1]

    got, _ = run(f, x)
    for a, b in zip(got, f(x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_copies_behind_each_other_come_from_where_they_lie():
    x = RNG.normal(size=(4096, 16)).astype(np.float32)
    got, transfers = run(lambda x: jnp.tile(x, (3, 1)), x, outs=NamedSharding(MESH, P("x")))
    np.testing.assert_array_equal(got, np.tile(x, (3, 1)))
    assert {t.kind for t in transfers} == {"permute"}
    assert sum(t.total for t in transfers) <= 3 * x.nbytes // 8


def test_places_of_true_elements_are_summed():
    x = RNG.normal(size=4096).astype(np.float32)
    for size in (16, 4096):
        got, transfers = run(lambda x, size=size: jnp.nonzero(x > 1, size=size, fill_value=-1)[0], x)
        np.testing.assert_array_equal(got, jnp.nonzero(x > 1, size=size, fill_value=-1)[0])
        assert sum(t.total for t in transfers) <= 2 * 4 * size + 64
