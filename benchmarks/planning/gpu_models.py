"""Programs of one GPU that are many kernels: training steps, decoding, scientific loops, small programs that wait for the host.

As `gpu_kernels`: written once against JAX's API, run by real JAX on a GPU, planned by the planner.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from planning.gpu_kernels import BF16, F32, Made, Operand, attention, convolution, floats, whole

MODELS: dict[str, Callable[[], Made]] = {}


def model(make: Callable[[], Made]) -> Callable[[], Made]:
    """Register a program: the name says what it is."""
    MODELS[make.__name__.replace("_", " ")] = make
    return make


def trained(loss: Callable[..., Any], params: Any, *data: Any) -> Made:
    """A step of Adam: parameters and moments in float32."""

    def step(params: Any, m: Any, v: Any, *data: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *data)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
        new = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
        return new, m, v, value

    return step, (params, params, params, *data)


def normed(x: Any, gain: Any) -> Any:
    """RMS norm in float32."""
    wide = x.astype(F32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * gain.astype(x.dtype)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean over all labels, in float32."""
    scores = jax.nn.log_softmax(logits.astype(F32))
    return -jnp.take_along_axis(scores, labels[..., None], -1).mean()


def layer_params(width: int, hidden: int, lead: tuple[int, ...] = ()) -> dict[str, Operand]:
    """Weights of a decoder's layer: attention and a gated MLP."""
    shapes = {"qkv": (width, 3, width), "out": (width, width), "up": (width, 2, hidden), "down": (hidden, width)}
    weights = {name: floats(*lead, *shape) for name, shape in shapes.items()}
    return weights | {"norm1": floats(*lead, width), "norm2": floats(*lead, width)}


