"""Programs made at random: up to three blocks of networks and solvers, weights in random layouts, forward, gradient or training step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from tests.traffic.table import Api, Entry, Made

BATCH, LENGTH, WIDTH, HEADS, EACH, HIDDEN, WORDS, EXPERTS = 32, 64, 128, 8, 16, 512, 1024, 8
MESHES: list[dict[str, int]] = [{"a": 8}, {"a": 4, "b": 2}, {"a": 2, "b": 4}, {"a": 2, "b": 2, "c": 2}]
VALUE = (BATCH, LENGTH, WIDTH)  # what goes from block to block

Shape = tuple[int, ...]
Spec = tuple[Any, ...]
Weights = list[Any]
Block = Callable[[Weights, Any], Any]


class Draw:
    """Random choices for one program: the mesh, and the weights that its blocks ask for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.axes = self.random.choice(MESHES)
        self.shapes: list[Shape] = []
        self.specs: list[Spec] = []

    def spec(self, shape: Shape, share: float = 0.7) -> Spec:
        """A layout that splits dims over about that share of the axes."""
        axes = self.random.sample(list(self.axes), len(self.axes))
        dims: list[tuple[str, ...]] = [()] * len(shape)
        for axis in axes:
            for d in self.random.sample(range(len(shape)), len(shape)) if self.random.random() < share else ():
                ways = math.prod(self.axes[a] for a in (*dims[d], axis))
                if shape[d] % ways == 0 and (not dims[d] or self.random.random() < 0.3):
                    dims[d] = (*dims[d], axis)
                    break
        return tuple(d[0] if len(d) == 1 else d or None for d in dims)

    def weight(self, *shape: int) -> int:
        """The number of a new weight."""
        self.shapes.append(shape)
        self.specs.append(self.spec(shape, self.random.choice([0.3, 0.7, 0.9])))
        return len(self.shapes) - 1

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)


# -- blocks ------------------------------------------------------------------------------------------------------------------


def perceptron(draw: Draw, api: Api) -> Block:
    up, down = draw.weight(WIDTH, HIDDEN), draw.weight(HIDDEN, WIDTH)
    act = draw.one_of(api.jax.nn.gelu, api.jax.nn.relu, api.jnp.tanh)
    return lambda w, x: x + act(normalized(api, x) @ w[up]) @ w[down]


def gated(draw: Draw, api: Api) -> Block:
    gate, up, down = draw.weight(WIDTH, HIDDEN), draw.weight(WIDTH, HIDDEN), draw.weight(HIDDEN, WIDTH)
    return lambda w, x: x + (api.jax.nn.silu(x @ w[gate]) * (x @ w[up])) @ w[down]


def attention(draw: Draw, api: Api) -> Block:
    inner = [draw.weight(WIDTH, HEADS, EACH) for _ in range(3)]
    mix, jnp = draw.weight(HEADS, EACH, WIDTH), api.jnp

    def block(w: Weights, x: Any) -> Any:
        query, key, value = (jnp.einsum("btd,dhk->bthk", normalized(api, x), w[i]) for i in inner)
        scores = jnp.einsum("bthk,bshk->bhts", query, key) / 4
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
        return x + jnp.einsum("bhts,bshk,hkd->btd", api.jax.nn.softmax(scores), value, w[mix])

    return block


def joined_attention(draw: Draw, api: Api) -> Block:
    inner, mix, jnp = draw.weight(WIDTH, 3 * WIDTH), draw.weight(WIDTH, WIDTH), api.jnp

    def block(w: Weights, x: Any) -> Any:
        parts = jnp.split(x @ w[inner], 3, -1)
        query, key, value = (p.reshape(BATCH, LENGTH, HEADS, EACH).transpose(0, 2, 1, 3) for p in parts)
        likely = api.jax.nn.softmax(query @ key.swapaxes(-1, -2) / 4)
        return x + (likely @ value).transpose(0, 2, 1, 3).reshape(VALUE) @ w[mix]

    return block


def experts(draw: Draw, api: Api) -> Block:
    gate, up, down = (
        draw.weight(WIDTH, EXPERTS),
        draw.weight(EXPERTS, WIDTH, HIDDEN),
        draw.weight(EXPERTS, HIDDEN, WIDTH),
    )
    jnp, nn = api.jnp, api.jax.nn

    def block(w: Weights, x: Any) -> Any:
        likely = nn.softmax(x @ w[gate])
        given = jnp.einsum("bte,btd->ebtd", nn.one_hot(jnp.argmax(likely, -1), EXPERTS), x)
        hidden = nn.relu(jnp.einsum("ebtd,edf->ebtf", given, w[up]))
        return x + jnp.einsum("ebtf,efd,bte->btd", hidden, w[down], likely)

    return block


