"""Attention as kernels of accelerators compute it, one forward and one backward: the products of queries and keys are nowhere in memory.

In: queries f[B, T, N, H], keys and values f[B, S, K, H], where N is a multiple of K. Out: f[B, T, N, H] and the log-sum-exp f32[B, T, N].
Elsewhere the same formulas are ops of the program around them, and give the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import shardwise.numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array, Kernel, as_one_kernel
from shardwise.lax import adaptive as lax
from shardwise.nn.attend import group_heads
from shardwise.ops.devices.barrier import checkpoint_name
from shardwise.transforms.derivatives.custom_vjp import custom_vjp


class Operands(NamedTuple):
    """The arrays that attention computes with.

    Attributes:
        q, k, v: queries, keys and values.
        bias: added to the products: broadcastable to [B, N, T, S].
        sinks: f[N]: a product more per query and head, which weighs nothing; None for none.
        rest: arrays by which `Options.allowed` tells the products to use.
    """

    q: Array
    k: Array
    v: Array
    bias: Array | None = None
    sinks: Array | None = None
    rest: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Options:
    """How it computes.

    Attributes:
        scale: a factor of the products; of the bias, too, if `scales_bias`.
        cap: products come between -cap and cap, by a tanh; None for none.
        low: the value in place of a product that is not to be used.
        allowed: from `Operands.rest` the products to use, bool broadcastable to [B, K, N / K, T, S], or None for all; and the
            queries to use, bool broadcastable to [B, T], or None.
        forward, backward: the kernels; without the second there are no derivatives.
        residual_name: that of `checkpoint_name` for the results, by which policies keep them; None for none.
        is_final: there are no derivatives: the log-sum-exp is a result.
    """

    scale: float
    cap: float | None
    low: float
    allowed: Callable[..., tuple[Array | None, Array | None]]
    forward: Kernel
    backward: Kernel | None
    residual_name: str | None = None
    is_final: bool = False
    scales_bias: bool = False


def attend_by_kernels(operands: Operands, options: Options) -> tuple[Array, Array]:
    """The means of the values, and the log-sum-exp of the products, which has no derivative of its own.

    Raises:
        ValueError: in the backward pass, where `options` have no kernel for it.
        NotImplementedError: for a derivative where there is none.
    """
    results: tuple[Array, Array] = _attention(operands, options)
    return results


def _forward(operands: Operands, options: Options) -> tuple[tuple[Array, Array], Any]:
    if options.is_final:
        raise NotImplementedError("A kernel with save_residuals has no derivative. Differentiate one without it.")
    out, sums = _attend(operands, options)
    return (out, sums), (operands, out, sums)


def _attend(operands: Operands, options: Options) -> tuple[Array, Array]:
    q, k, v, _, sinks, _ = operands
    (batch, steps, heads, _), groups = q.shape, k.shape[2]
    with as_one_kernel(options.forward):
        allowed_mask, real = options.allowed(*operands.rest)
        products, _ = _products(operands, options, allowed_mask)
        top = products.max(-1, keepdims=True)
        if sinks is not None:
            top = jnp.maximum(top, _by_group(sinks, groups))
        weights = jnp.exp(products - top)
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + jnp.exp(_by_group(sinks, groups) - top)
        out = jnp.einsum("bkgts,bskh->bkgth", weights.astype(v.dtype), v, preferred_element_type=np.float32) / total
        out = lax.reshape(jnp.transpose(out, (0, 3, 1, 2, 4)), (*q.shape[:3], v.shape[3]))
        if real is not None:
            out = out * real[:, :, None, None]
        out = out.astype(q.dtype)
        sums = lax.reshape(jnp.transpose((top + jnp.log(total))[..., 0], (0, 3, 1, 2)), (batch, steps, heads))
    if options.residual_name is not None:
        out, sums = (checkpoint_name(x, options.residual_name) for x in (out, sums))
    return out, sums


def _backward(options: Options, saved: Any, cotangents: tuple[Array, Any]) -> tuple[Operands]:
    if options.backward is None:
        raise ValueError(
            "Program is being differentiated, but not all backward blocks are specified. Give `block_sizes` those, too."
        )
    operands, out, sums = saved
    q, k, v, bias, sinks, rest = operands
    (batch, steps, heads, _), groups = q.shape, k.shape[2]
    with as_one_kernel(options.backward):
        by_group = (batch, steps, groups, heads // groups)
        rows = (0, 2, 3, 1)  # to the order of the products
        allowed_mask, real = options.allowed(*rest)
        ct = cotangents[0].astype(np.float32)
        if real is not None:
            ct = ct * real[:, :, None, None]
        products, capped_products = _products(operands, options, allowed_mask)
        sums = jnp.transpose(lax.reshape(sums, by_group), rows)[..., None]
        weights = jnp.exp(products - sums)
        ct = lax.reshape(ct, (*by_group, v.shape[3]))
        means = (ct * lax.reshape(out, ct.shape).astype(np.float32)).sum(-1)
        means = jnp.transpose(means, rows)[..., None]
        narrow = ct.astype(v.dtype)
        ct_weights = jnp.einsum("btkgh,bskh->bkgts", narrow, v, preferred_element_type=np.float32)
        ct_products = weights * (ct_weights - means)
        if allowed_mask is not None:
            ct_products = jnp.where(allowed_mask, ct_products, 0.0)
        if capped_products is not None:
            ct_products = ct_products * (1 - capped_products * capped_products)
        whole = ct_products * np.float32(options.scale)
        ct_bias = None if bias is None else _sum_to_bias(whole if options.scales_bias else ct_products, bias)
        scaled_values = whole.astype(q.dtype)
        ct_v = jnp.einsum("bkgts,btkgh->bskh", weights.astype(v.dtype), narrow, preferred_element_type=np.float32)
        ct_q = jnp.einsum("bkgts,bskh->btkgh", scaled_values, k, preferred_element_type=np.float32)
        ct_k = jnp.einsum("bkgts,btkgh->bskh", scaled_values, _by_heads(q, groups), preferred_element_type=np.float32)
        ct_q = lax.reshape(ct_q, q.shape).astype(q.dtype)
        ct_k, ct_v = ct_k.astype(k.dtype), ct_v.astype(v.dtype)
        ct_sinks = None
        if sinks is not None:
            ct_sinks = -(jnp.exp(_by_group(sinks, groups) - sums) * means).sum((0, 3, 4))
            ct_sinks = lax.reshape(ct_sinks, sinks.shape).astype(sinks.dtype)
    return (Operands(ct_q, ct_k, ct_v, ct_bias, ct_sinks, tuple([None] * len(rest))),)  # type: ignore[arg-type]


_attention: Any = custom_vjp(_attend, nondiff_argnums=(1,))
_attention.defvjp(_forward, _backward)


def _products(operands: Operands, options: Options, allowed: Array | None) -> tuple[Array, Array | None]:
    """The products f32[B, K, N / K, T, S], and the tanh of those before they are capped."""
    q, k, _, bias, _, _ = operands
    groups = k.shape[2]
    products = jnp.einsum("btkgh,bskh->bkgts", _by_heads(q, groups), k, preferred_element_type=np.float32)
    more = None if bias is None else group_heads(bias, groups).astype(np.float32)
    if more is not None and options.scales_bias:
        products = products + more
    if options.scale != 1:
        products = products * np.float32(options.scale)
    if more is not None and not options.scales_bias:
        products = products + more
    capped_products = None
    if options.cap is not None:
        capped_products = jnp.tanh(products / np.float32(options.cap))
        products = capped_products * np.float32(options.cap)
    return (products if allowed is None else jnp.where(allowed, products, np.float32(options.low))), capped_products


def _by_heads(q: Array, groups: int) -> Array:
    """[B, T, N, H] as [B, T, K, N / K, H]."""
    batch, steps, heads, size = q.shape
    return lax.reshape(q, (batch, steps, groups, heads // groups, size))


def _by_group(sinks: Array, groups: int) -> Array:
    """[N] as f32[1, K, N / K, 1, 1]."""
    return lax.reshape(sinks.astype(np.float32), (1, groups, sinks.shape[0] // groups, 1, 1))


def _sum_to_bias(products: Array, bias: Array) -> Array:
    """The sum of [B, K, N / K, T, S] over the dims in which a bias is broadcast."""
    bias_heads = group_heads(bias, products.shape[1])
    axes = tuple([d for d in range(5) if bias_heads.shape[d] == 1 != products.shape[d]])
    return lax.reshape(products.sum(axes, keepdims=True), bias.shape).astype(bias.dtype)
