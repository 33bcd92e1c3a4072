"""Products in groups of rows, and functions under a name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.base.config import use_dialect

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


# Per name: shapes of lhs and rhs, dimension numbers, and the dims in front of the groups along which sizes may differ.
FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[Any, list[int], list[int]], tuple[int, ...]]] = {
    "rows": ((7, 4), (3, 4, 5), ((((1,), (1,)), ((), ())), [0], [0]), ()),
    "columns": ((4, 7), (5, 3, 4), ((((0,), (2,)), ((), ())), [1], [1]), ()),
    "rows in a batch": ((2, 7, 4), (3, 2, 4, 5), ((((2,), (2,)), ((0,), (1,))), [1], [0]), (2,)),
    "rows in rows": ((6, 7, 4), (3, 4, 5), ((((2,), (1,)), ((), ())), [1], [0]), (6,)),
    "two sums": ((7, 4, 3), (3, 3, 4, 5), ((((1, 2), (2, 1)), ((), ())), [0], [0]), ()),
    "contracted": ((7, 4), (7, 5), ((((0,), (0,)), ((), ())), [0], []), ()),
    "contracted in a batch": ((2, 7, 4), (7, 2, 5), ((((1,), (0,)), ((0,), (1,))), [1], []), (2,)),
    "contracted in sums": ((7, 3, 4), (3, 7, 5), ((((1, 0), (0, 1)), ((), ())), [0], []), (3,)),
    "batch": ((7, 4), (7, 4, 5), ((((1,), (1,)), ((0,), (0,))), [0], []), ()),
}
SIZES = ([2, 1, 4], [2, 0, 3], [0, 0, 0], [5, 5, 5], [3, -2, 4], [-1, 3, 2])


def _numbers(library: Any, given: tuple[Any, list[int], list[int]]) -> Any:
    return library.RaggedDotDimensionNumbers(*given)


def _product(name: str) -> Any:
    return lambda a, b, s: lax.ragged_dot_general(a, b, s, _numbers(lax, FORMS[name][2]))


def _dense(name: str) -> Any:
    """The product of masked rows with all groups, in JAX, which has no second derivatives of its own op."""
    jax = pytest.importorskip("jax")
    np_ = jax.numpy
    left, _, (pairs, (ragged,), group), _ = FORMS[name]
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = pairs
    free = tuple(d for d in range(len(left)) if d not in lhs_con + lhs_batch)
    first = lhs_batch + (lhs_con if ragged in lhs_con else free if ragged in free else ())
    along = first[: first.index(ragged)] if ragged in first else ()

    def member(sizes: Any) -> Any:
        """Whether an element of lhs belongs to each group: [groups, dims of lhs]."""
        if sizes.ndim == 1:
            sizes = np_.broadcast_to(sizes, (*(left[d] for d in along), 3))
        ends = np_.cumsum(sizes, -1)
        at = np_.arange(left[ragged])
        inside = (at >= (ends - sizes)[..., None]) & (at < ends[..., None])  # [along, groups, ragged]
        inside = np_.moveaxis(inside, -2, 0)
        order = sorted(range(len(along) + 1), key=(*along, ragged).__getitem__)
        inside = inside.transpose(0, *[i + 1 for i in order])
        return inside.reshape(3, *[left[d] if d in (*along, ragged) else 1 for d in range(len(left))])

    def product(a: Any, b: Any, s: Any) -> Any:
        if ragged in lhs_batch:
            return jax.lax.dot_general(a, b, pairs)
        one = lambda x, y: jax.lax.dot_general(x, y, pairs)  # noqa: E731
        masked = np_.where(member(s), a, 0)
        parts = [one(masked[i], np_.take(b, i, group[0]) if group else b) for i in range(3)]
        return sum(parts) if group else np_.stack(parts)

    if group:
        down = lambda dims: tuple(d - (d > group[0]) for d in dims)  # noqa: E731
        pairs = ((lhs_con, down(rhs_con)), (lhs_batch, down(rhs_batch)))
    return product


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "complex64", "bool"])
def test_values_as_jax(dtype: str) -> None:
    jax, rng = pytest.importorskip("jax"), np.random.default_rng(0)
    few = FORMS if dtype == "float32" else ("rows", "rows in a batch", "contracted in sums")
    pairs = [[rng.integers(-4, 5, x).astype(jnp.dtype(dtype)) for x in FORMS[name][:2]] for name in few]

    def of_all(library: Any) -> Any:
        numbers = [_numbers(library.lax, FORMS[name][2]) for name in few]
        product = library.lax.ragged_dot_general
        return library.jit(lambda s: [product(a, b, s, n) for (a, b), n in zip(pairs, numbers, strict=True)])

    with sw.enable_x64(dtype == "float64"), jax.enable_x64(dtype == "float64"):
        run, theirs = of_all(sw), of_all(jax)
        for sizes in (*map(np.array, SIZES), np.array([3, 255, 3], np.uint8)):  # sums wrap around as their type does
            for ours, expected in zip(run(sizes), theirs(sizes), strict=True):
                assert ours.dtype == expected.dtype
                np.testing.assert_array_equal(np.asarray(ours), np.asarray(expected))


@pytest.mark.parametrize("name", FORMS)
def test_derivatives_and_maps(name: str) -> None:
    jax, rng = pytest.importorskip("jax"), np.random.default_rng(0)
    left, right, _, before = FORMS[name]
    ours, theirs = _product(name), _dense(name)
    a, b = (rng.standard_normal(shape) for shape in (left, right))

    def twice(library: Any, f: Any, sizes: Any) -> Any:
        """The squares of first derivatives, to be derived again."""
        first = library.grad(lambda x, y: library.numpy.sin(f(x, y, sizes)).sum(), (0, 1))
        return lambda x, y: sum((g**2).sum() for g in first(x, y))

    with sw.enable_x64(True), jax.enable_x64(True):
        s = rng.integers(0, 4, (*before, 3))
        found = sw.jit(sw.value_and_grad(twice(sw, ours, s), (0, 1)))(a, b)
        wanted = jax.jit(jax.value_and_grad(twice(jax, theirs, s), (0, 1)))(a, b)
        for one, other in zip(sw.tree.leaves(found), sw.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
        for sizes in (s, s[0]) if before else (s,):
            for axes in ((0, None, None), (None, 1, None), (None, None, 0), (1, 0, None), (0, 1, 0)):
                pairs = list(zip((a, b, sizes), axes, strict=True))
                stack = [x if k is None else np.stack([x, np.roll(x, 1, -1)], k) for x, k in pairs]
                pairs = list(zip(stack, axes, strict=True))
                each = [[x if k is None else np.take(x, i, k) for x, k in pairs] for i in range(2)]
                found = sw.vmap(ours, axes)(*stack)
                np.testing.assert_allclose(found, np.stack([ours(*x) for x in each]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("whole", ["auto", "off"])
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_layouts(kind: str, whole: str) -> None:
    """Each split of rows, groups, columns and sums: on whole values, and as separate devices compute it."""
    rng, axis = np.random.default_rng(0), getattr(sw.sharding.AxisType, kind)
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(axis,) * 2)
    put = lambda x, *spec: sw.device_put(x, sw.NamedSharding(mesh, sw.P(*spec)))  # noqa: E731
    a, b, c = (rng.integers(-3, 4, s).astype(np.float32) for s in ((16, 8), (8, 8, 8), (16, 8)))
    rows, groups = _product("rows"), _product("contracted")

    def with_gradient(f: Any) -> Any:
        square = lambda a, b, s: (f(a, b, s) ** 2).sum()  # noqa: E731
        return lambda a, b, s: (f(a, b, s), sw.grad(square, (0, 1))(a, b, s))

    cases = [
        (rows, a, (("x", "y"), None), b, ("x", None, None)),
        (rows, a, (None, "x"), b, ("y", None, None)),
        (rows, a, ("y", None), b, ("x", None, None)),
        (groups, a, ("x", None), c, (None, "y")),
        (groups, a, ("x", "y"), c, (None, None)),
    ]
    for f, left, left_spec, right, right_spec in cases:
        run = sw.jit(with_gradient(f))
        for sizes in ([1, 0, 3, 2, 4, 0, 5, 1], [3, -2, 4, 1, 1, 1, -1, 3], [0, 0, 0, 0, 0, 9, 0, 0]):
            wanted = run(left, right, np.array(sizes))
            with sw.set_mesh(mesh), config.override("shardwise_whole_values", whole):
                found = run(put(left, *left_spec), put(right, *right_spec), put(np.array(sizes), "x"))
            for one, other in zip(sw.tree.leaves(found), sw.tree.leaves(wanted), strict=True):
                np.testing.assert_array_equal(one, other)


def test_experts_of_each_device() -> None:
    """In a shard_map, sizes differ from device to device."""
    mesh = sw.make_mesh((4,), ("x",))
    rng = np.random.default_rng(0)
    a, b, s = rng.standard_normal((16, 3)), rng.standard_normal((8, 3, 2)), rng.integers(0, 3, (4, 2))
    f = lambda a, b, s: lax.ragged_dot(a, b, s[0])  # noqa: E731
    found = sw.jit(sw.shard_map(f, mesh=mesh, in_specs=sw.P("x"), out_specs=sw.P("x")))(a, b, s)
    for i in range(4):
        wanted = _by_hand(a[4 * i : 4 * i + 4], b[2 * i : 2 * i + 2], s[i].tolist())
        np.testing.assert_allclose(np.asarray(found)[4 * i : 4 * i + 4], wanted, rtol=1e-5, atol=1e-6)


def test_groups_keep_to_themselves() -> None:
    """NaNs of a group reach its own rows alone, and what was in a buffer none."""
    rhs = RHS.copy()
    rhs[1] = np.nan
    found = np.asarray(lax.ragged_dot(LHS, rhs, np.array([2, 1, 2])))
    assert np.isnan(found).tolist() == [[False] * 2, [False] * 2, [True] * 2, [False] * 2, [False] * 2, [False] * 2]
    assert not np.any(lax.ragged_dot(np.ones((4, 0)), np.ones((3, 0, 2)), np.array([1, 2, 1])))
    assert lax.ragged_dot(np.ones((0, 2)), RHS, np.array([0, 0, 0])).shape == (0, 2)


def test_programs_as_jax() -> None:
    jax = pytest.importorskip("jax")
    args = np.ones((6, 2)), np.ones((3, 2, 4)), np.array([1, 2, 3])

    def texts(library: Any) -> list[str]:
        dot = library.lax.ragged_dot
        gradient = library.grad(lambda a, b, s: dot(a, b, s).sum(), (0, 1))
        wide = library.vmap(lambda a, b, s: dot(a, b, s, preferred_element_type="float32"))
        stacks = [np.stack([x, x]) for x in args]
        return [str(library.make_jaxpr(f)(*x)) for f, x in ((dot, args), (gradient, args), (wide, stacks))]

    with use_dialect("0.10"):
        ours = texts(sw)
    assert ours == [re.sub(r"np\.int64\((\d)\)", r"\1", text) for text in texts(jax)]


def test_policies_for_dots_leave_groups_out() -> None:
    """As JAX's: only `dot_general` and convolutions count."""
    f = sw.checkpoint(
        lambda a, b: jnp.sin(lax.ragged_dot(a, b, np.array([2, 1, 3]))), policy=sw.checkpoint_policies.dots_saveable
    )
    text = str(sw.make_jaxpr(sw.grad(lambda a, b: f(a, b).sum()))(LHS, RHS))
    assert text.count("ragged_dot_general[") == 3  # forward, again, and the derivative


def test_export() -> None:
    types = [sw.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in (LHS, RHS, np.array([2, 1, 3], np.int32))]
    loaded = sw.export.deserialize(sw.export.export(sw.jit(lax.ragged_dot))(*types).serialize())
    np.testing.assert_array_equal(loaded.call(LHS, RHS, np.array([2, 1, 3], np.int32)), _by_hand(LHS, RHS, [2, 1, 3]))


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
