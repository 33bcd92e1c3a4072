"""Products in groups of rows, and functions under a name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax

LHS = np.arange(12, dtype=np.float32).reshape(6, 2)
RHS = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


def _by_hand(lhs: np.ndarray, rhs: np.ndarray, sizes: list[int]) -> np.ndarray:
    out, at = np.zeros((lhs.shape[0], rhs.shape[2]), np.float32), 0
    for group, size in enumerate(sizes):
        out[at : at + size] = lhs[at : at + size] @ rhs[group]
        at += size
    return out


@pytest.mark.parametrize("sizes", [[2, 1, 3], [2, 1, 2], [0, 6, 0], [0, 0, 0]])
def test_ragged_dot(sizes: list[int]) -> None:
    expected = _by_hand(LHS, RHS, sizes)
    np.testing.assert_array_equal(lax.ragged_dot(LHS, RHS, np.array(sizes)), expected)
    np.testing.assert_array_equal(sw.jit(lax.ragged_dot)(LHS, RHS, np.array(sizes)), expected)
    gradient = sw.grad(lambda r: jnp.sum(lax.ragged_dot(LHS, r, np.array(sizes)) * expected))(RHS)
    ends = np.cumsum(sizes)
    for group, (start, end) in enumerate(zip(ends - sizes, ends, strict=True)):
        np.testing.assert_allclose(np.asarray(gradient)[group], LHS[start:end].T @ expected[start:end])


def test_maps_and_shards() -> None:
    stack, sizes = np.stack([LHS, LHS + 1]), np.array([[2, 1, 3], [1, 1, 1]])
    mapped = sw.vmap(lax.ragged_dot, (0, None, 0))(stack, RHS, sizes)
    for i in range(2):
        np.testing.assert_array_equal(np.asarray(mapped)[i], _by_hand(stack[i], RHS, sizes[i].tolist()))
    mesh = sw.make_mesh((2,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    rows = sw.device_put(LHS, sw.NamedSharding(mesh, sw.P("x")))
    np.testing.assert_array_equal(sw.jit(lax.ragged_dot)(rows, RHS, sizes[0]), _by_hand(LHS, RHS, [2, 1, 3]))


def test_general_as_jax() -> None:
    jax = pytest.importorskip("jax")
    lhs, rhs, sizes = LHS[:4], np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, 1, 2], np.int32)
    free = dict(dot_dimension_numbers=(((1,), (1,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[0])
    contracted = dict(
        dot_dimension_numbers=(((0,), (0,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[]
    )
    cases: list[tuple[dict[str, Any], np.ndarray]] = [(free, RHS), (contracted, rhs)]
    for numbers, other in cases:
        ours = lax.ragged_dot_general(lhs, other, sizes, lax.RaggedDotDimensionNumbers(**numbers))
        theirs = jax.lax.ragged_dot_general(lhs, other, sizes, jax.lax.RaggedDotDimensionNumbers(**numbers))
        np.testing.assert_array_equal(ours, theirs)


def test_mistakes() -> None:
    with pytest.raises(TypeError, match="integer"):
        lax.ragged_dot(LHS, RHS, np.ones(3, np.float32))
    with pytest.raises(TypeError, match="4 groups, but rhs 3"):
        lax.ragged_dot(LHS, RHS, np.ones(4, np.int32))
    with pytest.raises(NotImplementedError, match="group_offset"):
        lax.ragged_dot(LHS, RHS, np.ones(3, np.int32), group_offset=np.zeros(1, np.int32))


def test_composites_and_tokens() -> None:
    f = lax.composite(lambda x, *, k: jnp.sin(x) * k, "my.sine", version=1)
    np.testing.assert_allclose(sw.jit(sw.grad(lambda x: f(x, k=2.0)))(1.0), 2 * np.cos(1), rtol=1e-6)
    with pytest.raises(ValueError, match="attribute k is a traced array"):
        sw.jit(lambda x: f(x, k=x))(1.0)
    token = sw.jit(lambda x: (x, lax.after_all(lax.create_token(), lax.create_token(x))))(1.0)[1]
    assert type(token).__name__ == "Token"
    with pytest.raises(TypeError, match="takes tokens"):
        lax.after_all(1.0)
