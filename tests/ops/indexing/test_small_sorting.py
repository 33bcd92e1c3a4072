"""`sort` within small programs gives the bits of NumPy's kernels: keys of all dtypes, ties, NaNs, zeros of both signs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.ir import trace_program
from shardwise.passes.inline import inline_calls
from shardwise.passes.small import runs_small
from shardwise.runtime.env import SINGLE
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P

DTYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "int64",
    "float64",
)


def drawn(rng, name, shape):
    """Few different values, so that many are equal."""
    dtype = np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)
    if dtype.kind in "biu":
        return rng.integers(-2 if dtype.kind == "i" else 0, 3, shape).astype(dtype)
    values = np.array([-np.inf, -1, -0.0, 0.0, 1.5, np.inf, np.nan, -np.nan], np.float32)
    return rng.choice(values, shape).astype(dtype)


def bits_of(f, *args):
    """The results' bytes, compiled and op by op."""
    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append([np.asarray(x).tobytes() for x in sw.jit(f)(*args)])
    return found


@pytest.mark.parametrize("first", DTYPES)
def test_sorted_in_loops_as_by_numpy(first):
    rng = np.random.default_rng(DTYPES.index(first))
    with sw.enable_x64(first.endswith("64")):
        for shape, dim, count, num_keys in [
            ((9,), 0, 1, 1),
            ((3, 7), 0, 3, 2),
            ((2, 5, 3), 1, 2, 2),
            ((1, 4), 1, 2, 1),
        ]:
            names = [first, *rng.choice(DTYPES[:10], count - 1)]
            xs = tuple(jnp.asarray(drawn(rng, name, shape)) for name in names)

            def step(i, c, dim=dim, num_keys=num_keys):
                return tuple(lax.sort([jnp.roll(x, 1, dim) for x in c], dimension=dim, num_keys=num_keys))

            compiled, wanted = bits_of(lambda *c, step=step: lax.fori_loop(0, 3, step, c), *xs)
            assert compiled == wanted, (shape, names, num_keys)


def test_sorted_on_devices():
    """One key that all devices share, another that they do not."""
    mesh = Mesh(np.array(sw.devices()[:4]), ("x",))
    rng = np.random.default_rng(7)

    def body(own, shared):
        def step(i, c):
            return tuple(lax.sort([jnp.roll(c[0], 1), shared, c[1]], num_keys=1))[::2]

        return lax.fori_loop(0, 3, step, (own, own * 2))

    f = sw.shard_map(body, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    compiled, wanted = bits_of(f, jnp.asarray(drawn(rng, "float32", (24,))), jnp.arange(6))
    assert compiled == wanted


@pytest.mark.parametrize(
    ("shape", "count", "stable", "small"),
    [
        ((64,), 1, True, True),
        ((64,), 1, False, False),  # NumPy may exchange zeros
        ((64,), 2, False, True),
        ((8, 256), 2, True, False),
        ((1024, 8), 2, True, True),
    ],
)
def test_which_are_small(shape, count, stable, small):
    xs = [jnp.zeros(shape)] * count
    program = inline_calls(trace_program(lambda *xs: list(lax.sort(xs, is_stable=stable)), [x.aval for x in xs])[0])
    assert [runs_small(e, SINGLE) for e in program.equations] == [small]
