"""What branches and shown programs capture, and in which order: libraries compare the constants of two closures."""

from __future__ import annotations

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base.config import use_dialect


def test_cond_traces_its_true_function_first():
    said = []

    def saying(word):
        return lambda x: said.append(word) or x

    sw.jit(lambda p, x: lax.cond(p, saying("true"), saying("false"), x))(True, 1.0)
    sw.jit(lambda i, x: lax.switch(i, [saying("0"), saying("1")], x))(1, 1.0)
    assert said == ["true", "false", "0", "1"]


def test_what_the_true_function_captures_comes_first():
    a, b = jnp.arange(3.0), jnp.ones(2)
    made = sw.make_jaxpr(lambda p, x: lax.cond(p, lambda: x + a.sum(), lambda: x + b.sum()))(True, 1.0)
    assert [c.shape for c in made.consts] == [(3,), (2,)]


def test_numbers_of_an_outer_trace_are_constants_of_shown_programs():
    """As values that are computed there would be, so that closures of a number and of one that was computed have as many constants."""
    counts = []

    def outer(x):
        for n in (jnp.array(2), jnp.array(2) + x.astype(int) * 0):
            made = sw.make_jaxpr(lambda y, n=n: y * n + jnp.arange(5)[n % 3])(x)
            counts.append(len(made.consts))
            closed, held = sw.closure_convert(lambda y, n=n: y * n, x)
            counts.append(len(held))
            assert closed(x, *held).shape == ()
        return x

    with use_dialect("latest"):
        sw.jit(outer)(1.5)
    assert counts[:2] == counts[2:] == [1, counts[1]]
