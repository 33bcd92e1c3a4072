"""Digits learned with optax on a mesh: prints, as JSON, the losses that each optimizer comes by. Argument: digits.npz."""

import json
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS = 12
MESH = Mesh(np.array(jax.devices()).reshape(-1, 2), ("data", "model"))
SPECS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}


def place(value, spec):
    return jax.device_put(value, NamedSharding(MESH, spec))


def first_weights():
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(size=(64, 32)) / 8, rng.normal(size=(32, 10)) / 6
    weights = {"w1": w1, "b1": np.zeros(32), "w2": w2, "b2": np.zeros(10)}
    return {name: place(w.astype(np.float32), SPECS[name]) for name, w in weights.items()}


def loss_of(weights, x, y):
    scores = jax.nn.relu(x @ weights["w1"] + weights["b1"]) @ weights["w2"] + weights["b2"]
    return optax.losses.softmax_cross_entropy_with_integer_labels(scores, y).mean()


def matrices(tree):
    return jax.tree.map(lambda w: w.ndim == 2, tree)


cosine = optax.cosine_decay_schedule(0.01, STEPS)
warm = optax.warmup_cosine_decay_schedule(0.0, 0.02, 5, STEPS)
OPTIMIZERS = {
    "adam": optax.adam(0.01),
    "adamw": optax.adamw(warm, weight_decay=1e-2, mask=matrices),
    "momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "lion": optax.lion(cosine),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(cosine)),
    "masked": optax.chain(optax.masked(optax.add_decayed_weights(1e-2), matrices), optax.rmsprop(0.01)),
    "several": optax.MultiSteps(optax.adam(0.01), every_k_schedule=3),
    "in bfloat16": optax.chain(optax.trace(decay=0.9, accumulator_dtype=jnp.bfloat16), optax.scale(-0.05)),
    "settable": optax.inject_hyperparams(optax.adam)(learning_rate=cosine),
}


def train(optimizer, x, y):
    @partial(jax.jit, donate_argnums=(0, 1))
    def step(weights, state, x, y):
        loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
        updates, state = optimizer.update(slopes, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    weights = first_weights()
    state = optimizer.init(weights)
    losses = []
    for _ in range(STEPS):
        weights, state, loss = step(weights, state, x, y)
        losses.append(float(loss))
    for name, w in weights.items():
        assert w.sharding.is_equivalent_to(NamedSharding(MESH, SPECS[name]), w.ndim), (name, w.sharding)
    return [*losses, float(optax.global_norm(weights))]


def line_search(x, y):
    """L-BFGS, which searches along each step for a length that suits."""
    optimizer = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(lambda w: loss_of(w, x, y))

    @jax.jit
    def step(weights, state):
        value, slopes = value_and_grad(weights, state=state)
        updates, state = optimizer.update(
            slopes, state, weights, value=value, grad=slopes, value_fn=lambda w: loss_of(w, x, y)
        )
        return optax.apply_updates(weights, updates), state, value

    weights = first_weights()
    state = optimizer.init(weights)
    losses = []
    for _ in range(6):
        weights, state, loss = step(weights, state)
        losses.append(float(loss))
    return losses


with np.load(sys.argv[1]) as file:
    x = place((file["images"][:512].reshape(512, -1) / 16).astype(np.float32), P("data"))
    y = place(file["labels"][:512].astype(np.int32), P("data"))
found = {name: train(optimizer, x, y) for name, optimizer in OPTIMIZERS.items()}
found["line search"] = line_search(x, y)
print(json.dumps(found))
