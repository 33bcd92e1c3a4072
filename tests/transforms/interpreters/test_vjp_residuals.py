"""The residuals of a `VJP`: those that are arguments stand in `args_res`, and can be taken out and put back."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.transforms.interpreters.linear_maps import VJP

X, Y = np.arange(3, dtype=np.float32) + 1, np.full(3, 2, np.float32)


pytestmark = pytest.mark.usefixtures("latest")


def test_arguments_among_the_residuals_are_told_apart() -> None:
    x, y = jnp.asarray(X), jnp.asarray(Y)
    _, pull = jax.vjp(lambda d, y: jnp.sin(d["a"]) * y, {"a": x, "b": x}, y)
    assert isinstance(pull, VJP)
    assert str(pull.args_res[0]) == "{'a': NotNeeded(), 'b': NotNeeded()}"
    assert pull.args_res[1] is y
    assert len(pull.opaque_residuals) == 2
    assert len(jax.tree.leaves(pull)) == 3


def test_arguments_are_taken_out_and_put_back() -> None:
    x, y = jnp.asarray(X), jnp.asarray(Y)
    pull = jax.jit(lambda x, y: jax.vjp(lambda x, y: x * y, x, y)[1])(x, y)
    assert isinstance(pull, VJP)
    pull.args_res[0] = None
    with pytest.raises(ValueError, match="put back what was taken out"):
        pull(y)
    pull.args_res[0] = 10 * x
    np.testing.assert_array_equal(pull(jnp.ones(3))[1], 10 * X)
    ref = jax.new_ref(jnp.zeros(3))
    pull.with_refs(ref, jax.ad.DontWant())(jnp.ones(3))
    np.testing.assert_array_equal(ref[...], Y)
