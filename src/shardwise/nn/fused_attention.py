"""Attention of cuDNN: its kernels on a GPU, of which plans say what they need there.

In and out: as for `dot_product_attention`. No array here is on a GPU, so that nothing of this runs.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from shardwise.ir import Array, Kernel
from shardwise.nn.attend import Band, Masks, allowed_products, valid_queries
from shardwise.nn.attention_kernels import Operands, Options, attend_by_kernels

GPUS = ("gpu", "cuda", "rocm")
_MOST = 256  # elements of a head on GPUs since the H100; a multiple of 8
_DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_LOW = -0.7 * float(np.finfo(np.float32).max)


def fused_attention(
    q: Array, k: Array, v: Array, bias: Array | None, masks: Masks, scale: Any, *, band: Band
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
    if band.window is not None and band.window[1] != 0 and not band.is_causal:
        raise ValueError(f"cuDNN doesn't support right window: {band.window[1]} when causal mask is not used.")
    steps, keys = q.shape[1], k.shape[1]
    part = _part(steps, keys, band)
    options = Options(
        float(scale), None, _LOW,
        functools.partial(_allowed_products, band, steps, keys, k.shape[2]),
        Kernel("fused attention", part=part),
        Kernel("fused attention, backward", part=part),
    )  # fmt: skip
    out, sums = attend_by_kernels(Operands(q, k, v, bias, None, (masks,)), options)
    return out, sums.astype(out.dtype)


def _allowed_products(
    band: Band, steps: int, keys: int, groups: int, masks: Masks
) -> tuple[Array | None, Array | None]:
    """The products and the queries to use."""
    return allowed_products(masks, band, steps, keys, groups), valid_queries(masks, steps)


def _part(steps: int, keys: int, band: Band) -> float:
    """How much of the products of a query and a key is computed: those beside a diagonal are left out."""
    rows = np.arange(steps)
    last = np.minimum(rows + 1, keys) if band.is_causal else np.full(steps, keys)
    first = np.zeros(steps) if band.window is None else np.maximum(rows - band.window[0], 0)
    return float(np.maximum(last - first, 0).sum()) / max(steps * keys, 1)
