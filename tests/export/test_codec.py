"""Exported functions as bytes: values come back as they were, and bytes of others are told."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import shardwise.numpy as jnp
from shardwise import random
from shardwise.base.dtypes import float0
from shardwise.export import deserialize, symbolic_shape
from shardwise.export.codec import Malformed, NotSerializable, from_bytes, to_bytes
from shardwise.ir import ShapedArray
from shardwise.lax import GatherScatterMode, Precision
from shardwise.sharding import AbstractMesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = AbstractMesh((4, 2), ("x", "y"))
VALUES = [
    None,
    True,
    -3,
    1 << 70,
    0.1,
    float("-inf"),
    2 - 0.5j,
    "text",
    b"bytes",
    (1, [2, (3,)], {"k": {4: None}}),
    frozenset({"x", "y"}),
    slice(1, None, 2),
    np.dtype("int8"),
    np.dtype(jnp.bfloat16),
    np.dtype(float0),
    random.key(0).dtype,
    random.key(0, impl="rbg").dtype,
    Precision.HIGHEST,
    GatherScatterMode.CLIP,
    ShapedArray((2, 3), np.dtype(np.float32), True),
    P("x", None, ("x", "y")),
    MESH,
    NamedSharding(MESH, P("x")),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values(value):
    found = from_bytes(to_bytes(value))
    assert found == value and type(found) is type(value)


def test_arrays():
    arrays = [
        np.arange(6.0).reshape(2, 3).T,
        np.ones((0, 3), np.int8),
        np.float16(3),
        np.ones(2, jnp.bfloat16),
        np.zeros(3, float0),
    ]
    for found, array in zip(from_bytes(to_bytes(arrays)), arrays, strict=True):
        assert (found.dtype, found.shape, type(found)) == (array.dtype, array.shape, type(array))
        assert found.tobytes() == array.tobytes()


def test_dims():
    a, b = symbolic_shape("a, b", constraints=["a >= 3"])
    x, y, z = from_bytes(to_bytes((2 * a + b, (a + 1) // b, a)))
    assert list(map(str, (x, y, z))) == ["b + 2*a", "floordiv(a + 1, b)", "a"]
    assert x.scope is y.scope is z.scope and z >= 3


@pytest.mark.parametrize("value", [object(), len, np.random.default_rng(0), Malformed("x")])
def test_what_bytes_cannot_hold(value):
    with pytest.raises(NotSerializable):
        to_bytes({"k": (value,)})


def forged(text: bytes) -> bytes:
    body = len(text).to_bytes(8, "little") + text
    return b"shardwise export 1\n" + hashlib.blake2b(body, digest_size=16).digest() + body


@pytest.mark.parametrize(
    ("blob", "why"),
    [
        (b"", "none that Exported.serialize"),
        (b"\x80\x05pickle", "none that Exported.serialize"),
        (b"shardwise export 9\nabc", "another version"),
        (bytes(to_bytes([1, 2]))[:-1], "damaged"),
        (bytes(to_bytes([1, 2]))[:-3] + b"xyz", "damaged"),
        (forged(b"[1"), "no exported function"),
        (forged(b'["nonsense", 1]'), "no exported function"),
        (forged(b'["array", 0, "float32", [1000], false]'), "outside of the bytes"),
        (forged(b'["array", -8, "float32", [1], false]'), "outside of the bytes"),
        (forged(b'["record", "os", "system", false]'), "class os.system"),
        (forged(b'["record", "subprocess", "Popen", false, ["args", "ls"]]'), "class subprocess.Popen"),
        (forged(b'["enum", "shardwise.ops.rules.precision", "np", "x"]'), "precision.np"),
        (forged(b'["op", "rm"]'), "no exported function"),
        (forged(b"[" * 100000), "no exported function"),
        (forged(b"3"), "no exported function"),
        (forged(b'["dict"]'), "no exported function"),
    ],
)
def test_bytes_of_others(blob, why):
    with pytest.raises(ValueError, match=why):
        deserialize(blob)
