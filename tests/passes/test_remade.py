"""What is made of whole values alone is computed where it is needed; nothing of it is sent."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]), ("x",))
SPLIT, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())


def transfers(f, *args, outs=None):
    return sw.jit(f, out_shardings=outs).lower(*args).compile().runtime_executable().transfers


@pytest.mark.parametrize(
    "f",
    [
        lambda key: jnp.sort(sw.random.bits(key, (64,))),
        lambda key: jnp.argsort(sw.random.uniform(key, (64,))) * 2,
    ],
)
def test_sorts_of_numbers_that_follow_from_a_key(f):
    key = sw.device_put(sw.random.PRNGKey(3), WHOLE)
    assert sum(t.total for t in transfers(f, key, outs=SPLIT)) == 0
    np.testing.assert_array_equal(sw.jit(f, out_shardings=SPLIT)(key), f(sw.random.PRNGKey(3)))


def test_shuffled_rows():
    x = np.arange(64 * 4, dtype=np.float32).reshape(64, 4)
    f = lambda key, x: sw.random.permutation(key, x)  # noqa: E731
    key = sw.device_put(sw.random.PRNGKey(3), WHOLE)
    split = sw.device_put(x, SPLIT)
    assert {t.cause for t in transfers(f, key, split, outs=SPLIT)} == {"gather"}
    np.testing.assert_array_equal(sw.jit(f, out_shardings=SPLIT)(key, split), f(sw.random.PRNGKey(3), x))


def test_a_slice_of_a_whole_value_is_that_value_again():
    def f(x):
        part = lax.with_sharding_constraint(x, SPLIT)
        return part * 2, jnp.sort(part)

    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    whole = sw.device_put(x, WHOLE)
    np.testing.assert_array_equal(sw.jit(f, out_shardings=(SPLIT, WHOLE))(whole)[1], np.sort(x))
    assert sum(t.total for t in transfers(f, whole, outs=(SPLIT, WHOLE))) == 0


def test_ranks_exchange_no_samples():
    x = np.random.default_rng(0).standard_normal(8192).astype(np.float32)
    split = sw.device_put(x, SPLIT)
    f = lambda x: jnp.argsort(jnp.argsort(x))  # noqa: E731
    first, second = transfers(f, split, outs=SPLIT)
    assert second.bytes < first.bytes
    np.testing.assert_array_equal(sw.jit(f, out_shardings=SPLIT)(split), np.argsort(np.argsort(x, kind="stable")))


def routed(w, x, ids):
    """Rows of `x` in the order of their experts, through a matrix each, and back."""
    order = jnp.argsort(ids)
    rows = x[order]
    boxes = jnp.zeros((8, 32, x.shape[1])).at[ids[order], jnp.arange(64) % 32].set(rows, mode="drop")
    out = jnp.einsum("ecd,edf->ecf", boxes, w)
    return jnp.zeros_like(x).at[order].add(out[ids[order], jnp.arange(64) % 32] * rows.sum(1)[:, None])


def test_rows_of_a_gathered_value_are_looked_up_again():
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(s).astype(np.float32) for s in [(8, 128, 128), (64, 128)])
    ids = rng.integers(0, 8, 64).astype(np.int32)
    split = [sw.device_put(a, SPLIT) for a in (w, x, ids)]
    found = [t for t in transfers(routed, *split) if t.kind == "all_gather" and t.value == "f32[64,128]"]
    assert [t.cause for t in found] == [
        "gather",
        "scatter_add",
    ]  # of x, and of what is added; not of its rows for the boxes
    want = routed(w, x, ids)
    np.testing.assert_allclose(sw.jit(routed)(*split), want, rtol=2e-5, atol=2e-5 * np.abs(want).max())
