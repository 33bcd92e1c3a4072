"""Handwritten digits, classified on 8 virtual devices, in each of the three styles of parallel programming.

A network with one hidden layer learns 1400 images of 8x8 pixels and is tested on 396 others. The devices form a 4x2
mesh: the images are split over the axis `data`, the hidden features over the axis `model`. The same training step is
written three times:

- automatic: plain array code; the compiler finds out from the inputs' shardings what each device does;
- explicit: the shardings are part of the types, and where an operation leaves a choice the code makes it;
- manual: the code of one device, with every communication written out.

The same program runs as several processes, which share the devices: `mpiexec -n 2 python digits.py`.

Derivatives are written by hand, so that each line shows what is computed, and where.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P

TRAIN, TEST = 1400, 396  # together one less than all 1797: both are multiples of 4, the devices along `data`
HIDDEN, STEPS, RATE, MOMENTUM = 256, 150, 0.5, 0.9

# How everything lies on the mesh. Weights come as (w1, b1, w2, b2); the hidden features are split over `model`.
IMAGES, LABELS = P("data", None), P("data", None)
WEIGHTS = (P(None, "model"), P("model"), P("model", None), P(None))


# Automatic: nothing here says that there is more than one device.
@jax.jit
def automatic_step(weights, speed, x, y):
    """One step of gradient descent; also the cross-entropy before it."""
    w1, b1, w2, b2 = weights
    hidden = jax.nn.relu(x @ w1 + b1)
    log_p = jax.nn.log_softmax(hidden @ w2 + b2)
    error = (jnp.exp(log_p) - y) / TRAIN
    back = (error @ w2.T) * (hidden > 0)
    slopes = (x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0))
    speed = tuple(MOMENTUM * v - RATE * slope for v, slope in zip(speed, slopes, strict=True))
    return tuple(w + v for w, v in zip(weights, speed, strict=True)), speed, -(log_p * y).sum() / TRAIN


# Explicit: a contraction over a dim that both sides split is a sum over devices, and the code says where it goes.
@jax.jit
def explicit_step(weights, speed, x, y):
    """The same step; each value's sharding is in its type, and a wrong one would be an error here."""
    w1, b1, w2, b2 = weights
    hidden = jax.nn.relu(x @ w1 + b1)
    scores = jnp.einsum("nh,hc->nc", hidden, w2, out_sharding=P("data", None)) + b2
    log_p = jax.nn.log_softmax(scores)
    error = (jnp.exp(log_p) - y) / TRAIN
    back = (error @ w2.T) * (hidden > 0)
    slope1 = jnp.einsum("np,nh->ph", x, back, out_sharding=P(None, "model"))
    slope2 = jnp.einsum("nh,nc->hc", hidden, error, out_sharding=P("model", None))
    slopes = (slope1, back.sum(axis=0), slope2, error.sum(axis=0))
    speed = tuple(MOMENTUM * v - RATE * slope for v, slope in zip(speed, slopes, strict=True))
    return tuple(w + v for w, v in zip(weights, speed, strict=True)), speed, -(log_p * y).sum() / TRAIN


# Manual: x has 350 of the images, w1 half of the features; psum adds up what the devices have.
def manual_step(weights, speed, x, y):
    """The same step as one device sees it."""
    w1, b1, w2, b2 = weights
    hidden = jax.nn.relu(x @ w1 + b1)
    log_p = jax.nn.log_softmax(jax.lax.psum(hidden @ w2, "model") + b2)
    error = (jnp.exp(log_p) - y) / TRAIN
    back = (error @ w2.T) * (hidden > 0)
    slopes = jax.lax.psum((x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)), "data")
    speed = tuple(MOMENTUM * v - RATE * slope for v, slope in zip(speed, slopes, strict=True))
    loss = jax.lax.psum(-(log_p * y).sum(), "data") / TRAIN
    return tuple(w + v for w, v in zip(weights, speed, strict=True)), speed, loss


@jax.jit
def guess(weights, x):
    """The digit that each image most likely shows."""
    w1, b1, w2, b2 = weights
    return jnp.argmax(jax.nn.relu(x @ w1 + b1) @ w2 + b2, axis=1)


def load():
    """Images as rows of 64 numbers in 0..1 and their digits: those to learn from, then those to be tested on."""
    with np.load(Path(__file__).parent / "data" / "digits.npz") as file:
        images, digits = file["images"], file["labels"]
    order = np.random.default_rng(0).permutation(len(images))[: TRAIN + TEST]
    x, digits = images[order].reshape(-1, 64).astype(np.float32) / 16, digits[order]
    return x[:TRAIN], digits[:TRAIN], x[TRAIN:], digits[TRAIN:]


def first_weights():
    """Random weights to begin with, the same for each style."""
    rng = np.random.default_rng(1)
    w1 = rng.normal(size=(64, HIDDEN)).astype(np.float32) / 8
    w2 = rng.normal(size=(HIDDEN, 10)).astype(np.float32) / 16
    return w1, np.zeros(HIDDEN, np.float32), w2, np.zeros(10, np.float32)


