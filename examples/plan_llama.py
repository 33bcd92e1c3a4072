"""A training step of a Llama-like decoder, from a few million weights to 70 billion: plain JAX and optax, nothing else.

The largest one needs a machine that few have. What it would need there says

    shardwise plan examples/plan_llama.py --on v5p-256
    shardwise plan examples/plan_llama.py --on v5p-256 --html plan.html -- --remat dots --batch 64

and the smallest trains anywhere, under JAX as well:

    shardwise run examples/plan_llama.py --size tiny --steps 20
    python examples/plan_llama.py --size tiny

Weights are split over both axes of a mesh: over `fsdp`, which also splits the batch, each device keeps a part and gathers the rest
layer by layer; over `model` heads and hidden features are split, so that each device computes a part of every layer. The words to
learn are random ones, which the devices draw.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True)
class Size:
    """The sizes of a decoder: `heads` query heads share `groups` heads of keys and values."""

    layers: int
    width: int
    hidden: int
    heads: int
    groups: int
    words: int
    context: int


SIZES = {
    "70b": Size(layers=80, width=8192, hidden=28672, heads=64, groups=8, words=128256, context=4096),
    "8b": Size(layers=32, width=4096, hidden=14336, heads=32, groups=8, words=128256, context=4096),
    "tiny": Size(layers=2, width=64, hidden=128, heads=4, groups=2, words=256, context=32),
}
SPECS = {
    "query": P("fsdp", "model"),
    "key": P("fsdp", "model"),
    "value": P("fsdp", "model"),
    "mix": P("model", "fsdp"),
    "gate": P("fsdp", "model"),
    "up": P("fsdp", "model"),
    "down": P("model", "fsdp"),
    "gain1": P(),
    "gain2": P(),
}
POLICIES = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "none": jax.checkpoint_policies.everything_saveable,
}


# -- the model ---------------------------------------------------------------------------------------------------------------


def layer_shapes(size):
    """The shapes of one layer's weights."""
    keys = size.width // size.heads * size.groups
    return {
        "query": (size.width, size.width),
        "key": (size.width, keys),
        "value": (size.width, keys),
        "mix": (size.width, size.width),
        "gate": (size.width, size.hidden),
        "up": (size.width, size.hidden),
        "down": (size.hidden, size.width),
        "gain1": (size.width,),
        "gain2": (size.width,),
    }


def first_weights(key, size, unrolled):
    """Random float32 weights; `layers` is a list of layers if `unrolled`, else one layer with a leading dim of layers."""

    def normal(key, shape, inputs):
        return jax.random.normal(key, shape) / math.sqrt(inputs)

    def layer(key, lead=()):
        shapes = layer_shapes(size)
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        return {
            name: jnp.ones((*lead, *shape)) if len(shape) == 1 else normal(keys[name], (*lead, *shape), shape[0])
            for name, shape in shapes.items()
        }

    first, last, rest = jax.random.split(key, 3)
    if unrolled:
        layers = [layer(k) for k in jax.random.split(rest, size.layers)]
    else:
        layers = layer(rest, (size.layers,))
    return {
        "embed": normal(first, (size.words, size.width), 1.0),
        "layers": layers,
        "gain": jnp.ones(size.width),
        "unembed": normal(last, (size.width, size.words), size.width),
    }


def weight_specs(size, unrolled):
    """A PartitionSpec for each weight."""
    one = dict(SPECS)
    layers = [one] * size.layers if unrolled else {name: P(None, *spec) for name, spec in one.items()}
    return {"embed": P("model", "fsdp"), "layers": layers, "gain": P(), "unembed": P("fsdp", "model")}