def convolution(draw: Draw, api: Api) -> Block:
    kernel, form = draw.weight(3, WIDTH, WIDTH), ("NWC", "WIO", "NWC")
    return lambda w, x: x + api.lax.conv_general_dilated(x, w[kernel], (1,), "SAME", dimension_numbers=form)


def token_shift(draw: Draw, api: Api) -> Block:
    share, jnp = draw.weight(WIDTH), api.jnp

    def block(w: Weights, x: Any) -> Any:
        before = jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1)
        return x * w[share] + before * (1 - w[share])

    return block


def rolled(draw: Draw, api: Api) -> Block:
    by, dim, scale = draw.one_of(1, -3, 5), draw.one_of(0, 1, 2), draw.weight(WIDTH)
    return lambda w, x: api.jnp.roll(x, by, dim) * w[scale]


def flipped(draw: Draw, api: Api) -> Block:
    dim, scale = draw.one_of(0, 1, 2), draw.weight(WIDTH)
    return lambda w, x: x * w[scale] + api.jnp.flip(x, dim)


def running_sum(draw: Draw, api: Api) -> Block:
    dim, mix = draw.one_of(0, 1, 2), draw.weight(WIDTH, WIDTH)
    return lambda w, x: api.jnp.cumsum(x @ w[mix], dim) / LENGTH


