"""Attention of `pallas.ops.tpu`: the formulas' values and derivatives, masks, refusals, and what plans count.

JAX's own kernels, interpreted, gave the same to 1e-6 in all of these cases (a minute a run: it is not repeated here).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
import shardwise.plan
from shardwise.experimental.pallas.ops.tpu import flash_attention as flash
from shardwise.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from shardwise.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from shardwise.sharding import NamedSharding, PartitionSpec

HEADS, GROUPS, STEPS, SIZE = 4, 2, 256, 128
IDS = jnp.arange(STEPS) // 100
MULTI = masks.MultiHeadMask
SHAPE = (STEPS, STEPS)
MASKS = {
    "causal": MULTI([masks.CausalMask(SHAPE)] * HEADS),
    "full": MULTI([masks.FullMask(SHAPE)] * HEADS),
    "local": MULTI([masks.LocalMask(SHAPE, (60, 0), 0)] * HEADS),
    "chunks": MULTI([masks.ChunkedCausalMask(SHAPE, 64)] * HEADS),
    "of each head": MULTI(
        [masks.CausalMask(SHAPE), masks.FullMask(SHAPE), masks.CausalMask(SHAPE, 3), masks.FullMask(SHAPE)]
    ),
    "both": MULTI([masks.CausalMask(SHAPE) & masks.LocalMask(SHAPE, (9, 9), 0)] * HEADS),
    "array": np.tril(np.ones((HEADS, *SHAPE), bool)),
}


def operands(heads=HEADS, groups=GROUPS):
    keys = jax.random.split(jax.random.key(0), 3)
    return [
        jax.random.normal(key, (n, STEPS, SIZE)) * 0.3 for key, n in zip(keys, (heads, groups, groups), strict=True)
    ]


def plainly(q, k, v, mask, ids=None, cap=None, sinks=None):
    k, v = (jnp.repeat(x, q.shape[0] // x.shape[0], 0) for x in (k, v))
    logits = jnp.einsum("hqd,hkd->hqk", q, k)
    if cap is not None:
        logits = jnp.tanh(logits / cap) * cap
    if ids is not None:
        mask = mask & (ids[:, None] == ids[None, :])
    logits = jnp.where(mask, logits, -1e30)
    more = [] if sinks is None else [jnp.broadcast_to(sinks[:, None, None], (*logits.shape[:2], 1))]
    weights = jax.nn.softmax(jnp.concatenate([logits, *more], -1), -1)[..., : logits.shape[-1]]
    return jnp.einsum("hqk,hkd->hqd", weights, v)


def agree(f, g, *args):
    def total(function, *args):
        return (function(*args) * jnp.cos(jnp.arange(SIZE))).sum()

    which = tuple(range(len(args)))
    np.testing.assert_allclose(f(*args), g(*args), atol=2e-5)
    for a, b in zip(
        jax.grad(functools.partial(total, f), which)(*args),
        jax.grad(functools.partial(total, g), which)(*args),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=2e-4)  # sums of 256 products of numbers about 1


def made(mask, **options) -> Any:
    return splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, **options)


@pytest.mark.parametrize("name", MASKS)
def test_splash_under_each_mask(name):
    mask = MASKS[name]
    kernel, whole = made(mask), jnp.asarray(mask[:, :, :])
    agree(kernel, lambda q, k, v: plainly(q, k, v, whole), *operands())


def test_segments_caps_and_sinks():
    mask = jnp.asarray(MASKS["causal"][:, :, :])
    ids = splash.SegmentIds(IDS, IDS)
    kernel = made(MASKS["causal"], attn_logits_soft_cap=2.0)
    agree(lambda q, k, v: kernel(q, k, v, ids), lambda q, k, v: plainly(q, k, v, mask, IDS, 2.0), *operands())
    sinks = jnp.array([0.5, -1.0, 2.0, 0.0])
    kernel = made(MASKS["causal"])
    agree(
        lambda q, k, v, s: kernel(q, k, v, None, s),
        lambda q, k, v, s: plainly(q, k, v, mask, sinks=s),
        *operands(),
        sinks,
    )


def test_one_head_of_keys_and_the_reference():
    q, k, v = operands(groups=1)
    mask = jnp.asarray(MASKS["causal"][:, :, :])
    kernel: Any = splash.make_splash_mqa_single_device(MASKS["causal"])
    agree(lambda q, k, v: kernel(q, k[0], v[0]), lambda q, k, v: plainly(q, k, v, mask), q, k, v)
    np.testing.assert_allclose(
        splash.make_masked_mqa_reference(MASKS["causal"])(q, k[0], v[0]), plainly(q, k, v, mask), atol=2e-5
    )


def test_residuals_have_no_derivative():
    kernel = made(MASKS["causal"], save_residuals=True)
    out, (sums,) = kernel(*operands())
    assert out.shape == (HEADS, STEPS, SIZE) and sums.shape == (HEADS, STEPS) and sums.dtype == np.float32
    with pytest.raises(NotImplementedError, match="save_residuals has no derivative"):
        jax.grad(lambda q, k, v: kernel(q, k, v)[0].sum())(*operands())


@pytest.mark.parametrize("name", ["causal", "of each head"])
def test_splash_over_devices(name):
    mesh = jax.make_mesh((2, 2), ("heads", "rows"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    kernel: Any = splash.make_splash_mha(MASKS[name], head_shards=2, q_seq_shards=2)
    spec = kernel.manual_sharding_spec(NamedSharding(mesh, PartitionSpec("heads", "rows")))
    rows, keys = PartitionSpec("heads", "rows"), PartitionSpec("heads")
    both = jax.jit(
        jax.shard_map(
            lambda f, *x: f(*x), mesh=mesh, in_specs=(spec, rows, keys, keys), out_specs=rows, check_vma=False
        )
    )
    np.testing.assert_allclose(both(kernel, *operands()), kernel(*operands()), atol=1e-6)
    with pytest.raises(ValueError, match="evenly between devices"):
        made(MULTI([masks.FullMask((STEPS, STEPS))] * 3)).manual_sharding_spec(
            NamedSharding(mesh, PartitionSpec("heads", None))
        )


FLASH: dict[str, tuple[dict[str, Any], Any]] = {
    "plain": ({}, None),
    "causal": ({"causal": True}, np.tril(np.ones(SHAPE, bool))),
}


@pytest.mark.parametrize("name", FLASH)
def test_flash(name):
    options, mask = FLASH[name]
    ids = flash.SegmentIds(IDS[None], IDS[None])
    whole = jnp.ones(SHAPE, bool) if mask is None else jnp.asarray(mask)

    def f(q, k, v, ab):
        return flash.flash_attention(q[None], k[None], v[None], ab[None], ids, sm_scale=0.5, **options)[0]

    def g(q, k, v, ab):
        logits = (jnp.einsum("hqd,hkd->hqk", q, k) + ab) * 0.5
        logits = jnp.where(whole & (IDS[:, None] == IDS[None, :]), logits, -1e30)
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(logits, -1), v)

    agree(f, g, *operands(2, 2), jax.random.normal(jax.random.key(5), (2, *SHAPE)))


def test_what_does_not_fit_is_refused():
    q, k, v = operands()
    x, few = jnp.ones((1, 2, 128, 16)), flash.BlockSizes(128, 128, 128, 1)
    for wrong, say in (
        (lambda: flash.flash_attention(x, x[:, :1], x), "Head count mismatch"),
        (lambda: flash.flash_attention(x, x, x[:, :, :9]), "KV sequence length mismatch: got 128 and 9"),
        (lambda: flash.flash_attention(x, x, x, x), "bias shape mismatch"),
        (lambda: flash.BlockSizes(128, 128, 100, 1), "block_k=100 should divide block_k_major=128"),
        (lambda: made(MASKS["causal"])(q, k[0], v), "Expected 3-dim 'key'"),
        (lambda: made(MASKS["causal"])(q, k[:, :128], v[:, :128]), "mask is for 256 keys, but there are 128"),
        (lambda: made(MASKS["causal"], block_sizes=splash.BlockSizes(100, 128)), "q_block_size=100 should divide"),
        (lambda: made(MASKS["causal"], block_sizes=splash.BlockSizes(128, 64)), "multiple of 128"),
        (lambda: masks.NumpyMask(np.ones(3, bool)), "2-dim array"),
        (lambda: masks.MultiHeadMask([masks.FullMask((2, 2)), masks.FullMask((2, 3))]), r"got: \(2, 3\), expected: \(2, 2\)"),
        (lambda: jax.grad(lambda x: flash.flash_attention(x, x, x, block_sizes=few).sum())(x), "not all backward"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=say):
            wrong()


def test_plans_count_the_blocks_that_a_mask_leaves():
    def planned(mask, sizes):
        kernel = splash.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
        x = jax.ShapeDtypeStruct((8, 4096, 128), jnp.bfloat16)
        f = jax.jit(jax.grad(lambda q, k, v: kernel(q, k, v).astype(np.float32).sum(), (0, 1, 2)))
        return shardwise.plan.plan(f, x, x, x, on="v5p-8")

    wide = splash.BlockSizes(1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024)
    full = planned(MULTI([masks.FullMask((4096, 4096))] * 8), wide)
    causal = planned(MULTI([masks.CausalMask((4096, 4096))] * 8), wide)
    product = 2 * 8 * 4096**2 * 128
    assert full.flops == pytest.approx((2 + 7) * product, rel=1e-6)
    assert causal.flops == pytest.approx(full.flops * 10 / 16, rel=1e-6)
    narrow = planned(MULTI([masks.FullMask((4096, 4096))] * 8), splash.BlockSizes.get_default())
    assert narrow.seconds.likely > 2 * full.seconds.likely and narrow.flops == full.flops
    assert {t.name for t in full.schedule.tasks} >= {"splash_mha", "splash_mha, backward"} and full.temporaries < 2**27
