"""Within `ensure_compile_time_eval` what is no single op is recorded whole where its operands are traced: calls of compiled functions, and
of functions with rules of their own, which derivatives and maps follow.
"""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax


@sw.custom_jvp
def forward(x):
    return 2 * x


forward.defjvp(lambda primals, tangents: (forward(*primals), 100 * tangents[0]))


@sw.custom_vjp
def backward(x):
    return 2 * x


backward.defvjp(lambda x: (backward(x), None), lambda _, g: (100 * g,))


@sw.custom_batching.custom_vmap
def mapped(x):
    return 2 * x


mapped.def_vmap(lambda size, batched, x: (100 * x, True))

FUNCTIONS = {  # with the value at 1.5 and the slope
    "jit": (sw.jit(lambda x: 3 * x), 4.5, 3),
    "custom_jvp": (forward, 3, 100),
    "custom_vjp": (backward, 3, 100),
    "checkpoint": (sw.checkpoint(lambda x: x * x), 2.25, 3),
    "cond": (lambda x: lax.cond(x > 0, lambda: 2 * x, lambda: 5 * x), 3, 2),
    "scan": (lambda x: lax.scan(lambda c, _: (2 * c, None), x, None, length=3)[0], 12, 8),
    "root": (lambda x: lax.custom_root(lambda y: y - x, x, lambda f, g: g + 0 * f(g), lambda g, b: b / g(1.0)), 1.5, 1),
    "key": (lambda x: x * sw.random.bits(sw.random.fold_in(sw.random.key(0), x.astype(int))) * 0 + x, 1.5, 1),
}
TRANSFORMED = {
    "jit": lambda f: (sw.jit(f)(1.5), None),
    "grad": lambda f: (None, sw.grad(f)(1.5)),
    "jvp": lambda f: sw.jvp(f, (1.5,), (1.0,)),
    "grad under jit": lambda f: (None, sw.jit(sw.grad(f))(1.5)),
    "vmap": lambda f: (sw.vmap(f)(jnp.array([1.5]))[0], None),
    "vmap of grad": lambda f: (None, sw.vmap(sw.grad(f))(jnp.array([1.5]))[0]),
    "scan": lambda f: (lax.scan(lambda c, x: (c, f(x)), 0, jnp.array([1.5]))[1][0], None),
    "checkpoint": lambda f: (None, sw.grad(sw.checkpoint(f))(1.5)),
    "jaxpr": lambda f: (sw.core.jaxpr_as_fun(sw.make_jaxpr(f)(1.5))(1.5)[0], None),
}


@pytest.mark.parametrize(
    ("name", "how"), [(n, h) for n in FUNCTIONS for h in TRANSFORMED if (n, h) != ("custom_vjp", "jvp")]
)
def test_calls_are_recorded_whole(name, how):
    function, value, slope = FUNCTIONS[name]

    def f(x):
        x = jnp.asarray(x)
        with sw.ensure_compile_time_eval():
            return function(x)

    found_value, found_slope = TRANSFORMED[how](f)
    if found_value is not None:
        np.testing.assert_allclose(found_value, value, rtol=1e-6)
    if found_slope is not None:
        np.testing.assert_allclose(found_slope, slope, rtol=1e-6)


def test_maps_follow_their_rule():
    def f(x):
        with sw.ensure_compile_time_eval():
            return mapped(x)

    np.testing.assert_array_equal(sw.vmap(f)(jnp.arange(3.0)), [0.0, 100.0, 200.0])
    np.testing.assert_array_equal(sw.jit(f)(1.5), 3.0)


def test_calls_of_known_values_are_computed():
    def f(x):
        with sw.ensure_compile_time_eval():
            n = sw.jit(lambda y: y + forward(y))(jnp.arange(3.0)).sum()
        return x * float(n)

    assert sw.jit(f)(2.0) == 18.0
