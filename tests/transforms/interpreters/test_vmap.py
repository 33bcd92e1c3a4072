"""vmap against a Python loop: every op along every operand, its derivative too, collectives over the mapped axis, shard_map."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import enable_x64
from shardwise.experimental.shard import auto_axes
from shardwise.experimental.shard_map import shard_map
from shardwise.sharding import AxisType, NamedSharding, use_mesh
from shardwise.sharding import PartitionSpec as P
from shardwise.tree_util import tree_leaves, tree_map
from tests.transforms.op_cases import CASES, Case

N = 3


@pytest.fixture
def double_precision():
    with enable_x64():
        yield


def _stacked(case: Case, mapped: tuple[bool, ...]) -> list[list[np.ndarray]]:
    """N argument lists; arguments that are not mapped are the same in all of them."""
    lists = []
    for i in range(N):
        args = []
        for x, m in zip(case.args, mapped, strict=True):
            x = np.asarray(x)
            args.append(x * (1 + 0.01 * i) if m and i and x.size else x)
        lists.append(args)
    return lists


def _check(function: Any, lists: list[list[np.ndarray]], mapped: tuple[bool, ...], axis: int) -> None:
    expected = [tree_leaves(function(*args)) for args in lists]
    axes, stacks = [], []
    for i, m in enumerate(mapped):
        column = [args[i] for args in lists]
        dim = min(axis, column[0].ndim)
        axes.append(dim if m else None)
        stacks.append(np.stack(column, dim) if m else column[0])
    found = tree_leaves(sw.vmap(function, tuple(axes))(*stacks))
    for k, leaf in enumerate(found):
        np.testing.assert_allclose(
            np.asarray(leaf), np.stack([np.asarray(e[k]) for e in expected]), rtol=1e-9, atol=1e-9
        )


def _some(case: Case) -> list[tuple[bool, ...]]:
    """Which operands are mapped: each one alone, and all."""
    n = len(case.args)
    alone = [tuple(i == j for j in range(n)) for i in range(n)]
    return list(dict.fromkeys([*alone, (True,) * n]))


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_ops_as_in_a_loop(case: Case) -> None:
    function = lambda *xs: case.function(lax, *xs)  # noqa: E731
    for mapped, axis in zip(_some(case), itertools.cycle((0, 1)), strict=False):
        _check(function, _stacked(case, mapped), mapped, axis)


def _pulled(case: Case) -> Any:
    def both(*xs: Any) -> Any:
        function = lambda *ys: case.function(lax, *ys)  # noqa: E731
        out, pull = sw.vjp(function, *xs)
        return pull(jnp.ones(out.shape, out.dtype))

    return both


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("case", CASES[::3], ids=repr)
def test_gradients_as_in_a_loop(case: Case) -> None:
    for mapped in _some(case)[-1:]:
        _check(_pulled(case), _stacked(case, mapped), mapped, 0)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("case", CASES[1::3], ids=repr)
def test_gradients_of_mapped_functions(case: Case) -> None:
    """grad of vmap is the vmap of grad where everything is mapped, its sum where an argument is shared."""
    function = lambda *xs: case.function(lax, *xs)  # noqa: E731
    for mapped in _some(case):
        lists = _stacked(case, mapped)
        axes = tuple(0 if m else None for m in mapped)
        stacks = [np.stack([a[i] for a in lists]) if m else lists[0][i] for i, m in enumerate(mapped)]
        out, pull = sw.vjp(sw.vmap(function, axes), *stacks)
        found = pull(jnp.ones(out.shape, out.dtype))
        each = [_pulled(case)(*args) for args in lists]
        for i, m in enumerate(mapped):
            rows = np.stack([np.asarray(e[i]) for e in each])
            np.testing.assert_allclose(np.asarray(found[i]), rows if m else rows.sum(0), rtol=1e-12, atol=1e-12)


def test_one_product_for_all() -> None:
    """A mapped lhs is more rows of one matrix product."""
    program = sw.make_jaxpr(sw.vmap(jnp.matmul, (0, None)))(np.ones((5, 4, 3)), np.ones((3, 2)))
    (eqn,) = program.eqns
    assert eqn.op.name == "dot_general" and not any(eqn.params["dimension_numbers"][1])
    program = sw.make_jaxpr(sw.vmap(jnp.matmul))(np.ones((5, 4, 3)), np.ones((5, 3, 2)))
    assert [e.op.name for e in program.eqns] == ["dot_general"]


def test_gather_and_scatter_stay_themselves() -> None:
    rows = lambda table, i: table[i]  # noqa: E731
    program = sw.make_jaxpr(sw.vmap(sw.grad(lambda t, i: jnp.sum(rows(t, i))), (None, 0)))(
        np.ones((6, 2)), np.ones((4, 3), np.int32)
    )
    assert "vmapped" not in {e.op.name for e in program.eqns}


# -- collectives over the mapped axis --------------------------------------------------------------------------------------

COLLECTIVES = {
    "psum": lambda lax, x: lax.psum(x, "i"),
    "psum_unmapped": lambda lax, x: lax.psum(np.float32(2), "i") + x,
    "pmean": lambda lax, x: lax.pmean(x, "i"),
    "pmax": lambda lax, x: lax.pmax(x, "i"),
    "pmin": lambda lax, x: lax.pmin(x, "i"),
    "groups": lambda lax, x: lax.psum(x, "i", axis_index_groups=[[0, 2], [1, 3]]),
    "all_gather": lambda lax, x: lax.all_gather(x, "i"),
    "all_gather_axis": lambda lax, x: lax.all_gather(x, "i", axis=1),
    "all_gather_tiled": lambda lax, x: lax.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda lax, x: lax.psum_scatter(x, "i"),
    "psum_scatter_tiled": lambda lax, x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    "all_to_all": lambda lax, x: lax.all_to_all(x, "i", 0, 1),
    "all_to_all_tiled": lambda lax, x: lax.all_to_all(x, "i", 1, 0, tiled=True),
    "ppermute": lambda lax, x: lax.ppermute(x, "i", [(0, 2), (1, 3), (3, 0)]),
    "rotate": lambda lax, x: lax.ppermute(x, "i", [(j, (j + 1) % 4) for j in range(4)]),
    "pshuffle": lambda lax, x: lax.pshuffle(x, "i", [3, 1, 0, 2]),
    "axis_index": lambda lax, x: x * lax.axis_index("i").astype(np.float32),
    "axis_size": lambda lax, x: x * lax.psum(1, "i"),
}
NO_DERIVATIVE = {"pmax", "pmin"}
NOT_IN_JAX = {"groups", "ppermute"}  # over a mapped axis
WRONG_IN_JAX = {"all_to_all"}  # its gradient
VALUES = np.random.default_rng(0).standard_normal((4, 4, 8)).astype(np.float32)


def _by_devices(function: Any) -> Any:
    """`function` mapped over the devices of an axis instead of the elements of a dim."""
    mapped = lambda x: function(jnp.squeeze(x, 0))[None]  # noqa: E731
    mesh = sw.make_mesh((4,), ("i",), axis_types=(sw.sharding.AxisType.Auto,))
    return sw.shard_map(mapped, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=False)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_over_the_mapped_axis(name: str) -> None:
    """Elements of a vmap are to each other as devices are."""
    body = COLLECTIVES[name]
    plain = lambda v: body(lax, v)  # noqa: E731
    expected = np.asarray(sw.jit(_by_devices(plain))(VALUES))
    for axis in (0, 1):
        found = sw.vmap(plain, axis, axis_name="i")(np.moveaxis(VALUES, 0, axis))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)
    if name in NO_DERIVATIVE:
        with pytest.raises(NotImplementedError, match=name):
            sw.vmap(sw.grad(lambda v: jnp.sum(plain(v))), axis_name="i")(VALUES)
        return
    gradient = sw.grad(lambda v: jnp.sum(jnp.sin(plain(v))))
    inside = np.asarray(sw.jit(_by_devices(gradient))(VALUES))
    close: dict[str, Any] = dict(rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(np.asarray(sw.vmap(gradient, axis_name="i")(VALUES)), inside, **close)
    np.testing.assert_allclose(np.asarray(sw.jit(sw.vmap(sw.jit(gradient), axis_name="i"))(VALUES)), inside, **close)
    total = lambda mapped: sw.grad(lambda x: jnp.sum(jnp.sin(mapped(x))))(VALUES)  # noqa: E731
    np.testing.assert_allclose(np.asarray(total(sw.vmap(plain, axis_name="i"))), total(_by_devices(plain)), **close)


@pytest.mark.parametrize("name", sorted(set(COLLECTIVES) - NOT_IN_JAX))
def test_collectives_as_in_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    body = COLLECTIVES[name]
    theirs = jax.jit(jax.vmap(lambda v: body(jax.lax, v), axis_name="i"))(VALUES)
    np.testing.assert_allclose(
        np.asarray(sw.vmap(lambda v: body(lax, v), axis_name="i")(VALUES)), theirs, rtol=1e-5, atol=1e-6
    )
    if name in NO_DERIVATIVE | WRONG_IN_JAX:
        return
    theirs = jax.jit(jax.vmap(jax.grad(lambda v: jax.numpy.sum(jax.numpy.sin(body(jax.lax, v)))), axis_name="i"))(
        VALUES
    )
    ours = sw.vmap(sw.grad(lambda v: jnp.sum(jnp.sin(body(lax, v)))), axis_name="i")(VALUES)
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=2e-6, atol=1e-6)


def test_nested_names() -> None:
    x = VALUES[:, :, 0]
    both = sw.vmap(sw.vmap(lambda v: lax.psum(v, "i") - lax.psum(v, "j"), axis_name="j"), axis_name="i")(x)
    np.testing.assert_allclose(both, x.sum(0)[None] - x.sum(1)[:, None], rtol=1e-6, atol=1e-6)
    total = sw.vmap(sw.vmap(lambda v: lax.psum(v, ("i", "j")), axis_name="j"), axis_name="i")(x)
    np.testing.assert_allclose(total, np.full((4, 4), x.sum()), rtol=1e-5)
    index = sw.vmap(sw.vmap(lambda v: lax.axis_index(("j", "i")), axis_name="j"), axis_name="i")(x)
    np.testing.assert_array_equal(index, np.arange(16).reshape(4, 4).T)


# -- shard_map inside and outside ------------------------------------------------------------------------------------------


def _mesh(*names: str) -> Any:
    return sw.make_mesh((4, 2)[: len(names)], names, axis_types=(sw.sharding.AxisType.Auto,) * len(names))


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("in_axis, out_axis", [(0, 0), (1, 2), (2, 1)])
def test_vmap_of_shard_map(check: bool, in_axis: int, out_axis: int) -> None:
    def body(x, w):
        return lax.psum(jnp.sin(x) @ w, "x")

    mapped = sw.shard_map(body, mesh=_mesh("x"), in_specs=(P(None, "x"), P("x")), out_specs=P(), check_vma=check)
    x, w = np.random.default_rng(1).standard_normal((5, 3, 8)).astype(np.float32), np.ones((8, 2), np.float32)
    expected = np.sin(x) @ w
    stacked = np.moveaxis(x, 0, in_axis)
    both = lambda xs: sw.vmap(mapped, (in_axis, None), out_axis)(xs, w)  # noqa: E731
    for function in (both, sw.jit(both)):
        np.testing.assert_allclose(function(stacked), np.moveaxis(expected, 0, out_axis), rtol=1e-5, atol=1e-6)
    gradient = sw.grad(lambda w: jnp.sum(sw.vmap(mapped, (in_axis, None))(stacked, w)))(w)
    np.testing.assert_allclose(gradient, np.repeat(np.sin(x).sum((0, 1))[:, None], 2, 1), rtol=1e-6, atol=1e-6)


def test_names_of_vmap_inside_shard_map() -> None:
    def body(x):
        return sw.vmap(lambda v: v - lax.pmean(v, ("i", "x")), axis_name="i")(x)

    x = np.arange(8, dtype=np.float32)
    out = sw.jit(shard_map(body, mesh=_mesh("x"), in_specs=P("x"), out_specs=P("x")))(x)
    np.testing.assert_allclose(out, x - x.mean(), rtol=1e-5)


def test_spmd_axis_name() -> None:
    mesh = _mesh("x", "y")
    mapped = sw.shard_map(lambda v: v * lax.axis_index("x"), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    x = np.ones((4, 8), np.float32)
    out = sw.jit(sw.vmap(mapped, spmd_axis_name="y"))(x)
    np.testing.assert_array_equal(out, np.tile(np.repeat(np.arange(4), 2), (4, 1)))
    assert tuple(out.sharding.spec) == ("y", "x")
    with pytest.raises(ValueError, match="spmd_axis_name"):
        sw.vmap(mapped, spmd_axis_name="x")(x)
    constrain = lambda v: lax.with_sharding_constraint(jnp.sin(v), sw.NamedSharding(mesh, P("x")))  # noqa: E731
    assert tuple(sw.jit(sw.vmap(constrain, spmd_axis_name="y"))(x).sharding.spec) == ("y", "x")


# -- other compositions ------------------------------------------------------------------------------------------------------


def test_jit_inside() -> None:
    f = sw.jit(lambda x, n: {"a": x * n, "b": jnp.cumsum(x)})
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    out = sw.vmap(f, (1, None), out_axes={"a": 1, "b": 0})(x, 2.0)
    np.testing.assert_array_equal(out["a"], x * 2)
    np.testing.assert_array_equal(out["b"], np.cumsum(x, 0).T)
    with_shardings = sw.jit(jnp.sin, in_shardings=sw.NamedSharding(_mesh("x"), P("x")))
    np.testing.assert_allclose(
        sw.vmap(with_shardings)(np.ones((3, 4), np.float32)), np.sin(np.ones((3, 4), np.float32))
    )


def test_random() -> None:
    keys = sw.random.split(sw.random.key(0), 4)
    for function in (
        lambda k: sw.random.normal(k, (3,)),
        lambda k: sw.random.uniform(k),
        lambda k: sw.random.bits(k, (2, 2)),
        lambda k: sw.random.key_data(sw.random.split(k)[0]),
        lambda k: sw.random.permutation(k, 5),
    ):
        expected = np.stack([np.asarray(function(keys[i])) for i in range(4)])
        np.testing.assert_array_equal(np.asarray(sw.vmap(function)(keys)), expected)
        np.testing.assert_array_equal(np.asarray(sw.jit(sw.vmap(function))(keys)), expected)
    scaled = lambda k, s: sw.random.normal(k, (2,)) * s  # noqa: E731
    s = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(
        sw.vmap(scaled, (None, 0))(keys[0], s), s[:, None] * np.asarray(scaled(keys[0], 1.0)), rtol=1e-6
    )


def test_sharded_arguments() -> None:
    mesh = _mesh("x")
    x = sw.device_put(VALUES, sw.NamedSharding(mesh, P("x")))
    functions: list[Callable[[Any], Any]] = [
        jnp.sort,
        lambda v: v @ v.T,
        lambda v: v[1],
        jnp.linalg.norm,
        lambda v: jnp.where(v > 0, v, 0),
    ]
    for function in functions:
        expected = np.stack([np.asarray(function(v)) for v in VALUES])
        np.testing.assert_allclose(np.asarray(sw.vmap(function)(x)), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(sw.jit(sw.vmap(function))(x)), expected, rtol=1e-5, atol=1e-5)


def test_what_is_not_mapped_follows_the_split_of_explicit_arguments() -> None:
    """On a mesh of Explicit axes results are split as the mapped dim is, also where operands or the result have no such dim."""
    mesh = sw.make_mesh((2, 2), ("x", "y"), (AxisType.Explicit,) * 2, devices=sw.devices()[:4])
    with use_mesh(mesh):
        x = sw.device_put(np.arange(16.0, dtype=np.float32).reshape(4, 4), P("x", "y"))
        index = sw.device_put(np.array([0, 1, 3, 2]), P("x"))
        same = jnp.ones((4,), jnp.float32)
        inner = auto_axes(lambda r: jnp.where(r > 2, 1.0, r), out_sharding=P("y"))
        mapped = {
            "result": (sw.vmap(lambda r: same, out_axes=1)(x), P(None, "x")),
            "concatenate": (sw.vmap(lambda i, s: jnp.concatenate([i[None], s]), in_axes=(0, None))(index * 1.0, same), P("x", None)),
            "where": (sw.vmap(lambda r: jnp.where(r > 0, r, 0))(x), P("x", "y")),
            "gather": (sw.vmap(lambda i: same.at[i[None]].get(out_sharding=P(None)))(index), P("x", None)),
            "switch": (sw.vmap(lambda i: lax.switch(i, [lambda: same] * 4))(index), P("x", None)),
            "auto_axes": (sw.vmap(inner)(x), P("x", "y")),
        }  # fmt: skip
    for name, (out, spec) in mapped.items():
        assert out.sharding == NamedSharding(mesh, spec), (name, out.sharding)


def test_trees_and_errors() -> None:
    out = sw.vmap(lambda t, y: tree_map(lambda v: v + y, t), ({"a": 0, "b": None}, None))(
        {"a": np.arange(3.0), "b": 1.0}, 2.0
    )
    np.testing.assert_array_equal(out["a"], [2, 3, 4])
    np.testing.assert_array_equal(out["b"], [3, 3, 3])
    one: Callable[[], Any] = lambda: 1.0  # noqa: E731
    assert sw.vmap(one, axis_size=3)().shape == (3,)
    with pytest.raises(ValueError, match="inconsistent sizes"):
        sw.vmap(jnp.add)(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="out_axes is None"):
        sw.vmap(jnp.sin, out_axes=None)(np.ones(2))
    with pytest.raises(NameError, match="unbound axis name"):
        sw.vmap(lambda v: lax.psum(v, "i"))(np.ones(2))


def test_what_no_axis_maps_comes_out_as_it_is():
    """A Python number or a host array keeps its type, as it does on the way in."""
    host = np.ones(2, np.float64)
    out = sw.vmap(
        lambda x, n, h: (x.reshape(n, 2), n, h, str(n) == "3", 1j), in_axes=(0, None, None), out_axes=(0, *[None] * 4)
    )(np.ones((4, 6)), 3, host)
    assert out[0].shape == (4, 3, 2) and out[2] is host
    assert [type(x) for x in out[1:]] == [int, np.ndarray, bool, complex]
    with pytest.raises(TypeError):
        sw.vmap(lambda x: (x, "text"), out_axes=(0, None))(np.ones(3))


@sw.custom_jvp
def _tripled(x, y):
    return x, 2 * y


@sw.custom_vjp
def _tripled_backwards(x, y):
    return x, 2 * y


@sw.custom_jvp
def _scaled(x, y):
    del y
    return x


_tripled.defjvp(lambda xs, ts: (_tripled(*xs), (3 * ts[0], 2 * ts[1])))
_tripled_backwards.defvjp(lambda x, y: (_tripled_backwards(x, y), None), lambda _, cts: (3 * cts[0], 2 * cts[1]))
_scaled.defjvp(lambda xs, ts: (_scaled(*xs), ts[0] * xs[1]))


_called = sw.jit(lambda a, b: (a, b + a))


def _looped(a, b):
    return lax.scan(lambda c, _: ((c[0], c[1] + 1), None), (a, b), None, length=2)[0]


def _branched(a, b):
    return lax.cond(b > 0, _looped, _called, *lax.while_loop(lambda c: c[1] < 1, lambda c: (c[0], c[1] + 1), (a, b)))


@pytest.mark.parametrize(
    ("fun", "slope"),
    [
        (_tripled, 3),
        (_tripled_backwards, 3),
        (lambda x, y: lax.cond(y > 1, lambda a, b: (a, b), lambda a, b: (a, b + a), x, y), 1),
        (lambda x, y: lax.while_loop(lambda c: c[1] < 5, lambda c: (c[0], c[1] + c[0]), (x, y)), None),
        (lambda x, y: lax.cond(y > 1, _looped, _called, x, y), 1),
        (lambda x, y: lax.while_loop(lambda c: c[1] < 5, lambda c: _looped(*_called(*c)), (x, y)), None),
        (lambda x, y: lax.switch(jnp.int32(y), [_looped, _branched, _called], x, y), 1),
    ],
    ids=["custom_jvp", "custom_vjp", "cond", "while_loop", "by_loops", "by_steps", "by_branches"],
)
def test_what_a_mapped_call_hands_through_is_not_mapped(fun, slope):
    mapped = sw.vmap(fun, in_axes=(None, 0), out_axes=(None, 0))
    first = lambda x: mapped(x, jnp.arange(3.0))[0]  # noqa: E731
    assert mapped(2.0, jnp.arange(3.0))[0].shape == sw.jit(first)(2.0).shape == ()
    if slope is not None:
        assert sw.grad(first)(2.0) == sw.grad(sw.jit(first))(2.0) == slope


def test_one_element_does_not_stand_for_others_whose_tangents_differ():
    one = lambda x: sw.vmap(_scaled, in_axes=(None, 0), out_axes=None)(x, jnp.arange(3.0))  # noqa: E731
    assert one(2.0) == 2.0
    for f in (one, sw.jit(one)):
        with pytest.raises(ValueError, match="out_axes is None"):
            sw.grad(f)(2.0)
    assert sw.grad(lambda x: sw.vmap(_scaled, in_axes=(None, 0))(x, jnp.arange(3.0)).sum())(2.0) == 3.0


def test_the_error_of_another_axis_size_names_it():
    with pytest.raises(ValueError, match="argument 0 has size 2 along dim 0, axis_size is 5"):
        sw.vmap(lambda x: x, axis_size=5)(np.ones((2, 3)))


_COLLECTIVES = {
    "psum": lambda x: lax.psum(x, "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "pmax": lambda x: lax.pmax(x, "i"),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]),
    "axis_index": lambda x: lax.axis_index("i") + x,
    "all_to_all": lambda x: lax.all_to_all(jnp.full(N, x), "i", 0, 0),
    "psum_scatter": lambda x: lax.psum_scatter(jnp.full(N, x), "i"),
}
_CALLS = {
    "jit": sw.jit,
    "checkpoint": sw.checkpoint,
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c, f(x)), 0.0, None, length=2)[1],
    "cond": lambda f: lambda x: lax.cond(x < 9, f, f, x),
    "custom_jvp": sw.custom_jvp,
    "vmap": lambda f: lambda x: sw.vmap(f)(jnp.stack([x, x])),
}


@pytest.mark.parametrize("name", _COLLECTIVES)
def test_collectives_in_calls_on_values_that_are_not_mapped(name: str) -> None:
    """A call that communicates over the mapped axis belongs to the map, even if none of its operands is mapped."""
    f = _COLLECTIVES[name]
    for call, wrap in _CALLS.items():
        if call == "custom_jvp":
            wrapped = sw.custom_jvp(f)
            wrapped.defjvp(lambda p, t: (f(*p), f(*t)))
        else:
            wrapped = wrap(f)
        ours = sw.vmap(lambda _, x, g=wrapped: g(x), (0, None), axis_name="i")(jnp.arange(3.0), 2.0)
        plain = f if call in ("jit", "checkpoint", "cond", "custom_jvp") else wrapped
        expected = sw.vmap(plain, axis_name="i")(jnp.full(N, 2.0))
        np.testing.assert_array_equal(ours, expected, err_msg=call)
    total = sw.vmap(lambda _, x: sw.jit(lambda x: lax.psum(x, "i"))(x), (0, None), None, axis_name="i")
    assert float(total(jnp.arange(3.0), 2.0)) == 6
