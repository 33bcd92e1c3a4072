"""Derivatives at points where a rule could go wrong, as JAX has them: in both modes, in one table."""

from __future__ import annotations

import numpy as np
import pytest

from tests.special_points.bounds import bound_of
from tests.special_points.comparison import KINDS, kinds
from tests.special_points.table import library

INF, NAN = np.inf, np.nan

# function: points (one list per operand)
CASES = {
    "jnp.abs": [[0.0, -0.0, -1.0, NAN, -INF]],
    "jnp.logaddexp": [[0.0, INF, -INF, -INF, 2.0], [0.0, INF, 1.0, -INF, NAN]],
    "jnp.logaddexp2": [[0.0, INF, -INF, -INF, 2.0], [0.0, INF, 1.0, -INF, NAN]],
    "jnp.hypot": [[0.0, 3.0, 0.0, -1.0], [0.0, 4.0, 2.0, 1.0]],
    "jnp.fmax": [[1.0, NAN, 1.0, 2.0, NAN], [1.0, 1.0, NAN, 1.0, NAN]],
    "jnp.fmin": [[1.0, NAN, 1.0, 2.0, NAN], [1.0, 1.0, NAN, 1.0, NAN]],
    "jnp.floor_divide": [[1.0, 0.0, -1.0, 5.0, INF], [0.0, 0.0, 0.0, -2.0, 2.0]],
    "jnp.copysign": [[0.0, -0.0, 1.0, -2.0], [-1.0, 1.0, -0.0, 0.0]],
    "jnp.power": [[0.0, 0.0, 1.0, 2.0], [0.0, 1.0, 0.0, -1.0]],
    "jnp.angle": [[0.0, -0.0, 1.0, -1.0]],
    "lax.clamp": [[0.0, 2.0, 1.0, 0.0], [0.0, 1.0, 1.0, -1.0], [1.0, 1.0, 1.0, 2.0]],
    "special.xlogy": [[0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 2.0, NAN, 0.0, INF]],
    "special.xlog1py": [[0.0, 0.0, 0.0, 1.0, 0.0], [-1.0, 2.0, NAN, 0.0, INF]],
    "special.entr": [[0.0, 1.0, 0.5, -1.0, INF]],
    "special.logit": [[0.0, 1.0, 0.5, 0.25]],
    "stats.laplace.logpdf": [[0.0, 1.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 0.5]],
    "stats.beta.logpdf": [[0.0, 1.0, 0.5, NAN], [1.0, 1.0, 2.0, 1.0], [1.0, 1.0, 2.0, 1.0]],
    "stats.uniform.logpdf": [[0.0, 1.0, 2.0, NAN]],
    "stats.expon.logpdf": [[0.0, -1.0, 2.0, NAN]],
    "stats.norm.logpdf": [[0.0, 1.0, INF], [0.0, 0.0, 0.0], [1.0, -1.0, 1.0]],
}  # fmt: skip


def _answers(jax, function, points):
    """The value, and per operand the derivative forwards and in reverse."""
    xs = [np.array(p, np.float32) for p in points]
    ones = jax.numpy.ones_like(xs[0])
    out, pull = jax.vjp(function, *xs)
    forward = [jax.jvp(lambda x, i=i: function(*xs[:i], x, *xs[i + 1 :]), (xs[i],), (ones,))[1] for i in range(len(xs))]
    return np.asarray(out), np.array(forward), np.array(pull(ones))


@pytest.mark.parametrize("name", CASES)
def test_as_jax(name):
    answers = []
    for of in ("jax", "shardwise"):
        scope = library(of)
        answers.append(_answers(scope["jax"], eval(name, scope), CASES[name]))
    (value, forward, reverse), ours = answers
    # JAX multiplies tangents that are zero by what is infinite; then our other mode tells.
    forward = [np.where(np.isnan(f), other, f) for f, other in zip(forward, ours[2], strict=True)]
    for what, got, want in (
        ("value.0", ours[0], value),
        ("jvp", ours[1], np.array(forward)),
        ("vjp", ours[2], reverse),
    ):
        off = kinds(got, want, bound_of(f"{name}(", what))
        off = np.where(off == 1 + KINDS.index("sign"), 0, off)
        assert not off.any(), f"{name}: {what}: {got[off != 0]}, not {want[off != 0]}"


@pytest.mark.parametrize("name", ["jnp.logaddexp", "jnp.logaddexp2", "jnp.logaddexp.reduce", "lax.cumlogsumexp"])
def test_the_infinite_term_is_all_of_an_infinite_sum(name):
    """JAX has exp(x) for the other term."""
    scope = library("shardwise")
    function, jnp = eval(name, scope), scope["jnp"]
    of_pair = lambda x: jnp.ravel(function(*x) if name in CASES else function(x))[-1]  # noqa: E731
    np.testing.assert_array_equal(scope["jax"].grad(of_pair)(np.array([1.0, INF], np.float32)), [0, 1])


def test_second_derivatives_at_limits():
    """A slope that is zero or infinite has a slope, not a NaN, where JAX has one."""
    points, answers = np.array([0.0, -0.0, 1.0, -8.0, INF, -INF, NAN], np.float32), []
    for of in ("jax", "shardwise"):
        jax = (scope := library(of))["jax"]
        functions = [eval(name, scope) for name in ("jnp.cbrt", "jnp.sqrt", "lax.rsqrt", "jnp.log", "jnp.reciprocal")]
        answers.append(
            jax.jit(lambda x, jax=jax, functions=functions: [jax.vmap(jax.grad(jax.grad(f)))(x) for f in functions])(
                points
            )
        )
    for ours, theirs in zip(*reversed(answers), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)
