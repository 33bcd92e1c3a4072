"""Trees of arrays in folders: back here, and to JAX and from it."""

from __future__ import annotations

import asyncio
import collections
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as jax
from shardwise import export
from shardwise import numpy as jnp
from shardwise.experimental.array_serialization import pytree_serialization as ser
from shardwise.sharding import NamedSharding, make_mesh
from shardwise.sharding import PartitionSpec as P
from tests.distributed.launching import command, environment, needs_mpi

pytest.importorskip("tensorstore")

Moments = collections.namedtuple("Moments", "mean var")
export.register_namedtuple_serialization(Moments, serialized_name="test_pytree_serialization.Moments")


def over(*spec: Any) -> NamedSharding:
    return NamedSharding(make_mesh((4, 2), ("x", "y"), devices=jax.devices()[:8]), P(*spec))


def tree() -> dict[str, Any]:
    return {
        "w": jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), over("x", "y")),
        "state": (Moments(jnp.ones(3, jnp.bfloat16), jnp.float32(2)), [jnp.arange(4, dtype=jnp.int8)]),
        "empty": jnp.zeros((0, 3)),
    }


def check(back: Any) -> None:
    for got, expected in zip(jax.tree.leaves(back), jax.tree.leaves(tree()), strict=True):
        assert got.dtype == expected.dtype and got.shape == expected.shape
        np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(expected, np.float32))


def test_a_tree_comes_back_with_other_shardings(tmp_path: Path):
    data = tree() | {"none": None, "host": np.arange(3, dtype=np.int16)}
    folder = tmp_path / "model"
    ser.save(data, folder)
    stubs = ser.load_pytreedef(folder)
    assert jax.tree.structure(stubs) == jax.tree.structure(data)
    assert stubs["w"] == jax.ShapeDtypeStruct((8, 8), jnp.float32) and stubs["none"] is None
    half = jax.ShapeDtypeStruct((), jnp.bfloat16, sharding=over("y", "x"))
    back = ser.load(folder, {**dict.fromkeys(data, over()), "w": half})
    assert back["w"].dtype == jnp.bfloat16 and back["w"].sharding.spec == P("y", "x")
    assert back["host"].tolist() == [0, 1, 2] and back.pop("none") is None and back.pop("host").dtype == jnp.int16
    check(back | {"w": back["w"].astype(jnp.float32)})
    part = ser.load(folder, over(), mask={**dict.fromkeys(data, False), "state": (False, True)})
    assert part["w"] is None and part["state"][0] == (None, None) and part["state"][1][0].tolist() == [0, 1, 2, 3]


def test_beside_the_program(tmp_path: Path):
    saved = ser.nonblocking_save(tree(), tmp_path / "model")
    assert saved.pytree["w"] == jax.ShapeDtypeStruct((8, 8), jnp.float32) and "pytree=" in repr(saved)
    assert saved.result(60) is None and saved.done()

    async def read() -> Any:
        return await ser.nonblocking_load(tmp_path / "model", over())

    check(asyncio.run(read()))
    failed = ser.nonblocking_save({"a": 1}, tmp_path / "other")
    with pytest.raises(ValueError, match=r"arrays and None.*jnp\.asarray"):
        failed.result(60)


def test_specs_are_joined(tmp_path: Path):
    codecs = {"metadata": {"codecs": [{"name": "gzip"}], "data_type": "float32", "shape": [2]}}
    chunks = {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}}
    spec = {"driver": "zarr3", "metadata": codecs["metadata"] | chunks}
    ser.save({"a": jnp.ones(2), "b": jnp.ones(2)}, tmp_path / "m", ts_specs={"a": spec, "b": None})
    assert ser.load(tmp_path / "m", over(), ts_specs=None)["a"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="all lie in one store"):
        ser.save({"a": jnp.ones(2)}, tmp_path / "n", ts_specs={"driver": "zarr3", "kvstore": {"base": "file:///tmp/x"}})


def test_mistakes_name_what_to_do(tmp_path: Path):
    folder = tmp_path / "model"
    ser.save({"a": jnp.ones(2)}, folder)
    mistakes: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "overwrite=False", lambda: ser.save({}, folder, overwrite=False)),
        (TypeError, "keys are texts.*1 of", lambda: ser.save({1: jnp.ones(2)}, folder)),
        (TypeError, r"random\.key_data", lambda: ser.save({"k": jax.random.key(0)}, tmp_path / "keys")),
        (FileNotFoundError, "no checkpoint of", lambda: ser.load(tmp_path, over())),
        (TypeError, "has no sharding", lambda: ser.load(folder, None)),
        (ValueError, "shardings", lambda: ser.load(folder, {"b": over()})),
        (NotImplementedError, "in a bucket.*orbax", lambda: ser.save({}, "gs://bucket/model")),
    ]
    for kind, text, call in mistakes:
        with pytest.raises(kind, match=text):
            call()
    assert ser.load(folder, over())["a"].tolist() == [1, 1]  # none of them touched it
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(RuntimeError, match=r"notes\.txt"):
        ser.save({}, folder)
    for text in ("{}", '{"__jax_pytreedef_repr": "AAAA", "__jax_leaf_ids": []}', "[]", "no json"):
        (folder / "pytreedef.json").write_text(text)
        with pytest.raises(ValueError, match="structure"):
            ser.load_pytreedef(folder)


JAX = """
import sys
import jax, jax.numpy as jnp
from collections import namedtuple
from jax.experimental.array_serialization import pytree_serialization as ser
Moments = namedtuple("Moments", "mean var")
jax.export.register_namedtuple_serialization(Moments, serialized_name="test_pytree_serialization.Moments")
device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
tree = ser.load(sys.argv[1], device)
assert tree["state"][0].mean.dtype == jnp.bfloat16 and tree["w"][3].tolist() == list(range(24, 32)), tree
ser.save(tree, sys.argv[2])
"""


def test_jax_reads_it_and_writes_it(tmp_path: Path):
    pytest.importorskip("jax")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ser.save(tree(), ours)
    done = subprocess.run([sys.executable, "-c", JAX, ours, theirs], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check(ser.load(theirs, over()))
    assert ser.load(theirs, over("x"), mask={"w": True, "state": False, "empty": False})["w"].sharding.spec == P("x")


PROCESSES = """
import sys
import numpy as np
import shardwise as jax
from shardwise.experimental.array_serialization import pytree_serialization as ser
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.distributed.initialize()
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
whole = np.arange(32, dtype=np.float32).reshape(8, 4)
x = jax.make_array_from_callback((8, 4), sharding, lambda i: whole[i])
for _ in range(2):
    ser.save({"x": [x]}, sys.argv[1])
back = ser.load(sys.argv[1], NamedSharding(sharding.mesh, P(None, "x")))["x"][0]
for shard in back.addressable_shards:
    np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])
try:
    ser.save({}, sys.argv[1] + str(jax.process_index()))
except ValueError as error:
    assert "different folders" in str(error), error
    print("done")
"""


@needs_mpi
def test_processes_write_their_shards(tmp_path: Path):
    arguments = command(2, [sys.executable, "-c", PROCESSES, str(tmp_path / "model")])
    done = subprocess.run(arguments, env=environment(2), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("done") == 2, done.stderr
    with pytest.raises(FileNotFoundError, match="No such file"):
        ser.save({}, tmp_path / "a" / "b")
    assert ser.load(tmp_path / "model", over())["x"][0].tolist() == np.arange(32).reshape(8, 4).tolist()
