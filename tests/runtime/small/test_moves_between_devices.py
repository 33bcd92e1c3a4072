"""Collectives that move elements give in small programs what they give op by op: each op, axes, dtypes, values of all forms."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.small.boxes import even_boxes, number_elements
from shardwise.runtime.small.kernel import available
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
GRID = sw.make_mesh((4, 2), ("x", "y"))
RING = [(i, (i + 1) % 4) for i in range(4)]


def _read_twice(moved, c):
    """Element by element, in a loop of its own, and as a whole."""
    return (moved + c) * jnp.where(moved > c, c, moved) % 8 + jnp.flip(moved, 1)


MOVES = {
    "ring": lambda c: lax.ppermute(c, "x", RING),
    "shift": lambda c: lax.ppermute(c, "x", RING[:3]) + lax.ppermute(c, "y", [(1, 0)]),
    "one": lambda c: lax.ppermute(c, "x", [(2, 0)]),
    "nobody": lambda c: lax.ppermute(c, "x", []) + c,
    "over both": lambda c: lax.ppermute(c, ("x", "y"), [(i, (i + 3) % 8) for i in range(8)]),
    "shuffle": lambda c: lax.pshuffle(c, "x", [2, 0, 3, 1]),
    "gather": lambda c: lax.all_gather(c, "x", axis=1)[:, 1] + lax.all_gather(c, "y", tiled=True)[: c.shape[0]],
    "gather both": lambda c: lax.all_gather(c, ("y", "x"), tiled=True, axis=1)[:, -c.shape[1] :],
    "scatter": lambda c: lax.psum_scatter(jnp.concatenate([c] * 4), "x", tiled=True),
    "scatter untiled": lambda c: lax.psum_scatter(jnp.stack([c, c + 1], 1), "y", scatter_dimension=1),
    "to all": lambda c: lax.all_to_all(jnp.stack([c, c + 1, c * 2, c], 1), "x", 1, 2)[:, :, 3],
    "to all tiled": lambda c: lax.all_to_all(jnp.concatenate([c, c], 1), "y", 1, 0, tiled=True)[: c.shape[0]],
    "the same": lambda c: c + lax.ppermute(jnp.float32(3.0), "x", RING[:2]).astype(c.dtype),
    "two rings": lambda c: lax.ppermute(c, "x", RING) * 2 + lax.ppermute(c, "x", [(b, a) for a, b in RING]) * c % 8,
    "read twice": lambda c: _read_twice(lax.ppermute(c, "x", RING[:2]), c),
    "rows": lambda c: _read_twice(
        jnp.concatenate([c[1:], c[:1]]), jnp.pad(c[:-1], ((1, 0), (0, 0)), constant_values=3)
    ),
    "summed": lambda c: (lax.ppermute(c, "x", RING) * c).sum(0, keepdims=True) % 8 + lax.ppermute(c, "y", [(0, 1)]),
    "halo": lambda c: jnp.concatenate(
        [lax.ppermute(c[-1:], "x", RING[:3]), c, lax.ppermute(c[:1], "x", [(b, a) for a, b in RING])]
    )[1:-1],
}


def both_ways(run):
    """Compiled, and op by op."""
    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append(run())
    return found


def drawn(shape, dtype):
    x = np.random.default_rng(3).integers(-20, 20, size=shape)
    return (x % 2 == 0) if dtype is bool else x.astype(dtype)


@pytest.mark.parametrize("rows", [1, 5, 12])
@pytest.mark.parametrize("name", MOVES)
def test_moves_in_loops(made, name, rows):
    def body(x):
        return lax.fori_loop(0, 4, lambda i, c: MOVES[name](c) - i, x)

    def run():
        f = sw.shard_map(body, mesh=GRID, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
        return np.asarray(sw.jit(f)(drawn((4 * rows, 6), np.float32)))

    np.testing.assert_array_equal(*both_ways(run))
    assert len(made) == (name != "over both")  # permutations along several axes run by their kernel


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_dtypes(made, dtype):
    def body(x):
        def step(i, c):
            moved = lax.ppermute(c, "x", RING[:3])
            return moved[:, ::-1] | lax.all_gather(c, "y")[0] if dtype is bool else moved + lax.all_gather(c, "y")[0]

        return lax.fori_loop(0, 3, step, x)

    def run():
        with config.override("jax_enable_x64", True):
            f = sw.shard_map(body, mesh=GRID, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
            return np.asarray(sw.jit(f)(drawn((12, 6), dtype))).astype(np.float64)

    np.testing.assert_array_equal(*both_ways(run))
    assert len(made) == 1


STEPS = {
    "roll": lambda u: jnp.roll(u, 1, 0) + jnp.roll(u, -3, 1),
    "pad": lambda u: jnp.pad(u, 1, constant_values=2)[2:, 1:-1] - u,
    "slices": lambda u: jnp.concatenate([u[3:], u[:3]]),
    "flip": lambda u: jnp.flip(u, 0) * 2,
    "cumulative": lambda u: jnp.cumsum(u, 0) % 7,
    "stencil": lambda u: u.at[1:-1].add(-(u[2:] + u[:-2])),
    "transpose": lambda u: jnp.tanh(u @ u.T) @ u,
}


@pytest.mark.parametrize("spec", [P("x"), P("y", "x"), P(None, "x"), P(("x", "y"))])
@pytest.mark.parametrize("name", STEPS)
def test_loops_of_split_arrays(name, spec):
    def run():
        u = sw.device_put(drawn((16, 8), np.float32), NamedSharding(GRID, spec))
        return np.asarray(sw.jit(lambda u: lax.fori_loop(0, 3, lambda i, c: STEPS[name](c), u))(u))

    np.testing.assert_allclose(*both_ways(run), rtol=1e-5)


def test_a_long_ring_is_two_boxes():
    source = number_elements(0, (512, 1, 30))
    assert len(even_boxes(np.roll(source, 1, 0), 8) or []) == 2
    assert even_boxes(source[np.random.default_rng(0).permutation(512)], 64) is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_boxes_make_up_the_whole(data):
    shapes = [tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))) for _ in range(2)]
    sources = [number_elements(k, shape) for k, shape in enumerate(shapes)]
    size = data.draw(st.integers(1, 24))
    pool = [0, *itertools.chain(*[s.ravel().tolist() for s in sources])]
    runs = data.draw(
        st.lists(st.tuples(st.integers(0, len(pool) - 1), st.integers(-2, 3)), min_size=size, max_size=size)
    )
    flat = np.array([pool[(a + i * b) % len(pool)] for i, (a, b) in enumerate(runs)])
    numbers = flat.reshape(-1, data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0])))
    boxes = even_boxes(numbers, 1000)
    assert boxes is not None
    again = np.full(numbers.shape, -1)
    for box in boxes:
        at = np.indices(box.shape).reshape(numbers.ndim, *box.shape)
        place = box.first + sum(s * i for s, i in zip(box.steps, at, strict=True))
        assert (again[box.index] == -1).all()
        again[box.index] = 0 if box.source is None else sources[box.source].ravel()[place]
    np.testing.assert_array_equal(again, numbers)
