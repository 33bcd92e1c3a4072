"""Attention of cuDNN: its kernels on a GPU, of which plans say what they need there.

In and out: as for `dot_product_attention`. No array here is on a GPU, so that nothing of this runs.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise.ir import Array, Kernel
from shardwise.nn.attend import Window, allowed_products
from shardwise.nn.attention_kernels import Operands, Options, attend_by_kernels

GPUS = ("gpu", "cuda", "rocm")
_MOST = 256  # elements of a head on GPUs since the H100; a multiple of 8
_DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_LOW = -0.7 * float(np.finfo(np.float32).max)


def fused_attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    mask: Array | None,
    q_lengths: Array | None,
    kv_lengths: Array | None,
    *,
    scale: Any,
    is_causal: bool,
    window: Window | None,
) -> tuple[Array, Array]:
    """The means f[B, T, N, H] and the log-sum-exp f[B, T, N].

    Raises:
        ValueError: a window to the right without a causal mask.
        NotImplementedError: a dtype or a size of heads that cuDNN has no kernels for.
    """
    if q.dtype.name not in _DTYPES:
        raise NotImplementedError(
            f"Q must be fp16/bf16/fp8_e4m3fn/fp8_e5m2, got {q.dtype}. Cast it, or leave implementation=None."
        )
    size = q.shape[3]
    if size > _MOST or size % 8:
        raise NotImplementedError(
            f"The head dim must be <= {_MOST} and a multiple of 8, but got {size}. Leave implementation=None."
        )
    if window is not None and window[1] != 0 and not is_causal:
        raise ValueError(f"cuDNN doesn't support right window: {window[1]} when causal mask is not used.")
    steps, keys = q.shape[1], k.shape[1]
    part = _part(steps, keys, is_causal, window)
    options = Options(
        float(scale), None, _LOW,
        functools.partial(_allowed, steps, keys, k.shape[2], is_causal, window),
        Kernel("fused attention", part=part),
        Kernel("fused attention, backward", part=part),
    )  # fmt: skip
    out, sums = attend_by_kernels(Operands(q, k, v, bias, None, (mask, q_lengths, kv_lengths)), options)
    return out, sums.astype(out.dtype)


def _allowed(
    steps: int,
    keys: int,
    groups: int,
    is_causal: bool,
    window: Window | None,
    mask: Array | None,
    q_lengths: Array | None,
    kv_lengths: Array | None,
) -> tuple[Array | None, Array | None]:
    """The products and the queries to use."""
    real = None if q_lengths is None else jnp.arange(steps)[None, :] < q_lengths[:, None]
    return allowed_products(steps, keys, mask, groups, q_lengths, kv_lengths, is_causal, window), real


def _part(steps: int, keys: int, is_causal: bool, window: Window | None) -> float:
    """How much of the products of a query and a key is computed: those beside a diagonal are left out."""
    rows = np.arange(steps)
    last = np.minimum(rows + 1, keys) if is_causal else np.full(steps, keys)
    first = np.zeros(steps) if window is None else np.maximum(rows - window[0], 0)
    return float(np.maximum(last - first, 0).sum()) / max(steps * keys, 1)
