"""`bitcast_convert_type` of types below a byte."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import dtypes, lax


@pytest.mark.parametrize("narrow", ["int4", "uint4", "int2", "float4_e2m1fn"])
@pytest.mark.parametrize("wide", ["int8", "uint4", "uint16", "float32", "int2"])
def test_bitcasts_of_narrow_types(narrow: str, wide: str) -> None:
    """The lowest bits come first, and casting back gives the same."""
    old, new = (dtypes.itemsize_bits(getattr(jnp, n)) for n in (narrow, wide))
    if old > new:
        narrow, wide, old, new = wide, narrow, new, old
    codes = np.random.default_rng(0).integers(0, 1 << old, (3, new // old) if old < new else (3,), dtype=np.uint8)
    x = jnp.asarray(codes.view(getattr(jnp, narrow).dtype))
    cast = lambda x: lax.bitcast_convert_type(x, getattr(jnp, wide))  # noqa: E731
    made = np.ascontiguousarray(np.asarray(cast(x)))
    total = (
        sum(codes[..., i].astype(np.uint64) << np.uint64(i * old) for i in range(new // old)) if old < new else codes
    )
    np.testing.assert_array_equal(made.view(f"u{made.dtype.itemsize}"), total)
    back = np.asarray(lax.bitcast_convert_type(sw.jit(cast)(x), getattr(jnp, narrow)))
    np.testing.assert_array_equal(np.ascontiguousarray(back).view(np.uint8), codes)
