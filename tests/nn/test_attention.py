"""dot_product_attention: values, dtypes and errors as JAX has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise
import shardwise.nn as nn
from shardwise.sharding import Mesh, NamedSharding, P
from tests.numpy.face import cases, check_case, check_error

Q = "jnp.reshape(t[..., :8] * 1.0, (2, 4, 2, 4))"
K = "jnp.reshape(jnp.sin(t * 3), (2, 4, 2, 4))"
V = "jnp.reshape(jnp.cos(t), (2, 4, 2, 4))"
MASK = "jnp.reshape(jnp.concatenate([bm, bm]), (2, 2, 4, 4))"

CASES = f"""
nn.dot_product_attention({Q}, {K}, {V})
nn.dot_product_attention({Q}[0], {K}[0], {V}[0])
nn.dot_product_attention({Q}, {K}, {V}, scale=0.1)
nn.dot_product_attention({Q}, {K}, {V}, is_causal=True)
nn.dot_product_attention({Q}, {K}, {V}, mask={MASK})
nn.dot_product_attention({Q}, {K}, {V}, mask={MASK}[:, :1] & False)
nn.dot_product_attention({Q}, {K}, {V}, bias=m[:, :4])
nn.dot_product_attention({Q}, {K}, {V}, bias=jnp.reshape(jnp.concatenate([m, m]), (2, 2, 4, 4)), is_causal=True)
nn.dot_product_attention({Q}, {K}[:, :, :1], {V}[:, :, :1])
nn.dot_product_attention({Q}, {K}[:, :3], {V}[:, :3], is_causal=True)
nn.dot_product_attention({Q}, {K}, {V}, query_seq_lengths=i[:2], key_value_seq_lengths=j[:2] + 1)
nn.dot_product_attention({Q}, {K}, {V}, local_window_size=1)
nn.dot_product_attention({Q}, {K}, {V}, local_window_size=(1, 0))
nn.dot_product_attention({Q}, {K}, {V}, is_causal=True, return_residual=True)
nn.dot_product_attention({Q}[0], {K}[0], {V}[0], return_residual=True)
nn.dot_product_attention({Q}.astype("float16"), {K}.astype("float16"), {V}.astype("float16"))
nn.dot_product_attention({Q}.astype("bfloat16"), {K}.astype("bfloat16"), {V}.astype("bfloat16"), is_causal=True)
nn.dot_product_attention({Q}, {K}, {V}, implementation="xla")
"""

ERRORS = f"""
nn.dot_product_attention({Q}, {K}[:, :3], {V})
nn.dot_product_attention({Q}, {K}[..., :3], {V}[..., :3])
nn.dot_product_attention({Q}, {K}, {V}.astype("float16"))
nn.dot_product_attention({Q}[:, :, :1], {K}, {V})
nn.dot_product_attention({Q}, {K}, {V}, mask=m[:, :4])
nn.dot_product_attention({Q}, {K}, {V}, query_seq_lengths=v[:2])
nn.dot_product_attention({Q}, {K}, {V}, implementation="other")
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_heads_and_batch_stay_split():
    rng = np.random.default_rng(0)
    mesh = Mesh(np.array(shardwise.devices()[:8]).reshape(2, 4), ("batch", "heads"))
    q, k, v = (rng.normal(size=(4, 6, 8, 16)).astype(np.float32) for _ in range(3))
    split = [shardwise.device_put(x, NamedSharding(mesh, P("batch", None, "heads"))) for x in (q, k, v)]
    f = shardwise.jit(lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True))
    got = f(*split)
    assert got.sharding.is_equivalent_to(split[0].sharding, 4)
    np.testing.assert_allclose(got, nn.dot_product_attention(q, k, v, is_causal=True), rtol=1e-6, atol=1e-6)


def test_under_strict_promotion():
    """Inside of the function no rank is promoted."""
    q, k, v = np.sin(np.arange(3 * 2 * 8 * 2 * 4.0)).astype(np.float32).reshape(3, 2, 8, 2, 4)
    bias = np.cos(np.arange(64)).astype(np.float32).reshape(1, 1, 8, 8)
    options: dict[str, Any] = dict(
        bias=bias, mask=bias > -0.5, is_causal=True, local_window_size=3, query_seq_lengths=np.array([3, 8], np.int32)
    )
    expected = nn.dot_product_attention(q, k, v, **options)
    with shardwise.numpy_dtype_promotion("strict"), shardwise.numpy_rank_promotion("raise"):
        np.testing.assert_array_equal(nn.dot_product_attention(q, k, v, **options), expected)
