"""How long the everyday things take, beside JAX: `python benchmarks/speed.py [CASE ...] [--devices 1 8 64 512]`.

Each figure is the median of many calls in a process of its own, which runs the same lines with shardwise or with JAX
as `jax`. A dash: not within the time limit, or failed. Needs `pip install '.[test]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 60
MEASURE_SECONDS = 1.0
LIBRARIES = ("shardwise", "jax")

Prepare = Callable[[Any, Any, Any], Callable[[], Any]]
CASES: dict[str, Prepare] = {}


def case(prepare: Prepare) -> Prepare:
    """Register what is timed: `prepare(jax, jnp, np)` sets up and returns the call."""
    CASES[prepare.__name__] = prepare
    return prepare


def _row_mesh(jax: Any, np: Any) -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()), ("x",))


def _rows(jax: Any, np: Any, value: Any) -> Any:
    """`value` with its rows split over all devices."""
    return jax.device_put(value, jax.sharding.NamedSharding(_row_mesh(jax, np), jax.sharding.PartitionSpec("x")))


@case
def tiny_elementwise(jax, jnp, np):
    """A jitted 2 * sin(x) + 1 on one float per device."""
    x = _rows(jax, np, np.ones(jax.device_count(), np.float32))
    f = jax.jit(lambda x: 2 * jnp.sin(x) + 1)
    return lambda: f(x)


@case
def small_all_reduce(jax, jnp, np):
    """A psum of 8 floats per device."""
    P = jax.sharding.PartitionSpec
    x = _rows(jax, np, np.ones((jax.device_count(), 8), np.float32))
    mesh = _row_mesh(jax, np)
    f = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
    return lambda: f(x)


@case
def replicate_64_mb(jax, jnp, np):
    """A host array of 64 MB onto every device."""
    x = np.ones((4096, 4096), np.float32)
    everywhere = jax.sharding.NamedSharding(_row_mesh(jax, np), jax.sharding.PartitionSpec())
    return lambda: jax.device_put(x, everywhere)


@case
def reshard_64_mb(jax, jnp, np):
    """Rows split over the devices become columns split over them."""
    x = _rows(jax, np, np.ones((4096, 4096), np.float32))
    columns = jax.sharding.NamedSharding(_row_mesh(jax, np), jax.sharding.PartitionSpec(None, "x"))
    return lambda: jax.device_put(x, columns)


@case
def elementwise_64_mb(jax, jnp, np):
    """A jitted 2 * sin(x) + 1 on 64 MB."""
    x = _rows(jax, np, np.ones((4096, 4096), np.float32))
    f = jax.jit(lambda x: 2 * jnp.sin(x) + 1)
    return lambda: f(x)


@case
def matmul_2048(jax, jnp, np):
    """A product of 2048 x 2048 float32 matrices, the left one's rows split."""
    x = _rows(jax, np, np.ones((2048, 2048), np.float32))
    f = jax.jit(lambda x, y: x @ y)
    y = jnp.ones((2048, 2048), jnp.float32)
    return lambda: f(x, y)


def _mlp(jax: Any, jnp: Any, np: Any) -> tuple[Any, tuple[Any, ...]]:
    x = _rows(jax, np, np.ones((512, 256), np.float32))
    layers = [np.full((256, 256), 0.01, np.float32) for _ in range(3)]

    def forward(x, layers):
        for layer in layers:
            x = jax.nn.relu(x @ layer)
        return x.sum()

    return forward, (x, layers)


@case
def mlp_forward(jax, jnp, np):
    """The forward pass of three layers, jitted."""
    forward, arguments = _mlp(jax, jnp, np)
    arguments = (arguments[0], [jnp.asarray(layer) for layer in arguments[1]])
    f = jax.jit(forward)
    return lambda: f(*arguments)


@case
def mlp_first_call(jax, jnp, np):
    """Tracing, compiling and running that forward pass for the first time."""
    forward, (x, layers) = _mlp(jax, jnp, np)

    def first():
        return jax.jit(lambda *arguments: forward(*arguments))(x, layers)

    return first


def _measure(library: str, name: str) -> dict[str, float]:
    """In the child: seconds per call, and how much memory the process took at most."""
    if library == "shardwise":
        from shardwise import alias

        alias.install()
    import jax
    import jax.numpy as jnp
    import numpy as np

    if name == "import":
        raise AssertionError("measured by the parent")
    call = CASES[name](jax, jnp, np)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    jax.block_until_ready(call())
    first = time.perf_counter() - begin
    times: list[float] = []
    end = time.perf_counter() + MEASURE_SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - begin)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"median": statistics.median(times), "least": min(times), "first": first, "grown_mb": grown}


def _child(library: str, devices: int, *words: str) -> dict[str, float] | None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_"))}
    kept |= {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu", "SHARDWISE_DIALECT": "latest"}
    command = [sys.executable, str(Path(__file__)), "--child", library, *words]
    try:
        done = subprocess.run(command, env=kept, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def _import_seconds(library: str) -> float:
    command = [sys.executable, "-c", f"import {library}"]
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        subprocess.run(command, check=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def _shown(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def main() -> None:
    """Measure and print a table; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all if none is given")
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 8, 64], metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", choices=LIBRARIES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.child:
        print(json.dumps(_measure(options.child, *options.cases)))
        return

    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 60 + 30 * len(options.devices)  # as wide as the table gets
    table = Table(title="median per call: shardwise / JAX", title_justify="left")
    table.add_column("case", no_wrap=True)
    for count in options.devices:
        table.add_column(f"{count} device{'s' * (count > 1)}", justify="right", no_wrap=True)
    figures: dict[str, Any] = {}
    for name in options.cases or CASES:
        cells = []
        for count in options.devices:
            pair = {library: _child(library, count, name) for library in LIBRARIES}
            figures[f"{name}, {count}"] = pair
            cells.append(" / ".join(_shown(result and result["median"]) for result in pair.values()))
        table.add_row(name, *cells)
    if not options.cases:
        figures["import"] = {library: _import_seconds(library) for library in LIBRARIES}
        table.add_row("import", " / ".join(_shown(seconds) for seconds in figures["import"].values()))
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
