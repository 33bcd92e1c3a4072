"""Shapes, orders of dims, broadcasts, repetitions and rotations: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.sharding import AxisType, Mesh, NamedSharding, P, use_mesh
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.reshape(m, (8, 4))
jnp.reshape(m, (-1, 2))
jnp.reshape(m, -1)
jnp.reshape(m, 32, order="F")
jnp.reshape(t, (4, 2, 8), order="F")
jnp.reshape(k, (1, 1))
jnp.reshape(f, ())
jnp.reshape(z, (-1,))
jnp.reshape(m, (np.int32(8), 4))
jnp.ravel(t)
jnp.ravel(m, "F")
jnp.ravel(k)
jnp.transpose(t)
jnp.transpose(t, (0, -1, 1))
jnp.transpose(k)
jnp.permute_dims(t, (2, 0, 1))
jnp.matrix_transpose(t)
jnp.swapaxes(t, 0, -1)
jnp.moveaxis(t, 0, -1)
jnp.moveaxis(t, (0, 1), (-1, 0))
jnp.rollaxis(t, 2)
jnp.rollaxis(t, 0, 2)
jnp.rollaxis(t, 0, -1)
jnp.squeeze(m[None, :, None])
jnp.squeeze(m[None, :, None], 0)
jnp.squeeze(m[None, :, None], (0, -2))
jnp.expand_dims(m, 0)
jnp.expand_dims(m, (0, -1))
jnp.expand_dims(k, [0, 1])
jnp.atleast_1d(k)
jnp.atleast_1d(k, m)
jnp.atleast_2d(v)
jnp.atleast_3d(v)
jnp.atleast_3d(k, m)
jnp.broadcast_to(v, (4, 8))
jnp.broadcast_to(k, (2, 3))
jnp.broadcast_to(m[:, None], (4, 2, 8))
jnp.broadcast_to(v, 8)
jnp.broadcast_arrays(m, v, k, f)
jnp.broadcast_arrays()
jnp.broadcast_shapes((2, 1), 3, (1,))
jnp.repeat(m, 2)
jnp.repeat(m, 2, axis=1)
jnp.repeat(m, 0, axis=0)
jnp.repeat(m, np.array([1, 0, 2, 3]), axis=0)
jnp.repeat(m, np.array([2]), axis=-1)
jnp.repeat(v, i)  # static
jnp.repeat(v, i, total_repeat_length=30)
jnp.repeat(v, i, total_repeat_length=7)
jnp.repeat(m, jnp.array([1, 0, 2, 0]), axis=0, total_repeat_length=5)
jnp.repeat(k, 2)
jnp.repeat(m, 2, axis=0, total_repeat_length=7)
jnp.tile(m, 2)
jnp.tile(m, (2, 1))
jnp.tile(m, (3, 1, 2))
jnp.tile(k, (2, 2))
jnp.tile(m, (0, 1))
jnp.tile(n, np.array([1, 2]))
jnp.resize(m, (5, 3))
jnp.resize(m, (7, 20))
jnp.resize(k, 3)
jnp.resize(z, (2,))
jnp.resize(m, (0, 2))
jnp.roll(v, 3)
jnp.roll(m, 5)
jnp.roll(m, -3, axis=1)
jnp.roll(m, (1, 2), axis=(0, 1))
jnp.roll(m, (1, 2), axis=1)
jnp.roll(m, 1, axis=(0, 1))
jnp.roll(m, 0, axis=0)
jnp.roll(m, i[0], axis=1)
jnp.roll(m, -i[:2], axis=(0, 1))
jnp.roll(v, i[4] * 3)
jnp.roll(z, 2, axis=0)
jnp.flip(m)
jnp.flip(m, 0)
jnp.flip(t, (0, -1))
jnp.flip(k)
jnp.fliplr(m)
jnp.flipud(m)
jnp.rot90(m)
jnp.rot90(m, 2)
jnp.rot90(m, -1)
jnp.rot90(t, 3, axes=(1, 2))
jnp.rot90(t, 1, axes=(2, 0))
jnp.rot90(m, 4)
jnp.trim_zeros(jnp.array([0, 0, 1, 0, 2, 0]))
jnp.trim_zeros(i * (i > 2), "f")  # static
jnp.trim_zeros(n * 0, "b")  # static
jnp.trim_zeros(jnp.eye(4, k=1)[:, :3])
jnp.trim_zeros(jnp.eye(4, k=1)[:, :3], axis=0)
"""