def layer(x: Any, w: Any, heads: int) -> Any:
    """One layer of a decoder on [batch, tokens, width] in bfloat16."""
    w = {name: a.astype(BF16) for name, a in w.items()}
    b, t, d = x.shape
    q, k, v = jnp.moveaxis(jnp.einsum("btd,dce->btce", normed(x, w["norm1"]), w["qkv"]), 2, 0)
    split = (b, t, heads, d // heads)
    x = x + attention(q.reshape(split), k.reshape(split), v.reshape(split)).reshape(b, t, d) @ w["out"]
    gate, up = jnp.moveaxis(jnp.einsum("btd,dch->btch", normed(x, w["norm2"]), w["up"]), 2, 0)
    return x + (jax.nn.silu(gate) * up) @ w["down"]


def decoder(params: Any, tokens: Any, heads: int, remat: bool = False) -> Any:
    """Logits of a decoder whose layers are scanned."""
    x = params["table"].astype(BF16)[tokens]
    step: Any = partial(layer, heads=heads)
    if remat:
        step = jax.checkpoint(step)
    x, _ = lax.scan(lambda x, w: (step(x, w), None), x, params["layers"])
    return normed(x, params["norm"]) @ params["table"].astype(BF16).T


def _decoder(layers: int, width: int, heads: int, hidden: int, vocab: int) -> dict[str, Any]:
    table = {"table": floats(vocab, width), "norm": floats(width)}
    return table | {"layers": layer_params(width, hidden, (layers,))}


def _next_words(params: Any, tokens: Any, **how: Any) -> Any:
    return cross_entropy(decoder(params, tokens[:, :-1], **how), tokens[:, 1:])


@model
def decoder_of_110M_training():
    return trained(partial(_next_words, heads=12), _decoder(12, 768, 12, 2048, 32000), whole(32000, 8, 1025))


@model
def decoder_of_110M_training_with_remat():
    loss = partial(_next_words, heads=12, remat=True)
    return trained(loss, _decoder(12, 768, 12, 2048, 32000), whole(32000, 16, 1025))


@model
def decoder_of_1B_training():
    return trained(
        partial(_next_words, heads=16, remat=True), _decoder(16, 2048, 16, 5632, 32000), whole(32000, 4, 2049)
    )


@model
def decoder_of_1B_prompt():
    return partial(decoder, heads=16), (_decoder(16, 2048, 16, 5632, 32000), whole(32000, 4, 2048))


@model
def unrolled_decoder_training():
    def loss(params: Any, tokens: Any) -> Any:
        x = params["table"].astype(BF16)[tokens[:, :-1]]
        for w in params["layers"]:
            x = layer(x, w, 8)
        return cross_entropy(x @ params["table"].astype(BF16).T, tokens[:, 1:])

    params = {"table": floats(16000, 1024), "layers": [layer_params(1024, 4096) for _ in range(6)]}
    return trained(loss, params, whole(16000, 16, 513))


def _one_token(params: Any, caches: Any, token: Any, at: Any, heads: int) -> Any:
    """The next token of each sequence, with caches of keys and values [layers, batch, tokens, heads, size]."""

    def step(x: Any, given: Any) -> Any:
        w, keys, values = given
        b, _, d = x.shape
        qkv = jnp.einsum("btd,dce->btce", normed(x, w["norm1"]), w["qkv"])
        q, k, v = (a.reshape(b, 1, heads, d // heads) for a in jnp.moveaxis(qkv, 2, 0))
        keys = lax.dynamic_update_slice(keys, k, (0, at, 0, 0))
        values = lax.dynamic_update_slice(values, v, (0, at, 0, 0))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, keys, preferred_element_type=F32)
        scores = jnp.where(jnp.arange(keys.shape[1]) <= at, scores, -1e30)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(BF16), values)
        x = x + mixed.reshape(b, 1, d) @ w["out"]
        gate, up = jnp.moveaxis(jnp.einsum("btd,dch->btch", normed(x, w["norm2"]), w["up"]), 2, 0)
        return x + (jax.nn.silu(gate) * up) @ w["down"], (keys, values)

    x = params["table"][token][:, None]
    x, caches = lax.scan(step, x, (params["layers"], *caches))
    return jnp.argmax(normed(x[:, 0], params["norm"]) @ params["table"].T, -1), caches


def _in_bfloat16(tree: Any) -> Any:
    return jax.tree.map(lambda o: o._replace(dtype=BF16), tree, is_leaf=lambda o: isinstance(o, Operand))


@model
def decoding_with_1B():
    params = _in_bfloat16(_decoder(16, 2048, 16, 5632, 32000))
    caches = (floats(16, 32, 1024, 16, 128, dtype=BF16),) * 2
    return partial(_one_token, heads=16), (params, caches, whole(32000, 32), whole(1000))


@model
def decoding_with_1B_for_one():
    params = _in_bfloat16(_decoder(16, 2048, 16, 5632, 32000))
    caches = (floats(16, 1, 2048, 16, 128, dtype=BF16),) * 2
    return partial(_one_token, heads=16), (params, caches, whole(32000, 1), whole(1000))


def perceptron(widths: list[int]) -> list[tuple[Operand, Operand]]:
    """Weights and biases of layers between these widths."""
    return [(floats(a, b), floats(b)) for a, b in pairwise(widths)]


def through(params: Any, x: Any, act: Callable[[Any], Any] = jax.nn.relu) -> Any:
    """What a perceptron makes of rows."""
    for w, b in params[:-1]:
        x = act(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


@model
def perceptron_training():
    def loss(p: Any, x: Any, y: Any) -> Any:
        return ((through(p, x) - y) ** 2).mean()

    return trained(loss, perceptron([1024, 4096, 4096, 4096, 16]), floats(8192, 1024), floats(8192, 16))


@model
def small_perceptron_training():
    def loss(p: Any, x: Any, y: Any) -> Any:
        return cross_entropy(through(p, x), y)

    return trained(loss, perceptron([784, 256, 128, 10]), floats(128, 784), whole(10, 128))


@model
def gradients_per_example():
    def loss(p: Any, x: Any, y: Any) -> Any:
        return ((through(p, x, jnp.tanh) - y) ** 2).mean()

    def norms(p: Any, x: Any, y: Any) -> Any:
        grads = jax.vmap(jax.grad(loss), (None, 0, 0))(p, x, y)
        return sum((g**2).sum(tuple(range(1, g.ndim))) for g in jax.tree.leaves(grads))

    return norms, (perceptron([256, 512, 512, 8]), floats(512, 256), floats(512, 8))


@model
def vision_transformer_training():
    def loss(params: Any, images: Any, labels: Any) -> Any:
        b = images.shape[0]
        patches = images.reshape(b, 14, 16, 14, 16, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, 196, 768)
        x = patches.astype(BF16) @ params["patch"].astype(BF16) + params["at"].astype(BF16)
        x, _ = lax.scan(lambda x, w: (layer(x, w, 6), None), x, params["layers"])
        return cross_entropy(x.mean(1) @ params["head"].astype(BF16), labels)

    params = {"patch": floats(768, 384), "at": floats(196, 384), "head": floats(384, 1000)}
    params |= {"layers": layer_params(384, 1024, (12,))}
    return trained(loss, params, floats(128, 224, 224, 3), whole(1000, 128))


def _block(x: Any, w: Any, stride: int) -> Any:
    y = jax.nn.relu(_batch_norm(convolution(x, w["a"])))
    y = jax.nn.relu(_batch_norm(convolution(y, w["b"], stride)))
    y = _batch_norm(convolution(y, w["c"]))
    return jax.nn.relu(y + (_batch_norm(convolution(x, w["skip"], stride)) if "skip" in w else x))


def _batch_norm(x: Any) -> Any:
    wide = x.astype(F32)
    mean, square = wide.mean((0, 1, 2)), (wide * wide).mean((0, 1, 2))
    return ((wide - mean) * lax.rsqrt(square - mean * mean + 1e-5)).astype(x.dtype)


@model
def residual_network_training():
    sizes, blocks, channels = ((64, 1), (128, 2), (256, 2), (512, 2)), [], 64
    for (size, stride), count in zip(sizes, (3, 4, 6, 3), strict=True):
        for n in range(count):
            w = {"a": floats(1, 1, channels, size), "b": floats(3, 3, size, size), "c": floats(1, 1, size, 4 * size)}
            blocks.append((w | ({} if n else {"skip": floats(1, 1, channels, 4 * size)}), 1 if n else stride))
            channels = 4 * size
    strides = [s for _, s in blocks]

    def loss(params: Any, images: Any, labels: Any) -> Any:
        params = jax.tree.map(lambda w: w.astype(BF16), params)
        x = jax.nn.relu(_batch_norm(convolution(images.astype(BF16), params["first"], 2)))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for w, stride in zip(params["blocks"], strides, strict=True):
            x = _block(x, w, stride)
        return cross_entropy(x.mean((1, 2)) @ params["head"], labels)

    params = {"first": floats(7, 7, 3, 64), "blocks": [w for w, _ in blocks], "head": floats(2048, 1000)}
    return trained(loss, params, floats(128, 224, 224, 3), whole(1000, 128))


@model
def small_convolutions_training():
    def loss(params: Any, x: Any, y: Any) -> Any:
        for w in params["convs"]:
            x = jax.nn.relu(convolution(x, w))
            x = x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean((2, 4))
        return cross_entropy(through(params["head"], x.reshape(x.shape[0], -1)), y)

    convs = [floats(3, 3, a, b) for a, b in ((3, 32), (32, 64), (64, 128))]
    params = {"convs": convs, "head": perceptron([4 * 4 * 128, 256, 10])}
    return trained(loss, params, floats(256, 32, 32, 3), whole(10, 256))


@model
def LSTM_training():
    def loss(params: Any, xs: Any, ys: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x @ params["x"] + h @ params["h"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((xs.shape[1], 512))
        _, hs = lax.scan(step, (zero, zero), xs)
        return cross_entropy(hs @ params["head"], ys)

    params = {"x": floats(256, 2048), "h": floats(512, 2048), "head": floats(512, 1000)}
    return trained(loss, params, floats(128, 64, 256), whole(1000, 128, 64))


@model
def state_space_layer():
    def f(x: Any, a: Any, b: Any) -> Any:
        decay = jax.nn.sigmoid(a) * jnp.ones_like(x)
        _, h = lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (decay, x * b), axis=1)
        return h

    return f, (floats(8, 4096, 1024), floats(1024), floats(1024))


@model
def experts_training():
    def loss(params: Any, x: Any, y: Any) -> Any:
        gates = jax.nn.softmax((x @ params["router"]).astype(F32))
        weight, chosen = lax.top_k(gates, 2)
        send = jax.nn.one_hot(chosen, 16, dtype=BF16)
        at = (jnp.cumsum(send.reshape(-1, 16).astype(F32), 0).reshape(send.shape) * send).sum(-1).astype(jnp.int32)
        slots = jax.nn.one_hot(at, 640, dtype=BF16)
        route = jnp.einsum("tke,tks->tes", send, slots)
        inside = jax.nn.gelu(jnp.einsum("tes,td,edh->esh", route, x, params["up"].astype(BF16)))
        outside = jnp.einsum("esh,ehd->esd", inside, params["down"].astype(BF16))
        mixed = jnp.einsum("tke,tks,tk->tes", send, slots, weight.astype(BF16))
        return ((jnp.einsum("tes,esd->td", mixed, outside) - y).astype(F32) ** 2).mean()

    params = {"router": floats(1024, 16), "up": floats(16, 1024, 4096), "down": floats(16, 4096, 1024)}
    return trained(loss, params, floats(4096, 1024, dtype=BF16), floats(4096, 1024, dtype=BF16))


@model
def recommender_training():
    def loss(params: Any, ids: Any, dense: Any, y: Any) -> Any:
        rows = jax.vmap(lambda t, i: t[i], (0, 1), 1)(params["tables"], ids)
        bottom = through(params["bottom"], dense)
        x = jnp.concatenate([rows, bottom[:, None]], 1)
        pairs = jnp.einsum("bid,bjd->bij", x, x).reshape(x.shape[0], -1)
        logit = through(params["top"], jnp.concatenate([pairs, bottom], 1))[:, 0]
        return jnp.logaddexp(0, jnp.where(y > 0, -logit, logit)).mean()

    params = {"tables": floats(26, 100_000, 64), "bottom": perceptron([13, 512, 64])}
    params |= {"top": perceptron([27 * 27 + 64, 512, 256, 1])}
    return trained(loss, params, whole(100_000, 16384, 26), floats(16384, 13), whole(2, 16384))


@model
def graph_network_training():
    def loss(params: Any, nodes: Any, source: Any, target: Any, y: Any) -> Any:
        for w, own in params:
            sent = jax.ops.segment_sum(nodes[source] @ w, target, num_segments=nodes.shape[0])
            nodes = jax.nn.relu(nodes @ own + sent)
        return ((nodes - y) ** 2).mean()

    params = [(floats(128, 128), floats(128, 128)) for _ in range(3)]
    edges = (whole(50_000, 500_000),) * 2
    return trained(loss, params, floats(50_000, 128), *edges, floats(50_000, 128))


@model
def diffusion_training():
    def loss(params: Any, x: Any, seed: Any) -> Any:
        keys = jax.random.split(jax.random.key(seed))
        t = jax.random.uniform(keys[0], (x.shape[0], 1, 1, 1))
        noise = jax.random.normal(keys[1], x.shape)
        y = ((1 - t) * x + t * noise).astype(BF16)
        skips = []
        y = convolution(y, params["in"].astype(BF16))
        for w in params["down"]:
            skips.append(y)
            y = jax.nn.silu(convolution(jax.nn.silu(y), w.astype(BF16), 2))
        for w, skip in zip(params["up"], skips[::-1], strict=True):
            y = jnp.repeat(jnp.repeat(y, 2, 1), 2, 2)
            y = jax.nn.silu(convolution(jnp.concatenate([y, skip], -1), w.astype(BF16)))
        return ((convolution(y, params["out"].astype(BF16)) - noise).astype(F32) ** 2).mean()

    params = {"in": floats(3, 3, 3, 64), "out": floats(3, 3, 64, 3)}
    params |= {"down": [floats(3, 3, 64, 128), floats(3, 3, 128, 256)]}
    params |= {"up": [floats(3, 3, 256 + 128, 128), floats(3, 3, 128 + 64, 64)]}
    return trained(loss, params, floats(64, 64, 64, 3), whole(9))
