"""Programs that are planned and run on this machine: a few of each kind of kernel, and training steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax

CASES: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {}


def case(make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]) -> Callable[[], Any]:
    """Register a program: a function that gives the function and its arguments."""
    CASES[make.__name__.replace("_", " ")] = make
    return make


def values(*shape: int, scale: float = 0.1) -> Any:
    """Normal numbers."""
    return scale * jax.random.normal(jax.random.key(len(shape) + shape[0]), shape)


@case
def add_and_multiply_64_MB():
    return lambda x: x * 2.0 + 1.0, (values(1 << 24),)


@case
def add_two_64_MB():
    return lambda x, y: x + y, (values(1 << 24), values(4096, 4096).reshape(-1))


@case
def sin_64_MB():
    return lambda x: 2.0 * jnp.sin(x) + 1.0, (values(1 << 24),)


@case
def gelu_and_exp_64_MB():
    return lambda x: jax.nn.gelu(x) * jnp.tanh(x) + jnp.exp(x), (values(1 << 24),)


@case
def softmax_of_rows_64_MB():
    return lambda x: jax.nn.softmax(x, axis=-1), (values(4096, 4096),)


@case
def sum_of_columns_64_MB():
    return lambda x: x.sum(0), (values(4096, 4096),)


@case
def transpose_64_MB():
    return lambda x: x.T + 1.0, (values(4096, 4096),)


@case
def product_512():
    return lambda x, y: x @ y, (values(512, 512), values(512, 512))


@case
def product_2048():
    return lambda x, y: x @ y, (values(2048, 2048), values(2048, 2048))


@case
def product_4096_by_256():
    return lambda x, y: x @ y, (values(4096, 1024), values(1024, 256))


@case
def attention_8_x_512():
    def attend(q, k, v):
        scores = jnp.einsum("bqd,bkd->bqk", q, k) * 0.125
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, axis=-1), v)

    return attend, tuple(values(8, 512, 64) for _ in range(3))


def mlp_step(widths: tuple[int, ...], batch: int):
    """A step of gradient descent on layers of these widths."""
    params = [(values(a, b), jnp.zeros(b)) for a, b in pairwise(widths)]

    def loss(params, x, y):
        for w, b in params[:-1]:
            x = jnp.tanh(x @ w + b)
        w, b = params[-1]
        return jnp.mean((x @ w + b - y) ** 2)

    def step(params, x, y):
        grads = jax.grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

    return step, (params, values(batch, widths[0]), values(batch, widths[-1]))


@case
def training_step_of_a_small_MLP():
    return mlp_step((256, 512, 512, 10), 256)


@case
def training_step_of_a_wide_MLP():
    return mlp_step((1024, 4096, 4096, 1024), 512)


def decoder_step(layers: int, dim: int, heads: int, batch: int, length: int):
    """A step of gradient descent on a decoder whose layers a loop runs."""

    def stacked(*shape):
        return values(layers, *shape, scale=0.02)

    params = {
        "qkv": stacked(dim, 3, heads, dim // heads),
        "out": stacked(heads, dim // heads, dim),
        "up": stacked(dim, 4 * dim),
        "down": stacked(4 * dim, dim),
    }
    embed = values(512, dim)

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def layer(x, w):
        q, k, v = jnp.moveaxis(jnp.einsum("bsd,dnhk->bsnhk", norm(x), w["qkv"]), 2, 0)
        scores = jnp.einsum("bqhk,bshk->bhqs", q, k) * (dim // heads) ** -0.5
        scores = jnp.where(jnp.tri(length, dtype=bool), scores, -1e30)
        x = x + jnp.einsum("bhqs,bshk,hkd->bqd", jax.nn.softmax(scores), v, w["out"])
        return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None

    def loss(both, tokens):
        params, embed = both
        x, _ = lax.scan(layer, embed[tokens], params)
        logits = norm(x) @ embed.T
        right = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, axis=-1) - right).mean()

    def step(both, tokens):
        return jax.tree.map(lambda p, g: p - 0.01 * g, both, jax.grad(loss)(both, tokens))

    return step, ((params, embed), jax.random.randint(jax.random.key(0), (batch, length), 0, 512))


@case
def training_step_of_a_small_decoder():
    return decoder_step(2, 128, 4, 4, 128)


@case
def training_step_of_a_larger_decoder():
    return decoder_step(4, 512, 8, 4, 256)