ERRORS = """
jnp.reshape([1, 2], (2, 1))
jnp.reshape(m, (5, -1))
jnp.reshape(m, (-1, -1))
jnp.reshape(m, (5, 5))
jnp.reshape(m, (-2, -16))
jnp.reshape(m, (8.0, 4))
jnp.reshape(m, (8, 4), order="A")
jnp.reshape(m, (8, 4), order="Q")
jnp.ravel(m, "K")
jnp.transpose(m, (0,))
jnp.transpose(m, (0, 0))
jnp.transpose(m, (0, 2))
jnp.permute_dims(m, (-1, 0))
jnp.matrix_transpose(v)
jnp.swapaxes(m, 0, 5)
jnp.moveaxis(m, 0, 5)
jnp.moveaxis(m, (0, 0), (0, 1))
jnp.moveaxis(m, (0, 1), 0)
jnp.rollaxis(m, 0, 3)
jnp.squeeze(m, 0)
jnp.squeeze(m, 5)
jnp.squeeze(m[None], (0, 0))
jnp.expand_dims(m, 5)
jnp.expand_dims(m, (0, 0))
jnp.broadcast_to(m, (8,))
jnp.broadcast_to(m, (5, 8))
jnp.broadcast_to([1], (5, 8))
jnp.broadcast_arrays(m, v[:4])
jnp.broadcast_shapes((2, 3), (3, 2))
jnp.atleast_2d([1])
jnp.repeat(m, [1, 2, 3, 4], axis=0)
jnp.repeat(m, np.array([1, 2]), axis=0)
jnp.repeat(k, np.array([1, 2]))
jnp.repeat(m, -1, axis=0)
jnp.repeat(m, 2.5, axis=0)
jnp.repeat(m, 2, axis=3)
jax.jit(jnp.repeat)(m, 2)
jnp.tile([1], 2)
jnp.tile(m, 2.5)
jnp.resize(m, -1)
jnp.roll(m, (1, 2, 3), (0, 1))
jnp.roll(m, 1, 5)
jnp.roll(m, np.array([[1, 2]]), 0)
jnp.flip(m, 5)
jnp.flip(m, (0, 0))
jnp.flip([1])
jnp.fliplr(v)
jnp.flipud(k)
jnp.rot90(v)
jnp.rot90(m, 1, (0, -2))
jax.jit(jnp.trim_zeros)(v)
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_broadcasts_share_memory():
    x = jnp.arange(4.0)
    assert not any(np.asarray(jnp.broadcast_to(x, (2000, 4))).strides[:1])  # small ones have memory of their own


def test_out_sharding_of_shapes():
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = shardwise.device_put(np.arange(32.0, dtype=np.float32).reshape(4, 8), NamedSharding(mesh, P("x", "y")))
    to = lambda *spec: NamedSharding(mesh, P(*spec))  # noqa: E731
    for got, want, spec in (
        (jnp.reshape(x, (32,), out_sharding=to("x")), np.arange(32.0), P("x")),
        (jnp.ravel(x, "F", out_sharding=to("y")), np.ravel(np.asarray(x), "F"), P("y")),
        (
            jnp.broadcast_to(x, (2, 4, 8), out_sharding=to(None, "x", "y")),
            np.broadcast_to(x, (2, 4, 8)),
            P(None, "x", "y"),
        ),
        (jnp.repeat(x, 2, axis=0, out_sharding=to("x", None)), np.repeat(np.asarray(x), 2, 0), P("x", None)),
        (
            jnp.repeat(x, np.array([1, 2, 0, 3]), 0, total_repeat_length=6, out_sharding=to(None, "y")),
            np.repeat(np.asarray(x), [1, 2, 0, 3], 0),
            P(None, "y"),
        ),
    ):
        np.testing.assert_array_equal(got, want)
        assert isinstance(got.sharding, NamedSharding) and got.sharding.spec == spec
    twice = jnp.repeat(x, 2, axis=0)  # JAX repeats slices of a split dim as often where no mesh is in context
    np.testing.assert_array_equal(twice, np.repeat(np.asarray(x), 2, 0))
    assert isinstance(twice.sharding, NamedSharding) and twice.sharding.spec == P("x", "y")
    with pytest.raises(ValueError, match="out_sharding"):
        jnp.repeat(x, np.array([1, 2, 0, 3]), axis=0)
    with use_mesh(mesh), pytest.raises(ValueError, match="out_sharding"):
        jnp.repeat(x, 2, axis=0)
