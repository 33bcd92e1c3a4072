"""Elementwise work and reductions on 64 MB, and on almost nothing, beside JAX: `python benchmarks/elementwise.py [--devices 1 8 64]`.

Each figure is the least of many calls in a process of its own, in milliseconds or microseconds, and the ratio of JAX's to
ours. `copy` is what NumPy needs to copy as much memory: no loop that reads and writes 64 MB can be much faster.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from separate import answer, cases_parser, parse

LIMIT_SECONDS = 90
MEASURE_SECONDS = 2.0
ROWS = 4096

Function = Callable[..., Any]


def sine(jax: Any, jnp: Any) -> Function:
    """2 * sin(x) + 1."""
    return lambda x: 2 * jnp.sin(x) + 1


def chain(jax: Any, jnp: Any) -> Function:
    """A chain with three transcendental functions."""
    return lambda x: jax.nn.gelu(x) * jnp.tanh(x) + jnp.exp(x)


def exact_gelu(jax: Any, jnp: Any) -> Function:
    """gelu by the complementary error function."""
    return lambda x: jax.nn.gelu(x, approximate=False)


def bias(jax: Any, jnp: Any) -> Function:
    """A row added to all rows, then relu."""
    return lambda x: jax.nn.relu(x + x[:1])


def adam(jax: Any, jnp: Any) -> Function:
    """An update of parameters and two moments."""

    def update(x):
        g = 0.5 * x
        m, v = 0.9 * x + 0.1 * g, 0.99 * x * x + 0.01 * g * g
        return x - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

    return update


def softmax(jax: Any, jnp: Any) -> Function:
    """The softmax of rows."""
    return lambda x: jax.nn.softmax(x, axis=-1)


def column_softmax(jax: Any, jnp: Any) -> Function:
    """The softmax of columns."""
    return lambda x: jax.nn.softmax(x, axis=0)


def logsumexp(jax: Any, jnp: Any) -> Function:
    """The logarithm of sums of exponentials along rows."""
    return lambda x: jax.nn.logsumexp(x, axis=-1)


def layer_norm(jax: Any, jnp: Any) -> Function:
    """Rows with mean 0 and variance 1."""

    def f(x):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5)

    return f


def rms_norm(jax: Any, jnp: Any) -> Function:
    """Rows divided by the root of their mean square."""
    return lambda x: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def squared_error(jax: Any, jnp: Any) -> Function:
    """A mean over everything."""
    return lambda x: ((x - 1) ** 2).mean()


def column_sums(jax: Any, jnp: Any) -> Function:
    """Sums of an expression along columns."""
    return lambda x: (2 * x + 1).sum(0)


def row_maxima(jax: Any, jnp: Any) -> Function:
    """The greatest elements of rows, and where they are."""
    return lambda x: (x.max(-1), jnp.argmax(x, -1))


CASES: dict[str, Callable[[Any, Any], Function]] = {f.__name__: f for f in (sine, chain, exact_gelu, bias, adam)}
REDUCTIONS: dict[str, Callable[[Any, Any], Function]] = {
    f.__name__: f
    for f in (softmax, column_softmax, logsumexp, layer_norm, rms_norm, squared_error, column_sums, row_maxima)
}


def _measure(library: str, case: str, rows: int) -> float:
    """In the child: seconds per call."""
    if library == "copy":
        import numpy as np

        x = np.ones((rows, ROWS), np.float32)
        y = np.empty_like(x)
        return _least(lambda: np.copyto(y, x), lambda _: None)
    if library == "shardwise":
        from shardwise import alias

        alias.install()
    import jax
    import jax.numpy as jnp
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    shape = (rows, ROWS) if rows > 1 else (jax.device_count(),)
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x = jax.device_put(values, split)
    f = jax.jit((CASES | REDUCTIONS)[case](jax, jnp))
    return _least(lambda: f(x), jax.block_until_ready)


def _least(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    wait(call())
    times: list[float] = []
    end = time.perf_counter() + MEASURE_SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        wait(call())
        times.append(time.perf_counter() - begin)
    return min(times)


def _shown(ours: float | None, theirs: float | None) -> str:
    def text(seconds: float | None) -> str:
        if seconds is None:
            return "-"
        return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"

    ratio = f" ({theirs / ours:.1f}x)" if ours and theirs else ""
    return f"{text(ours)} / {text(theirs)}{ratio}"


def main() -> None:
    """Measure and print a table."""
    parser = cases_parser(__doc__, CASES | REDUCTIONS)
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 8, 64], metavar="N")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parse(parser, CASES | REDUCTIONS)
    if options.child:
        library, case, rows = options.child
        print(json.dumps(_measure(library, case, int(rows))))
        return
    print("least per call: shardwise / JAX (ratio)")
    for case in options.cases or CASES | REDUCTIONS:
        sizes = [(f"{case}, 64 MB", ROWS), (f"{case}, tiny", 1)]
        for label, rows in sizes if case in CASES else sizes[:1]:
            cells = []
            for count in options.devices:
                pair = [
                    answer(__file__, x, case, rows, devices=count, limit=LIMIT_SECONDS) for x in ("shardwise", "jax")
                ]
                cells.append(_shown(*pair))
            print(
                f"{label:22}",
                *(f"{count} devices: {cell:34}" for count, cell in zip(options.devices, cells, strict=True)),
            )
    copied = answer(__file__, "copy", "sine", ROWS, devices=1, limit=LIMIT_SECONDS)
    print(f"{'copy, 64 MB':22}", f"{copied * 1e3:.1f} ms" if copied else "-")


if __name__ == "__main__":
    main()
