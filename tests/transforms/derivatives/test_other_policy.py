"""One policy for all checkpoints: the program is that of functions that were given it."""

from __future__ import annotations

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.transforms.derivatives.other_policy import every_policy

POLICIES = jax.checkpoint_policies


def gradient(policy):
    layer = jax.checkpoint(lambda w, x: jnp.tanh(x @ jnp.sin(w)), policy=policy)
    return jax.jit(jax.grad(lambda w, x: jnp.sum(layer(w, layer(w, x)))))


@pytest.mark.parametrize("policy", [POLICIES.everything_saveable, POLICIES.dots_saveable, None])
def test_it_takes_the_place_of_their_own(policy):
    w = jnp.ones((4, 4))
    own = gradient(POLICIES.nothing_saveable)
    before = str(own.trace(w, w).jaxpr)
    with every_policy(policy) as other:
        assert not other.used
        assert str(own.trace(w, w).jaxpr) == str(gradient(policy).trace(w, w).jaxpr)
        assert other.used
    assert str(own.trace(w, w).jaxpr) == before


def test_programs_without_checkpoints_do_not_use_it():
    with every_policy(POLICIES.dots_saveable) as other:
        jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(x)))).trace(jnp.ones(3))
    assert not other.used
