"""Values that the mesh axes do not divide stay in frames: interiors of grids, differences and what is reduced of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.passes.test_assemble import ROW, rows_sent
from tests.rounding import assert_normwise

P = PartitionSpec


def interior(u):
    return u.at[1:-1].set(u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]))


def interior_of_both(u):
    near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.1 * (near - 4 * u[1:-1, 1:-1]))


def edges(x):
    padded = jnp.pad(x, ((1, 1), (0, 0)))
    return padded[2:] - padded[:-2]


@pytest.mark.parametrize(
    "f, rows",
    [
        (interior, 2),  # one from either side: the interior stands in the middle
        (interior_of_both, 2),
        (edges, 2),
        (lambda x: jnp.abs(jnp.diff(x, axis=0)).sum(), 1 + 2 * 7 / 8 * 4 / ROW),
        (lambda x: (x[1:] * x[:-1]).max(), 1 + 2 * 7 / 8 * 4 / ROW),
        (sw.grad(lambda x: (jnp.diff(x, axis=0) ** 2).sum()), 2),
        (sw.grad(lambda x: (interior(x) ** 2).sum()), 4),
        (lambda x: jnp.pad(jnp.tanh(x[1:]).T, ((0, 0), (1, 0))).T, 0),  # it stands where it is wanted
        (lambda x: jnp.pad(lax.optimization_barrier(x[1:]), ((0, 1), (0, 0))), 1),
    ],
)  # fmt: skip
def test_only_the_rims_are_sent(f, rows):
    sent, kinds = rows_sent(f)
    assert sent == pytest.approx(rows, abs=2 * 4 / ROW)
    assert "all_gather" not in kinds


def test_what_stands_beside_reaches_no_result():
    """NaNs beside a value in its frame reach neither sums nor extrema nor products."""
    x = np.arange(32, dtype=np.float32)
    x[0] = np.nan
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    placed = sw.device_put(x, NamedSharding(mesh, P("x")))
    for f in (
        lambda x: x[1:].sum(),
        lambda x: jnp.max(-x[1:]),
        lambda x: x[1:] @ x[1:],
        lambda x: jnp.prod(1 + 0 * x[1:]),
    ):
        np.testing.assert_allclose(sw.jit(f)(placed), np.asarray(f(x)))


def next_words(weights, hidden, words):
    """The loss of each position's next word: 31 of 32 positions have one."""
    chances = jnp.log(1 + jnp.exp(hidden[:, :-1] @ weights))
    return jnp.take_along_axis(chances, words[:, 1:, None], -1).mean()


def test_what_is_looked_up_beside_each_other_stays_in_its_frame():
    """Lookups per row compute in frames, and sums of what was looked up add nothing beside them."""
    rng = np.random.default_rng(0)
    weights, hidden = (rng.standard_normal(shape).astype(np.float32) for shape in [(16, 64), (4, 32, 16)])
    words = rng.integers(0, 64, (4, 32)).astype(np.int32)
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    split = [sw.device_put(a, NamedSharding(mesh, P(None, "x"))) for a in (hidden, words)]
    embedded = lambda table, words: (table[words[:, :-1]] ** 2).sum()  # noqa: E731
    cases: list[tuple[Callable[..., Any], Any, list[Any]]] = [
        (next_words, weights, split),
        (embedded, weights.T, split[1:]),
    ]
    for f, first, rest in cases:
        compiled = sw.jit(sw.grad(f)).lower(first, *rest).compile()
        kinds = {t.kind for t in compiled.runtime_executable().transfers if t.bytes > 256}
        assert kinds == {"all_reduce"}
        assert_normwise(compiled(first, *rest), sw.grad(f)(first, *map(np.asarray, rest)), 2e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (jnp.argmax(x[:, 1:], -1) == 3).sum(),
        lambda x: jnp.cumsum(x[:, :-1], -1).sum(),
        lambda x: jnp.sort(x[:, 1:], -1)[..., 2].max(),
        lambda x: lax.top_k(x[:, 1:], 2)[0].sum(),
        lambda x: jnp.abs(jnp.fft.rfft(x[:, :-1])).sum(),
    ],
)
def test_algorithms_along_whole_dims_leave_the_others_in_their_frames(f):
    x = np.random.default_rng(0).standard_normal((4, 32, 16)).astype(np.float32)
    placed = sw.device_put(x, NamedSharding(Mesh(np.array(sw.devices()[:8]), ("x",)), P(None, "x")))
    compiled = sw.jit(f).lower(placed).compile()
    assert sum(t.total for t in compiled.runtime_executable().transfers) <= 64
    np.testing.assert_allclose(compiled(placed), f(x), rtol=2e-5)


