"""Dims that reshapes merge and that devices split apart: nothing is gathered for them, results are those of one device."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.merged_dims import with_merged_dims_apart
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
RNG = np.random.default_rng(5)
TOKENS = RNG.normal(size=(8, 6, 4)).astype(np.float32)
IDS = RNG.integers(0, 10, (8, 6)).astype(np.int32)
TABLE = RNG.normal(size=(4, 10)).astype(np.float32)


def loss_of_labels(w, x, ids):
    scores = jax.nn.log_softmax(x.reshape(-1, 4) @ w)
    return -jnp.take_along_axis(scores, ids.reshape(-1, 1), 1).mean()


def loss_of_vectors(w, x, ids):
    return -jnp.mean(jnp.sum(jax.nn.one_hot(ids.reshape(-1), 10) * jax.nn.log_softmax((x @ w).reshape(-1, 10)), -1))


def lookup(w, x, ids):
    h = x.reshape(-1, 4) + w.T[ids.reshape(-1)]
    return jnp.tanh(h).reshape(x.shape)


def squares(w, x, ids):
    return (lookup(w, x, ids) ** 2).sum()


def norms(w, x, ids):
    h = x.reshape(48, 4)
    return jnp.sum(h / jnp.linalg.norm(h, axis=1, keepdims=True) @ w, 0)


APART = {
    "inner product": lambda w, x, ids: jnp.vdot(x, 2 * x),
    "inner products in a loop": lambda w, x, ids: lax.fori_loop(0, 3, lambda i, a: a / jnp.vdot(a, a), x),
    "a layer on all tokens": lambda w, x, ids: jnp.tanh(x.reshape(-1, 4) @ w + 1).reshape(8, 6, 10),
    "norms": norms,
    "the largest": lambda w, x, ids: x.reshape(-1).max(),
    "loss of labels": loss_of_labels,
    "its gradient": jax.grad(loss_of_labels, (0, 1)),
    "loss of vectors": loss_of_vectors,
    "its gradient too": jax.grad(loss_of_vectors, (0, 1)),
    "lookup": lookup,
    "gradient of a lookup": jax.grad(squares, (0, 1)),
}
MERGED = {
    "a result": lambda w, x, ids: x.reshape(-1, 4),
    "a sorted dim": lambda w, x, ids: jnp.sort(x.reshape(-1, 4), 0).sum(1),
    "one of two readers": lambda w, x, ids: (jnp.cumsum(h := x.reshape(-1)), h.sum()),
}


def compiled(f):
    specs = P(), P("x", "y"), P("x", "y")
    args = [jax.device_put(a, NamedSharding(MESH, s)) for a, s in zip((TABLE, TOKENS, IDS), specs, strict=True)]
    done = jax.jit(f).lower(*args).compile()
    for got, expected in zip(
        jax.tree.leaves(done(*args)), jax.tree.leaves(jax.jit(f)(TABLE, TOKENS, IDS)), strict=True
    ):
        assert_normwise(np.asarray(got), np.asarray(expected), 1e-6)
    return done.runtime_executable()


@pytest.mark.parametrize("f", APART.values(), ids=APART)
def test_devices_keep_their_parts(f):
    assert {t.kind for t in compiled(f).transfers} <= {"all_reduce", "reduce_scatter"}


@pytest.mark.parametrize("f", MERGED.values(), ids=MERGED)
def test_dims_are_merged_where_a_reader_needs_that(f):
    assert "all_gather" in {t.kind for t in compiled(f).transfers}


def test_programs_without_such_dims_stay_as_they_are():
    program = trace_program(lambda x: [x.reshape(-1, 4).sum()], [ShapedArray((8, 6, 4), TOKENS.dtype)])[0]
    x, merged = program.inputs[0], program.equations[0].outputs[0]
    kept = {x: (("x",), (), ()), merged: (("x",), ())}
    assert with_merged_dims_apart(program, kept) is program
    apart = with_merged_dims_apart(program, {x: (("x",), ("y",), ()), merged: (("x",), ())})
    verify(apart, after="merged_dims")
    assert [e.params for e in apart.equations] == [{"axes": (0, 1, 2)}]


def test_dims_that_types_say_how_to_split_are_merged():
    axis_types = (AxisType.Explicit, AxisType.Auto)
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"), axis_types=axis_types)
    with jax.set_mesh(mesh):
        x = jax.device_put(TOKENS[..., 0], NamedSharding(mesh, P("x", "y")))
        done = jax.jit(lambda x: jnp.tanh(x.reshape(-1)).sum()).lower(x).compile()
        assert_normwise(np.asarray(done(x)), np.tanh(TOKENS[..., 0]).sum(), 1e-6)
    assert "all_gather" in {t.kind for t in done.runtime_executable().transfers}


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_give_what_one_device_gives(seed):
    rng = np.random.default_rng(seed)
    shape = (int(rng.choice([4, 8])), int(rng.choice([2, 4, 6])), int(rng.choice([2, 3])), 4)
    merged = (shape[0] * shape[1], *shape[2:])
    steps = [
        lambda y: jnp.where(y > 0, y, y / 10),
        lambda y: y - y.max(-1, keepdims=True),
        lambda y: y * jnp.arange(4.0),
        lambda y: jnp.pad(y, [(0, 0)] * (y.ndim - 1) + [(1, 2)])[..., :4],
        lambda y: jnp.concatenate([y, y + 1], -1) @ TABLE[:, :8].T,
        lambda y: y / (1 + (y * y).sum(0, keepdims=True)),
        lambda y: y * jnp.take_along_axis(y, jnp.argmin(y, -1)[..., None], -1),
    ]
    chosen = [steps[i] for i in rng.choice(len(steps), 3, replace=False)]
    ends = [lambda y: y.reshape(shape), lambda y: y.sum((0, -1)), lambda y: jnp.vdot(y, y + 1)]
    end = ends[int(rng.integers(3))]

    def f(x):
        y = x.reshape(merged)
        for step in chosen:
            y = step(y)
        return end(y)

    x = rng.normal(size=shape).astype(np.float32)
    split = jax.device_put(x, NamedSharding(MESH, P("x", "y")))
    for g in (f, jax.grad(lambda x: (f(x) ** 2).sum())):
        assert_normwise(np.asarray(jax.jit(g)(split)), np.asarray(jax.jit(g)(x)), 1e-5)
