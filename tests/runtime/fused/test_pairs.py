"""Rows whose vectors fill two registers: which have them, and that no bit depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.runtime import costs
from shardwise.runtime.fused import steps
from shardwise.runtime.machine import available
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")

X = np.random.default_rng(0).normal(size=(96, 1024)).astype(np.float32)
X[3, 5], X[4, 6], X[5, 7], X[6] = np.nan, np.inf, -np.inf, -0.0

GROUPS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: (x * 2).sum(-1),
    "products": lambda x: (1 + x / 1000).prod(-1),
    "greatest and least": lambda x: (x.max(-1), x.min(-1)),
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1),
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "layer norm": lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(((x - x.mean(-1, keepdims=True)) ** 2).mean(-1, keepdims=True)),
    "two reduced dims": lambda x: (x * x).reshape(16, 6, 1024).sum((1, 2)),
    "a row that all use": lambda x: (x * x[0]).sum(-1),
    "any and all": lambda x: ((x > 0).any(-1), (x < 2).all(-1)),
}  # fmt: skip


def bits(f: Callable[[Any], Any], x: Any) -> list[bytes]:
    return [np.asarray(y).tobytes() for y in jax.tree.leaves(jax.jit(lambda x: f(x))(x))]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether vectors fill two registers, for each group that is compiled."""
    found: list[bool] = []
    before = steps.Arrangement._pairs
    monkeypatch.setattr(steps.Arrangement, "_pairs", lambda self: (found.append(before(self)), found[-1])[1])
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
@pytest.mark.parametrize("name", GROUPS)
def test_no_bit_changes(name: str, dtype: str, pairs: list[bool], monkeypatch: pytest.MonkeyPatch):
    with jax.enable_x64():
        x = jnp.asarray(np.nan_to_num(X * 8, posinf=9, neginf=-9) if dtype == "int32" else X).astype(dtype)
        got = bits(GROUPS[name], x)
        assert any(pairs)
        monkeypatch.setattr(costs, "FUSED_PAIRED", 0)
        pairs.clear()
        jax.clear_caches()
        assert bits(GROUPS[name], x) == got
    assert pairs and not any(pairs)


@pytest.mark.parametrize("columns", [1000, 1032, 1040, 40, 32, 64])
def test_rows_of_other_lengths(columns: int, monkeypatch: pytest.MonkeyPatch):
    x = np.random.default_rng(1).normal(size=(1 << 11, columns)).astype(np.float32)
    got = bits(GROUPS["logsumexp"], x)
    monkeypatch.setattr(costs, "FUSED_PAIRED", 0)
    jax.clear_caches()
    assert bits(GROUPS["logsumexp"], x) == got


def test_what_keeps_one_register(pairs: list[bool]):
    """Positions, columns, elementwise groups, and groups of many operands."""
    bits(lambda x: (x * 2).argmax(-1), X)
    bits(lambda x: (x * 2).sum(0), X)
    many = [X + k for k in range(5)]
    bits(lambda x: cast(Any, sum(m * x[0] for m in x)).sum(-1), many)
    assert not any(pairs)


@pytest.mark.parametrize("spec", [P("x"), P(None, "x")])
def test_on_devices_and_under_vmap(spec: P, monkeypatch: pytest.MonkeyPatch):
    x = jax.device_put(X, NamedSharding(Mesh(np.array(jax.devices()[:8]), ("x",)), spec))
    f = GROUPS["softmax"]
    got = bits(f, x), bits(jax.vmap(f), x)
    monkeypatch.setattr(costs, "FUSED_PAIRED", 0)
    jax.clear_caches()
    assert (bits(f, x), bits(jax.vmap(f), x)) == got
