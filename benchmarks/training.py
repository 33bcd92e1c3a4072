"""How long training steps take, beside JAX: `python benchmarks/training.py [CASE ...] [--devices 1 8 64]`.

Each figure comes from a process of its own, which runs the same lines with shardwise or with JAX as `jax`: the first call,
which traces and compiles, and of the calls after it the median and the least. The GPT is that of examples/gpt.py. A dash:
not within the time limit, or failed. Needs `pip install '.[test]'`.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from separate import answer, cases_parser, parse

LIMIT_SECONDS = 120
MEASURE_SECONDS = 4.0
LIBRARIES = ("shardwise", "jax")
EXAMPLE = Path(__file__).parents[1] / "examples" / "gpt.py"

# A step takes a state and gives the next one and a loss.
Step = Callable[[Any], tuple[Any, Any]]
CASES: dict[str, Callable[[Any, Any, Any], tuple[Step, Any]]] = {}


def case(prepare: Any) -> Any:
    """Register what is timed: `prepare(jax, jnp, np)` gives the step and the state that it begins with."""
    CASES[prepare.__name__] = prepare
    return prepare


def _mesh(jax: Any, data: int) -> Any:
    """All devices, `data` of them along the first axis."""
    axis_types = (jax.sharding.AxisType.Auto,) * 2
    return jax.make_mesh((data, jax.device_count() // data), ("data", "model"), axis_types=axis_types)


def _placed(jax: Any, mesh: Any, value: Any, *spec: Any) -> Any:
    return jax.device_put(value, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))


@case
def mlp_step(jax, jnp, np):
    """Gradient descent on 256-512-512-256 with 256 rows, which are split over all devices."""
    mesh = _mesh(jax, jax.device_count())
    rng = np.random.default_rng(0)
    sizes = (256, 512, 512, 256)
    weights = [
        (rng.normal(size=(m, n)).astype(np.float32) / np.sqrt(m), np.zeros(n, np.float32))
        for m, n in itertools.pairwise(sizes)
    ]
    x, y = _placed(jax, mesh, rng.normal(size=(2, 256, 256)).astype(np.float32), None, "data")

    def loss_of(weights, x, y):
        *hidden, (last, bias) = weights
        for w, b in hidden:
            x = jax.nn.relu(x @ w + b)
        return ((x @ last + bias - y) ** 2).mean()

    def step(weights, x, y):
        loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, slopes), loss

    step = jax.jit(step)
    return lambda weights: step(weights, x, y), _placed(jax, mesh, weights)


@case
def gpt_step(jax, jnp, np):
    """Adam on 4 layers of width 256, 8 heads, 8 texts of 128 tokens of 1024 kinds; from 64 devices on, 8 for each text."""
    spec = importlib.util.spec_from_file_location("gpt", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    for name in ("", ".numpy", ".sharding"):  # the example's imports find the library that is timed
        sys.modules[f"shardwise{name}"] = importlib.import_module(f"jax{name}")
    gpt = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpt)
    setattr(gpt, "CHARACTERS", 1024)  # noqa: B010  # a module of its own, of which checkers know nothing
    options = SimpleNamespace(seed=0, heads=8, width=256, layers=4, context=128)
    mesh = _mesh(jax, min(8, jax.device_count()))
    layout = "data" if jax.device_count() <= 8 else "tensor"
    weights = gpt.first_weights(options)
    where = gpt.shardings(weights, mesh, layout)
    state = [jax.device_put(tree, where) for tree in (weights, *[jax.tree.map(np.zeros_like, weights)] * 2)]
    tokens = np.random.default_rng(0).integers(gpt.CHARACTERS, size=(2, 8, 128)).astype(np.int32)
    text, following = _placed(jax, mesh, tokens, None, *gpt.TEXT_SPECS[layout])
    step = lambda state: gpt.train_step(state, text, following, 1e-3)  # noqa: E731
    return step, (*state, _placed(jax, mesh, np.float32(0)))


def _recurrent(jax: Any, jnp: Any, np: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    w = jnp.asarray(rng.normal(size=(64, 64)).astype(np.float32) / 8)
    xs = jnp.asarray(rng.normal(size=(128, 16, 64)).astype(np.float32))

    def loss_of(w):
        def advance(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h.sum()

        return jax.lax.scan(advance, jnp.zeros((16, 64)), xs)[1].mean()

    return loss_of, w


@case
def scan_forward(jax, jnp, np):
    """A scan of 128 steps of a recurrent network of width 64 on 16 rows."""
    loss_of, w = _recurrent(jax, jnp, np)
    f = jax.jit(loss_of)
    return lambda w: (w, f(w)), w


@case
def scan_step(jax, jnp, np):
    """Gradient descent through those 128 steps."""
    loss_of, w = _recurrent(jax, jnp, np)

    def step(w):
        loss, slope = jax.value_and_grad(loss_of)(w)
        return w - 0.01 * slope, loss

    return jax.jit(step), w


def _measure(library: str, name: str) -> dict[str, float]:
    """In the child: the seconds of the first call, and of others the median and the least."""
    if library == "shardwise":
        from shardwise import alias

        alias.install()
    import jax
    import jax.numpy as jnp
    import numpy as np

    step, state = CASES[name](jax, jnp, np)
    jax.block_until_ready(state)
    times: list[float] = []
    end, loss = 0.0, np.nan
    while len(times) < 6 or time.perf_counter() < end:
        begin = time.perf_counter()
        state, loss = step(state)
        jax.block_until_ready((state, loss))
        times.append(time.perf_counter() - begin)
        end = end or time.perf_counter() + MEASURE_SECONDS
    assert np.isfinite(loss)
    return {"first": times[0], "median": statistics.median(times[1:]), "least": min(times[1:]), "loss": float(loss)}


def main() -> None:
    """Measure and print a table; `--json FILE` keeps the figures."""
    parser = cases_parser(__doc__, CASES)
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 8, 64], metavar="N")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", choices=LIBRARIES, help=argparse.SUPPRESS)
    options = parse(parser, CASES)
    if options.child:
        print(json.dumps(_measure(options.child, *options.cases)))
        return

    from rich.console import Console
    from rich.table import Table

    console = Console(width=100)
    table = Table("case", "devices", "library", "first call", "median", "least", title="milliseconds per step")
    figures: dict[str, Any] = {}
    for name in options.cases or CASES:
        for devices in options.devices if name in ("mlp_step", "gpt_step") else [1]:
            for library in options.libraries:
                with console.status(f"{name} on {devices} devices with {library}"):
                    found = answer(__file__, library, name, devices=devices, limit=LIMIT_SECONDS)
                figures[f"{name} {devices} {library}"] = found
                shown = [f"{1e3 * found[k]:.2f}" if found else "-" for k in ("first", "median", "least")]
                table.add_row(name, str(devices), library, *shown)
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
