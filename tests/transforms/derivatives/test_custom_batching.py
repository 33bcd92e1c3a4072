"""Maps given by hand, under maps of maps, jit and derivatives."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.custom_batching import custom_vmap, sequential_vmap

ROW = np.arange(3, dtype=np.float32)


def _product_when_mapped():
    seen = []

    @custom_vmap
    def f(x, y):
        return x + y

    @f.def_vmap
    def rule(axis_size, in_batched, x, y):
        seen.append((axis_size, in_batched))
        return x * y, in_batched[0] or in_batched[1]

    return f, seen


def test_the_rule_is_what_vmap_runs() -> None:
    f, seen = _product_when_mapped()
    assert f(1.0, 2.0) == 3 and sw.jit(f)(1.0, 2.0) == 3
    np.testing.assert_array_equal(sw.vmap(f)(ROW, ROW), ROW**2)
    np.testing.assert_array_equal(sw.vmap(f, (0, None))(ROW, 2.0), ROW * 2)
    assert seen == [(3, [True, True]), (3, [True, False])]
    np.testing.assert_array_equal(sw.jit(sw.vmap(f))(ROW, ROW), ROW**2)
    np.testing.assert_array_equal(
        sw.vmap(sw.jit(f), (1, None))(np.full((2, 3), 2.0, np.float32), 3.0), np.full((3, 2), 6.0)
    )
    np.testing.assert_array_equal(sw.vmap(sw.vmap(f, (0, None)), (None, 0))(ROW, ROW[:2]), ROW[:2, None] * ROW)


def test_trees_and_parts_that_are_not_mapped() -> None:
    @custom_vmap
    def f(p):
        return {"sum": p["a"] + p["b"], "b": p["b"]}

    @f.def_vmap
    def rule(axis_size, in_batched, p):
        assert in_batched == [{"a": True, "b": False}]
        return {"sum": p["a"] + p["b"], "b": p["b"]}, {"sum": True, "b": False}

    found = sw.vmap(f, ({"a": 0, "b": None},))({"a": ROW, "b": 1.0})
    np.testing.assert_array_equal(found["sum"], ROW + 1)
    np.testing.assert_array_equal(found["b"], np.ones(3))


def test_derivatives_are_those_of_the_function() -> None:
    f, _ = _product_when_mapped()
    assert sw.grad(f)(1.0, 2.0) == 1 and sw.jit(sw.grad(f, 1))(1.0, 2.0) == 1
    out, tangent = sw.jvp(sw.vmap(f), (ROW, ROW), (np.ones(3, np.float32), np.zeros(3, np.float32)))
    np.testing.assert_array_equal(out, ROW**2)  # the rule, differentiated
    np.testing.assert_array_equal(tangent, ROW)


def _cos_when_mapped(expected):
    @custom_vmap
    def f(x):
        return jnp.sin(x)

    @f.def_vmap
    def rule(axis_size, in_batched, x):
        assert (axis_size, in_batched) == (3, [expected])
        return jnp.cos(x), in_batched[0]

    return f


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_map_of_the_derivative_takes_the_derivative_of_the_rule(axes, compiled) -> None:
    f = _cos_when_mapped(expected=axes == (0, 0))
    x, t = (ROW if a == 0 else np.float32(2.0) for a in axes)
    pushed = sw.vmap(lambda x, t: sw.jvp(f, (x,), (t,)), axes)
    out, tangent = (sw.jit(pushed) if compiled else pushed)(x, t)
    np.testing.assert_allclose(out, np.cos(x + 0 * t), rtol=1e-6)
    np.testing.assert_allclose(tangent, -np.sin(x) * t, rtol=1e-6)


def test_maps_of_derivatives_of_several_arguments() -> None:
    f, seen = _product_when_mapped()
    pushed = sw.vmap(lambda x, y, t: sw.jvp(f, (x, y), (t, 0.0)), (0, 0, 0))
    out, tangent = pushed(ROW, ROW + 1, ROW + 2)
    np.testing.assert_array_equal(out, ROW * (ROW + 1))
    np.testing.assert_array_equal(tangent, (ROW + 1) * (ROW + 2))
    out, tangent = sw.vmap(lambda x, t: sw.jvp(lambda x: f(x, 2.0), (x,), (t,)))(ROW, ROW)
    np.testing.assert_array_equal(tangent, 2 * ROW)
    assert seen[-1] == (3, [True, False])


def test_tangents_that_are_not_mapped_leave_unmapped_results_so() -> None:
    """The rule gets elements then, and what it says of its result holds for them."""
    zero = custom_vmap(jnp.sin)
    zero.def_vmap(lambda size, batched, x: (jnp.zeros(()), False))
    assert sw.vmap(lambda x: sw.jvp(zero, (x,), (1.0,)), out_axes=None)(ROW) == (0.0, 0.0)
    row = custom_vmap(jnp.sin)
    row.def_vmap(lambda size, batched, x: (jnp.full(size, 2.0), True))
    out, tangent = sw.vmap(lambda x: sw.jvp(row, (x,), (1.0,)))(ROW)
    np.testing.assert_array_equal([out, tangent], [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    scaled = custom_vmap(lambda x, y: x * y)
    scaled.def_vmap(lambda size, batched, x, y: (3 * x * y, True))  # meant for mapped arguments alone
    out, tangent = sw.vmap(lambda x: sw.jvp(lambda x: scaled(x, 2.0), (x,), (1.0,)))(ROW)
    np.testing.assert_array_equal([out, tangent], [6 * ROW, [6.0, 6.0, 6.0]])


def test_higher_derivatives_and_reverse_ones_of_maps() -> None:
    f = _cos_when_mapped(expected=True)
    twice = sw.vmap(lambda x, t: sw.jvp(lambda x: sw.jvp(f, (x,), (t,))[1], (x,), (t,))[1])
    np.testing.assert_allclose(twice(ROW, np.ones(3, np.float32)), -np.cos(ROW), rtol=1e-6)
    over = sw.grad(lambda x: sw.vmap(lambda x, t: sw.jvp(f, (x,), (t,))[1])(x, jnp.ones(3)).sum())
    np.testing.assert_allclose(over(ROW), -np.cos(ROW), rtol=1e-6)


def test_rules_of_the_inner_object_are_set_through_the_outer_one() -> None:
    @custom_vmap
    @sw.custom_jvp
    def f(x):
        return 2.0 * x

    f.def_vmap(lambda size, batched, x: (5.0 * x, True))
    f.defjvp(lambda x, t: (2.0 * x[0], 3.0 * t[0]))
    assert sw.jvp(f, (1.0,), (1.0,)) == (2.0, 3.0)
    np.testing.assert_array_equal(sw.vmap(f)(ROW), 5 * ROW)

    @sw.custom_vjp
    @custom_vmap
    def g(x):
        return 2.0 * x

    g.defvjp(lambda x: (2.0 * x, None), lambda _, ct: (3.0 * ct,))
    cast(Any, g).def_vmap(lambda size, batched, x: (5.0 * x, True))
    assert sw.grad(g)(1.0) == 3.0
    np.testing.assert_array_equal(sw.vmap(g)(ROW), 5 * ROW)
    with pytest.raises(AttributeError, match="no attribute 'rules'"):
        f.rules  # noqa: B018


def test_sequential() -> None:
    f = sequential_vmap(lambda x, y: {"a": x * y})
    np.testing.assert_array_equal(sw.vmap(f, (0, None))(ROW, 2.0)["a"], ROW * 2)
    np.testing.assert_array_equal(sw.vmap(f, (1, 0))(np.ones((2, 3), np.float32), ROW)["a"], np.stack([ROW, ROW], 1))
    np.testing.assert_array_equal(sw.jit(sw.vmap(f))(ROW, ROW)["a"], ROW**2)


def test_mistakes() -> None:
    bare = custom_vmap(jnp.sin)
    with pytest.raises(AttributeError, match="No batching rule defined for custom_vmap function sin"):
        sw.vmap(bare)(ROW)
    bare.def_vmap(lambda axis_size, in_batched, x: ((x, x), [True, True]))
    with pytest.raises(ValueError, match="structure"):
        sw.vmap(bare)(ROW)
    bare.def_vmap(lambda axis_size, in_batched, x: x)
    with pytest.raises(ValueError, match="pair"):
        sw.vmap(bare)(ROW)
    bare.def_vmap(lambda axis_size, in_batched, x: (x[:2], True))
    with pytest.raises(ValueError, match="first dim must be 3"):
        sw.vmap(bare)(ROW)
