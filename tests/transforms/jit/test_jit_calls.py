"""Calls of jitted functions: what a repeated call may take the short way for, and what it must tell apart."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import config


def doubled(x, times=2):
    return x * times


@jax.jit
def tripled(x):
    return 3 * x


doubled_by_jit = jax.jit(doubled, static_argnames="times")


def counted(fun, **options):
    """`jit(fun)`, and a list with an item for each trace."""
    traces = []

    def counting(*args, **kwargs):
        traces.append(1)
        return fun(*args, **kwargs)

    return jax.jit(counting, **options), traces


def test_static_arguments_are_told_apart_by_type_and_value():
    f, traces = counted(lambda x, n: x * n if n is not True else x - 1, static_argnums=1)
    x = jnp.arange(3.0)
    for n, want in ((2, [0, 2, 4]), (2.0, [0, 2, 4]), (1, [0, 1, 2]), (True, [-1, 0, 1]), (1.0, [0, 1, 2])):
        for _ in range(2):
            np.testing.assert_array_equal(np.asarray(f(x, n)), want)
    assert len(traces) == 5
    with pytest.raises(ValueError, match="Non-hashable static arguments"):
        f(x, [2])
    np.testing.assert_array_equal(np.asarray(f(x, 2)), [0, 2, 4])


def test_static_arguments_by_name_and_from_the_end():
    f, traces = counted(lambda x, *, how="up": x + 1 if how == "up" else x - 1, static_argnames="how")
    x = jnp.arange(3.0)
    for _ in range(2):
        assert float(f(x, how="up")[0]) == 1 and float(f(x, how="down")[0]) == -1 and float(f(x)[0]) == 1
    assert len(traces) == 3
    product: Callable[..., Any] = lambda *args: args[0] * args[-1]  # noqa: E731
    last = jax.jit(product, static_argnums=-1)
    assert float(last(x, 3)[2]) == 6 and float(last(x, x, 5)[2]) == 10 and float(last(x, 4)[2]) == 8


def test_keywords_in_any_order():
    f, traces = counted(lambda x, *, a, b: x + a - b)
    x, y, z = jnp.array(1.0), jnp.array(10.0), jnp.array(100.0)
    for _ in range(2):
        assert float(f(x, a=y, b=z)) == -89
        assert float(f(x, b=z, a=y)) == -89
        assert float(f(x, a=z, b=y)) == 91
    assert len(traces) == 1
    g = jax.jit(lambda x, y: x - y)
    for _ in range(2):
        assert float(g(x, y)) == -9 and float(g(x, y=y)) == -9 and float(g(y=y, x=x)) == -9 and float(g(x=y, y=x)) == 9


def test_numbers_and_host_arrays():
    f, traces = counted(lambda x, s: x * s)
    x = jnp.arange(3, dtype=jnp.float32)
    for s in (2.0, 3.0, -0.0):
        np.testing.assert_array_equal(np.signbit(np.asarray(f(x, s))), np.signbit(np.arange(3) * s))
    assert len(traces) == 1
    assert f(x, 2).dtype == np.float32 and f(jnp.arange(3), 2).dtype == np.int32
    assert f(jnp.arange(3), 2.0).dtype == np.float32 and f(x, True).dtype == np.float32
    count = len(traces)
    for _ in range(2):
        assert f(x, np.float32(2)).dtype == np.float32
        assert f(np.ones(3, np.float32), np.ones(3, np.float32)).dtype == np.float32
    assert len(traces) == count + 2
    with pytest.raises(OverflowError):
        f(x, 1 << 40)
    with jax.enable_x64(True):
        assert f(x, 1 << 40).dtype == np.float32
        assert jax.jit(lambda s: s * 2)(1 << 40).dtype == np.int64


def test_trees():
    f, traces = counted(lambda tree, extra: (tree["a"] + tree["b"][0], extra))
    x = jnp.ones(3)
    for _ in range(2):
        out, extra = f({"a": x, "b": (x, None)}, [])
        assert float(out[0]) == 2 and extra == []
        out, extra = f({"b": (x, None), "a": x}, [])
        out, extra = f({"a": x, "b": [x, None]}, [x])
        assert len(extra) == 1
    assert len(traces) == 2
    with pytest.raises(TypeError, match="abstract array"):
        f({"a": x, "b": ("no", None)}, [])
    assert jax.jit(lambda: jnp.ones(2) + 1)().shape == (2,)


def test_settings_are_heeded_on_the_short_way():
    traces = []

    def fun(x):
        traces.append(1)
        return x * 2

    f = jax.jit(fun)
    x = jnp.ones(3)
    assert f(x) is not f(x)
    assert len(traces) == 1
    with jax.disable_jit():
        assert f(x) is not f(x)
    assert len(traces) == 3
    f(x)
    assert len(traces) == 3
    assert jax.jit(lambda x: f(x) + f(x))(x).shape == (3,)  # in another trace
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        f(x)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "var", "argmax", "any"])
def test_functions_of_several_ops_take_settings(name):
    fun = getattr(jnp, name)
    values = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    x = jnp.asarray(values)
    reference = getattr(np, name)
    for settings in ({}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": None}):
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(fun(x, **settings)), reference(values, **settings), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(fun(x, 1)), reference(values, 1), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(fun(values, 1)), reference(values, 1), rtol=1e-5)  # a host array
    np.testing.assert_allclose(np.asarray(jax.jit(lambda x: fun(x, axis=1))(x)), reference(values, 1), rtol=1e-5)
    if name in ("sum", "max"):
        for start in (2.0, 3.0, float("nan")):
            np.testing.assert_allclose(
                np.asarray(fun(x, initial=start)), reference(values, initial=np.float32(start)), rtol=1e-5
            )
        mask = jnp.asarray(values > 0)
        np.testing.assert_allclose(
            np.asarray(fun(x, where=mask, initial=0.0)), reference(values, where=values > 0, initial=0), rtol=1e-5
        )


def test_products_keep_weak_types_and_explain_errors():
    x = jnp.ones((3, 4))
    assert (x @ x.T).shape == (3, 3) and jnp.dot(x, x.T, precision="highest").dtype == np.float32
    assert jnp.matmul(x, x.T, preferred_element_type=jnp.float64 if config.x64 else jnp.float32).shape == (3, 3)
    for _ in range(2):
        with pytest.raises(TypeError, match="dot_general"):
            jnp.matmul(x, x)
    weak = jnp.asarray(2.0)
    assert jnp.dot(weak, weak).weak_type == weak.weak_type


@pytest.mark.parametrize("wrap", [jax.jit, jax.pmap])
def test_signatures_of_wrapped_functions(wrap):
    wrapped = wrap(lambda x, n=2: x * n)
    for follow in (True, False):
        assert str(inspect.signature(wrapped, follow_wrapped=follow)) == "(x, n=2)"
    assert not hasattr(jax.jit(max), "__signature__")
    assert type(jax.jit(jnp.sin)).__name__ == "PjitFunction"


def test_trees_of_all_kinds_find_their_program():
    """Trees are told apart by their containers, names and what their leaves are, also where leaves are alike."""
    x, y = jnp.ones(3), jnp.arange(3.0)
    traces = []

    class Pair(NamedTuple):
        a: Any
        b: Any

    def total(*trees, **named):
        traces.append(1)
        leaves = jax.tree.leaves((trees, named))
        return sum(jnp.sum(leaf) * (i + 1) for i, leaf in enumerate(leaves))

    f = jax.jit(total)
    calls = [
        (({"a": x, "b": y},), {}), (({"a": x, "c": y},), {}), (([x, y],), {}), (((x, y),), {}), ((x, y), {}),
        (((x,), (y,)), {}), (([(x,), y],), {}), (([x, (y,)],), {}), (([[x], y],), {}), (([x, None, y],), {}),
        (([x, y, None],), {}), ((Pair(x, y),), {}), (({"a": Pair(x, y)},), {}), (({1: x, "a": y},), {}), ((x,), {"a": y}),
        (({"a": x},), {"a": y}), (([x, 2.0],), {}), (([x, 2],), {}), (([x, np.float32(2)],), {}), (({},), {}),
        (([x, np.ones(4, np.float32)],), {}), (({"b": {"a": x}, "a": [y]},), {}), (({"b": {"a": x}, "a": (y,)},), {}),
    ]  # fmt: skip
    for args, named in calls:
        before = len(traces)
        first = f(*args, **named)
        assert len(traces) == before + 1, args
        assert f(*args, **named) == first == total(*args, **named)
        assert len(traces) == before + 2  # the second of them is ours
    before = len(traces)
    assert f({"b": y, "a": x}) == f({"a": x, "b": y}) == 1 * 3 + 2 * 3
    assert len(traces) == before
    with pytest.raises(TypeError, match="abstract array"):
        f({"a": x, "b": "text"})


def test_arguments_by_name_where_in_shardings_are_none():
    f = jax.jit(lambda a, *, b: a + b["c"], in_shardings=None)
    assert float(f(1.0, b={"c": 2.0})) == 3.0
    assert float(f.lower(1.0, b={"c": 2.0}).compile()(1.0, b={"c": 3.0})) == 4.0


@pytest.mark.parametrize("options", [{}, {"out_shardings": None}, {"out_shardings": (None, None)}])
def test_results_of_classes_that_look_at_shapes(options):
    @jax.tree_util.register_pytree_node_class
    class Points:
        def __init__(self, x):
            self.x, self.count = x, x.shape[0]

        def tree_flatten(self):
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, aux, children):
            return cls(*children)

    points, total = jax.jit(lambda x: (Points(x * 2), x.sum()), **options)(jnp.ones((3, 2)))
    assert points.count == 3 and float(total) == 6.0


def test_a_device_holds_results_that_no_argument_places():
    device = jax.devices()[1]
    with pytest.warns(DeprecationWarning, match="device"):
        f = jax.jit(lambda *unused: (jnp.ones(2), 3.0), device=device)
    results: tuple[Any, ...] = (*f(), *f(np.zeros(2)))
    for out in results:
        assert out.committed
        assert out.devices() == {device}


@pytest.mark.parametrize(
    "f",
    [doubled_by_jit, tripled, jnp.sin, jax.nn.gelu, jax.config],
    ids=["doubled", "tripled", "sin", "gelu", "config"],
)
def test_jitted_functions_are_copied_and_pickled_like_functions(f):
    for other in (copy.copy(f), copy.deepcopy([f])[0], pickle.loads(pickle.dumps(f))):
        assert (other is f) == (f is not doubled_by_jit)
        if f is not jax.config:
            np.testing.assert_array_equal(other(jnp.ones(2)), f(jnp.ones(2)))
    if f is doubled_by_jit:
        assert float(copy.deepcopy(f)(1.0, times=5)) == 5.0


def test_a_host_array_is_one_constant_whose_later_values_are_another():
    table = np.arange(4.0)

    def layers(x):
        for _ in range(3):
            x = jnp.sin(x * table)
        x, _ = jax.lax.scan(lambda c, _: (c + table, None), x, None, length=2)
        table[0] += 1
        return x, table + 0 * x

    assert len(jax.make_jaxpr(layers)(jnp.ones(4)).consts) == 2
    table[0] = 0
    assert jax.jit(layers)(jnp.zeros(4))[1].tolist() == [1.0, 1.0, 2.0, 3.0]


def test_a_host_array_is_another_constant_where_the_types_or_the_device_are_others():
    table = np.arange(3.0)
    device = jax.devices()[1]

    def g(x):
        with jax.enable_x64(True):
            wide = jnp.asarray(table)
        with jax.default_device(device):
            there = jax.jit(lambda: jnp.asarray(table))()
        return x * table, wide, there

    narrow, wide, there = g(jnp.ones(3))
    assert (narrow.dtype, wide.dtype, there.devices()) == (jnp.float32, jnp.float64, {device})