def put(mesh, values, specs):
    """Lay arrays out over the mesh."""
    return tuple(jax.device_put(v, NamedSharding(mesh, spec)) for v, spec in zip(values, specs, strict=True))


def train(step, mesh, x, y):
    """Learn; returns the weights, the last loss and the seconds that the first step and all others took."""
    weights = put(mesh, first_weights(), WEIGHTS)
    speed = put(mesh, [np.zeros_like(w) for w in first_weights()], WEIGHTS)
    x, y = put(mesh, (x, y), (IMAGES, LABELS))
    begin = time.perf_counter()
    weights, speed, loss = step(weights, speed, x, y)
    float(loss)
    first = time.perf_counter() - begin
    for _ in range(STEPS - 1):
        weights, speed, loss = step(weights, speed, x, y)
    loss = float(loss)
    return weights, loss, first, time.perf_counter() - begin - first


def picture(pixels):
    """An image of 8x8 pixels as four lines of text."""
    rows = (pixels.reshape(8, 8) > 0.4).tolist()
    shades = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
    lines = ("".join(shades[pair] for pair in zip(*rows[i : i + 2], strict=True)) for i in range(0, 8, 2))
    return "\n".join(lines)


def main():
    """Train and test in each style, and show what happened on which device."""
    jax.config.update("jax_num_cpu_devices", 8)
    jax.distributed.initialize()
    count = jax.process_count()  # each process gives its share of the eight devices; the first one prints
    devices = [device for process in range(count) for device in jax.local_devices(process)[: 8 // count]]
    talks = jax.process_index() == 0
    console = Console(highlight=False, quiet=not talks)
    auto_mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto), devices=devices)
    explicit_mesh = jax.make_mesh(
        (4, 2), ("data", "model"), axis_types=(AxisType.Explicit, AxisType.Explicit), devices=devices
    )
    mapped = partial(jax.shard_map, mesh=auto_mesh, in_specs=(WEIGHTS, WEIGHTS, IMAGES, LABELS))
    styles = {
        "automatic": (automatic_step, auto_mesh),
        "explicit": (explicit_step, explicit_mesh),
        "manual": (jax.jit(mapped(manual_step, out_specs=(WEIGHTS, WEIGHTS, P()))), auto_mesh),
    }
    x, digits, test_x, test_digits = load()
    y = np.eye(10, dtype=np.float32)[digits]

    table = Table(title=f"{STEPS} steps over {TRAIN} images, {TEST} others to test", title_justify="left")
    for heading in ("style", "right", "accuracy", "loss", "first step", "each step"):
        table.add_column(heading, justify="left" if heading == "style" else "right")
    accuracies = set()
    for name, (step, mesh) in styles.items():
        with jax.sharding.use_mesh(mesh):
            weights, loss, first, rest = train(step, mesh, x, y)
            (images,) = put(mesh, (test_x,), (IMAGES,))
            # Explicit types would ask where the sum over `model` goes; for a test the weights may lie everywhere.
            guesses = guess(jax.device_put(weights, NamedSharding(mesh, P())), images)
            guesses = np.asarray(jax.device_put(guesses, NamedSharding(mesh, P())))
        right = int((guesses == test_digits).sum())
        accuracies.add(right / TEST)
        times = f"{1000 * first:.1f} ms", f"{1000 * rest / (STEPS - 1):.2f} ms"
        table.add_row(name, f"{right} of {TEST}", f"{right / TEST:.2%}", f"{loss:.4f}", *times)
    console.print(table)

    wrong = np.flatnonzero(guesses != test_digits)[:4]
    shown = [*np.flatnonzero(guesses == test_digits)[:6], *wrong]
    titles = [f"{guesses[i]}" if i not in wrong else f"{guesses[i]}, not {test_digits[i]}" for i in shown]
    panels = [Panel(picture(test_x[i]), title=title, width=14) for i, title in zip(shown, titles, strict=True)]
    console.print("\nSome that it read right, and the first it read wrong:", Columns(panels))

    (images,) = put(auto_mesh, (x,), (IMAGES,))
    if talks:
        console.print("\nThe images, split over the four rows of devices, a copy in each column:")
        jax.debug.visualize_array_sharding(images, scale=0.4)
        console.print("The first layer's weights, split over the two columns:")
        jax.debug.visualize_array_sharding(weights[0], scale=0.4)

    console.print("\nWhat the compiler put between the devices in the automatic style:")
    place = partial(put, auto_mesh)
    state = (place(first_weights(), WEIGHTS), place(first_weights(), WEIGHTS), *place((x, y), (IMAGES, LABELS)))
    explanation = automatic_step.lower(*state).explain()
    if talks:
        print(explanation[explanation.index("collectives:") :])  # before it: the whole program, with layouts

    if len(accuracies) != 1 or min(accuracies) < 0.95:
        raise SystemExit(f"the three styles should agree on more than 95 % of the test images: {accuracies}")


if __name__ == "__main__":
    main()
