"""Computes a table of elementwise functions, samples, sums, products and sorts; ``computes.py FILE`` saves the results by name."""

import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, nn, random
from shardwise.runtime.machine import llvm
from shardwise.runtime.products import blas

sw.config.update("shardwise_dialect", "latest")
sw.config.update("jax_enable_x64", True)

UNARY = (
    {
        name: getattr(jnp, name)
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sqrt "
            "cbrt square reciprocal floor rint sign abs negative"
        ).split()
    }
    | {name: getattr(lax, name) for name in "erf erfc erf_inv logistic rsqrt lgamma digamma".split()}
    | {name: getattr(nn, name) for name in "gelu silu softplus selu".split()}
)
BINARY = {
    "add": jnp.add, "multiply": jnp.multiply, "divide": jnp.divide, "power": jnp.power, "arctan2": jnp.arctan2,
    "remainder": jnp.remainder, "fmod": jnp.fmod, "maximum": jnp.maximum, "hypot": jnp.hypot, "logaddexp": jnp.logaddexp,
    "nextafter": jnp.nextafter, "floor_divide": jnp.floor_divide, "mul add": lambda x, y: x * y + y,
    "int power": lambda x, y: x**3 + y**2,
}  # fmt: skip
INEXACT: dict[str, Callable[..., Any]] = {
    "sum": jnp.sum, "mean": lambda x: x.mean(0), "rows": lambda x: x.sum(1), "norm": jnp.linalg.norm, "cumsum": lambda x: jnp.cumsum(x, 1),
    "softmax": lambda x: nn.softmax(x, axis=-1), "log_softmax": lambda x: nn.log_softmax(x, axis=0),
    "logsumexp": lambda x: nn.logsumexp(x, axis=1), "var": lambda x: x.var(1), "matmul": lambda x: x @ x.T, "line": lambda x: x @ x[0],
    "standardize": lambda x: nn.standardize(x, axis=-1),
}  # fmt: skip
EXACT = {
    "sort": lambda x: jnp.sort(x, -1), "argsort": lambda x: jnp.argsort(x, 0), "top_k": lambda x: lax.top_k(x, 3)[0],
    "max": lambda x: x.max(1), "argmin": lambda x: jnp.argmin(x, 0), "cummax": lambda x: lax.cummax(x, 1),
    "median": lambda x: jnp.median(x, 1), "int": lambda x: x.astype(np.int32), "half": lambda x: x.astype(np.float16),
    "bfloat16": lambda x: x.astype(jnp.bfloat16), "float32": lambda x: x.astype(np.float32),
    "where": lambda x: jnp.where(x > 0, x, x * 2), "clip": lambda x: jnp.clip(x, -1, 1),
}  # fmt: skip
SAMPLERS = {
    "uniform": lambda k, s, d: random.uniform(k, s, d, 0.3, 4.7), "normal": random.normal,
    "exponential": random.exponential, "gumbel": random.gumbel, "gamma": lambda k, s, d: random.gamma(k, 1.7, s, d),
    "laplace": random.laplace, "truncated": lambda k, s, d: random.truncated_normal(k, -1.0, 2.0, s, d),
}  # fmt: skip
SPECIAL = [
    0.0,
    -0.0,
    1,
    -1,
    0.5,
    np.inf,
    -np.inf,
    np.nan,
    1e-3,
    -3.0,
    88.7,
    -104,
    709.7,
    1e-40,
    -1e-310,
    3.4e38,
    1e300,
    2.5,
    -1.5,
]
SIZES = {"one": (19,), "many": (331, 401)}


def operands(dtype, shape):
    """Two arrays that begin with special values."""
    rng = np.random.default_rng(3)
    with np.errstate(all="ignore"):
        x = (
            np.concatenate([SPECIAL, (rng.normal(size=np.prod(shape)) * 3)])[: np.prod(shape)]
            .astype(dtype)
            .reshape(shape)
        )
        y = (
            np.concatenate([SPECIAL[::-1], (rng.normal(size=np.prod(shape)) * 3)])[: np.prod(shape)]
            .astype(dtype)
            .reshape(shape)
        )
    return x, y


def computed():
    """Results by name; `exact` or `inexact` comes first."""
    results = {}
    for dtype, size in itertools.product(("float32", "float64", "float16", "bfloat16"), SIZES):
        shape = SIZES[size]
        x, y = (jnp.asarray(a) for a in operands(jnp.dtype(dtype), shape))
        rows = jnp.atleast_2d(x)
        finite = jnp.nan_to_num(rows, posinf=9, neginf=-9, nan=0).clip(-9, 9)

        def keep(kind, name, f, *args):
            results[f"{kind} {name} {dtype} {size}"] = np.asarray(f(*args))  # noqa: B023

        for name, f in UNARY.items():
            keep("exact", name, f, x)
        for name, f in BINARY.items():
            keep("exact", name, f, x, y)
        for name, f in EXACT.items():
            keep("exact", name, f, rows)
        keep("exact", "chain", sw.jit(lambda x, y: jnp.tanh(x * y + jnp.exp(-x)) / (1 + y * y)), x, y)
        for name, f in INEXACT.items():
            keep("inexact", name, sw.jit(f), finite)
        for name, f in SAMPLERS.items():
            keep("exact", name, f, random.key(5), shape, dtype)
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    results = computed()
    target, mine = llvm.target() if llvm.available() else None, blas.library()
    results["target"] = np.array([0 if target is None else target.bytes])
    results["core"] = np.array([mine.core if mine else "none"])
    np.savez(
        sys.argv[1],
        **{
            name: x.view(f"u{x.itemsize}") if x.dtype.kind == "V" or x.dtype.name == "bfloat16" else x
            for name, x in results.items()
        },
    )
