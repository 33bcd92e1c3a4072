"""Sums over devices of the rows that each has of a split table: which are one equation, and that no bit changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.machine import llvm
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for loops")

LINE, GRID = jax.make_mesh((8,), ("x",)), jax.make_mesh((2, 4), ("y", "x"))
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(160, 16)).astype(np.float32)
TABLE[::7] = np.array([np.nan, np.inf, -np.inf, -0.0] * 4)
WORDS = RNG.integers(-9, 180, 256).astype(np.int32)


def own(t: Any, i: Any, axis: Any = "x") -> tuple[Any, Any]:
    """Which words a device has, and where."""
    at = i - lax.axis_index(axis) * t.shape[0]
    return ((at >= 0) & (at < t.shape[0]))[:, None], at


def embed(t: Any, i: Any) -> Any:
    mine, at = own(t, i)
    return lax.psum(jnp.where(mine, t[jnp.clip(at, 0, t.shape[0] - 1)], 0), "x")


def masked(choose: Callable[[Any, Any], Any], **how: Any) -> Callable[..., Any]:
    def f(t: Any, i: Any) -> Any:
        mine, at = own(t, i)
        return lax.psum(choose(mine, t.at[at].get(**({"mode": "clip"} | how))), "x")

    return f


def taken_by_turns(take: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Each device takes some rows at positions that may lie outside of its table."""
    mine = lambda i: (i % 8 == lax.axis_index("x"))[:, None]  # noqa: E731
    return lambda t, i: lax.psum(jnp.where(mine(i), take(t, i - 60), 0), "x")


def of_both_axes(t: Any, i: Any) -> Any:
    mine, at = own(t, i, ("y", "x"))
    return lax.psum(jnp.where(mine, t[jnp.clip(at, 0, 19)], 0), ("y", "x"))


JOINED: dict[str, Callable[..., Any]] = {
    "an embedding": embed,
    "turned": masked(lambda mine, x: jnp.where(~mine, 0, x)),
    "turned cases": masked(lambda mine, x: lax.select(jnp.broadcast_to(~mine, x.shape), jnp.zeros_like(x), x)),
    "from the end": taken_by_turns(lambda t, i: t.at[i].get(mode="clip")),
    "clipped": taken_by_turns(lambda t, i: jnp.take(t, i, 0, mode="clip")),
    "two devices have one": masked(lambda mine, x: jnp.where(mine | (lax.axis_index("x") == 3), x, 0)),
    "most are left": masked(lambda mine, x: jnp.where(~mine, x, 0)),
    "a mask of elements": masked(lambda mine, x: jnp.where(mine & (x > 0), x, 0)),
    "none is left": masked(lambda mine, x: jnp.where(mine & (x.shape[0] < 0), x, 0)),
}
APART: dict[str, Callable[..., Any]] = {
    "-0.0": masked(lambda mine, x: jnp.where(mine, x, -0.0)),
    "ones": masked(lambda mine, x: jnp.where(mine, x, 1.0)),
    "filled": masked(lambda mine, x: jnp.where(mine, x, 0), mode="fill", fill_value=2.0),
    "turned rows": masked(lambda mine, x: jnp.where(mine, x[:, ::-1], 0)),
    "used besides": masked(lambda mine, x: jnp.where(mine, x, 0) + x.sum()),
}
KINDS = [np.float32, np.int32, np.float16, np.complex64]


def run(f: Callable[..., Any], mesh: Any, specs: Any, t: Any, i: Any) -> tuple[np.ndarray, list[str]]:
    g = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=specs[:2], out_specs=specs[2]))
    compiled: Any = g.lower(t, i).compile()
    return np.asarray(compiled(t, i)), [e.op.name for e in compiled.runtime_executable().plan.program.equations]


def check(f: Callable[..., Any], mesh: Any, specs: Any, t: Any, i: Any) -> bool:
    """Whether there is a joined sum; the result is that of one equation after the other, to the bit."""
    with config.override("shardwise_fused", "off"):
        expected = np.asarray(jax.jit(jax.shard_map(f, mesh=mesh, in_specs=specs[:2], out_specs=specs[2]))(t, i))
    got, names = run(f, mesh, specs, t, i)
    joined = "masked_sum" in names
    np.testing.assert_allclose(got, expected, rtol=0 if joined else 1e-6)
    if joined and got.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])
    return joined


@pytest.mark.parametrize("name", [*JOINED, *APART])
def test_which_sums_are_joined(name: str):
    specs = (P("x"), P(), P())
    assert check((JOINED | APART)[name], LINE, specs, TABLE, WORDS) == (name in JOINED and name != "a mask of elements")


@pytest.mark.parametrize("kind", KINDS)
def test_elements_of_any_type(kind: Any):
    table = np.nan_to_num(TABLE, posinf=5, neginf=-5).astype(kind)
    assert check(embed, LINE, (P("x"), P(), P()), table, WORDS) == (kind in KINDS[:2])


@pytest.mark.parametrize("dim", [0, 1])
def test_sums_that_are_scattered(dim: int):
    def f(t: Any, i: Any, several: bool = False) -> Any:
        mine, at = own(t, i)
        mine |= several & (lax.axis_index("x") == 3)
        found = jnp.where(mine, t[jnp.clip(at, 0, t.shape[0] - 1)], 0)
        return lax.psum_scatter(found, "x", scatter_dimension=dim, tiled=True)

    of = P("x") if dim == 0 else P(None, "x")
    assert check(f, LINE, (P("x"), P(), of), TABLE, WORDS)
    assert check(lambda t, i: f(t, i, True), LINE, (P("x"), P(), of), TABLE, WORDS)
    of = P(("y", "x")) if dim == 0 else P("y", "x")
    assert check(f, GRID, (P("x"), P("y"), of), TABLE, WORDS)


def test_a_table_whose_columns_are_split_too():
    assert check(embed, GRID, (P("x", "y"), P(), P(None, "y")), TABLE, WORDS)


def test_on_two_axes():
    assert check(embed, GRID, (P("x"), P("y"), P("y")), TABLE, WORDS)
    assert check(of_both_axes, GRID, (P(("y", "x")), P(), P()), TABLE, WORDS)
