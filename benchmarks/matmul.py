"""Matrix products beside JAX: `python benchmarks/matmul.py [CASE ...] [--devices 1 8 64]`.

Each figure is the least and the median of many calls, each library in a process of its own, and the ratio of the medians.
The left operand's first dim is split over all devices where it divides.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from separate import answer, cases_parser, parse

LIMIT_SECONDS = 90
MEASURE_SECONDS = 1.0

# name: einsum of two operands, their shapes, element type, preferred element type of the result
Case = tuple[str, tuple[int, ...], tuple[int, ...], str, str | None]
CASES: dict[str, Case] = {
    "square_2048": ("ij,jk->ik", (2048, 2048), (2048, 2048), "float32", None),
    "square_1024": ("ij,jk->ik", (1024, 1024), (1024, 1024), "float32", None),
    "square_512": ("ij,jk->ik", (512, 512), (512, 512), "float32", None),
    "square_256": ("ij,jk->ik", (256, 256), (256, 256), "float32", None),
    "square_128": ("ij,jk->ik", (128, 128), (128, 128), "float32", None),
    "square_64": ("ij,jk->ik", (64, 64), (64, 64), "float32", None),
    "layer": ("ij,jk->ik", (512, 256), (256, 256), "float32", None),
    "layer_weight_gradient": ("ij,ik->jk", (512, 256), (512, 256), "float32", None),
    "layer_input_gradient": ("ik,jk->ij", (512, 256), (256, 256), "float32", None),
    "vector": ("ij,j->i", (4096, 4096), (4096,), "float32", None),
    "scores": ("bhqd,bhkd->bhqk", (8, 8, 128, 32), (8, 8, 128, 32), "float32", None),
    "scores_heads_inside": ("bqhd,bkhd->bhqk", (8, 128, 8, 32), (8, 128, 8, 32), "float32", None),
    "weighted": ("bhqk,bhkd->bhqd", (8, 8, 128, 128), (8, 8, 128, 32), "float32", None),
    "weighted_heads_inside": ("bhqk,bkhd->bqhd", (8, 8, 128, 128), (8, 128, 8, 32), "float32", None),
    "scores_long": ("bqhd,bkhd->bhqk", (2, 512, 12, 64), (2, 512, 12, 64), "float32", None),
    "weighted_long": ("bhqk,bkhd->bqhd", (2, 12, 512, 512), (2, 512, 12, 64), "float32", None),
    "projected": ("bsd,dhk->bshk", (8, 128, 256), (256, 8, 32), "float32", None),
    "many_16": ("bij,bjk->bik", (1024, 16, 16), (1024, 16, 16), "float32", None),
    "many_4": ("bij,bjk->bik", (8192, 4, 4), (8192, 4, 4), "float32", None),
    "float64": ("ij,jk->ik", (1024, 1024), (1024, 1024), "float64", None),
    "complex64": ("ij,jk->ik", (1024, 1024), (1024, 1024), "complex64", None),
    "bfloat16": ("ij,jk->ik", (1024, 1024), (1024, 1024), "bfloat16", None),
    "bfloat16_float32": ("ij,jk->ik", (1024, 1024), (1024, 1024), "bfloat16", "float32"),
    "float16": ("ij,jk->ik", (1024, 1024), (1024, 1024), "float16", None),
    "int8": ("ij,jk->ik", (1024, 1024), (1024, 1024), "int8", "int32"),
    "int32": ("ij,jk->ik", (512, 512), (512, 512), "int32", None),
    "bool": ("ij,jk->ik", (512, 512), (512, 512), "bool", None),
}


def _measure(library: str, name: str) -> dict[str, float]:
    """In the child: seconds per call."""
    if library == "shardwise":
        from shardwise import alias

        alias.install()
    import jax
    import jax.numpy as jnp
    import numpy as np

    formula, left, right, dtype, wanted = CASES[name]
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    axis = "x" if left[0] % jax.device_count() == 0 else None
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axis))
    rng = np.random.default_rng(0)

    def values(shape: tuple[int, ...]) -> Any:
        if "int" in dtype or dtype == "bool":
            return jnp.asarray(rng.integers(0, 100, shape), dtype)
        return jnp.asarray(rng.normal(size=shape), dtype)

    x, y = jax.device_put(values(left), split), values(right)
    f = jax.jit(lambda x, y: jnp.einsum(formula, x, y, preferred_element_type=wanted))
    begin = time.perf_counter()
    jax.block_until_ready(f(x, y))
    first = time.perf_counter() - begin
    times: list[float] = []
    end = time.perf_counter() + MEASURE_SECONDS
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        jax.block_until_ready(f(x, y))
        times.append(time.perf_counter() - begin)
    return {"least": min(times), "median": sorted(times)[len(times) // 2], "first": first}


def _shown(figures: dict[str, float] | None) -> str:
    if figures is None:
        return "-"
    scale, unit = (1e6, "us") if figures["median"] < 1e-3 else (1e3, "ms")
    return f"{figures['least'] * scale:.1f} {figures['median'] * scale:.1f} {unit}"


def main() -> None:
    """Measure and print a table."""
    parser = cases_parser(__doc__, CASES)
    parser.add_argument("--devices", nargs="+", type=int, default=[1], metavar="N")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parse(parser, CASES)
    if options.child:
        print(json.dumps(_measure(*options.child)))
        return
    print("least and median per call: shardwise / JAX (ratio of medians)")
    for name in options.cases or CASES:
        for count in options.devices:
            ours, theirs = (
                answer(__file__, library, name, devices=count, limit=LIMIT_SECONDS) for library in ("shardwise", "jax")
            )
            ratio = f"({theirs['median'] / ours['median']:.2f}x)" if ours and theirs else ""
            print(f"{name:22} {count:3} devices: {_shown(ours):>20} / {_shown(theirs):20} {ratio}", flush=True)


if __name__ == "__main__":
    main()
