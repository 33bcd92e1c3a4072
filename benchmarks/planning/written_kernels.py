"""Section 'written_kernels': plans of kernels that programs bring along, beside seconds that others published."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import plan
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu

WORDS, FEATURES = 16384, 2048  # of the attention: 16k words, heads of 64 to 256 elements
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# TFLOP/s of cuDNN's attention in bfloat16 on an H100 80GB SXM5, by length: Shah et al., FlashAttention-3 (arXiv 2407.08608), figures
# of forward and backward speed.
ATTENTION = {
    ("forward", 64): (335, 373, 395, 408, 412, 413),
    ("forward", 128): (497, 574, 617, 609, 600, 595),
    ("causal", 128): (315, 410, 484, 518, 529, 539),
    ("causal", 256): (308, 391, 450, 483, 497, 509),
    ("backward", 64): (266, 348, 395, 417, 432, 433),
    ("backward", 128): (305, 408, 465, 499, 518, 516),
}
FLOPS = {"forward": 4.0, "causal": 2.0, "backward": 10.0}  # by word, key and feature
# Seconds of a product of bfloat16 matrices as a Pallas kernel on a v5e, a call with its dispatch: JAX's documentation, Pallas TPU, matrix
# multiplication. By size and sides of the blocks (rows, summed, columns).
PRODUCTS = {
    (4096, (128, 128, 128)): 11.772e-3,
    (8192, (128, 128, 128)): 91.836e-3,
    (4096, (512, 1024, 1024)): 0.889e-3,
    (8192, (512, 1024, 1024)): 6.099e-3,
}


class Row(NamedTuple):
    """A kernel: its machine, its published seconds and the planned ones."""

    name: str
    machine: str
    seconds: float
    planned: float


def page() -> str:
    """The section as Markdown."""
    rows = [*_attention(), *_products()]
    errors = [abs(r.planned / r.seconds - 1) for r in rows]
    lines = [
        f"| {r.name} | {r.machine} | {1e3 * r.seconds:.3f} | {1e3 * r.planned:.3f} | {r.planned / r.seconds - 1:+.0%} |"
        for r in rows
    ]
    return f"""## Kernels of programs

Kernels that programs bring along, planned as one kernel each and set beside published seconds: attention of cuDNN on an H100
(`nn.dot_product_attention(implementation="cudnn")`; FlashAttention-3, arXiv 2407.08608, whose TFLOP/s are turned into seconds), and
products as `pallas_call` on a TPU v5e (JAX's documentation). Of these figures one went into the model, the least time of a step of a
grid on a TPU, 0.35 us: it is that of the products in blocks of 128.

Median error **{statistics.median(errors):.0%}**, worst {max(errors):.0%}.

| kernel | machine | published, ms | planned, ms | error |
|---|---|---|---|---|
{chr(10).join(lines)}

What the model does not know: how well a kernel hides what it waits for. On GPUs it counts matrix and vector units one after the other;
heads of 64 and long sequences do better, heads of 256, backward passes and short sequences worse.
"""


def _attention() -> Iterator[Row]:
    for (kind, size), published in ATTENTION.items():
        for steps, rate in zip(LENGTHS, published, strict=True):
            attend = functools.partial(jax.nn.dot_product_attention, implementation="cudnn", is_causal=kind == "causal")
            x = jax.ShapeDtypeStruct((WORDS // steps, steps, FEATURES // size, size), jnp.bfloat16)
            flops = FLOPS[kind] * WORDS * steps * FEATURES
            call = _backward(attend) if kind == "backward" else attend
            planned = _planned(call, (x, x, x), "h100-1")[-1]
            yield Row(f"{kind}, heads of {size}, {steps} words", "H100", flops / (rate * 1e12), planned)


def _backward(attend: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda *x: attend(*x).astype("float32").sum(), (0, 1, 2))


def _products() -> Iterator[Row]:
    for (size, blocks), seconds in PRODUCTS.items():
        x = jax.ShapeDtypeStruct((size, size), jnp.bfloat16)
        (planned,) = _planned(functools.partial(_product, blocks=blocks), (x, x), "v5e-1")
        yield Row(f"product of {size}, blocks of {' x '.join(map(str, blocks))}", "v5e", seconds, planned)


def _product(x: Any, y: Any, blocks: tuple[int, int, int]) -> Any:
    """A product of square matrices in blocks."""

    def kernel(x: Any, y: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            out[...] = total[...].astype(out.dtype)

    (m, k, n), size = blocks, x.shape[0]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((size, size), x.dtype),
        grid=(size // m, size // n, size // k),
        in_specs=[pl.BlockSpec((m, k), lambda i, j, k: (i, k)), pl.BlockSpec((k, n), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((m, n), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((m, n), jnp.float32)],
    )(x, y)


def _planned(call: Callable[..., Any], operands: tuple[Any, ...], machine: str) -> list[float]:
    """The seconds of the kernels of a call."""
    with plan.on(machine):
        found = plan.plan(jax.jit(call), *operands, on=machine)
    return [t.seconds for t in found.schedule.tasks if t.kind == "kernel"]
