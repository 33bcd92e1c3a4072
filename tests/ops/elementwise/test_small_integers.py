"""Integers of 2 and 4 bits: results are those of Python's integers, cut to the bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax

X = [1, -2, 3, 0, -1, 2, -4, 7]
Y = [3, 1, -2, 5, 2, -3, 1, 1]
DTYPES = {"int2": (2, True), "uint2": (2, False), "int4": (4, True), "uint4": (4, False)}


def cut(value: int, bits: int, signed: bool) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


# name: of arrays, and of one pair of Python's integers (for reductions: of the list); bits are those of the dtype
BINARY = {
    "add": (lax.add, lambda a, b, n: a + b),
    "sub": (lax.sub, lambda a, b, n: a - b),
    "mul": (lax.mul, lambda a, b, n: a * b),
    "max": (lax.max, lambda a, b, n: max(a, b)),
    "min": (lax.min, lambda a, b, n: min(a, b)),
    "and": (lax.bitwise_and, lambda a, b, n: a & b),
    "or": (lax.bitwise_or, lambda a, b, n: a | b),
    "xor": (lax.bitwise_xor, lambda a, b, n: a ^ b),
    "not": (lambda x, y: ~x, lambda a, b, n: ~a),
    "neg": (lambda x, y: -x, lambda a, b, n: -a),
    "sign": (lambda x, y: jnp.sign(x), lambda a, b, n: (a > 0) - (a < 0)),
    "div": (lambda x, y: lax.div(x, jnp.where(y == 0, jnp.ones_like(y), y)), lambda a, b, n: int(a / (b or 1))),
    "rem": (lambda x, y: lax.rem(x, jnp.where(y == 0, jnp.ones_like(y), y)), lambda a, b, n: a - int(a / (b or 1)) * (b or 1)),
    "integer_pow": (lambda x, y: x**3, lambda a, b, n: a**3),
    "square": (lambda x, y: x**2, lambda a, b, n: a**2),
    "select": (lambda x, y: jnp.where(x > y, -x, y), lambda a, b, n: -a if a > b else b),
    "clip": (lambda x, y: lax.clamp(jnp.zeros_like(x), x, jnp.ones_like(x)), lambda a, b, n: min(max(a, 0), 1)),
    "shift_left": (lambda x, y: lax.shift_left(x, jnp.ones_like(y)), lambda a, b, n: a << 1),
    "shift_right_logical": (
        lambda x, y: lax.shift_right_logical(x, jnp.ones_like(y)),
        lambda a, b, n: (a & ((1 << n) - 1)) >> 1,
    ),
    "shift_right_arithmetic": (
        lambda x, y: lax.shift_right_arithmetic(x, jnp.ones_like(y)),
        lambda a, b, n: cut(a, n, True) >> 1,
    ),
    "population_count": (lambda x, y: lax.population_count(x), lambda a, b, n: (a & ((1 << n) - 1)).bit_count()),
    "clz": (lambda x, y: lax.clz(x), lambda a, b, n: n - (a & ((1 << n) - 1)).bit_length()),
}  # fmt: skip
REDUCED = {
    "reduce_max": (jnp.max, max),
    "reduce_min": (jnp.min, min),
    "general": (lambda x: lax.reduce(x, x[:1].reshape(()), lax.max, (0,)), max),
    "cummax": (lambda x: lax.cummax(x)[-1], max),
    "pmin": (lambda x: jax.vmap(lambda v: lax.pmin(v, "i"), axis_name="i")(x)[0], min),
    "reduce_window_max": (
        lambda x: lax.reduce_window(x, jnp.asarray(jnp.iinfo(x.dtype).min, x.dtype), lax.max, (len(X),), (1,), "VALID")[
            0
        ],
        max,
    ),
    "pmax": (
        lambda x: jax.shard_map(
            lambda v: lax.pmax(v, "i"), mesh=jax.make_mesh((4,), ("i",)), in_specs=jax.P("i"), out_specs=jax.P()
        )(x).max(),
        max,
    ),
    "scatter_max": (lambda x: x[:1].at[jnp.zeros(len(X), jnp.int32)].max(x)[0], max),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [lambda f: f, jax.jit, jax.vmap], ids=["eager", "jit", "vmap"])
def test_results_are_cut_to_the_bits(dtype, way):
    bits, signed = DTYPES[dtype]
    xs, ys = ([cut(v, bits, signed) for v in vs] for vs in (X, Y))
    x, y = (jnp.asarray(np.array(vs), dtype) for vs in (xs, ys))
    for name, (fun, of_one) in BINARY.items():
        got = way(fun)(x, y)
        want = [cut(of_one(a, b, bits), bits, signed) for a, b in zip(xs, ys, strict=True)]
        assert (name, str(got.dtype), np.asarray(got).dtype, np.asarray(got).astype(int).tolist()) == (
            name, dtype, got.dtype, want,
        )  # fmt: skip
    fun: Any
    for name, (fun, of_all) in REDUCED.items():
        got = way(fun)(x) if way is not jax.vmap else jax.vmap(fun)(x[None])[0]
        assert (name, str(got.dtype), int(got)) == (name, dtype, of_all(xs))
