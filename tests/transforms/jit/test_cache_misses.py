"""What `jax_explain_cache_misses` says of each kind of miss."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import enable_x64


def plain(x, y: Any = 1):
    return x


F = sw.jit(plain)
G = sw.jit(lambda x, n: x, static_argnums=1)

# A call, then one that is traced again, and what is said of it.
MISSES = [
    (lambda: F(jnp.ones(3)), lambda: F(jnp.ones(4)), ["different input types", "at x, now f32[4] and before f32[3]"]),
    (lambda: F(jnp.ones(3)), lambda: F(2.0), ["at x, now f32[] (weak type)"]),
    (
        lambda: F(jnp.ones(3)),
        lambda: F((jnp.ones(3),)),
        ["different input pytree", "now <class 'tuple'> and before pytree leaf"],
    ),
    (lambda: F(jnp.ones(3)), lambda: F(jnp.ones(3), 2), ["different input pytree", "now tuple of length 2"]),
    (lambda: G(1.0, 1), lambda: G(1.0, "a"), ["different static arguments", "now 1='a' and before 1=1"]),
]


def messages(call, caplog):
    caplog.clear()
    with caplog.at_level(logging.WARNING, "shardwise"), sw.explain_cache_misses(True):
        call()
    return caplog.text


@pytest.mark.parametrize("first, again, words", MISSES)
def test_what_differs(first, again, words, caplog):
    F.clear_cache()
    G.clear_cache()
    assert "never seen function: " in messages(first, caplog)
    assert messages(first, caplog) == ""
    said = messages(again, caplog)
    assert "TRACING CACHE MISS at " in said and __file__ in said
    for word in words:
        assert word in said


def test_settings(caplog):
    F.clear_cache()
    messages(lambda: F(jnp.ones(3)), caplog)
    with enable_x64():
        said = messages(lambda: F(jnp.ones(3, "float32")), caplog)
    assert "Tracing context doesn't match" in said and "jax_enable_x64: now True and before False" in said


def test_the_closest_key_is_compared(caplog):
    F.clear_cache()
    for call in (lambda: F((1, 2), 3.0), lambda: F(jnp.ones(3), 1.0)):
        messages(call, caplog)
    assert "before f32[3]" in messages(lambda: F(jnp.ones(4), 1.0), caplog)


def test_functions_made_anew(caplog):
    for i in range(2):
        said = messages(lambda: sw.jit(lambda x: x)(1.0), caplog)
        assert ("another function defined on the same line" in said) == (i == 1)