def attention(x):
    x = x[:, 1:]
    return jnp.einsum("bqk,bkd->bqd", sw.nn.softmax(jnp.einsum("bqd,bkd->bqk", x, x)), x)


@pytest.mark.parametrize("f", [attention, sw.grad(lambda x: (attention(x) ** 2).sum())])
def test_operands_that_all_devices_hold_are_not_summed_in_parts(f):
    """Scores gather all rows: products with them afterwards are cheaper whole than as sums over devices."""
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    x = np.random.default_rng(0).standard_normal((2, 64, 16)).astype(np.float32)
    placed = sw.device_put(x, NamedSharding(mesh, P(None, "x")))
    compiled = sw.jit(f).lower(placed).compile()
    assert_normwise(compiled(placed), f(x), 2e-5)
    assert sum(t.bytes for t in compiled.runtime_executable().transfers) == x.nbytes * 7 // 8


STEPS = {
    "roll": lambda x, d: jnp.roll(x, 1, d),
    "front": lambda x, d: lax.slice_in_dim(x, 1, None, axis=d),
    "back": lambda x, d: lax.slice_in_dim(x, 0, -1, axis=d),
    "inner": lambda x, d: lax.slice_in_dim(x, 1, -1, axis=d),
    "pad": lambda x, d: lax.pad(x, np.float32(1.5), [(1, 2, 0) if e == d else (0, 0, 0) for e in range(x.ndim)]),
    "wrap": lambda x, d: jnp.pad(x, [(1, 1) if e == d else (0, 0) for e in range(x.ndim)], mode="wrap"),
    "diff": lambda x, d: jnp.diff(x, axis=d),
    "tanh": lambda x, d: jnp.tanh(2 * x) + x,
    "less mean": lambda x, d: x - x.mean(d, keepdims=True),
    "by the largest": lambda x, d: x / (1 + jnp.abs(x).max(d, keepdims=True)),
    "turned": lambda x, d: x.T,
    "flipped": lambda x, d: jnp.flip(x, d),
    "running": lambda x, d: jnp.cumsum(x, d) / 8,
    "every other": lambda x, d: lax.slice_in_dim(x, 0, None, 2, d),
    "itself twice": lambda x, d: jnp.concatenate([x, -x], d),
    "products": lambda x, d: jnp.tanh(x @ x.T / 16),
    "sorted": lambda x, d: jnp.sort(x, d),
    "largest": lambda x, d: x * jnp.argmax(x, d, keepdims=True) / 8,
    "smooth": lambda x, d: lax.reduce_window(x, 0.0, lax.add, tuple(3 if e == d else 1 for e in range(2)), (1, 1), "SAME"),
    "update": lambda x, d: x.at[1:-1, 1:].set(x[1:-1, :-1] * 2),
    "rows": lambda x, d: jnp.take(x, jnp.array([1, -1, 3, 0, 2, 2, 40, 4]) * (1 + jnp.argmax(x[0])), d, mode="clip"),
    "rows added": lambda x, d: jnp.moveaxis(jnp.moveaxis(x, d, 0).at[jnp.argsort(x[0])[:5]].add(0.5), 0, d),
    "window": lambda x, d: lax.dynamic_slice_in_dim(x, jnp.argmin(x[:, 1]), x.shape[d] - 1, d),
    "window set": lambda x, d: lax.dynamic_update_slice_in_dim(x, x[:3, :3], jnp.argmax(x[2]), 1 - d),
    "scan": lambda x, d: lax.scan(lambda c, _: (c + jnp.roll(c, 1, d), None), x, None, length=2)[0] / 4,
}  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([((8,), P("x")), ((2, 4), P("x", "y")), ((4, 2), P(None, ("x", "y"))), ((2, 4), P("y", "x"))]),
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 1)), min_size=1, max_size=6),
    st.booleans(),
)
def test_values_are_those_of_one_device(where, steps, backward):
    sizes, spec = where

    def f(x):
        for name, d in steps:
            if min(x.shape) > 4 and max(x.shape) < 200:
                x = STEPS[name](x, d)
        return x

    x = np.random.RandomState(len(steps)).randn(16, 24).astype(np.float32)
    mesh = Mesh(np.array(sw.devices()[: int(np.prod(sizes))]).reshape(sizes), ("x", "y")[: len(sizes)])
    placed = sw.device_put(x, NamedSharding(mesh, spec))
    g = sw.jit(sw.grad(lambda x: (f(x) ** 2).sum()) if backward else f)
    assert_normwise(g(placed), g(x), 2e-5)
