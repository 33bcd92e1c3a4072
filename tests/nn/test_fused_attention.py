"""cuDNN's attention: the values and derivatives of its formulas, and what plans count of it."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
import shardwise.plan
from shardwise.nn.attend import Band, Masks, attend
from shardwise.nn.fused_attention import fused_attention

B, T, S, N, K, H = 2, 6, 8, 4, 2, 16


def operands(bias=None, mask=None, lengths=None):
    keys = jax.random.split(jax.random.key(0), 5)
    q, k, v = (
        jax.random.normal(key, shape).astype(jnp.bfloat16)
        for key, shape in zip(keys, [(B, T, N, H), (B, S, K, H), (B, S, K, H)], strict=False)
    )
    b = None if bias is None else jax.random.normal(keys[3], bias).astype(jnp.bfloat16)
    m = None if mask is None else jax.random.bernoulli(keys[4], 0.7, mask)
    return q, k, v, b, Masks(m, *(lengths or (None, None)))


LENGTHS = jnp.array([4, 6], np.int32), jnp.array([8, 5], np.int32)
CASES = {
    "plain": (operands(), Band()),
    "causal": (operands(), Band(is_causal=True)),
    "window": (operands(), Band(is_causal=True, window=(2, 0))),
    "bias": (operands(bias=(1, N, T, S), mask=(B, 1, T, S)), Band()),
    "bias of one head": (operands(bias=(B, 1, T, S)), Band(is_causal=True)),
    "lengths": (operands(lengths=LENGTHS), Band(is_causal=True)),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_derivatives_are_those_of_attention(case):
    (q, k, v, bias, masks), band = CASES[case]

    def loss(function, q, k, v, bias):
        out, sums = function(q, k, v, bias)
        return (out.astype(np.float32) * jnp.cos(jnp.arange(H))).sum(), (out, sums)

    def fused(q, k, v, bias):
        return fused_attention(q, k, v, bias, masks, 0.25, band=band)

    def plain(q, k, v, bias):
        return attend(q, k, v, bias, masks, 0.25, band=band, with_residual=True)

    which = (0, 1, 2) if bias is None else (0, 1, 2, 3)
    found, values = jax.grad(functools.partial(loss, fused), which, has_aux=True)(q, k, v, bias)
    wide = [None if x is None else x.astype(np.float32) for x in (q, k, v, bias)]
    wanted, wanted_values = jax.grad(functools.partial(loss, plain), which, has_aux=True)(*wide)
    for a, b in zip((*found, *values), (*wanted, *wanted_values), strict=True):
        assert a.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b), atol=0.06, rtol=0.03)  # bfloat16


def attention(q, k, v, **options):
    return jax.nn.dot_product_attention(q, k, v, implementation="cudnn", **options)


def planned(f, batch, steps, on="h100-1", size=128):
    x = jax.ShapeDtypeStruct((batch, steps, 2048 // size, size), jnp.bfloat16)
    with shardwise.plan.on(on):
        return shardwise.plan.plan(jax.jit(f), x, x, x, on=on)


def backward(q, k, v):
    return jax.grad(lambda q, k, v: attention(q, k, v).astype(np.float32).sum(), (0, 1, 2))(q, k, v)


# TFLOP/s of cuDNN on an H100 with 16k words of 2048 features: FlashAttention-3 (arXiv 2407.08608), figures of forward and backward speed.
PUBLISHED = {
    ("forward", 128, 4096): 609,
    ("forward", 64, 4096): 408,
    ("causal", 128, 4096): 518,
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_planned_seconds_are_near_published_ones(case):
    kind, size, steps = case
    causal = kind == "causal"
    found = planned(functools.partial(attention, is_causal=causal), 16384 // steps, steps, size=size)
    flops = 4 * 16384 * steps * 2048 * (0.5 if causal else 1)
    assert found.flops == pytest.approx(flops, rel=1e-3)  # a diagonal is half
    assert flops / found.seconds.likely == pytest.approx(PUBLISHED[case] * 1e12, rel=0.26)  # a model


def test_products_of_queries_and_keys_are_nowhere_in_memory():
    found = planned(backward, 4, 4096)
    names = {t.name for t in found.schedule.tasks}
    assert {"fused attention", "fused attention, backward"} <= names
    assert found.temporaries < 3 * 2**26


def test_policies_keep_nothing_of_what_a_kernel_holds():
    layer = jax.checkpoint(lambda x: attention(x, x, x), policy=jax.checkpoint_policies.dots_saveable)
    x = jax.ShapeDtypeStruct((4, 4096, 16, 128), jnp.bfloat16)

    def f(x):
        many = jax.lax.scan(lambda c, _: (layer(c), None), x, None, length=4)[0]
        return many.astype(np.float32).sum()

    with shardwise.plan.on("h100-1"):
        found = shardwise.plan.plan(jax.jit(jax.grad(f)), x, on="h100-1")
    assert found.peak < 16 * 2**26


def test_refusals():
    x = jnp.ones((1, 8, 2, 16), jnp.bfloat16)
    with pytest.raises(NotImplementedError, match="plan the program for a machine"):
        attention(x, x, x)
    with shardwise.plan.on("h100-1"):
        wide = jnp.ones((1, 8, 2, 16), np.float32)
        with pytest.raises(NotImplementedError, match="fp16/bf16"):
            attention(wide, wide, wide)
        odd = jnp.ones((1, 8, 2, 12), jnp.bfloat16)
        with pytest.raises(NotImplementedError, match="multiple of 8, but got 12"):
            attention(odd, odd, odd)
        x = jnp.ones((1, 8, 2, 16), jnp.bfloat16)
        with pytest.raises(ValueError, match="right window: 2"):
            attention(x, x, x, local_window_size=2)
