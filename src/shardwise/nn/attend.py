"""The formulas of attention: products of queries and keys, and means of values that they weigh.

In: queries f[B, T, N, H], keys and values f[B, S, K, H], where N is a multiple of K. Products are [B, K, N / K, T, S].
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

import shardwise.numpy as jnp
from shardwise.base.dtypes import finfo, promote_types
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.nn.normalization import logsumexp, softmax

Window = tuple[int, int]


class Masks(NamedTuple):
    """Arrays that choose among products.

    Attributes:
        mask: bool, True for the products to use: broadcastable to [B, N, T, S].
        q_lengths: int32[B]: the number of valid queries.
        kv_lengths: int32[B]: the number of valid keys.
    """

    mask: Array | None = None
    q_lengths: Array | None = None
    kv_lengths: Array | None = None


class Band(NamedTuple):
    """The products near the diagonal that count: up to it if `is_causal`; in `window`, by positions to the left and right."""

    is_causal: bool = False
    window: Window | None = None


def attend(
    q: Array, k: Array, v: Array, bias: Array | None, masks: Masks, scale: Any, *, band: Band, with_residual: bool
) -> tuple[Array, Array | None]:
    """The means f[B, T, N, H], and the log-sum-exp of the products f[B, T, N]."""
    batch, steps, heads, size = q.shape
    allowed_mask = allowed_products(masks, band, steps, k.shape[1], k.shape[2])
    products = scaled_products(q, k, bias, allowed_mask, scale).astype(np.float32)
    weights = softmax(products, axis=-1).astype(k.dtype)
    out = jnp.einsum("bkgts,bskh->btkgh", weights, v)
    out = lax.reshape(out, (batch, steps, heads, size))
    real = valid_queries(masks, steps)
    if real is not None:
        out = out * real[:, :, None, None].astype(out.dtype)
    if not with_residual:
        return out, None
    residual = logsumexp(products, axis=-1).astype(k.dtype)
    residual = lax.reshape(jnp.moveaxis(residual, -1, 1), (batch, steps, heads))
    return out, lax.stop_gradient(residual)


def scaled_products(q: Array, k: Array, bias: Array | None, allowed: Array | None, scale: Any) -> Array:
    """The products, with `bias` added, and very low where they are not allowed."""
    batch, steps, heads, size = q.shape
    groups = k.shape[2]
    q = lax.reshape(q, (batch, steps, groups, heads // groups, size))
    wide = promote_types(q.dtype, np.float32)
    products = jnp.einsum("btkgh,bskh->bkgts", q, k, preferred_element_type=wide)
    products = products * jnp.asarray(scale, products.dtype)
    if bias is not None:
        products = (products + group_heads(bias, groups)).astype(products.dtype)
    if allowed is None:
        return products
    # Finite, so that a query without any allowed key gets a mean instead of NaN.
    low = -0.7 * min(float(finfo(products.dtype).max), float(finfo(np.float32).max))
    return jnp.where(allowed, products, jnp.asarray(low, products.dtype))


def group_heads(x: Array, groups: int) -> Array:
    """[B, N, T, S] as [B, K, N / K, T, S]; one head serves all."""
    heads = x.shape[1]
    if heads == 1:
        return lax.expand_dims(x, (2,))
    return lax.reshape(x, (x.shape[0], groups, heads // groups, *x.shape[2:]))


def valid_queries(masks: Masks, steps: int) -> Array | None:
    """The mask of queries, bool[B, T]; None if all count."""
    return None if masks.q_lengths is None else jnp.arange(steps)[None, :] < masks.q_lengths[:, None]


def allowed_products(masks: Masks, band: Band, steps: int, keys: int, groups: int) -> Array | None:
    """The mask of products, broadcastable to [B, K, G, T, S]; None if all count."""
    mask, q_lengths, kv_lengths = masks
    conditions: list[Array] = []
    if mask is not None:
        conditions.append(group_heads(mask, groups))
    row = lax.broadcasted_iota(np.int32, (1, 1, 1, steps, 1), 3)
    column = lax.broadcasted_iota(np.int32, (1, 1, 1, 1, keys), 4)
    if band.is_causal:
        conditions.append(column <= row)
    if band.window is not None:
        left, right = band.window
        conditions.append((row <= column + left) & (row >= column - right))
    if q_lengths is not None:
        conditions.append(row < q_lengths[:, None, None, None, None])
    if kv_lengths is not None:
        conditions.append(column < kv_lengths[:, None, None, None, None])
    return functools.reduce(jnp.logical_and, conditions) if conditions else None
