"""What compiling takes, stage by stage, beside JAX's whole: `python benchmarks/compile_time.py [--devices 1 8] [--runs 3]`.

Each figure is the least of several processes, in milliseconds. `trace` runs the function on tracers, `inline` to `codegen` are
the stages of `shardwise.engine.compile`, `first run` makes machine code for the fused loops, and runs. JAX: tracing; lowering and
compiling; the first run. Needs `pip install '.[test]'`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from registry import normal, placed
from separate import Cases, answer, cases_parser, parse

LIMIT_SECONDS = 90
CASES = Cases()
case = CASES.register


@case
def mlp_step(jax, jnp, np):
    """A training step of three layers of 256 with biases, data parallel."""
    layers = [(normal(np, 256, 256), np.zeros(256, np.float32)) for _ in range(3)]

    def loss_of(layers, x, y):
        for w, b in layers:
            x = jax.nn.relu(x @ w + b)
        return ((x - y) ** 2).mean()

    def step(layers, x, y):
        loss, slopes = jax.value_and_grad(loss_of)(layers, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, layers, slopes), loss

    x = placed(jax, np, normal(np, 512, 256), "x")
    return step, (placed(jax, np, layers), x, x)


@case
def transformer(jax, jnp, np):
    """Twelve layers forward, width 128, four heads, data parallel."""
    width, heads, length, texts = 128, 4, 32, 8
    shapes = {"q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width), "in": (width, 4 * width),
              "in_bias": (4 * width,), "out": (4 * width, width), "out_bias": (width,)}  # fmt: skip
    layers = [{name: 0.02 * normal(np, *shape) for name, shape in shapes.items()} for _ in range(12)]

    def normalized(x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)

    def forward(layers, x):
        mask = jnp.tril(jnp.ones((length, length), bool))
        for layer in layers:
            y = normalized(x)
            q, k, v = [(y @ layer[n]).reshape(texts, length, heads, -1).transpose(0, 2, 1, 3) for n in "qkv"]
            scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(width // heads), -1e9)
            y = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(texts, length, width)
            x = x + y @ layer["o"]
            x = x + jax.nn.gelu(normalized(x) @ layer["in"] + layer["in_bias"]) @ layer["out"] + layer["out_bias"]
        return x

    split = "x" if texts % jax.device_count() == 0 else None
    return forward, (placed(jax, np, layers), placed(jax, np, normal(np, texts, length, width), split))


@case
def transformer_gradient(jax, jnp, np):
    """The gradient of those twelve layers."""
    forward, (layers, x) = transformer(jax, jnp, np)
    return (lambda layers, x: jax.grad(lambda layers: (forward(layers, x) ** 2).mean())(layers)), (layers, x)


def _measure(library: str, name: str) -> dict[str, float]:
    """In the child: milliseconds by stage."""
    if library == "shardwise":
        from shardwise import alias

        alias.install()
    import jax
    import jax.numpy as jnp
    import numpy as np

    fun, arguments = CASES[name](jax, jnp, np)
    jitted = jax.jit(fun)
    once = jax.jit(jax.grad(lambda x: jnp.sin(x).sum()))  # for what is loaded once
    jax.block_until_ready(once(np.ones(1 << 13, np.float32)))
    jax.jit(lambda x: x).trace(arguments[0])
    begin = time.perf_counter()
    traced = jitted.trace(*arguments)
    times = {"trace": time.perf_counter() - begin}
    begin = time.perf_counter()
    compiled = traced.lower().compile()
    whole = time.perf_counter() - begin
    if library == "shardwise":
        executable: Any = compiled.runtime_executable()
        times |= executable.seconds
    times["compile"] = whole
    begin = time.perf_counter()
    jax.block_until_ready(compiled(*arguments))
    times["first run"] = time.perf_counter() - begin
    times["all"] = times["trace"] + whole + times["first run"]
    return {stage: 1e3 * seconds for stage, seconds in times.items()}


def main() -> None:
    """Measure and print a table."""
    parser = cases_parser(__doc__, CASES)
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 8], metavar="N")
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parse(parser, CASES)
    if options.child:
        print(json.dumps(_measure(*options.child)))
        return
    for name in options.cases or CASES:
        for devices in options.devices:
            print(f"{name}, {devices} devices")
            for library in ("shardwise", "jax"):
                runs = [
                    answer(__file__, library, name, devices=devices, limit=LIMIT_SECONDS) for _ in range(options.runs)
                ]
                found = [f for f in runs if f is not None]
                if not found:
                    print(f"  {library:10} not within {LIMIT_SECONDS} s, or failed")
                    continue
                stages = " ".join(f"{stage} {min(f[stage] for f in found):.1f}" for stage in found[0])
                print(f"  {library:10} {stages}", flush=True)


if __name__ == "__main__":
    main()
