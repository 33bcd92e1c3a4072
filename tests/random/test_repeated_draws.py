"""Draws that are repeated become machine code: the bits stay those of the first ones."""

import numpy as np
import pytest

import shardwise as jax
from shardwise.experimental import enable_x64
from shardwise.ops.random.random_floats import mul_add
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
    before = runtime_small.compile_program

    def compiled(program, *args):
        made.append(program)
        return before(program, *args)

    monkeypatch.setattr(runtime_small, "compile_program", compiled)
    jax.clear_caches()
    for key in (keys(0), keys(1)):
        draws = [np.asarray(DRAWS[name](key)) for _ in range(CALLS)]
        for later in draws[1:]:
            np.testing.assert_array_equal(later, draws[0])
    assert made


@pytest.mark.skipif(not runtime_small.available(), reason="nothing can be compiled here")
def test_a_draw_is_one_function(monkeypatch):
    """The arithmetic after the bits goes into the function that makes them."""
    made = []
    before = runtime_small.compile_program

    def compiled(program, *args):
        made.append([e.op.name for e in program.equations])
        return before(program, *args)

    monkeypatch.setattr(runtime_small, "compile_program", compiled)
    jax.clear_caches()
    key = jax.random.key(0)
    for _ in range(CALLS):
        jax.random.normal(key, (8,))
    assert made == [["random_block", "unit_floats", "mul_add", "erf_inv_giles", "mul"]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_few_normal_numbers_are_the_first_of_many(dtype):
    many = jax.random.normal(jax.random.key(5), (1 << 15,), dtype)
    few = jax.random.normal(jax.random.key(5), (100,), dtype)
    np.testing.assert_array_equal(np.asarray(few), np.asarray(many)[:100])


@pytest.mark.skipif(not runtime_small.available(), reason="nothing can be compiled here")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (1, 4), (3, 1)])
def test_mul_add_rounds_once(dtype, shape):
    step = np.finfo(dtype).eps
    with enable_x64():
        x, y = jax.numpy.full((3, 4), 1 + step, dtype), jax.numpy.full(shape, 1 - step, dtype)
        out = np.asarray(mul_add(x, y, jax.numpy.full(shape, -1, dtype)))
    np.testing.assert_array_equal(out, np.full((3, 4), -(step**2), dtype))


def test_few_draws_are_not_compiled(monkeypatch):
    def compiled(program, *args):
        raise AssertionError("compiled at once")

    monkeypatch.setattr(runtime_small, "compile_program", compiled)
    jax.clear_caches()
    for i in range(costs.SMALL_PATIENCE):
        jax.random.normal(jax.random.key(i), (5,))
