"""Small programs compared with the same programs op by op."""

from __future__ import annotations

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base import config

f32 = np.float32


def both(f, *args):
    """Results of `f` with and without compiled programs, flat."""
    out = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            out.append(sw.tree.leaves(sw.jit(lambda *a: f(*a))(*args)))
    return out


def agree(f, *args, tolerance=1e-5):
    for got, wanted in zip(*both(f, *args), strict=True):
        assert got.aval == wanted.aval
        a, b = np.asarray(got), np.asarray(wanted)
        if np.dtype(a.dtype).kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            # Two bytes are bfloat16's: a unit of the last place.
            loose = {2: 1e-2, 4: tolerance, 8: 1e-12}[np.real(a).dtype.itemsize]
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=loose, atol=loose)


def chain(x):
    for _ in range(6):
        x = jnp.sin(x) * 0.5 + x
    return x
