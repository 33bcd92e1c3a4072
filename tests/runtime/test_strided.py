"""Views with strides, of every dtype: what NumPy's own would be of the same bytes."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import shardwise
import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.runtime.strided import sliding_windows, strided_view
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

BYTES = ["float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "int4", "int8"]


@pytest.mark.parametrize("dtype", BYTES)
def test_views_of_bytes(dtype):
    x = (np.arange(24).reshape(4, 6) % 2).astype(getattr(ml_dtypes, dtype, dtype))[::-1]
    raw = x.view(np.uint8)
    shape, strides = (3, 2, 4), (x.strides[0], 2 * x.strides[1], x.strides[1])
    seen = strided_view(x, shape, strides)
    assert seen.dtype == x.dtype and np.shares_memory(seen, x) and seen.flags.writeable
    np.testing.assert_array_equal(seen.view(np.uint8), as_strided(raw, shape, strides))
    windows = sliding_windows(x, (2, 3), (1, 0))
    assert windows.dtype == x.dtype and not windows.flags.writeable
    np.testing.assert_array_equal(windows.view(np.uint8), sliding_window_view(raw, (2, 3), (1, 0)))


def test_nothing_else_asks_numpy():
    """Elsewhere NumPy's functions would fail for float8_e5m2 alone, which few programs and no other test would meet."""
    root = Path(shardwise.__file__).parent
    found = {p.relative_to(root).as_posix() for p in root.rglob("*.py") if "stride_tricks" in p.read_text()}
    assert found == {"runtime/strided.py"}


WAYS = {
    "roll": lambda x: jnp.roll(x, 1, 0),
    "flip": lambda x: x[::-1],
    "slice": lambda x: x[1::2],
    "pad": lambda x: jnp.pad(x, 2),
    "split": lambda x: jnp.split(x, [1, 7])[1],
    "windows": lambda x: jax.vmap(lambda i: lax.dynamic_slice(x, (i, i), (3, 2)))(jnp.arange(9)),
    "convolution": lambda x: lax.conv(x[None, None], x[None, None, :3, :3], (1, 1), "SAME"),
    "depthwise": lambda x: lax.conv_general_dilated(
        jnp.stack([x, x])[None], jnp.stack([x[:3, :3]] * 2)[:, None], (1, 1), "SAME", feature_group_count=2
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_float8_e5m2_on_a_mesh(name):
    """The elements are small integers, so that every dtype holds the results."""
    mesh = jax.make_mesh((3, 2), ("x", "y"), devices=jax.devices()[:6])
    x = np.arange(144).reshape(12, 12) % 2
    want = np.asarray(WAYS[name](jnp.asarray(x, jnp.float32)))
    for spec in (P(), P("x", "y"), P("y")):
        got = jax.jit(WAYS[name])(jax.device_put(x.astype(ml_dtypes.float8_e5m2), NamedSharding(mesh, spec)))
        assert got.dtype == jnp.float8_e5m2
        np.testing.assert_array_equal(np.asarray(got).astype(np.float32), want)
