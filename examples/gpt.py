"""A small GPT learns to spell Moby-Dick, character by character, on virtual devices, in any of four layouts.

The training step below knows nothing of devices. A layout is a table: one PartitionSpec for the text and one for each kind
of weight, over a mesh with the axes `data` and `model`:

- replicated: every device has all and does all;
- data: each device reads its own part of the text, and gradients are summed over all devices;
- fsdp: the same, but of weights, gradients and Adam's averages each device keeps only a part;
- tensor: attention heads and hidden features are split over `model`, the text over `data`.

What a layout changes is who computes what, and never what is computed: the losses agree up to rounding.

    python examples/gpt.py                                        a minute of training, then a text of its own
    python examples/gpt.py --layout all --devices 64 --steps 20   the four layouts side by side
    mpiexec -n 2 python examples/gpt.py --devices 4               two processes of four devices each
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P

TEXT = Path(__file__).parent / "data" / "moby_dick.txt"
CHARACTERS = 128  # ASCII: a character's code is its token
BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8  # Adam's
INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended


# Layouts. Weights that a table does not name lie on every device.
EVERY = ("data", "model")
TEXT_SPECS = {"replicated": P(), "data": P(EVERY), "fsdp": P(EVERY), "tensor": P("data")}
WEIGHT_SPECS = {
    "replicated": {},
    "data": {},
    "fsdp": {
        "characters": P(None, EVERY), "places": P(None, EVERY), "unembed": P(EVERY),
        "query": P(EVERY), "key": P(EVERY), "value": P(EVERY), "mix": P(None, None, EVERY),
        "up": P(None, EVERY), "down": P(EVERY),
    },
    "tensor": {
        "unembed": P(None, "model"),
        "query": P(None, "model"), "key": P(None, "model"), "value": P(None, "model"), "mix": P("model"),
        "up": P(None, "model"), "down": P("model"),
    },
}  # fmt: skip


# The model: float32 weights in a tree of dicts, and what becomes of a text under them.
def first_weights(options):
    """Random weights to begin with: `characters` f32[c, d], `places` f32[t, d], and so on."""
    rng = np.random.default_rng(options.seed)
    heads, width, hidden = options.heads, options.width, 4 * options.width
    each = width // heads

    def normal(*shape, inputs):
        return (rng.normal(size=shape) / np.sqrt(inputs)).astype(np.float32)

    def block():
        return {
            "gain1": np.ones(width, np.float32),
            "query": normal(width, heads, each, inputs=width),
            "key": normal(width, heads, each, inputs=width),
            "value": normal(width, heads, each, inputs=width),
            "mix": normal(heads, each, width, inputs=width * 2 * options.layers),
            "gain2": np.ones(width, np.float32),
            "up": normal(width, hidden, inputs=width),
            "down": normal(hidden, width, inputs=hidden * 2 * options.layers),
        }

    return {
        "characters": normal(CHARACTERS, width, inputs=width),
        "places": normal(options.context, width, inputs=width),
        "blocks": [block() for _ in range(options.layers)],
        "gain": np.ones(width, np.float32),
        "unembed": normal(width, CHARACTERS, inputs=4 * width),
    }


def normalized(x, gain):
    """Layer norm over the features."""
    x = x - x.mean(axis=-1, keepdims=True)
    return x / jnp.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * gain


def attention(x, block):
    """Each place looks back at those before it: f32[b, t, d] -> f32[b, t, d]."""
    query = jnp.einsum("btd,dhk->bhtk", x, block["query"])
    key = jnp.einsum("btd,dhk->bhtk", x, block["key"])
    value = jnp.einsum("btd,dhk->bhtk", x, block["value"])
    scores = jnp.einsum("bhtk,bhsk->bhts", query, key) / np.sqrt(query.shape[-1])
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(past, scores, -jnp.inf))
    return jnp.einsum("bhtk,hkd->btd", jnp.einsum("bhts,bhsk->bhtk", weights, value), block["mix"])


def scores_of(weights, text):
    """How likely each character is to come next, at every place: int32[b, t] -> f32[b, t, c]."""
    x = weights["characters"][text] + weights["places"][: text.shape[1]]
    for block in weights["blocks"]:
        x = x + attention(normalized(x, block["gain1"]), block)
        x = x + jax.nn.gelu(normalized(x, block["gain2"]) @ block["up"]) @ block["down"]
    return normalized(x, weights["gain"]) @ weights["unembed"]


def loss_of(weights, text, following):
    """The mean cross-entropy of the characters that follow."""
    log_p = jax.nn.log_softmax(scores_of(weights, text))
    return -jnp.take_along_axis(log_p, following[..., None], axis=-1).mean()


# Training and sampling.
@partial(jax.jit, donate_argnums=0)
def train_step(state, text, following, rate):
    """One step of Adam; also the loss before it."""
    weights, mean, square, step = state
    loss, slopes = jax.value_and_grad(loss_of)(weights, text, following)
    step = step + 1
    mean = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, mean, slopes)
    square = jax.tree.map(lambda s, g: BETA2 * s + (1 - BETA2) * g * g, square, slopes)
    size = rate * jnp.sqrt(1 - BETA2**step) / (1 - BETA1**step)
    weights = jax.tree.map(lambda w, m, s: w - size * m / (jnp.sqrt(s) + EPSILON), weights, mean, square)
    return (weights, mean, square, step), loss


def rate_at(step, options):
    """The learning rate: up in a few steps, then down along a cosine."""
    warm = max(1, options.steps // 20)
    return options.rate * min((step + 1) / warm, 0.5 + 0.5 * np.cos(np.pi * max(0, step - warm) / options.steps))


@jax.jit
def next_character(weights, window, last, key, temperature):
    """Draw what follows place `last` of a window: int32[t] -> int32."""
    return jax.random.categorical(key, scores_of(weights, window[None])[0, last] / temperature)


def sample(weights, prompt, options):
    """A text that begins with the prompt."""
    text = list(prompt.encode("ascii"))
    key = jax.random.key(options.seed)
    for n in range(options.sample):
        window = np.zeros(options.context, np.int32)
        seen = text[-options.context :]
        window[: len(seen)] = seen
        drawn = next_character(weights, window, len(seen) - 1, jax.random.fold_in(key, n), options.temperature)
        text.append(int(drawn))
    return bytes(text).decode("ascii")


# The text, and where things lie.
def load():
    """The characters to learn from and, the last tenth, those to be tested on."""
    text = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int32)
    end = len(text) * 9 // 10
    return text[:end], text[end:]


def batch(text, rng, options):
    """Random pieces of the text, and the same pieces one character further on: int32[b, t] each."""
    begins = rng.integers(len(text) - options.context, size=(options.batch, 1))
    places = begins + np.arange(options.context)
    return text[places], text[places + 1]


def shardings(tree, mesh, layout):
    """The sharding of every weight, found by its name: the last word of its path."""
    specs = WEIGHT_SPECS[layout]
    return jax.tree_util.tree_map_with_path(lambda path, _: NamedSharding(mesh, specs.get(path[-1].key, P())), tree)


def make_mesh(options):
    """All devices, up to four of them along `model`."""
    count = jax.device_count()
    along_model = next(n for n in (4, 2, 1) if count % n == 0 and options.heads % n == 0)
    return jax.make_mesh((count // along_model, along_model), EVERY, axis_types=(AxisType.Auto, AxisType.Auto))


class Run:
    """Training in one layout: how far it is, what the losses were."""

    def __init__(self, layout, options):
        self.layout, self.options = layout, options
        self.mesh = make_mesh(options)
        self.text, self.unseen = load()
        self.rng = np.random.default_rng(options.seed)
        weights = first_weights(options)
        where = shardings(weights, self.mesh, layout)
        zeros = jax.tree.map(np.zeros_like, weights)
        put = partial(jax.device_put, device=where)
        step = jax.device_put(np.float32(0), NamedSharding(self.mesh, P()))
        self.state = put(weights), put(zeros), put(zeros), step
        self.losses, self.seconds = [], 0.0

    @property
    def weights(self):
        return self.state[0]

    @property
    def speed(self):
        """Characters per second, the first step, in which the program is compiled, left out."""
        steps = len(self.losses) - 1
        return self.options.batch * self.options.context * steps / self.seconds if steps > 0 else 0.0

    def put(self, pieces):
        return jax.device_put(pieces, NamedSharding(self.mesh, TEXT_SPECS[self.layout]))

    def advance(self):
        """One step."""
        step = len(self.losses)
        text, following = self.put(batch(self.text, self.rng, self.options))
        begin = time.perf_counter()
        self.state, loss = train_step(self.state, text, following, rate_at(step, self.options))
        self.losses.append(float(loss))
        if step > 0:
            self.seconds += time.perf_counter() - begin

    def test(self):
        """The loss on text that it has not learned from."""
        rng = np.random.default_rng(self.options.seed)
        pieces = self.put(batch(self.unseen, rng, self.options))
        return float(jax.jit(loss_of)(self.weights, *pieces))


def train(run, console):
    """All steps of a run, under a progress bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}, {task.fields[speed]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(run.layout, total=run.options.steps, loss=float("nan"), speed=0.0)
        while len(run.losses) < run.options.steps:
            run.advance()
            progress.update(bar, advance=1, loss=run.losses[-1], speed=run.speed)


def comparison(runs):
    """The layouts' losses side by side."""
    steps = runs[0].options.steps
    shown = sorted({round(i * (steps - 1) / 5) for i in range(6)})
    table = Table(title=f"Losses on {runs[0].mesh.size} devices", title_justify="left")
    for heading in ("layout", *[f"step {i + 1}" for i in shown], "tokens/s"):
        table.add_column(heading, justify="left" if heading == "layout" else "right")
    for run in runs:
        table.add_row(run.layout, *[f"{run.losses[i]:.5f}" for i in shown], f"{run.speed:,.0f}")
    return table


def parse():
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    add = partial(parser.add_argument, metavar="N", type=int, help="default: %(default)s")
    parser.add_argument("--layout", choices=(*TEXT_SPECS, "all"), default="tensor", help="default: tensor")
    parser.add_argument("--devices", type=int, default=8, metavar="N", help="virtual devices per process; default: 8")
    add("--steps", default=600)
    add("--batch", default=64)
    add("--context", default=32)
    add("--layers", default=2)
    add("--heads", default=4)
    add("--width", default=128)
    add("--seed", default=0)
    add("--rate", type=float, default=4e-3)
    add("--sample", default=400)
    add("--temperature", type=float, default=0.8)
    parser.add_argument("--prompt", default="The whale ", help="what the sampled text begins with")
    options = parser.parse_args()
    if options.width % options.heads:
        parser.error(f"--width {options.width} is no multiple of --heads {options.heads}")
    return options


def main():
    """Train in one layout or in all, then let the model write."""
    options = parse()
    jax.distributed.initialize()
    jax.config.update("jax_num_cpu_devices", options.devices)
    console = Console(highlight=False, quiet=jax.process_index() != 0)
    runs = []
    try:
        for layout in TEXT_SPECS if options.layout == "all" else (options.layout,):
            runs.append(Run(layout, options))
            train(runs[-1], console)
        run = runs[-1]
        if len(runs) > 1:
            console.print(comparison(runs))
        console.print(f"loss on unseen text: {run.test():.3f}\n")
        console.print(sample(run.weights, options.prompt, options), markup=False)
    except KeyboardInterrupt:
        if runs:
            done, layout = len(runs[-1].losses), runs[-1].layout
            loss = f", at a loss of {runs[-1].losses[-1]:.3f}" if done else ""
            console.print(f"stopped after {done} of {options.steps} steps ({layout}){loss}")
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
