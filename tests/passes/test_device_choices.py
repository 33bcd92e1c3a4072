"""Branches and loops that differ between devices: which become choices between values, and that no result changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import Program, subprograms
from shardwise.runtime.machine import llvm
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for loops")

MESHES = {"x": jax.make_mesh((8,), ("x",)), "xy": jax.make_mesh((2, 4), ("x", "y"))}
X = np.random.default_rng(0).normal(size=(8, 24)).astype(np.float32)
X[0, :5] = np.nan, np.inf, -np.inf, -0.0, 0.0


def at(axis: str = "x") -> Any:
    return lax.axis_index(axis)


def endless(x: Any) -> Any:
    """A loop that ends on those devices alone whose number three divides."""
    return lax.while_loop(lambda c: c[0] != 9, lambda c: (c[0] + 3, c[1] + 1), (at(), x))[1]


def rounds(x: Any, step: Callable[[Any], Any]) -> Any:
    return lax.while_loop(lambda c: c[0] < at(), lambda c: (c[0] + 1, step(c[1])), (at() * 0, x))[1]


def pipeline(x: Any) -> Any:
    pairs = [(i, (i + 1) % 8) for i in range(8)]

    def step(h: Any, t: Any) -> Any:
        h = lax.cond(at() == 0, lambda h: x, lambda h: h, h)
        h = lax.cond(at() <= t, lambda h: jnp.tanh(h @ jnp.eye(24)), lambda h: h, h)
        return lax.ppermute(h, "x", pairs), h.sum()

    h, sums = lax.scan(step, x, jnp.arange(11))
    return h + sums[-1]


# By name: the body, and the names of ops with programs that stay.
CASES: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "two": (lambda x: lax.cond(at() % 2 == 0, jnp.sin, jnp.exp, x), set()),
    "nothing or signs": (lambda x: lax.cond(at() > 4, lambda x: x, lambda x: -x, x), set()),
    "a constant": (lambda x: lax.cond(at() > 4, lambda x: x, lambda x: lax.pvary(jnp.zeros((1, 24)), "x"), x), set()),
    "out of range": (lambda x: lax.switch(at() - 3, [jnp.sin, jnp.exp, lambda x: x * 2], x), set()),
    "its own number": (lambda x: lax.cond(at() > 4, lambda x: x + at(), lambda x: x * at(), x), set()),
    "a predicate of elements": (lambda x: lax.cond(x.sum() > 0, lambda x: 1 / x, lambda x: x, x), set()),
    "sorted": (lambda x: lax.cond(at() > 4, jnp.sort, lambda x: x, x), {"cond"}),
    "sorted, and its own number": (lambda x: lax.cond(at() > 4, lambda x: jnp.sort(x) + at(), jnp.cos, x), {"cond"}),
    "its own number in a loop": (
        lambda x: lax.cond(at() > 4, lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sort(x) + at(), x), jnp.cos, x),
        {"cond", "scan"},
    ),
    "a loop": (lambda x: rounds(x, jnp.sin), {"while"}),
    "a loop of branches": (lambda x: rounds(x, lambda y: lax.cond(y[0, 0] > 0, jnp.sin, jnp.cos, y)), {"while"}),
    "a loop that ends on some": (lambda x: lax.cond(at() % 3 == 0, endless, lambda x: x, x), {"cond", "while"}),
    "a pipeline": (pipeline, {"scan"}),
}
CASES_OF_TWO_AXES: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "one device": (lambda x: lax.cond((at() == 1) & (at("y") == 2), jnp.sin, jnp.exp, x), set()),
    "a sum along the other axis": (
        lambda x: lax.cond(at("y") == 1, lambda x: x + lax.psum(x, "x"), lambda x: x, x),
        {"cond"},
    ),
}


def held(program: Program) -> set[str]:
    found = set[str]()
    for eqn in program.equations:
        for _, inner in subprograms(eqn.params):
            found |= {eqn.op.name} | held(inner)
    return found


def run(f: Callable[[Any], Any], names: str) -> tuple[np.ndarray, set[str]]:
    """The result, and which ops of the program that runs hold programs."""
    spec = P(tuple(names))
    g = jax.jit(jax.shard_map(f, mesh=MESHES[names], in_specs=spec, out_specs=spec))
    compiled: Any = g.lower(X).compile()
    return np.asarray(compiled(X)), held(compiled.runtime_executable().plan.program)


ALL = [(n, "x", *c) for n, c in CASES.items()] + [(n, "xy", *c) for n, c in CASES_OF_TWO_AXES.items()]


@pytest.mark.parametrize(("name", "names", "f", "stay"), ALL, ids=[c[0] for c in ALL])
def test_each_device_has_its_own_result(name: str, names: str, f: Callable[[Any], Any], stay: set[str]):
    spec = P(tuple(names))
    with config.override("shardwise_stepped", True):
        expected = np.asarray(jax.jit(jax.shard_map(f, mesh=MESHES[names], in_specs=spec, out_specs=spec))(X))
    got, found = run(f, names)
    assert found - {"small", "fused", "epilogue"} == stay
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(expected)[~np.isnan(expected)])


@pytest.mark.parametrize(("width", "stay"), [(32, set()), (128, {"cond"})])
def test_large_products_are_left_to_the_devices_that_need_them(width: int, stay: set[str]):
    """Where the other branch does nothing, all of them are work that is thrown away."""
    w = np.random.default_rng(0).normal(size=(8, width, width)).astype(np.float32)

    def f(w: Any) -> Any:
        return lax.cond(at() == 1, lambda w: jnp.tanh(w[:, :64] @ w), lambda w: w[:, :64], w)

    compiled: Any = jax.jit(jax.shard_map(f, mesh=MESHES["x"], in_specs=P("x"), out_specs=P("x"))).lower(w).compile()
    assert held(compiled.runtime_executable().plan.program) - {"small", "fused", "epilogue"} == stay
    expected = w[:, :64].copy()
    expected[1] = np.tanh(w[1, :64] @ w[1])
    np.testing.assert_allclose(compiled(w), expected, rtol=1e-5, atol=1e-6)