def recurrent(draw: Draw, api: Api) -> Block:
    state, given = draw.weight(WIDTH, WIDTH), draw.weight(WIDTH, WIDTH)

    def block(w: Weights, x: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = api.jnp.tanh(h @ w[state] + row @ w[given])
            return h, h

        return api.lax.scan(step, api.jnp.zeros((BATCH, WIDTH)), x.swapaxes(0, 1))[1].swapaxes(0, 1)

    return block


def linear_recurrence(draw: Draw, api: Api) -> Block:
    gate = draw.weight(WIDTH, WIDTH)

    def block(w: Weights, x: Any) -> Any:
        def join(one: Any, other: Any) -> Any:
            return one[0] * other[0], other[0] * one[1] + other[1]

        return api.lax.associative_scan(join, (api.jax.nn.sigmoid(x @ w[gate]), x), axis=1)[1]

    return block


def lookup(draw: Draw, api: Api) -> Block:
    table, jnp = draw.weight(WORDS, WIDTH), api.jnp

    def block(w: Weights, x: Any) -> Any:
        words = jnp.abs(api.lax.stop_gradient(jnp.round(x[..., 0] * 64))).astype(jnp.int32) % WORDS
        return x + w[table][words]

    return block


def pooled(draw: Draw, api: Api) -> Block:
    mix = draw.weight(WIDTH, WIDTH)

    def block(w: Weights, x: Any) -> Any:
        greatest = x.reshape(BATCH, LENGTH // 4, 4, WIDTH).max(2) @ w[mix]
        return api.jnp.repeat(greatest, 4, axis=1) + x

    return block


def sorted_rows(draw: Draw, api: Api) -> Block:
    dim, mix = draw.one_of(1, 2), draw.weight(WIDTH, WIDTH)
    return lambda w, x: x + api.jnp.sort(x @ w[mix], axis=dim)


def group_norm(draw: Draw, api: Api) -> Block:
    scale = draw.weight(WIDTH)

    def block(w: Weights, x: Any) -> Any:
        groups = x.reshape(BATCH, LENGTH, 8, WIDTH // 8)
        mean, variance = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
        return ((groups - mean) / api.jnp.sqrt(variance + 1e-5)).reshape(VALUE) * w[scale]

    return block


def batch_norm(draw: Draw, api: Api) -> Block:
    scale = draw.weight(WIDTH)
    return lambda w, x: (x - x.mean((0, 1))) / api.jnp.sqrt(x.var((0, 1)) + 1e-5) * w[scale]


def mixer(draw: Draw, api: Api) -> Block:
    up, down = draw.weight(LENGTH, 2 * LENGTH), draw.weight(2 * LENGTH, LENGTH)
    return lambda w, x: x + api.jnp.einsum("btd,tu,us->bsd", x, w[up], w[down])


def spectral(draw: Draw, api: Api) -> Block:
    scale = draw.weight(WIDTH)
    return lambda w, x: x + api.jnp.real(api.jnp.fft.fft(x, axis=1)) * w[scale]


def stacked_layers(draw: Draw, api: Api) -> Block:
    up, down, again = draw.weight(4, WIDTH, HIDDEN), draw.weight(4, HIDDEN, WIDTH), draw.one_of(False, True)

    def block(w: Weights, x: Any) -> Any:
        def layer(x: Any, pair: Any) -> Any:
            return x + api.jax.nn.relu(x @ pair[0]) @ pair[1], None

        return api.lax.scan(api.jax.checkpoint(layer) if again else layer, x, (w[up], w[down]))[0]

    return block


def alternate_rows(draw: Draw, api: Api) -> Block:
    scale = draw.weight(WIDTH)
    return lambda w, x: api.jnp.stack([x[:, ::2] * w[scale], x[:, 1::2] + x[:, ::2]], 2).reshape(VALUE)


def segments(draw: Draw, api: Api) -> Block:
    mix = draw.weight(WIDTH, WIDTH)

    def block(w: Weights, x: Any) -> Any:
        at = api.jnp.arange(BATCH * LENGTH) * 7 % 64
        sums = api.jax.ops.segment_sum((x @ w[mix]).reshape(-1, WIDTH), at, 64)
        return x + sums[at].reshape(VALUE)

    return block


def patches(draw: Draw, api: Api) -> Block:
    up, down = draw.weight(4 * WIDTH, HIDDEN), draw.weight(HIDDEN, 4 * WIDTH)
    return lambda w, x: (api.jnp.tanh(x.reshape(BATCH, -1, 4 * WIDTH) @ w[up]) @ w[down]).reshape(VALUE)


def covariance(draw: Draw, api: Api) -> Block:
    mix = draw.weight(WIDTH, WIDTH)

    def block(w: Weights, x: Any) -> Any:
        rows = x.reshape(-1, WIDTH)
        return x @ (rows.T @ rows / len(rows) @ w[mix])

    return block


def whole_texts(draw: Draw, api: Api) -> Block:
    up, down = draw.weight(LENGTH * WIDTH, HIDDEN), draw.weight(HIDDEN, LENGTH * WIDTH)
    return lambda w, x: (api.jax.nn.relu(x.reshape(BATCH, -1) @ w[up]) @ w[down]).reshape(VALUE)


BLOCKS = (
    perceptron, gated, attention, joined_attention, experts, convolution, token_shift, rolled, flipped, running_sum, recurrent,
    linear_recurrence, lookup, pooled, sorted_rows, group_norm, batch_norm, mixer, spectral, stacked_layers, alternate_rows, segments,
    patches, covariance, whole_texts,
)  # fmt: skip


def normalized(api: Api, x: Any) -> Any:
    """Layer norm over the features."""
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * api.lax.rsqrt(api.jnp.square(x - mean).mean(-1, keepdims=True) + 1e-5)


# -- programs ----------------------------------------------------------------------------------------------------------------


def random_entry(seed: int) -> Entry:
    """The program of a seed: it has the same layouts whatever compiles it."""
    return Entry(Draw(seed).axes, lambda api: _made(seed, api))


def _made(seed: int, api: Api) -> Made:
    draw = Draw(seed)
    blocks = [draw.random.choice(BLOCKS)(draw, api) for _ in range(draw.random.randint(1, 3))]
    pinned = draw.spec(VALUE) if draw.random.random() < 0.4 else None
    kind, head = draw.one_of("forward", "gradient", "gradient", "step"), draw.one_of("mean", "sum", "words")
    words = draw.weight(WIDTH, WORDS) if head == "words" else 0
    x = api.arg(VALUE, *draw.spec(VALUE))
    weights = [api.arg(shape, *spec) for shape, spec in zip(draw.shapes, draw.specs, strict=True)]
    jax, jnp = api.jax, api.jnp

    def forward(w: Weights, x: Any) -> Any:
        for i, block in enumerate(blocks):
            x = block(w, x)
            if pinned is not None and i == 0:
                x = api.pin(x, *pinned)
        return x

    def loss(w: Weights, x: Any) -> Any:
        y = forward(w, x)
        if head == "words":
            right = jnp.arange(BATCH * LENGTH).reshape(BATCH, LENGTH, 1) % WORDS
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(y @ w[words]), right, -1))
        return jnp.mean(jnp.square(y)) if head == "mean" else jnp.mean(jnp.square(y.sum(0)))

    def step(w: Weights, x: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, slopes), value

    if kind == "forward":
        return forward, (weights, x), None
    if kind == "gradient":
        return jax.grad(loss), (weights, x), api.like(weights)
    return step, (weights, x), (api.like(weights), None)
