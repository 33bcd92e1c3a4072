"""Functions and rules of the user's get arrays where a program has constants: operators of Python work on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.custom_derivatives import linear_call
from shardwise.extend.core import Primitive
from shardwise.interpreters import ad, batching

Two = Callable[[Any], Any]


def _seen(*values: Any) -> Any:
    """The first of the values, all of which are arrays."""
    assert all(isinstance(x, sw.Array) for x in values), values
    return values[0]


def _custom_jvp(y: Any) -> Any:
    f = sw.custom_jvp(lambda a, b: _seen(a, b) * b)
    f.defjvp(lambda p, t: (p[0] * p[1], (_seen(*p, *t) + 0) * t[1]))
    return f(2.0, y)


def _custom_vjp(y: Any) -> Any:
    f = sw.custom_vjp(lambda a, b: _seen(a, b) * b)
    f.defvjp(lambda a, b: (_seen(a, b) * b, (a, b)), lambda r, ct: (ct, (_seen(*r, ct) + 0) * ct))
    return f(2.0, y)


def _symbolic_zeros(y: Any) -> Any:
    f = sw.custom_vjp(lambda a, b: a * b)
    f.defvjp(
        lambda a, b: (_seen(a.value, b.value) * b.value, (a.value, b.value)),
        lambda r, ct: (ct, (_seen(*r, ct) + 0) * ct),
        symbolic_zeros=True,
    )
    return f(2.0, y)


def _custom_gradient(y: Any) -> Any:
    @sw.custom_gradient
    def f(a: Any, b: Any) -> Any:
        return a * b, lambda ct: (ct, (_seen(a, ct) + 0) * ct)

    return f(2.0, y)


def _custom_vmap(y: Any) -> Any:
    f = sw.custom_batching.custom_vmap(lambda a, b: a * b)
    f.def_vmap(lambda size, batched, a, b: ((_seen(a, b) + 0) * b, any(batched)))
    return f(2.0, y)


def _linear_call(y: Any) -> Any:
    return linear_call(lambda r, x: x * (r + 1), lambda r, ct: ct * (_seen(r, ct) + 1), 1.0, y)


_product = Primitive("product_of_two")
_product.def_impl(lambda a, b: _seen(a, b) * b)
_product.def_abstract_eval(lambda a, b: b)
ad.primitive_jvps[_product] = lambda p, t: (_product.bind(*p), _product.bind(_seen(*p), ad.instantiate_zeros(t[1])))
ad.primitive_transposes[_product] = lambda ct, a, b: (None, _product.bind(_seen(a, ct) + 0.0, ct))
batching.primitive_batchers[_product] = lambda xs, dims: ((_seen(*xs) + 0) * xs[1], dims[1])

DOUBLED: dict[str, Two] = {
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
    "symbolic zeros": _symbolic_zeros,
    "custom_gradient": _custom_gradient,
    "custom_vmap": _custom_vmap,
    "linear_call": _linear_call,
    "primitive": lambda y: _product.bind(2.0, y),
}


@pytest.mark.parametrize("name", DOUBLED)
def test_constants_are_arrays_in_rules(name: str) -> None:
    f, y, ys = DOUBLED[name], jnp.float32(3.0), jnp.arange(2.0)
    scanned = lambda y: lax.scan(lambda c, _: (f(c), None), y, None, length=1)[0]  # noqa: E731
    for g in (f, sw.jit(f), scanned, sw.checkpoint(f)):
        assert (
            float(sw.grad(g)(y)) == float(sw.jit(sw.grad(g))(y)) == float(sw.jit(lambda g=g: sw.grad(g)(3.0))()) == 2.0
        )
    assert sw.jit(sw.vmap(f))(ys).tolist() == [0.0, 2.0]
    assert sw.jit(sw.grad(lambda ys: sw.vmap(f)(ys).sum()))(ys).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("policy", [None, "everything_saveable"])
def test_arrays_that_a_rule_captures_under_checkpoint(policy: str | None) -> None:
    f = sw.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), t[0] * jnp.array([1.0, 2.0, 3.0]) * p[0][jnp.array([2, 1, 0])]))
    x, kept = jnp.arange(3.0) + 1, None if policy is None else getattr(sw.checkpoint_policies, policy)
    want = [3.0, 8.0, 9.0]  # the slope of f, times the tangent
    g = sw.checkpoint(lambda x: f(x), policy=kept)
    push = sw.linearize(g, x)[1]
    assert push(x).tolist() == sw.jit(push)(x).tolist() == want
    assert sw.jit(lambda x: sw.linearize(g, x)[1](x))(x).tolist() == want
    assert sw.vmap(push)(jnp.stack([x, 2 * x])).tolist() == [[3.0, 8.0, 9.0], [6.0, 16.0, 18.0]]
    assert sw.jacfwd(g)(x).sum(1).tolist() == [3.0, 4.0, 3.0]
