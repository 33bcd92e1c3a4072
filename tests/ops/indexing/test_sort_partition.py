"""Sorts, top_k and searches along split dims: what they give on one device, bit for bit, for fewer bytes than a gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, P
from tests.ops.indexing.test_sorting import bits

MESH = Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
ROW = P(("x", "y"))
LONG = 1 << 13
GATHERED = 7 * LONG // 8 * 4  # bytes


def split(x, spec=ROW):
    return sw.device_put(x, NamedSharding(MESH, spec))


def transfers(f, *args):
    """The kinds and bytes of what the compiled program sends."""
    found = sw.jit(f).lower(*args).compile()._entry.executable.transfers
    return [(t.kind, t.bytes) for t in found]


def keys(rng, dtype, shape):
    """Few different values: ties, zeros of both signs, NaNs and infinities."""
    x = rng.integers(-9, 9, shape).astype(np.float32)
    if dtype.kind not in "iub":
        places = rng.random(shape)
        x[places < 0.2], x[places > 0.8], x[places > 0.95], x[places > 0.98] = -0.0, np.nan, np.inf, -np.inf
    return (x + 1j * np.roll(np.nan_to_num(x), 1)).astype(dtype) if dtype.kind == "c" else x.astype(dtype)


def assert_same(found, wanted):
    for got, want in zip(sw.tree_util.tree_leaves(found), sw.tree_util.tree_leaves(wanted), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape and got.weak_type == want.weak_type
        for part in (np.real, np.imag) if got.dtype.kind == "c" else (np.asarray,):
            np.testing.assert_array_equal(bits(part(np.asarray(got))), bits(part(np.asarray(want))))


DTYPES = [np.dtype(d) for d in (np.float32, np.int8, np.uint32, np.bool_, np.complex64, ml_dtypes.bfloat16)]
SPECS = [P("x"), P(None, "x"), P("y", "x"), P("x", "y"), P(None, ("y", "x")), P(("x", "y"))]


@pytest.fixture
def always_along(monkeypatch):
    """Rows are sorted where they lie however short they are."""
    from shardwise.passes.partition import Region

    def along(region, *ways):
        return ways[0 if len(ways) < 3 else -1](region)

    monkeypatch.setattr(Region, "cheapest", along)
    sw.clear_caches()
    yield
    sw.clear_caches()


@pytest.mark.usefixtures("always_along")
def test_short_rows_of_any_layout():
    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from([(8, 16), (16, 8), (8, 8)]),
        st.sampled_from(SPECS),
        st.integers(0, 1),
        st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3),
        st.integers(0, 1 << 20),
    )
    def check(shape, spec, dim, dtypes, seed):
        rng = np.random.default_rng(seed)
        operands = [keys(rng, d, shape) for d in dtypes]
        num_keys = 1 + seed % len(operands)
        run = sw.jit(lambda *xs: lax.sort(xs, dim, num_keys=num_keys))
        found = run(*[split(x, spec) for x in operands])
        assert_same(found, run(*operands))
        assert all(x.sharding.is_equivalent_to(NamedSharding(MESH, spec), 2) for x in found)
        if operands[0].dtype.kind != "c":
            k = 1 + seed % shape[dim]
            largest = sw.jit(lambda x: lax.top_k(x, k, axis=dim))
            assert_same(largest(split(operands[0], spec)), largest(operands[0]))

    check()


def test_a_long_row_is_sorted_where_it_lies():
    x = keys(np.random.default_rng(0), np.dtype(np.float32), LONG)
    functions: list[Callable[..., Any]] = [jnp.sort, jnp.argsort, lambda v: lax.sort((v, -v), num_keys=2)]
    for f in functions:
        assert_same(sw.jit(f)(split(x)), sw.jit(f)(x))
        ((kind, sent),) = transfers(f, split(x))
        assert kind == "sort" and sent < GATHERED * (1 if f is jnp.sort else 2)
    assert sw.jit(jnp.sort)(split(x)).sharding == NamedSharding(MESH, ROW)


def test_rows_go_whole_to_devices_where_that_is_less():
    x = split(np.zeros((64, 64), np.float32), P(None, ("x", "y")))
    assert transfers(lambda v: jnp.sort(v, 1), x) == [("all_to_all", 7 * 64 * 64 // 64 * 4)] * 2


def test_quantiles_of_a_split_row():
    x = np.random.default_rng(0).normal(size=LONG).astype(np.float32)
    functions: list[Callable[..., Any]] = [jnp.median, lambda v: jnp.quantile(v, 0.3)]
    for f in functions:
        np.testing.assert_array_equal(sw.jit(f)(split(x)), sw.jit(f)(x))
        assert sum(sent for _, sent in transfers(f, split(x))) < GATHERED


def test_the_gradient_of_sort_goes_back_by_a_sort():
    """And tangents go forward by two, one of which inverts the order."""
    x = np.random.default_rng(0).permutation(8 * LONG).astype(np.float32)
    weights = np.arange(8 * LONG, dtype=np.float32)
    for f in (sw.grad(lambda v: (jnp.sort(v) * weights).sum()), lambda v: sw.jvp(jnp.sort, (v,), (2 * v,))):
        assert_same(sw.jit(f)(split(x)), sw.jit(f)(x))
        assert {kind for kind, _ in transfers(f, split(x))} == {"sort"}


def test_top_k_gathers_candidates_only():
    rng = np.random.default_rng(0)
    x = keys(rng, np.dtype(np.float32), LONG)
    f = lambda v: lax.top_k(v, 8)  # noqa: E731
    assert_same(sw.jit(f)(split(x)), sw.jit(f)(x))
    assert transfers(f, split(x)) == [("all_gather", 7 * 8 * 4)] * 2
    rows = rng.normal(size=(8, LONG)).astype(np.float32)
    assert_same(sw.vmap(f)(split(rows, P(None, "y"))), sw.vmap(f)(rows))
    assert [kind for kind, _ in transfers(lambda v: lax.top_k(v, LONG // 2), split(x))] == ["all_gather"]


def test_values_are_looked_up_in_the_part_where_they_belong():
    rng = np.random.default_rng(0)
    a = np.sort(keys(rng, np.dtype(np.float32), LONG))
    few, many = keys(rng, np.dtype(np.float32), 16), keys(rng, np.dtype(np.float32), LONG)
    for side in ("left", "right"):
        f = lambda a, v, side=side: jnp.searchsorted(a, v, side=side)  # noqa: E731
        for v, kinds in ((few, ["all_gather", "all_reduce"]), (many, ["all_gather"])):
            assert_same(sw.jit(f)(split(a), v), sw.jit(f)(a, v))
            sent = transfers(f, split(a), v)
            assert [k for k, _ in sent] == kinds and (v is many or sum(n for _, n in sent) < 256)
        assert transfers(f, a, split(many)) == []


def test_lookups_sum_or_gather_what_is_less():
    table, few, many = np.arange(64.0, dtype=np.float32), np.arange(4), np.arange(LONG) % 64
    for places, kind in ((few, "all_reduce"), (many, "all_gather")):
        f = lambda t, i: t[i]  # noqa: E731
        assert_same(sw.jit(f)(split(table), places), sw.jit(f)(table, places))
        assert [k for k, _ in transfers(f, split(table), places)] == [kind]


def test_stepped_devices_exchange_the_same():
    x = keys(np.random.default_rng(0), np.dtype(np.float32), LONG)
    want = sw.jit(jnp.argsort)(x)
    from shardwise.runtime.stepped import SteppedPlan

    executable = sw.jit(jnp.argsort).lower(split(x)).compile()._entry.executable
    assert "split_sort" in str(executable.device_program)
    (block,) = SteppedPlan(executable.device_program, executable.plan.env).run(x.reshape(2, 4, -1))
    np.testing.assert_array_equal(np.asarray(block).reshape(-1), want)
