"""Policies of checkpoint see what the forward rules of custom_vjp compute."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.rounding import assert_normwise

RNG = np.random.default_rng(7)
X = RNG.standard_normal((4, 8)).astype(np.float32)
W = RNG.standard_normal((8, 8)).astype(np.float32) / 3
SCALE = RNG.standard_normal((4, 8)).astype(np.float32)


def model_of(jax: Any, name: Any) -> Any:
    """A loss with a rule of its own whose forward rule names a value that the plain function names otherwise."""

    @jax.custom_vjp
    def f(x, w):
        return jax.numpy.tanh(name(x @ w, "plain")) * 0.7

    def forward(x, w):
        y = jax.numpy.tanh(name(x @ w, "inside"))
        return y * 0.7, (y, x, w)

    def backward(kept, g):
        y, x, w = kept
        d = 2 * g * 0.7 * (1 - y * y)  # twice the derivative, which tells it from that of the function itself
        return d @ w.T, x.T @ d

    f.defvjp(forward, backward)

    def loss(x, w):
        return jax.numpy.sum(jax.numpy.cos(f(jax.numpy.sin(x), w)))

    return loss


POLICIES = {
    "inside": lambda p: p.save_only_these_names("inside"),
    "plain": lambda p: p.save_only_these_names("plain"),
    "nothing": lambda p: p.nothing_saveable,
    "dots": lambda p: p.dots_saveable,
    "dots_no_batch": lambda p: p.dots_with_no_batch_dims_saveable,
}
OURS = model_of(sw, sw.ad_checkpoint.checkpoint_name)


def products(f: Any, *args: Any) -> int:
    return str(sw.jit(f).lower(*args).compile().runtime_executable().device_program).count("dot_general")


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_kept_and_computed_again(policy):
    jax = pytest.importorskip("jax")
    from jax._src.ad_checkpoint import saved_residuals as residuals_of_jax
    from jax.ad_checkpoint import checkpoint_name

    theirs = jax.checkpoint(model_of(jax, checkpoint_name), policy=POLICIES[policy](jax.checkpoint_policies))
    ours = sw.checkpoint(OURS, policy=POLICIES[policy](sw.checkpoint_policies))
    shapes = sorted(a.shape for a, _ in cast(Any, residuals_of_jax(theirs, X, W)))
    assert sorted(a.shape for a, _ in sw.ad_checkpoint.saved_residuals(ours, X, W)) == shapes
    # Forward, and two products back; the forward one again unless its result is kept.
    assert products(sw.value_and_grad(ours, (0, 1)), X, W) == (4 if policy in ("plain", "nothing") else 3)
    want = jax.jit(jax.grad(theirs, (0, 1)))(X, W)
    for g, w in zip(sw.grad(ours, (0, 1))(X, W), want, strict=True):
        assert_normwise(g, w, 3e-6)
    for g, w in zip(sw.jit(sw.grad(ours, (0, 1)))(X, W), want, strict=True):
        assert_normwise(g, w, 3e-6)


INSIDE = sw.checkpoint(OURS, policy=POLICIES["inside"](sw.checkpoint_policies))


def test_under_jit_vmap_and_twice():
    def through_jit(x, w):
        return sw.checkpoint(sw.jit(OURS), policy=POLICIES["inside"](sw.checkpoint_policies))(x, w)

    assert products(sw.value_and_grad(through_jit, (0, 1)), X, W) == 3
    xs = np.stack([X, 2 * X])
    got = sw.vmap(sw.grad(INSIDE), (0, None))(xs, W)
    assert_normwise(got, np.stack([sw.grad(OURS)(x, W) for x in xs]), 3e-6)
    twice = [sw.grad(lambda x, f=f: jnp.sum(jnp.sin(sw.grad(f)(x, W))))(X) for f in (INSIDE, OURS)]
    assert_normwise(twice[0], twice[1], 3e-6)


def test_values_that_a_forward_rule_captures():
    def loss(x, w, scale):
        @sw.custom_vjp
        def f(x):
            return x * jnp.sum(scale)

        f.defvjp(lambda x: (jnp.sin(x) * scale, scale), lambda kept, g: (3 * g * kept,))
        return jnp.sum(jnp.cos(sw.checkpoint(f, policy=sw.checkpoint_policies.dots_saveable)(x @ w)))

    got = sw.jit(sw.grad(loss))(X, W, 0.5 * SCALE)
    inner = np.sin(X @ W) * 0.5 * SCALE
    assert_normwise(got, (-np.sin(inner) * 1.5 * SCALE) @ W.T, 3e-6)


def test_calls_that_are_not_differentiated_run_as_they_are():
    ran = []

    @sw.custom_vjp
    def f(x):
        ran.append("plain")
        return jnp.sin(x)

    def forward(x):
        ran.append("forward")
        return jnp.sin(x), x

    f.defvjp(forward, lambda x, g: (g * jnp.cos(x),))
    policy = sw.checkpoint_policies.dots_saveable
    sw.grad(sw.checkpoint(lambda x, y: jnp.sum(x * f(y)), policy=policy))(X, X)
    assert "forward" not in ran
    sw.grad(sw.checkpoint(lambda x, y: jnp.sum(x * f(y)), policy=policy), 1)(X, X)
    assert "forward" in ran


def rule_with_other_values(symbolic: bool) -> Any:
    """A function whose forward rule gives other values than itself, and captures an array; both rules have derivatives."""
    scale = jnp.array([1.0, 2.0, 3.0])
    f = sw.custom_vjp(lambda x, w: jnp.sin(x) * w)

    def forward(x, w):
        x, w = (x.value, w.value) if symbolic else (x, w)
        return jnp.sin(x) * w * scale, (x, w)

    def backward(kept, g):
        return 2 * g * scale * jnp.cos(kept[0]) * kept[1], g * jnp.cos(kept[0]) * scale

    f.defvjp(forward, backward, symbolic_zeros=symbolic)
    return f


AROUND = {
    "alone": lambda f, x: f(jnp.cos(x), x) * x,
    "jit": lambda f, x: sw.jit(lambda x: f(x, x * 2))(x),
    "scan": lambda f, x: sw.lax.scan(lambda c, _: (f(c, x), c.sum()), x, None, length=2),
    "cond": lambda f, x: sw.lax.cond(x[0] > 0, lambda x: f(x, x), lambda x: x, x),
}


DOTS = "dots_saveable"
CASES = [
    ("alone", 0, None),
    ("alone", 1, None),
    ("jit", 0, DOTS),
    ("scan", 0, None),
    ("scan", 1, DOTS),
    ("cond", 0, DOTS),
]


@pytest.mark.parametrize(("around", "symbolic", "policy"), CASES)
def test_values_are_those_of_the_forward_rule(around, symbolic, policy):
    f, x = rule_with_other_values(bool(symbolic)), jnp.array([0.5, 1.5, 2.5])

    def results(wrap):
        loss = lambda x: sum((leaf**2).sum() for leaf in sw.tree.leaves(wrap(lambda x: AROUND[around](f, x))(x)))  # noqa: E731
        return sw.jit(lambda x: (sw.value_and_grad(loss)(x), sw.jvp(sw.grad(loss), (x,), (x,))))(x)

    policy = policy and getattr(sw.checkpoint_policies, policy)
    got, want = results(lambda g: sw.checkpoint(g, policy=policy)), results(lambda g: g)
    for g, w in zip(sw.tree.leaves(got), sw.tree.leaves(want), strict=True):
        assert_normwise(g, w, 3e-6)
