"""The public face of dtypes."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
from shardwise import dtypes
from shardwise import numpy as jnp
from shardwise.dtypes import canonicalize_dtype


def test_types_of_values_promote_as_their_dtypes():
    assert jnp.promote_types(jnp.ones(2), "int32") == jnp.float32
    assert jnp.promote_types("bfloat16", jnp.int8(1)) == jnp.bfloat16
    assert jax.jit(lambda x, y: x.astype(jnp.promote_types(x, y)))(1, jnp.float16(2)).dtype == jnp.float16
    for wrong in (1, np.ones(2), [1]):
        with pytest.raises(TypeError):
            jnp.promote_types(jnp.ones(2), wrong)


def test_bfloat16_of_host_values_is_not_that_of_arrays():
    assert isinstance(dtypes.bfloat16(1), np.generic) and isinstance(jnp.bfloat16(1), jax.Array)
    assert dtypes.bfloat16 == jnp.bfloat16 and jnp.zeros(1, dtypes.bfloat16).dtype == "bfloat16"


def test_canonical_dtype_of_none():
    assert canonicalize_dtype(None) == np.float32
    with jax.enable_x64(True):
        assert canonicalize_dtype(None) == np.float64
