"""Names, waiting, and computing at once inside of traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.transforms.tracing.blocking import block_until_ready, effects_barrier, ensure_compile_time_eval
from shardwise.transforms.tracing.naming import SCOPES, named_call, named_scope


def host(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_block_until_ready_gives_the_tree_back():
    tree: dict[str, Any] = {"a": lax.sin(host(3)), "b": 3, "c": None, "d": host(2)}
    assert block_until_ready(tree) is tree
    effects_barrier()
    tree["a"].delete()
    with pytest.raises(RuntimeError):
        block_until_ready(tree)


def test_ensure_compile_time_eval():
    seen = []

    @sw.jit
    def f(x):
        with ensure_compile_time_eval():
            table = lax.mul(lax.sin(host(3)), 2.0)
            seen.append(float(lax.reduce_sum(table, (0,))))
        return lax.add(x, table)

    np.testing.assert_allclose(f(host(3)), host(3) + 2 * np.sin(host(3)), rtol=1e-6)
    assert seen == [pytest.approx(2 * np.sin(host(3)).sum())]

    @sw.jit
    def traced(x):
        with ensure_compile_time_eval():
            return lax.sin(x)

    np.testing.assert_allclose(traced(host(3)), np.sin(host(3)), rtol=1e-6)  # what is traced goes on being traced

    def product(x, y):
        with ensure_compile_time_eval():
            return lax.mul(x, y)

    nested: dict[str, Callable[[Any], Any]] = {
        "jit": lambda x: sw.jit(lambda y: product(x, y))(x + 1),
        "vmap": lambda x: sw.vmap(lambda y: product(x, y))(lax.full((2,), 1.0) + x).sum() / 2,
        "types": lambda x: product(x, x + 1) + len(sw.eval_shape(lambda y: product(x, y), x).shape),
    }
    for g in nested.values():  # by the innermost of the traces whose values meet
        assert g(3.0) == sw.jit(g)(3.0) == 12 and sw.grad(g)(3.0) == sw.jit(sw.grad(g))(3.0) == 7


def test_named_scope():
    with named_scope("outer"), named_scope("inner"):
        assert SCOPES.get() == ("outer", "inner")
    assert SCOPES.get() == ()

    @named_scope("decorated")
    def f(x):
        assert SCOPES.get() == ("decorated",)
        return lax.sin(x)

    np.testing.assert_allclose(sw.jit(f)(host(3)), np.sin(host(3)), rtol=1e-6)
    with pytest.raises(TypeError, match="must be a string"):
        named_scope(3).__enter__()


def test_named_call():
    def f(x, *, k=1.0):
        assert SCOPES.get() == ("f",)
        return lax.mul(x, k)

    np.testing.assert_array_equal(named_call(f)(host(3), k=2.0), 2 * host(3))
    assert named_call(f).__name__ == "f"
    named_call(lambda: SCOPES.get() == ("other",) or pytest.fail(), name="other")()
    with pytest.raises(TypeError):
        named_call(f, name=3)
