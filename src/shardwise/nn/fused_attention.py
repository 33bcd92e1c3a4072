"""Attention as cuDNN's kernels compute it on GPUs, one forward and one backward: the products of queries and keys never are in memory.

In and out: as for `attend`. Nothing runs it here: plans for GPUs read what it needs there.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise.ir import Array, Kernel, as_one_kernel
from shardwise.lax import adaptive as lax
from shardwise.nn.attend import Window, allowed_products, grouped, scaled_products
from shardwise.transforms.derivatives.custom_vjp import custom_vjp

GPUS = ("gpu", "cuda", "rocm")
_MOST = 256  # elements of a head on GPUs since the H100; a multiple of 8

_Operands = tuple[Any, ...]
_Options = tuple[float, bool, Window | None]


def fused_attention(*operands: Any, scale: Any, is_causal: bool, window: Window | None) -> tuple[Array, Array]:
    """The means and the log-sum-exp of `attend`, of queries, keys, values, bias, mask and lengths.

    Raises:
        ValueError: a window to the right without a causal mask.
        NotImplementedError: a dtype or a size of heads that cuDNN has no kernels for.
    """
    q = operands[0]
    if q.dtype.name not in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raise NotImplementedError(
            f"Q must be fp16/bf16/fp8_e4m3fn/fp8_e5m2, got {q.dtype}. Cast it, or leave implementation=None."
        )
    if q.shape[3] > _MOST or q.shape[3] % 8:
        raise NotImplementedError(
            f"The head dim must be <= {_MOST} and a multiple of 8, but got {q.shape[3]}. Leave implementation=None."
        )
    if window is not None and window[1] != 0 and not is_causal:
        raise ValueError(f"cuDNN doesn't support right window: {window[1]} when causal mask is not used.")
    return _attention(operands, (float(scale), is_causal, window))


@functools.partial(custom_vjp, nondiff_argnums=(1,))
def _attention(operands: _Operands, options: _Options) -> tuple[Array, Array]:
    return _forward(operands, options)[0]


def _forward(operands: _Operands, options: _Options) -> tuple[tuple[Array, Array], Any]:
    scale, is_causal, window = options
    q, k, v, bias, mask, q_lengths, kv_lengths = operands
    (batch, steps, heads, _), groups = q.shape, k.shape[2]
    with as_one_kernel(Kernel("fused attention", part=_part(q, k, options))):
        allowed = allowed_products(steps, k.shape[1], mask, groups, q_lengths, kv_lengths, is_causal, window)
        products = scaled_products(q, k, bias, allowed, scale).astype(np.float32)
        top = products.max(-1, keepdims=True)
        weights = jnp.exp(products - top)
        total = weights.sum(-1, keepdims=True)
        out = jnp.einsum("bkgts,bskh->bkgth", weights.astype(v.dtype), v, preferred_element_type=np.float32) / total
        out = lax.reshape(jnp.transpose(out, (0, 3, 1, 2, 4)), q.shape)
        if q_lengths is not None:
            out = out * (jnp.arange(steps)[None, :] < q_lengths[:, None])[:, :, None, None]
        out = out.astype(q.dtype)
        residual = lax.reshape(jnp.transpose((top + jnp.log(total))[..., 0], (0, 3, 1, 2)), (batch, steps, heads))
    return (out, residual.astype(out.dtype)), (operands, out, residual)


def _backward(options: _Options, saved: Any, cotangents: tuple[Array, Any]) -> tuple[_Operands]:
    (q, k, v, bias, mask, q_lengths, kv_lengths), out, residual = saved
    scale, is_causal, window = options
    (batch, steps, heads, size), groups = q.shape, k.shape[2]
    with as_one_kernel(Kernel("fused attention, backward", part=_part(q, k, options))):
        by_group = (batch, steps, groups, heads // groups, size)
        rows = (0, 2, 3, 1)  # to the order of the products
        ct = cotangents[0].astype(np.float32)
        allowed = allowed_products(steps, k.shape[1], mask, groups, q_lengths, kv_lengths, is_causal, window)
        if q_lengths is not None:
            ct = ct * (jnp.arange(steps)[None, :] < q_lengths[:, None])[:, :, None, None]
        products = scaled_products(q, k, bias, allowed, scale).astype(np.float32)
        sums = jnp.transpose(lax.reshape(residual, by_group[:-1]), rows)
        weights = jnp.exp(products - sums[..., None])
        ct = lax.reshape(ct, by_group)
        ct_weights = jnp.einsum("btkgh,bskh->bkgts", ct.astype(v.dtype), v, preferred_element_type=np.float32)
        means = jnp.transpose((ct * lax.reshape(out, by_group).astype(np.float32)).sum(-1), rows)
        ct_products = weights * (ct_weights - means[..., None])
        if allowed is not None:
            ct_products = jnp.where(allowed, ct_products, 0.0)
        narrow = ct_products.astype(q.dtype)
        ct_v = jnp.einsum(
            "bkgts,btkgh->bskh", weights.astype(v.dtype), ct.astype(v.dtype), preferred_element_type=np.float32
        )
        ct_q = jnp.einsum("bkgts,bskh->btkgh", narrow, k, preferred_element_type=np.float32) * scale
        ct_k = (
            jnp.einsum("bkgts,btkgh->bskh", narrow, lax.reshape(q, by_group), preferred_element_type=np.float32) * scale
        )
        ct_bias = None if bias is None else _summed(ct_products, bias)
        ct_q = lax.reshape(ct_q, q.shape).astype(q.dtype)
        ct_k, ct_v = ct_k.astype(k.dtype), ct_v.astype(v.dtype)
    return ((ct_q, ct_k, ct_v, ct_bias, None, None, None),)


_attention.defvjp(_forward, _backward)


def _summed(products: Array, bias: Array) -> Array:
    """The sum of [B, K, N / K, T, S] over the dims in which a bias is broadcast."""
    wanted = grouped(bias, products.shape[1])
    axes = tuple([d for d in range(5) if wanted.shape[d] == 1 != products.shape[d]])
    return lax.reshape(products.sum(axes, keepdims=True), bias.shape).astype(bias.dtype)


def _part(q: Array, k: Array, options: _Options) -> float:
    """How much of the products of a query and a key is computed: those beside a diagonal are left out."""
    steps, keys = q.shape[1], k.shape[1]
    _, is_causal, window = options
    rows = np.arange(steps)
    last = np.minimum(rows + 1, keys) if is_causal else np.full(steps, keys)
    first = np.zeros(steps) if window is None else np.maximum(rows - window[0], 0)
    return float(np.maximum(last - first, 0).sum()) / max(steps * keys, 1)
