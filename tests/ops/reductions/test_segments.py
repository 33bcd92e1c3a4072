"""Reductions by segment, beside JAX's."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise.base.config import use_dialect
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

jax = pytest.importorskip("jax")

DATA = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
IDS = np.array([0, 2, 0, 1, 5, -1], np.int32)


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_values_are_those_of_jax(name):
    ours, theirs = getattr(sw.ops, name), getattr(jax.ops, name)
    np.testing.assert_allclose(np.asarray(ours(DATA, IDS, 4)), np.asarray(theirs(DATA, IDS, 4)), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(ours(DATA[:4], IDS[:4])), np.asarray(theirs(DATA[:4], IDS[:4])), rtol=1e-6)
    jitted = sw.jit(lambda d, i: ours(d, i, 4))(DATA, IDS)
    np.testing.assert_allclose(np.asarray(jitted), np.asarray(theirs(DATA, IDS, 4)), rtol=1e-6)


def added(data, ids):
    """What JAX documents in NumPy's words: zeros whose rows at `ids` get what `data` broadcasts to."""
    out = np.zeros((4, *np.shape(data)[1:]), np.float32)
    np.add.at(out, ids, data)
    return out


@pytest.mark.parametrize(
    "ids", [np.array([0, 2, 0, 1, 3, 3]), np.array([[0, 2, 0], [1, 3, 3]]), np.array([[1], [0]]), np.array(1)]
)
def test_data_broadcasts_to_the_ids(ids):
    rows = np.arange(18, dtype=np.float32).reshape(6, 3)
    for data in [
        2.0,
        rows[:1, 0],
        rows[:1],
        rows[None, :3],
        rows[:, 0],
        rows.reshape(2, 3, 3),
        rows.reshape(3, 6),
        rows,
    ]:
        try:
            expected = added(data, ids)
        except ValueError:
            with pytest.raises(ValueError, match="has no row for each of the ids"):
                sw.ops.segment_sum(data, ids, 4)
        else:
            np.testing.assert_array_equal(sw.ops.segment_sum(data, ids, 4), expected, strict=True)


def test_traced_ids_need_a_number_of_segments():
    with pytest.raises(sw.errors.ConcretizationTypeError, match="num_segments"):
        sw.jit(sw.ops.segment_sum)(DATA, IDS)


@pytest.mark.parametrize("bucket_size", [None, 3])
@pytest.mark.parametrize("spec", [P("x", None), P(None, "y"), P(None, None), P("x", "y")], ids=str)
def test_out_sharding(spec, bucket_size):
    with use_dialect("latest"):
        mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
        with sw.set_mesh(mesh):
            data = sw.device_put(np.arange(16, dtype=np.float32).reshape(8, 2), NamedSharding(mesh, P("x", "y")))
            ids = sw.device_put(np.arange(8) % 4, NamedSharding(mesh, P("x")))
            for f in (
                sw.ops.segment_sum,
                sw.jit(sw.ops.segment_sum, static_argnums=2, static_argnames=("bucket_size", "out_sharding")),
            ):
                found = f(data, ids, 4, bucket_size=bucket_size, out_sharding=spec)
                assert found.sharding == NamedSharding(mesh, spec)
                assert found.tolist() == [[8, 10], [12, 14], [16, 18], [20, 22]]


def test_out_sharding_on_automatic_axes():
    mesh = Mesh(np.array(sw.devices()[:4]), ("x",))
    with pytest.raises(ValueError, match="segment_sum cannot contain axis names that are of type Auto"):
        sw.ops.segment_sum(np.ones(4), np.arange(4), 4, out_sharding=NamedSharding(mesh, P("x")))
