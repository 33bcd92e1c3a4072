"""The public face of dtypes."""

from __future__ import annotations

import numpy as np

import shardwise as jax
from shardwise.dtypes import canonicalize_dtype


def test_canonical_dtype_of_none():
    assert canonicalize_dtype(None) == np.float32
    with jax.enable_x64(True):
        assert canonicalize_dtype(None) == np.float64
