"""Collectives along axes of one device: they are gone from the program, and give what they gave."""

import numpy as np
import pytest

import shardwise as jax
from shardwise import lax
from shardwise.sharding import PartitionSpec as P

X = np.random.default_rng(0).normal(size=(8, 4, 1, 6)).astype(np.float32)
X[0, 0, 0, :3] = -0.0, np.nan, np.inf

# name: the collective over axes, and what one device gives
CASES = {
    "psum": (lax.psum, lambda x: x),
    "pmax": (lax.pmax, lambda x: x),
    "pmean": (lax.pmean, lambda x: x),
    "all_gather": (lambda x, a: lax.all_gather(x, a, axis=1), lambda x: x[:, None]),
    "all_gather tiled": (lambda x, a: lax.all_gather(x, a, axis=1, tiled=True), lambda x: x),
    "psum_scatter": (lambda x, a: lax.psum_scatter(x, a, scatter_dimension=2), lambda x: x[:, :, 0]),
    "psum_scatter tiled": (lambda x, a: lax.psum_scatter(x, a, scatter_dimension=1, tiled=True), lambda x: x),
    "all_to_all": (lambda x, a: lax.all_to_all(x, a, 2, 0), lambda x: np.moveaxis(x, 2, 0)),
    "all_to_all tiled": (lambda x, a: lax.all_to_all(x, a, 3, 1, tiled=True), lambda x: x),
    "ppermute": (lambda x, a: lax.ppermute(x, a, [(0, 0)]), lambda x: x),
    "ppermute of none": (lambda x, a: lax.ppermute(x, a, []), np.zeros_like),
    "axis_index": (lambda x, a: x + lax.axis_index(a), lambda x: x + 0),
}


def on_mesh(sizes, f, axis, spec):
    mesh = jax.make_mesh(sizes, ("x", "y"), devices=jax.devices()[: sizes[0] * sizes[1]])
    return jax.jit(jax.shard_map(lambda x: f(x, axis), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))


@pytest.mark.parametrize("name", CASES)
def test_they_are_gone(name):
    f, wanted = CASES[name]
    for sizes, axis, spec in (((1, 1), "x", P()), ((1, 1), ("x", "y"), P()), ((8, 1), "y", P())):
        if isinstance(axis, tuple) and name.startswith(("ppermute", "all_to_all")):
            continue
        call = on_mesh(sizes, f, axis, spec)
        np.testing.assert_array_equal(np.signbit(call(X)), np.signbit(wanted(X)))
        np.testing.assert_array_equal(call(X), wanted(X))
        program = call.lower(X).compile().runtime_executable().device_program
        assert name == "ppermute of none" or not any(e.op.collective for e in program.equations)


def test_an_axis_of_several_devices_beside_one_of_one():
    x = np.arange(16, dtype=np.float32)
    total = on_mesh(
        (8, 1), lambda x, axes: x + lax.psum(x, axes) + lax.axis_index(("y", "x")), ("x", "y"), P(("x", "y"))
    )
    parts = x.reshape(8, 2)
    np.testing.assert_array_equal(total(x), (parts + parts.sum(0) + np.arange(8)[:, None]).ravel())


def test_gradients_go_through_them():
    def loss(x):
        f = jax.shard_map(
            lambda x: lax.psum((lax.all_gather(x, "x") ** 2).sum() * (lax.axis_index("x") + 1), "x"),
            mesh=jax.make_mesh((1,), ("x",), devices=jax.devices()[:1]),
            in_specs=P("x"),
            out_specs=P(),
        )
        return f(x)

    np.testing.assert_array_equal(jax.jit(jax.grad(loss))(X[1:]), 2 * X[1:])
