"""The conversions between host-local and global values, on one process; compared with JAX where that says something."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
from shardwise.experimental import multihost_utils as ours
from shardwise.sharding import Mesh, NamedSharding, devices
from shardwise.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return Mesh(np.array(devices()).reshape(2, 4), ("x", "y"))


def test_local_is_global(mesh):
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    tree = {"a": x, "b": [x, shardwise.device_put(x)]}
    out = ours.host_local_array_to_global_array(tree, mesh, {"a": P("x", "y"), "b": P("x")})
    assert out["a"].sharding == NamedSharding(mesh, P("x", "y"))
    assert [y.sharding.spec for y in out["b"]] == [P("x"), P("x")]
    assert all(np.array_equal(y, x) for y in (out["a"], *out["b"]))
    assert ours.global_array_to_host_local_array(out["a"], mesh, P("x")) is out["a"]


def test_prefix_and_scalars(mesh):
    out = ours.host_local_array_to_global_array((1.5, np.ones(4)), mesh, P())
    assert [y.sharding.is_fully_replicated for y in out] == [True, True]


def test_wrong_specs(mesh):
    x = np.ones((3, 8), np.float32)
    with pytest.raises(ValueError, match=r"`None` is no spec"):
        ours.host_local_array_to_global_array(x, mesh, None)
    with pytest.raises(TypeError, match="got 'x'"):
        ours.host_local_array_to_global_array(x, mesh, "x")
    with pytest.raises(ValueError, match="divisible by 2"):
        ours.host_local_array_to_global_array(x, mesh, P("x"))
    with pytest.raises(ValueError):
        ours.host_local_array_to_global_array((x, x), mesh, (P("x"),))


@pytest.mark.parametrize("tiled", [False, True])
def test_allgather_as_jax(mesh, tiled):
    pytest.importorskip("jax")
    from jax.experimental import multihost_utils as theirs

    x = np.arange(8, dtype=np.float32)
    sharded = shardwise.device_put(x, NamedSharding(mesh, P("x")))
    mine = ours.process_allgather({"a": sharded, "b": 2}, tiled=tiled)
    real = theirs.process_allgather({"a": x, "b": 2}, tiled=tiled)
    for name in ("a", "b"):
        assert type(mine[name]) is np.ndarray
        assert np.array_equal(mine[name], real[name])
        assert mine[name].shape == real[name].shape


def test_the_rest_on_one_process(mesh):
    tree = (np.arange(3), 2.0)
    out = ours.broadcast_one_to_all(tree)
    assert all(type(y) is np.ndarray for y in out)
    assert out[0].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="not the source"):
        ours.broadcast_one_to_all(tree, is_source=False)
    ours.sync_global_devices("here")
    ours.assert_equal(tree, "message")
    assert ours.reached_preemption_sync_point(3) is False
    with ours.live_devices(devices()) as alive:
        assert alive == devices()