def normalized(x, gain):
    """Root-mean-square norm over the features, in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-5) * gain).astype(x.dtype)


def rotated(x):
    """Each place turns its pairs of features by an angle of its own: [b, t, h, k] -> the same."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 500_000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None].astype(x.dtype), jnp.sin(angles)[:, None].astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(x, w, size):
    """Each place looks back at those before it: [b, t, d] -> [b, t, d]."""
    batch, places, width = x.shape
    each = width // size.heads
    query = rotated((x @ w["query"]).reshape(batch, places, size.heads, each))
    key = rotated((x @ w["key"]).reshape(batch, places, size.groups, each))
    value = (x @ w["value"]).reshape(batch, places, size.groups, each)
    query = query.reshape(batch, places, size.groups, size.heads // size.groups, each)
    scores = jnp.einsum("btghk,bsgk->bghts", query, key).astype(jnp.float32) / math.sqrt(each)
    past = jnp.tril(jnp.ones((places, places), bool))
    likely = jax.nn.softmax(jnp.where(past, scores, -1e30)).astype(x.dtype)
    return jnp.einsum("bghts,bsgk->btghk", likely, value).reshape(batch, places, width) @ w["mix"]


def layer_of(x, w, size, pin):
    """One layer: attention, then a gated network."""
    w = jax.tree.map(lambda a: a.astype(x.dtype), w)
    x = pin(x + attention(normalized(x, w["gain1"]), w, size))
    y = normalized(x, w["gain2"])
    return pin(x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"])


def loss_of(weights, text, size, policy, pin):
    """The mean cross-entropy of the words that follow: int32[b, t + 1] -> f32[]."""
    x = pin(weights["embed"].astype(jnp.bfloat16)[text[:, :-1]])
    layer = jax.checkpoint(partial(layer_of, size=size, pin=pin), policy=policy)
    if isinstance(weights["layers"], list):
        for w in weights["layers"]:
            x = layer(x, w)
    else:
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights["layers"])
    scores = normalized(x, weights["gain"]) @ weights["unembed"].astype(x.dtype)
    return optax.softmax_cross_entropy_with_integer_labels(scores.astype(jnp.float32), text[:, 1:]).mean()


# -- training ----------------------------------------------------------------------------------------------------------------


def arguments():
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Train a Llama-like decoder on random text.")
    parser.add_argument("--size", choices=tuple(SIZES), default="70b")
    parser.add_argument("--batch", type=int, help="sequences in a batch; two per device and step if left out")
    parser.add_argument("--model", type=int, help="devices over which a layer is split; up to 8 if left out")
    parser.add_argument(
        "--remat", choices=tuple(POLICIES), default="full", help="what the backward pass computes again"
    )
    parser.add_argument(
        "--unrolled", action="store_true", help="one program for all layers rather than a loop over them"
    )
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args()


def main():
    """Make weights where they are to lie, and take the steps."""
    options = arguments()
    size, devices = SIZES[options.size], jax.device_count()
    model = options.model or math.gcd(devices, min(8, size.groups))
    mesh = Mesh(mesh_utils.create_device_mesh((devices // model, model)), ("fsdp", "model"))

    def on_mesh(spec):
        return NamedSharding(mesh, spec)

    batch = options.batch or devices
    pin = partial(jax.lax.with_sharding_constraint, shardings=on_mesh(P("fsdp")))
    places = jax.tree.map(on_mesh, weight_specs(size, options.unrolled), is_leaf=lambda s: isinstance(s, P))
    optimizer = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 3e-4, 100, 10_000), b2=0.95, weight_decay=0.1)

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(weights, state, text):
        loss, grads = jax.value_and_grad(loss_of)(weights, text, size, POLICIES[options.remat], pin)
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    start = partial(first_weights, size=size, unrolled=options.unrolled)
    weights = jax.jit(start, out_shardings=places)(jax.random.key(0))
    kept = jax.eval_shape(optimizer.init, weights)  # moments lie like the weights that they belong to
    state_places = optax.tree_map_params(
        optimizer, lambda _, place: place, kept, places, transform_non_params=lambda _: on_mesh(P())
    )
    state = jax.jit(optimizer.init, out_shardings=state_places)(weights)
    count = sum(w.size for w in jax.tree.leaves(weights))
    print(f"{count / 1e9:.4g} billion weights on {devices} devices, {dict(mesh.shape)}, {batch} x {size.context} words")

    @partial(jax.jit, out_shardings=on_mesh(P("fsdp")))
    def random_text(key):
        return jax.random.randint(key, (batch, size.context + 1), 0, size.words)

    for step, key in enumerate(jax.random.split(jax.random.key(1), options.steps)):
        weights, state, loss = train_step(weights, state, random_text(key))
        print(f"step {step}: loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
