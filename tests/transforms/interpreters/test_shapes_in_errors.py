"""A mistake under vmap is told in the shapes that the user's function sees."""

from __future__ import annotations

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax

MISTAKES = {
    "dot": lambda x: jnp.dot(x, jnp.ones(3)),
    "add": lambda x: x + jnp.ones(3),
    "lax add": lambda x: lax.add(x, jnp.ones(3)),
    "concatenate": lambda x: jnp.concatenate([x, jnp.ones((2, 2))]),
    "where": lambda x: jnp.where(x > 0, x, jnp.ones(3)),
    "reshape": lambda x: x.reshape(3),
    "scan": lambda x: lax.scan(lambda c, _: (jnp.dot(c, jnp.ones(3)), None), x, None, length=2),
    "gather": lambda x: x[0, 0],
}


def error_of(f, x):
    with pytest.raises((TypeError, ValueError, IndexError)) as info:
        f(x)
    return f"{type(info.value).__name__}: {info.value}"


@pytest.mark.parametrize("name", MISTAKES)
def test_as_without_vmap(name):
    f = MISTAKES[name]
    expected = error_of(f, jnp.ones(2))
    assert error_of(jax.vmap(f), jnp.ones((5, 2))) == expected
    assert error_of(jax.vmap(jax.vmap(f, in_axes=1, out_axes=1)), jnp.ones((5, 2, 4))) == expected
    assert error_of(jax.jit(jax.vmap(f)), jnp.ones((5, 2))) == expected


def test_what_only_vmap_forbids_keeps_its_words():
    with pytest.raises(ValueError, match="vmap"):
        jax.vmap(lambda x, y: x + y)(jnp.ones((2, 3)), jnp.ones((3, 3)))
