"""Branches under vmap that update operands: results are those of each element alone, and no whole array is selected."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.runtime.memory import pool

X = np.arange(24, dtype=np.float32).reshape(3, 8)
WHICH, AT = np.array([0, 1, 2], np.int32), np.array([2, 5, 7], np.int32)
BRANCHES: dict[str, Any] = {
    "one writes": [lambda x, i: x.at[i].set(-1.0), lambda x, i: x, lambda x, i: x],
    "all write": [lambda x, i: x.at[i].add(1.0), lambda x, i: x.at[0].mul(x[i]), lambda x, i: x.at[i].set(x[0]).at[1].max(9.0)],
    "windows": [lambda x, i: lax.dynamic_update_slice(x, 2 * x[1:3], (i,)), lambda x, i: x, lambda x, i: x.at[:3].set(i)],
    "beside others": [lambda x, i: (x.at[i].set(-1.0), x[0]), lambda x, i: (x, x[1]), lambda x, i: (x.at[1].set(x[2]), x.sum())],
    "two of one": [lambda x, i: (x.at[i].set(-1.0), x.at[1].set(3.0)), lambda x, i: (x, x), lambda x, i: (x, x)],
    "not an update": [lambda x, i: x.at[i].set(-1.0), lambda x, i: x + 1, lambda x, i: x],
    "clipped": [lambda x, i: x.at[i + 4].set(-1.0, mode="clip"), lambda x, i: x, lambda x, i: x.at[i + 4].set(1.0)],
}  # fmt: skip


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", list(BRANCHES))
def test_elements_take_branches_of_their_own(name: str, jit: bool) -> None:
    def one(which: Any, x: Any, i: Any) -> Any:
        return lax.switch(which, BRANCHES[name], x, i)

    mapped = sw.vmap(one)
    found = (sw.jit(mapped) if jit else mapped)(WHICH, X, AT)
    for r in range(3):
        want = BRANCHES[name][WHICH[r]](jnp.asarray(X[r]), AT[r])
        for a, b in zip(sw.tree_util.tree_leaves(found), sw.tree_util.tree_leaves(want), strict=True):
            np.testing.assert_array_equal(a[r], b)


def test_operands_that_are_the_same_for_all() -> None:
    def one(p: Any, i: Any) -> Any:
        return lax.cond(p, lambda x: x.at[i].set(-1.0), lambda x: x, jnp.arange(8.0))

    want = np.tile(np.arange(8, dtype=np.float32), (3, 1))
    want[0, 2] = want[2, 7] = -1
    np.testing.assert_array_equal(sw.vmap(one)(np.array([True, False, True]), AT), want)


def test_derivatives() -> None:
    def one(p: Any, x: Any) -> Any:
        return (lax.cond(p, lambda x: x.at[0].set(3 * x[1]), lambda x: x, x) ** 2).sum()

    which = np.array([True, False, True])
    want = 2 * X
    want[::2, 0] = 0
    want[::2, 1] += 18 * X[::2, 1]
    np.testing.assert_allclose(sw.vmap(sw.grad(one, 1))(which, X), want)
    np.testing.assert_allclose(sw.grad(lambda x: sw.vmap(one)(which, x).sum())(X), want)


def test_large_operands_are_not_copied_at_each_step() -> None:
    def one(p: Any, x: Any) -> Any:
        step = lambda c, t: (lax.cond((t + p) % 2 == 0, lambda c: c.at[t].set(-1.0), lambda c: c, c), None)  # noqa: E731
        return lax.scan(step, x, jnp.arange(20))[0]

    f, x = sw.jit(sw.vmap(one)), jnp.zeros((2, 1 << 17))
    f(jnp.arange(2), x)
    gc.collect()
    made = pool.stats()["num_allocs"]
    out = f(jnp.arange(2), x)
    assert pool.stats()["num_allocs"] - made <= 3
    np.testing.assert_array_equal(out[:, :20], -np.array([[1, 0] * 10, [0, 1] * 10]))
