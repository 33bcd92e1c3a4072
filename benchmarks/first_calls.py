"""First calls in processes of their own, beside JAX's: `python benchmarks/first_calls.py [CASE ...] [--devices 1 8] [--runs 5]`.

Of each case the least of several processes: milliseconds of processor time of all threads, those of the calling thread alone, and by the
clock, from `jit(f)(x)` to its result. `cold` finds an empty folder of kernels, `warm` what an earlier process left there. JAX keeps
nothing. Needs `pip install '.[test]'`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

from registry import normal, rows
from separate import Cases, answer, cases_parser, parse

LIMIT_SECONDS = 90
CASES = Cases()
case = CASES.register


@case
def elementwise(jax, jnp, np):
    """`2 * sin(x) + 1` of 1 MB."""
    return lambda x: 2 * jnp.sin(x) + 1, (rows(jax, np, normal(np, 512, 512)),)


@case
def mlp(jax, jnp, np):
    """Three layers of 256 on 512 rows."""

    def forward(layers, x):
        for w, b in layers:
            x = jax.nn.relu(x @ w + b)
        return x

    layers = [(normal(np, 256, 256), np.zeros(256, np.float32)) for _ in range(3)]
    return forward, (jax.tree.map(jnp.asarray, layers), rows(jax, np, normal(np, 512, 256)))


@case
def mlp_step(jax, jnp, np):
    """Their training step."""
    forward, (layers, x) = mlp(jax, jnp, np)

    def step(layers, x):
        loss, slopes = jax.value_and_grad(lambda layers: ((forward(layers, x) - x) ** 2).mean())(layers)
        return jax.tree.map(lambda w, g: w - 0.1 * g, layers, slopes), loss

    return step, (layers, x)


@case
def shard_map(jax, jnp, np):
    """A layer and a `psum` of its sums in `shard_map`."""
    x, w = rows(jax, np, normal(np, 512, 256)), jnp.asarray(normal(np, 256, 256))
    spec = jax.sharding.PartitionSpec

    def local(x, w):
        return jax.lax.psum(jnp.tanh(x @ w).sum(0), "x")

    return jax.shard_map(local, mesh=x.sharding.mesh, in_specs=(spec("x"), spec()), out_specs=spec()), (x, w)


@case
def convolution(jax, jnp, np):
    """A 3 x 3 convolution, 16 to 32 channels, and relu."""
    forms = ("NHWC", "HWIO", "NHWC")

    def layer(x, w):
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=forms))

    return layer, (rows(jax, np, normal(np, 8, 32, 32, 16)), jnp.asarray(normal(np, 3, 3, 16, 32)))


@case
def gather(jax, jnp, np):
    """512 rows of a table."""
    return lambda x, i: x[i] * 2, (jnp.asarray(normal(np, 1000, 64)), rows(jax, np, np.arange(512) * 7 % 1000))


@case
def transformer_block(jax, jnp, np):
    """Attention and two layers, width 128, four heads, 8 texts of 64."""
    width, heads, length, texts = 128, 4, 64, 8
    shapes = {"q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width),
              "in": (width, 4 * width), "in_bias": (4 * width,), "out": (4 * width, width), "out_bias": (width,)}  # fmt: skip
    layer = {name: jnp.asarray(0.02 * normal(np, *shape)) for name, shape in shapes.items()}

    def normalized(x):
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def forward(layer, x):
        mask = jnp.tril(jnp.ones((length, length), bool))
        y = normalized(x)
        q, k, v = [(y @ layer[n]).reshape(texts, length, heads, -1).transpose(0, 2, 1, 3) for n in "qkv"]
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(width // heads), -1e9)
        x = x + (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(texts, length, width) @ layer["o"]
        return x + jax.nn.gelu(normalized(x) @ layer["in"] + layer["in_bias"]) @ layer["out"] + layer["out_bias"]

    return forward, (layer, rows(jax, np, normal(np, texts, length, width)))


@case
def scan_rnn(jax, jnp, np):
    """50 steps of an RNN of width 64 on 16 rows."""

    def forward(w, u, xs):
        def step(h, x):
            h = jnp.tanh(h @ w + x @ u)
            return h, h

        return jax.lax.scan(step, jnp.zeros((16, 64)), xs)

    return forward, tuple(jnp.asarray(0.1 * normal(np, *s)) for s in ((64, 64), (32, 64), (50, 16, 32)))


def _measure(library: str, name: str, folder: str) -> dict[str, float]:
    """In the child: milliseconds."""
    if library == "shardwise":
        from shardwise import alias

        alias.install()
    import jax
    import jax.numpy as jnp
    import numpy as np

    if library == "shardwise":
        jax.config.update("shardwise_cache_dir", folder)
    fun, arguments = CASES[name](jax, jnp, np)
    jax.block_until_ready(arguments)
    clocks = {"all threads": time.process_time, "calling thread": time.thread_time, "clock": time.perf_counter}
    begin = [clock() for clock in clocks.values()]
    jax.block_until_ready(jax.jit(fun)(*arguments))
    return {name: 1e3 * (clock() - b) for (name, clock), b in zip(clocks.items(), begin, strict=True)}


def main() -> None:
    """Measure and print a table; the libraries take turns."""
    parser = cases_parser(__doc__, CASES)
    parser.add_argument("--devices", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parse(parser, CASES)
    if options.child:
        print(json.dumps(_measure(*options.child)))
        return
    for name in options.cases or CASES:
        for devices in options.devices:
            print(f"{name}, {devices} devices")
            found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": [], "jax": []}
            for _ in range(options.runs):
                with tempfile.TemporaryDirectory() as folder:
                    for kind in found:  # the first one leaves its kernels to the second
                        library = "jax" if kind == "jax" else "shardwise"
                        times = answer(
                            __file__, library, name, f"{folder}/kernels", devices=devices, limit=LIMIT_SECONDS
                        )
                        if times is not None:
                            found[kind].append(times)
            for kind, runs in found.items():
                text = " ".join(f"{k} {min(r[k] for r in runs):.1f}" for k in runs[0]) if runs else "failed"
                print(f"  {kind:6} {text}", flush=True)


if __name__ == "__main__":
    main()
