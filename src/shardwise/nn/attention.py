"""Attention: weighted means of values, the weights from products of queries and keys.

In: queries f[B, T, N, H], keys and values f[B, S, K, H]; N is a multiple of K, and each group of N / K query heads shares
one key head. Out: f[B, T, N, H].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.nn.attend import Band, Masks, attend
from shardwise.nn.fused_attention import GPUS, fused_attention
from shardwise.sharding.backend import default_backend
from shardwise.transforms.jit.jit import jit

_IMPLEMENTATIONS = (None, "xla", "cudnn")


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """``softmax(query @ key.T * scale + bias) @ value`` for each head.

    Args:
        query: f[B, T, N, H], or f[T, N, H] for one batch element.
        key: f[B, S, K, H] with N a multiple of K.
        value: f[B, S, K, H].
        bias: added to the products: broadcastable to [B, N, T, S].
        mask: bool, True for the products to use: broadcastable to [B, N, T, S].
        scale: a factor of the products; by default ``1 / sqrt(H)``.
        is_causal: position t attends to positions up to t only.
        query_seq_lengths: int32[B]: the number of valid queries of each batch element; results of the others are 0.
        key_value_seq_lengths: int32[B]: the number of valid keys of each batch element.
        local_window_size: the number of positions used to the left and right; one int for both.
        implementation: None or 'xla'; 'cudnn' in plans for GPUs, which count it as the kernels of that library: nothing but operands and
            results is in memory, and products that are masked by `is_causal` or a window are left out.
        return_residual: also return the log-sum-exp of the products, f[B, T, N].

    Raises:
        ValueError: shapes or dtypes do not fit, or a window to the right with 'cudnn'.
        NotImplementedError: 'cudnn' without a GPU, or with dtypes and sizes of heads that it does not have.

    >>> jax.nn.dot_product_attention(jnp.ones((2, 5, 4, 8)), jnp.ones((2, 6, 4, 8)), jnp.ones((2, 6, 4, 8))).shape
    (2, 5, 4, 8)
    """
    if implementation not in _IMPLEMENTATIONS:
        raise ValueError(f"Unsupported implementation option: {implementation!r}; expected None or 'xla'.")
    if implementation == "cudnn" and default_backend() not in GPUS:
        raise NotImplementedError(
            "dot_product_attention: cudnn needs a GPU. Leave implementation=None, or plan the program for a machine that has some."
        )
    shape = jnp.asarray(query).shape
    q, k, v = _four_dims(query), _four_dims(key), _four_dims(value)
    bias = None if bias is None else _four_dims(bias)
    mask = None if mask is None else _four_dims(mask)
    lengths = [None if x is None else jnp.asarray(x) for x in (query_seq_lengths, key_value_seq_lengths)]
    batch, _, heads, size = k.shape
    _check("value", v, k.shape, k.dtype)
    _check("query", q, (batch, None, None, size), k.dtype)
    _check("mask", mask, (None,) * 4, np.dtype(bool))
    _check("bias", bias, (None,) * 4)
    _check("query_seq_lengths", lengths[0], (batch,), np.dtype(np.int32))
    _check("key_value_seq_lengths", lengths[1], (batch,), np.dtype(np.int32))
    if q.shape[2] % heads:
        raise ValueError(
            f"The number of query heads must be a multiple of key/value heads, but got {q.shape[2]} vs {heads}"
        )
    window = (local_window_size, local_window_size) if isinstance(local_window_size, int) else local_window_size
    factor = (1 / math.sqrt(size) if size else 1.0) if scale is None else scale  # no elements: any scale does
    operands, band = (q, k, v, bias, Masks(mask, *lengths), factor), Band(is_causal, window)
    if implementation == "cudnn":
        out, residual = fused_attention(*operands, band=band)
    else:
        out, residual = _attend(*operands, band=band, with_residual=return_residual)
    out = jnp.reshape(out, shape)
    return (out, jnp.reshape(residual, shape[:-1])) if return_residual else out


_attend: Any = jit(attend, inline=True, static_argnames=("band", "with_residual"))


def _four_dims(x: Any) -> Array:
    v = jnp.asarray(x)
    return lax.expand_dims(v, range(max(4 - v.ndim, 0)))


def _check(name: str, x: Array | None, shape: tuple[int | None, ...], dtype: Any = None) -> None:
    if x is None:
        return
    if x.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, x.shape, strict=True)):
        raise ValueError(f"dot_product_attention: {name} shape should be {shape} (None: any size), but got {x.shape}.")
    if dtype is not None and x.dtype != dtype:
        raise ValueError(f"dot_product_attention: {name} dtype should be {dtype}, but got {x.dtype}.")
