"""Checkpoints through TensorStore."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.experimental.array_serialization.serialization import (
    GlobalAsyncCheckpointManager,
    get_tensorstore_spec,
)
from shardwise.sharding import NamedSharding, make_mesh
from shardwise.sharding import PartitionSpec as P

pytest.importorskip("tensorstore")


@pytest.mark.parametrize("dialect", ["seed", "latest"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_arrays_come_back_with_any_sharding(tmp_path: Path, dialect: str, dtype: str):
    with use_dialect(dialect):
        mesh = make_mesh((2, 2), ("x", "y"), devices=jax.devices()[:4])
        values = [np.arange(48).reshape(8, 6).astype(dtype), np.asarray(3, dtype), np.zeros((0, 4), dtype)]
        specs = [P("x", "y"), P(), P(None, "x")]
        arrays = [jax.device_put(v, NamedSharding(mesh, s)) for v, s in zip(values, specs, strict=True)]
        paths = [str(tmp_path / name) for name in "abc"]
        done = threading.Event()
        manager = GlobalAsyncCheckpointManager()
        manager.serialize_with_paths(arrays, paths, on_commit_callback=done.set)
        manager.wait_until_finished()
        assert done.is_set()
        back = manager.deserialize_with_paths([NamedSharding(mesh, s) for s in (P(None, "x"), P(), P())], paths)
    for value, x, spec in zip(values, back, (P(None, "x"), P(), P()), strict=True):
        assert x.dtype == value.dtype and x.sharding.spec == spec
        np.testing.assert_array_equal(np.asarray(x), value)


def test_read_with_another_shape_and_dtype(tmp_path: Path):
    sharding = NamedSharding(make_mesh((4,), ("x",), devices=jax.devices()[:4]), P("x"))
    x = jax.device_put(np.arange(8.0, dtype=np.float32), sharding)
    spec = get_tensorstore_spec(tmp_path / "x")
    manager = GlobalAsyncCheckpointManager()
    manager.serialize([x], [spec])
    longer, shorter = manager.deserialize([sharding] * 2, [spec] * 2, [(16,), (4,)], [np.int32, np.float32])
    assert longer.tolist() == [0, 1, 2, 3, 4, 5, 6, 7] + [0] * 8 and longer.dtype == jnp.int32
    assert shorter.tolist() == [0, 1, 2, 3]


def test_mistakes_name_what_to_do(tmp_path: Path):
    manager = GlobalAsyncCheckpointManager()
    with pytest.raises(TypeError, match=r"key<fry>.*random\.key_data"):
        manager.serialize_with_paths([jax.random.key(0)], [str(tmp_path / "keys")])
    manager.serialize_with_paths([jnp.ones((2, 3))], [str(tmp_path / "x")])
    with pytest.raises(ValueError, match=r"global_shapes has \(6,\).*\(2, 3\).*reshape"):
        manager.deserialize_with_paths([jnp.ones(1).sharding], [str(tmp_path / "x")], [(6,)])


def test_errors_of_the_writer_reach_the_program(tmp_path: Path):
    def fail() -> None:
        raise OSError("no room")

    manager = GlobalAsyncCheckpointManager()
    manager.serialize_with_paths([jnp.ones(3)], [str(tmp_path / "x")], on_commit_callback=fail)
    with pytest.raises(OSError, match="no room"):
        manager.wait_until_finished()
    manager.check_for_errors()  # once


def test_a_write_that_takes_too_long(tmp_path: Path):
    go = threading.Event()

    def wait() -> None:
        go.wait()

    manager = GlobalAsyncCheckpointManager(timeout_secs=0.01)
    manager.serialize_with_paths([jnp.ones(3)], [str(tmp_path / "x")], on_commit_callback=wait)
    with pytest.raises(TimeoutError, match=r"after 0\.01 s"):
        manager.wait_until_finished()
    go.set()
    manager._timeout = 60
    manager.wait_until_finished()


def test_specs(tmp_path: Path):
    with use_dialect("seed"):
        assert get_tensorstore_spec(f"{tmp_path}/x/") == {
            "driver": "zarr",
            "kvstore": {"driver": "file", "path": f"{tmp_path}/x"},
        }
        assert get_tensorstore_spec("gs://b/d/x")["kvstore"] == {"driver": "gcs", "bucket": "b", "path": "d/x"}
        with pytest.raises(ValueError, match="no place in a bucket"):
            get_tensorstore_spec("gs://b")
    with use_dialect("latest"):
        spec = get_tensorstore_spec(tmp_path / "x")
        assert spec["driver"] == "zarr3" and spec["kvstore"]["driver"] == "ocdbt" and spec["kvstore"]["path"] == "x"
        with pytest.raises(ValueError, match="relative"):
            get_tensorstore_spec("x/y")
        described = get_tensorstore_spec(tmp_path / "x", process_idx=3, arr=jnp.ones((4, 2)))
        assert described["kvstore"]["base"]["path"].endswith("process_3") and described["dtype"] == "float32"
