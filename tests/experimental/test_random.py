"""The generator with state: JAX's numbers, in functions that are compiled, mapped and looped, and what it refuses."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import random


def drawn(seed, count, call):
    """What `call` gives for the first keys of a generator, one after the other."""
    base = sw.random.key(seed)
    return [call(sw.random.fold_in(base, i)) for i in range(count)]


def test_draws_are_those_of_folded_keys():
    rng = random.stateful_rng(42)
    expected = drawn(42, 7, lambda key: key)
    assert rng.uniform() == sw.random.uniform(expected[0])
    assert (rng.random(3) == sw.random.uniform(expected[1], (3,))).all()
    low, high = np.array([0.0, 1.0]), np.array([[1.0], [5.0]])
    assert (rng.uniform(low, high) == sw.random.uniform(expected[2], (2, 2), minval=low, maxval=high)).all()
    assert (rng.normal(1.0, 2.0, (2,)) == 1 + 2 * sw.random.normal(expected[3], (2,))).all()
    assert (rng.integers(5, size=4) == sw.random.randint(expected[4], (4,), 0, 5)).all()
    assert (rng.integers(-2, 3, 4, dtype="int8") == sw.random.randint(expected[5], (4,), -2, 3, "int8")).all()
    assert (rng.key(2) == sw.random.split(expected[6], (2,))).all()
    assert float(random.stateful_rng(42).uniform()) == pytest.approx(0.5302608)


def test_the_count_goes_on_in_compiled_functions_loops_and_branches():
    expected = drawn(3, 7, sw.random.uniform)
    rng = random.stateful_rng(3)
    draw = sw.jit(lambda r: r.uniform())
    assert [draw(rng), draw(rng)] == expected[:2]
    assert sw.jit(rng.uniform)() == expected[2]
    made = sw.lax.scan(lambda c, _: (c, rng.uniform()), 0, None, length=3)[1]
    assert made.tolist() == [float(x) for x in expected[3:6]]
    assert sw.lax.cond(True, rng.uniform, lambda: 0.0) == expected[6]


def test_split_is_mapped_over_and_spawn_is_a_list():
    rng, keys = random.stateful_rng(0), sw.random.split(drawn(0, 1, lambda key: key)[0], (3,))
    many = rng.split(3)
    first = [sw.random.uniform(sw.random.fold_in(key, 0)) for key in keys]
    assert sw.vmap(lambda r, x: x + r.uniform())(many, jnp.zeros(3)).tolist() == [float(x) for x in first]
    with pytest.raises(ValueError, match=r"split stateful generator of shape \(3,\)"):
        many.key()
    assert [float(r.uniform()) for r in random.stateful_rng(0).spawn(3)] == [float(x) for x in first]


def test_a_seed_is_drawn_outside_of_traced_functions_alone():
    assert random.stateful_rng().key() != random.stateful_rng().key()
    with pytest.raises(TypeError, match="within transformed code it needs a seed"):
        sw.jit(lambda: random.stateful_rng().uniform())()
    assert sw.jit(lambda: random.stateful_rng(1).uniform())() == random.stateful_rng(1).uniform()


def test_a_generator_is_a_node_with_a_typed_key():
    rng = random.stateful_rng(0, impl="rbg")
    assert rng.key().dtype == sw.random.key_dtype("rbg") and len(sw.tree.leaves(rng)) == 2
    with pytest.raises(ValueError, match="to be a typed PRNG key"):
        random.StatefulPRNG(jnp.zeros(2, jnp.uint32), sw.new_ref(0))
