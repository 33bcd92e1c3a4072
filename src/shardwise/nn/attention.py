"""Attention: weighted means of values, the weights from products of queries and keys.

In: queries f[B, T, N, H], keys and values f[B, S, K, H]; N is a multiple of K, and each group of N / K query heads shares
one key head. Out: f[B, T, N, H].
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise.base.dtypes import finfo, promote_types
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.nn.normalization import logsumexp, softmax
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
        implementation: None or 'xla'; there is one implementation.
        return_residual: also return the log-sum-exp of the products, f[B, T, N].

    Raises:
        ValueError: shapes or dtypes do not fit. NotImplementedError for ``implementation='cudnn'``.

    >>> jax.nn.dot_product_attention(jnp.ones((2, 5, 4, 8)), jnp.ones((2, 6, 4, 8)), jnp.ones((2, 6, 4, 8))).shape
    (2, 5, 4, 8)
    """
    if implementation not in _IMPLEMENTATIONS:
        raise ValueError(f"Unsupported implementation option: {implementation!r}; expected None or 'xla'.")
    if implementation == "cudnn":
        raise NotImplementedError("dot_product_attention: cudnn needs a GPU. Leave implementation=None.")
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
    out, residual = _attend(
        q,
        k,
        v,
        bias,
        mask,
        lengths[0],
        lengths[1],
        (1 / math.sqrt(size) if size else 1.0) if scale is None else scale,  # no elements: any scale does
        is_causal=is_causal,
        window=window,
        with_residual=return_residual,
    )
    out = jnp.reshape(out, shape)
    return (out, jnp.reshape(residual, shape[:-1])) if return_residual else out


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


@functools.partial(jit, inline=True, static_argnames=("is_causal", "window", "with_residual"))
def _attend(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    mask: Array | None,
    q_lengths: Array | None,
    kv_lengths: Array | None,
    scale: Any,
    *,
    is_causal: bool,
    window: tuple[int, int] | None,
    with_residual: bool,
) -> tuple[Array, Array | None]:
    batch, steps, heads, size = q.shape
    groups = k.shape[2]
    q = lax.reshape(q, (batch, steps, groups, heads // groups, size))
    wide = promote_types(q.dtype, np.float32)
    products = jnp.einsum("btkgh,bskh->bkgts", q, k, preferred_element_type=wide)
    products = products * jnp.asarray(scale, products.dtype)
    if bias is not None:
        products = (products + _grouped(bias, groups)).astype(products.dtype)
    allowed = _allowed(steps, k.shape[1], mask, groups, q_lengths, kv_lengths, is_causal, window)
    if allowed is not None:
        # Finite, so that a query without any allowed key gets a mean instead of NaN.
        low = -0.7 * min(float(finfo(products.dtype).max), float(finfo(np.float32).max))
        products = jnp.where(allowed, products, jnp.asarray(low, products.dtype))
    products = products.astype(np.float32)
    weights = softmax(products, axis=-1).astype(k.dtype)
    out = jnp.einsum("bkgts,bskh->btkgh", weights, v)
    out = lax.reshape(out, (batch, steps, heads, size))
    if q_lengths is not None:
        real = jnp.arange(steps)[None, :] < q_lengths[:, None]
        out = out * real[:, :, None, None].astype(out.dtype)
    if not with_residual:
        return out, None
    residual = logsumexp(products, axis=-1).astype(k.dtype)
    residual = lax.reshape(jnp.moveaxis(residual, -1, 1), (batch, steps, heads))
    return out, lax.stop_gradient(residual)


def _grouped(x: Array, groups: int) -> Array:
    """[B, N, T, S] as [B, K, N / K, T, S]; one head serves all."""
    heads = x.shape[1]
    if heads == 1:
        return lax.expand_dims(x, (2,))
    return lax.reshape(x, (x.shape[0], groups, heads // groups, *x.shape[2:]))


def _allowed(
    steps: int,
    keys: int,
    mask: Array | None,
    groups: int,
    q_lengths: Array | None,
    kv_lengths: Array | None,
    is_causal: bool,
    window: tuple[int, int] | None,
) -> Array | None:
    """Which products count, broadcastable to [B, K, G, T, S]; None if all do."""
    conditions: list[Array] = []
    if mask is not None:
        conditions.append(_grouped(mask, groups))
    row = lax.broadcasted_iota(np.int32, (1, 1, 1, steps, 1), 3)
    column = lax.broadcasted_iota(np.int32, (1, 1, 1, 1, keys), 4)
    if is_causal:
        conditions.append(column <= row)
    if window is not None:
        left, right = window
        conditions.append((row <= column + left) & (row >= column - right))
    if q_lengths is not None:
        conditions.append(row < q_lengths[:, None, None, None, None])
    if kv_lengths is not None:
        conditions.append(column < kv_lengths[:, None, None, None, None])
    return functools.reduce(jnp.logical_and, conditions) if conditions else None
