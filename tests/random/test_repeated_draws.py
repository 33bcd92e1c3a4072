"""Draws that are repeated become machine code: the bits stay those of the first ones."""

import numpy as np
import pytest

import shardwise as jax
from shardwise.runtime import costs
from shardwise.runtime.small import kernel as runtime_small

CALLS = costs.SMALL_PATIENCE + 2
DRAWS = {
    "split": lambda key: jax.random.key_data(jax.random.split(key, 3)),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 7)),
    "bits": lambda key: jax.random.bits(key, (7,)),
    "bytes": lambda key: jax.random.bits(key, (2, 9), np.uint8),
    "uniform": lambda key: jax.random.uniform(key, (33,), minval=-1.0, maxval=3.0),
    "normal": lambda key: jax.random.normal(key, (4, 50)),
    "half": lambda key: jax.random.normal(key, (40,), np.float16),
    "bfloat16": lambda key: jax.random.normal(key, (40,), jax.numpy.bfloat16),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (50,)),
    "exponential": lambda key: jax.random.exponential(key, (50,)),
    "truncated_normal": lambda key: jax.random.truncated_normal(key, -1.0, 1.0, (50,)),
    "scalar": lambda key: jax.random.normal(key),
}


@pytest.mark.skipif(not runtime_small.available(), reason="nothing can be compiled here")
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("keys", [jax.random.key, jax.random.PRNGKey])
def test_repeated_draws(name, keys, monkeypatch):
    made = []
    before = runtime_small.compiled

    def compiled(program, *args):
        made.append(program)
        return before(program, *args)

    monkeypatch.setattr(runtime_small, "compiled", compiled)
    jax.clear_caches()
    for key in (keys(0), keys(1)):
        draws = [np.asarray(DRAWS[name](key)) for _ in range(CALLS)]
        for later in draws[1:]:
            np.testing.assert_array_equal(later, draws[0])
    assert made


def test_few_draws_are_not_compiled(monkeypatch):
    def compiled(program, *args):
        raise AssertionError("compiled at once")

    monkeypatch.setattr(runtime_small, "compiled", compiled)
    jax.clear_caches()
    for i in range(costs.SMALL_PATIENCE):
        jax.random.normal(jax.random.key(i), (5,))
