"""Collectives between processes beside JAX's: `python benchmarks/processes.py [CASE ...] [--processes 2 4]`.

The same lines run with shardwise under `mpiexec` and with JAX as that many processes that talk through Gloo. Figures are
medians of many calls, of the slowest process; in brackets the least. Each process has one device and, by
OMP_NUM_THREADS, one thread. A dash: not within the time limit, or failed. Needs `pip install '.[test]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from separate import cases_parser, parse

LIMIT_SECONDS = 50
MEASURE_SECONDS = 1.5
LIBRARIES = ("shardwise", "jax")
TARGETS = {"small_psum": 15.0, "psum_64_mb": 2.5, "all_gather_64_mb": 2.0, "reshard_64_mb": 2.0, "mlp_step": 2.0}

Case = Callable[[Any, Any, Any, Any], Callable[[], Any]]
CASES: dict[str, Case] = {}


def case(prepare: Case) -> Case:
    """Register what is timed: `prepare(jax, jnp, np, mesh)` sets up and returns the call."""
    CASES[prepare.__name__] = prepare
    return prepare


def _split(jax: Any, np: Any, mesh: Any, shape: tuple[int, ...], dim: int = 0) -> Any:
    """A float32 array of ones whose dim is split over all devices."""
    spec = jax.sharding.PartitionSpec(*[None] * dim, "x")
    part = [n // mesh.size if d == dim else n for d, n in enumerate(shape)]
    return jax.make_array_from_process_local_data(jax.sharding.NamedSharding(mesh, spec), np.ones(part, np.float32))


def _mapped(jax: Any, mesh: Any, f: Callable[[Any], Any], out: Any) -> Any:
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=jax.sharding.PartitionSpec("x"), out_specs=out))


@case
def small_psum(jax, jnp, np, mesh):
    """A psum of 8 floats per device."""
    x = _split(jax, np, mesh, (mesh.size, 8))
    f = _mapped(jax, mesh, lambda x: jax.lax.psum(x, "x"), jax.sharding.PartitionSpec())
    return lambda: f(x)


@case
def psum_64_mb(jax, jnp, np, mesh):
    """A psum of 64 MB per device."""
    x = _split(jax, np, mesh, (mesh.size, 1 << 24))
    f = _mapped(jax, mesh, lambda x: jax.lax.psum(x, "x"), jax.sharding.PartitionSpec())
    return lambda: f(x)


@case
def all_gather_64_mb(jax, jnp, np, mesh):
    """64 MB split over all devices, gathered by every one."""
    x = _split(jax, np, mesh, (4096, 4096))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    f = jax.jit(lambda x: x, out_shardings=whole)
    return lambda: f(x)


@case
def reshard_64_mb(jax, jnp, np, mesh):
    """64 MB whose rows are split become 64 MB whose columns are."""
    x = _split(jax, np, mesh, (4096, 4096))
    columns = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x"))
    f = jax.jit(lambda x: x, out_shardings=columns)
    return lambda: f(x)


@case
def mlp_step(jax, jnp, np, mesh):
    """A training step of three layers of 512 on a batch of 256 that is split over all devices: products, sums of gradients."""
    x, y = _split(jax, np, mesh, (256, 512)), _split(jax, np, mesh, (256, 512))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    weights = [jax.device_put(np.full((512, 512), 0.01, np.float32), whole) for _ in range(3)]

    def loss(weights, x, y):
        for w in weights:
            x = jnp.tanh(x @ w)
        return ((x - y) ** 2).mean()

    @jax.jit
    def step(weights, x, y):
        grads = jax.grad(loss)(weights, x, y)
        return [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]

    def call() -> Any:
        nonlocal weights
        weights = step(weights, x, y)
        return weights

    return call


@case
def fsdp_step(jax, jnp, np, mesh):
    """A step of Adam for two transformer blocks of width 256 whose weights are split over all devices, as is the batch."""
    P, named = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
    rng, width, heads, length = np.random.default_rng(0), 256, 4, 64
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    split = named(mesh, P("x"))
    weights = [
        {k: jax.device_put((rng.standard_normal(s) / 16).astype(np.float32), split) for k, s in shapes.items()}
        for _ in range(2)
    ]
    state = weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights)
    x, y = _split(jax, np, mesh, (8, length, width)), _split(jax, np, mesh, (8, length, width))

    def block(w, x):
        q, k, v = jnp.split((x @ w["qkv"]).reshape(*x.shape[:2], heads, -1), 3, axis=-1)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 8
        scores = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9), axis=-1)
        x = x + jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"]

    def loss(weights, x, y):
        for w in weights:
            x = block(w, x)
        return ((x - y) ** 2).mean()

    @jax.jit
    def step(state, x, y):
        weights, first, second = state
        grads = jax.grad(loss)(weights, x, y)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, second, grads)
        weights = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), weights, first, second)
        return weights, first, second

    def call() -> Any:
        nonlocal state
        state = step(state, x, y)
        return state

    return call


@case
def halo_loop(jax, jnp, np, mesh):
    """100 steps of a five-point stencil on 512 x 512 floats whose rows are split: two rows to and from each neighbour a step."""

    def step(_, u):
        tall = jnp.pad(u, 1)
        return u + 0.2 * (tall[:-2, 1:-1] + tall[2:, 1:-1] + tall[1:-1, :-2] + tall[1:-1, 2:] - 4 * u)

    f = jax.jit(lambda u: jax.lax.fori_loop(0, 100, step, u))
    u = _split(jax, np, mesh, (512, 512))
    return lambda: f(u)


@case
def experts(jax, jnp, np, mesh):
    """A layer of experts, one of width 256 per device, for 512 tokens per device: two all_to_alls around two products."""
    n, axis = mesh.size, "x"

    def layer(x, up, down):
        sent = jax.lax.all_to_all(x.reshape(n, -1, 256), axis, 0, 0, tiled=True)
        done = jax.nn.relu(sent @ up[0]) @ down[0]
        return jax.lax.all_to_all(done, axis, 0, 0, tiled=True).reshape(x.shape)

    x, up, down = (
        _split(jax, np, mesh, (n * k, *rest)) for k, rest in ((512, (256,)), (1, (256, 512)), (1, (512, 256)))
    )
    P = jax.sharding.PartitionSpec
    f = jax.jit(jax.shard_map(layer, mesh=mesh, in_specs=P(axis), out_specs=P(axis)))
    return lambda: f(x, up, down)


@case
def decode(jax, jnp, np, mesh):
    """64 tokens, one by one, through a layer of attention with a cache and one of products, whose heads and columns are split."""
    P, named = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
    rng, width, heads, length = np.random.default_rng(0), 256, 8, 64
    weight = lambda spec, *s: jax.device_put((rng.standard_normal(s) / 16).astype(np.float32), named(mesh, spec))  # noqa: E731
    qkv = weight(P(None, None, "x"), width, 3, heads, width // heads)
    out, up, down = (
        weight(P("x"), heads, width // heads, width),
        weight(P(None, "x"), width, 1024),
        weight(P("x"), 1024, width),
    )
    cache = weight(P(None, None, "x"), 2, length, heads, width // heads)
    start = weight(P(), 8, width)[0]

    def token(weights, carry, i):
        (qkv, out, up, down), (cache, x) = weights, carry
        q, k, v = jnp.einsum("w,wchd->chd", x, qkv)
        cache = jax.lax.dynamic_update_slice(cache, jnp.stack([k, v])[:, None], (0, i, 0, 0))
        scores = jnp.where(jnp.arange(length)[:, None] <= i, jnp.einsum("lhd,hd->lh", cache[0], q), -1e9)
        x = x + jnp.einsum("lh,lhd,hdw->w", jax.nn.softmax(scores, axis=0), cache[1], out)
        x = x + jax.nn.gelu(x @ up) @ down
        return (cache, x / jnp.linalg.norm(x)), x

    @jax.jit
    def tokens(weights, cache, x):
        return jax.lax.scan(partial(token, weights), (cache, x), jnp.arange(length))[1]

    return lambda: tokens((qkv, out, up, down), cache, start)


@case
def k_means(jax, jnp, np, mesh):
    """10 rounds of k-means: 32768 points of 16 floats, split over all devices, and 32 centres."""
    x = _split(jax, np, mesh, (1 << 15, 16))
    centres = jax.device_put(
        np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32),
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()),
    )

    def rounds(x, centres):
        def step(_, centres):
            near = jax.nn.one_hot(((centres**2).sum(1) - 2 * x @ centres.T).argmin(1), 32)
            return (near.T @ x) / jnp.maximum(near.sum(0), 1)[:, None]

        return jax.lax.fori_loop(0, 10, step, centres)

    f = jax.jit(rounds)
    return lambda: f(x, centres)


@case
def conjugate_gradient(jax, jnp, np, mesh):
    """50 iterations of conjugate gradients with a diagonal preconditioner: the five-point operator on 256 x 256 floats, rows split."""

    def operator(u):
        tall = jnp.pad(u, 1)
        return 4.1 * u - tall[:-2, 1:-1] - tall[2:, 1:-1] - tall[1:-1, :-2] - tall[1:-1, 2:]

    def step(_, state):
        x, r, p, rz = state
        q = operator(p)
        alpha = rz / jnp.vdot(p, q)
        x, r = x + alpha * p, r - alpha * q
        z = r / 4.1
        after = jnp.vdot(r, z)
        return x, r, z + after / rz * p, after

    def solve(b):
        z = b / 4.1
        return jax.lax.fori_loop(0, 50, step, (jnp.zeros_like(b), b, z, jnp.vdot(b, z)))[0]

    f = jax.jit(solve)
    b = _split(jax, np, mesh, (256, 256))
    return lambda: f(b)


def _measure(library: str, name: str, address: str, processes: int, rank: int) -> None:
    """In a child: time the case together with the others, and let process 0 print the figures."""
    if library == "shardwise":
        from shardwise import alias

        alias.install()
        import jax

        jax.distributed.initialize()
    else:
        import jax

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, processes, rank)
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    call = CASES[name](jax, jnp, np, mesh)
    begin = time.perf_counter()
    jax.block_until_ready(call())
    jax.block_until_ready(call())
    multihost_utils.sync_global_devices("begin")
    begin = time.perf_counter()
    jax.block_until_ready(call())
    once = multihost_utils.process_allgather(np.float64(time.perf_counter() - begin)).max()
    times = []
    inner = max(1, min(200, int(0.02 / once)))  # as many calls between two looks at the clock as it takes to be exact
    for _ in range(max(5, min(60, int(MEASURE_SECONDS / once / inner)))):
        begin = time.perf_counter()
        for _ in range(inner):
            jax.block_until_ready(call())
        times.append((time.perf_counter() - begin) / inner)
    figures = multihost_utils.process_allgather(np.array([statistics.median(times), min(times)])).max(axis=0)
    if jax.process_index() == 0:
        print(json.dumps({"median": float(figures[0]), "least": float(figures[1])}), flush=True)
    jax.distributed.shutdown()


def _child(library: str, name: str, processes: int) -> dict[str, float] | None:
    """The figures of one library, None if it failed."""
    dropped = ("JAX_", "SHARDWISE_", "XLA_", "PYTHONUNBUFFERED")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    kept |= {"JAX_NUM_CPU_DEVICES": "1", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "SHARDWISE_DIALECT": "latest"}
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, str(Path(__file__)), name, "--child", library, address, str(processes)]
    if library == "shardwise":
        here = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        launcher = shutil.which("mpiexec", path=here) or sys.exit("mpiexec is not there: pip install 'shardwise[mpi]'")
        commands = [[launcher, "-n", str(processes), *command, "0"]]
    else:
        commands = [[*command, str(rank)] for rank in range(processes)]
    running = [
        subprocess.Popen(c, env=kept, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for c in commands
    ]
    end = time.monotonic() + LIMIT_SECONDS
    try:
        told = [p.communicate(timeout=max(0.1, end - time.monotonic()))[0] for p in running]
        return json.loads(next(line for text in told for line in text.splitlines() if line.startswith("{")))
    except (subprocess.TimeoutExpired, ValueError, StopIteration):
        return None
    finally:
        for p in running:
            p.kill()
            p.wait()


def _shown(figures: dict[str, float] | None) -> str:
    if figures is None:
        return "-"
    scale, unit = (1e6, "us") if figures["median"] < 1e-3 else (1e3, "ms")
    return f"{figures['median'] * scale:.1f} {unit} ({figures['least'] * scale:.1f})"


def main() -> None:
    """Measure and print a table; `--json FILE` keeps the figures."""
    parser = cases_parser(__doc__, CASES)
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4], metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parse(parser, CASES)
    if options.child:
        library, address, processes, rank = options.child
        _measure(library, options.cases[0], address, int(processes), int(rank))
        return

    figures: dict[str, Any] = {}
    print(
        f"{'median (least) per call':24} {'processes':>9} {'shardwise':>22} {'JAX, Gloo':>22} {'ratio':>7} {'wanted':>7}"
    )
    for name in options.cases or CASES:
        for processes in options.processes:
            pair = {library: _child(library, name, processes) for library in LIBRARIES}
            figures[f"{name}, {processes}"] = pair
            ours, theirs = pair["shardwise"], pair["jax"]
            ratio = f"{theirs['median'] / ours['median']:.1f}x" if ours and theirs else "-"
            print(
                f"{name:24} {processes:9} {_shown(ours):>22} {_shown(theirs):>22} {ratio:>7} {TARGETS.get(name, 1.0):6.1f}x",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
