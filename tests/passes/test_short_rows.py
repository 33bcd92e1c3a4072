"""Reductions along short rows and across them: which are done in two, and that results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.short_rows import with_short_rows
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.loops import lanes_of
from shardwise.runtime.machine import available
from tests.rounding import assert_normwise

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for fused loops")
P = sw.sharding.PartitionSpec
WIDTH = lanes_of("float32")


def reductions(f, shape, dtype: Any = np.float32):
    """The axes of the reductions after the pass."""
    program = trace_program(lambda x: [f(x)], [ShapedArray(shape, np.dtype(dtype))])[0]
    found = verify(with_short_rows(program, Env()), after="short_rows")
    return [e.params["axes"] for e in found.equations if e.op.fold is not None]


def over(*axes):
    return lambda x: x.sum(axes)


GROUPS = (8, 4 * WIDTH, 4, 16 * 8)  # whose rows are long


@pytest.mark.parametrize(
    "f, shape, axes",
    [
        (over(1, 3), (16, 128, 4, 8), [(1,), (2,)]),
        (over(0, 2), (2048, 4, 8), [(0,), (1,)]),
        (over(1, 3, 4), (16, 128, 4, 2, 4), [(1,), (2, 3)]),
        (over(0, 1, 3), (16, 128, 4, 8), [(0, 1), (1,)]),
        (over(1, 3), GROUPS, [(1, 3)]),
        (over(1, 2), (16, 128, 32), [(1, 2)]),  # no rows
        (over(1), (128, 128, 4), [(1,)]),  # nor here
        (over(1, 3), (16, 128, 1, WIDTH // 2), [(1, 3)]),  # rows that fill no vector
        (over(1, 3), (1024, 2, 4, 8), [(1, 3)]),  # few outside
        (over(1, 3), (2, 32, 4, 8), [(1, 3)]),  # few elements
    ],
)
def test_the_reductions_that_it_makes(f, shape, axes):
    assert reductions(f, shape) == axes


def test_narrow_floats_are_rounded_once():
    f = lambda x: lax.reduce_max(x, (1, 3)).sum() * 0 + lax.reduce(x, jnp.bfloat16(0), lax.add, (1, 3)).sum()  # noqa: E731
    assert (1, 3) in reductions(f, (16, 128, 4, 8), jnp.bfloat16)


def normalized(x):
    m, v = x.mean((1, 3), keepdims=True), x.var((1, 3), keepdims=True)
    return (x - m) / jnp.sqrt(v + 1e-5), jnp.max(x, (1, 3)), jnp.min(x, (0, 1, 3)), (x > 2).any((1, 3)), x.prod((1, 3))


@pytest.mark.parametrize("spec", [P(), P("x"), P(None, "x"), P(None, None, "x", "y"), P(("x", "y"))])
def test_results(spec):
    x = np.random.default_rng(0).normal(size=(16, 128, 4, 8)).astype(np.float32)
    x[3, 5, 1, 2] = np.nan
    f = lambda x: (normalized(x), sw.grad(lambda x: (normalized(x)[0] ** 3).sum())(jnp.nan_to_num(x)))  # noqa: E731
    with config.override("shardwise_fused", "off"):
        want = sw.tree.leaves(sw.jit(f)(x))
    split = sw.device_put(x, sw.NamedSharding(sw.make_mesh((4, 2), ("x", "y")), spec))
    assert x.size >= costs.FUSED_FEWEST
    for a, b in zip(sw.tree.leaves(sw.jit(f)(split)), want, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b)) if a.dtype.kind == "f" else None
        assert_normwise(np.nan_to_num(a), np.nan_to_num(b), 2e-6)
