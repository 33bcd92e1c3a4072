"""Slices of joined values: the equations that the pass makes, and that no bit changes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray, live_equations, trace_program, verify
from shardwise.passes.cut_pieces import with_cut_pieces
from shardwise.runtime.env import Env
from shardwise.runtime.machine import llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for fused loops")

P = jax.sharding.PartitionSpec


def some(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def passed(f, *args):
    """The names of the equations after the pass, dead ones left out."""
    program = trace_program(lambda *a: [f(*a)], [ShapedArray(a.shape, a.dtype) for a in args])[0]
    program = with_cut_pieces(program, Env())
    verify(program, after="cut_pieces")
    return [e.op.name for e in live_equations(program).equations]


def check(f, *args):
    """The same bits as without loops."""
    got = np.asarray(jax.jit(lambda *a: f(*a))(*args))
    with config.override("shardwise_fused", "off"):
        np.testing.assert_array_equal(got, np.asarray(jax.jit(lambda *a: f(*a))(*args)))


EDGE, BLOCK = some(1, 300), some(128, 300)


def stencil(above, u, below):
    tall = lax.concatenate([above, u, below], 0)
    return tall[:-2] + tall[2:] - 2 * tall[1:-1]


def test_slices_are_cut_out_of_the_pieces():
    names = passed(stencil, EDGE, BLOCK, EDGE)
    assert names == ["slice", "concatenate", "slice", "concatenate", "add", "slice", "mul", "sub"]
    check(stencil, EDGE, BLOCK, EDGE)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, u, b: (t := lax.concatenate([a, u, b], 0))[:-2] + t[2:] + t.sum(),  # read as a whole, too
        lambda a, u, b: lax.concatenate([a, u, b], 0)[::2] * 2,  # in steps
        lambda a, u, b: lax.concatenate([a, u, b], 0)[:-2] @ u.T,  # a product reads no pieces
        lambda a, u, b: lax.concatenate([a, u, b], 0)[:-2],  # a result
    ],
)
def test_others_stay(f):
    names = passed(f, EDGE, BLOCK, EDGE)
    assert names.index("concatenate") < (names.index("slice") if "slice" in names else len(names))
    got = np.asarray(jax.jit(f)(EDGE, BLOCK, EDGE))
    with config.override("shardwise_fused", "off"):
        np.testing.assert_allclose(got, np.asarray(jax.jit(lambda *a: f(*a))(EDGE, BLOCK, EDGE)), rtol=1e-5, atol=1e-5)


def test_a_slice_of_one_piece_reads_that_piece():
    f = lambda a, u, b: lax.concatenate([a, u, b], 0)[3:6] @ u.T  # noqa: E731
    assert passed(f, EDGE, BLOCK, EDGE)[0] == "slice"
    assert "concatenate" not in passed(f, EDGE, BLOCK, EDGE)


@given(
    st.integers(0, 2),
    st.lists(st.integers(1, 40), min_size=2, max_size=4),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
@settings(max_examples=40, deadline=None)
def test_any_slices(axis, lengths, other, cut):
    shape = [40, 24, 44]
    pieces = [some(*shape[:axis], n, *shape[axis + 1 :]) for n in lengths]
    n = sum(lengths)
    keep = max(1, n - cut[0] - cut[1])

    def f(*pieces):
        whole = lax.concatenate(list(pieces), axis)
        a = lax.slice_in_dim(whole, min(cut[0], n - keep), min(cut[0], n - keep) + keep, axis=axis)
        b = lax.slice_in_dim(whole, n - keep, n, axis=axis)
        last = (axis + 1) % 3
        a = lax.slice_in_dim(a, other[0], shape[last] - other[1], axis=last)
        b = lax.slice_in_dim(b, other[1], shape[last] - other[0], axis=last)
        return a * 2 + b

    check(f, *pieces)


@pytest.mark.parametrize("devices", [1, 8])
def test_edges_of_neighbours_in_shard_map(devices):
    mesh = jax.make_mesh((devices,), ("x",), devices=jax.devices()[:devices])
    up, down = [(i, (i + 1) % devices) for i in range(devices)], [(i, (i - 1) % devices) for i in range(devices)]
    x = some(128, 264)

    def step(_, u):
        tall = jnp.concatenate([lax.ppermute(u[-1:], "x", up), u, lax.ppermute(u[:1], "x", down)])
        return u + 0.1 * (tall[:-2] + tall[2:] - 2 * tall[1:-1])

    body = lambda u: lax.fori_loop(0, 5, step, u)  # noqa: E731
    got = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(x)
    want = x
    for _ in range(5):
        want = want + np.float32(0.1) * (np.roll(want, 1, 0) + np.roll(want, -1, 0) - 2 * want)
    np.testing.assert_array_equal(np.asarray(got), want)
