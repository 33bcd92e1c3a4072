"""Branches in loops that hand a large value on: its memory goes on, nothing is copied, and what is read is right."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.runtime.small.in_place import values_handed_on
from shardwise.runtime.small.kernel import available
from tests.runtime.small.agreement import agree

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
X, Y = (np.random.default_rng(0).integers(0, 100, (2, 5, 9))).astype(np.int32)


def gated(t, x, y):
    return lax.cond(t % 3 == 0, lambda x: 3 * x + y, lambda x: x, x), y


def computed_before(t, x, y):
    x = x[::-1] + 1
    return lax.cond(t % 3 == 0, lambda x: jnp.cumsum(x, 1) ^ x, lambda x: x, x), y


def exchanged(t, x, y):
    return lax.cond(t % 3 == 0, lambda x, y: (y, x + y), lambda x, y: (x, y), x, y)


def one_for_both(t, x, y):
    z = x ^ y
    return lax.switch(t % 4, [lambda: (z, z), lambda: (x, z), lambda: (z + y, x), lambda: (y, y)])


def inside_another(t, x, y):
    x = x - y

    def inner(x, y):
        z = x[:, ::-1]
        return lax.cond(t % 2 == 0, lambda z: z ^ x, lambda z: z, z)

    return lax.switch(t % 3, [inner, lambda x, y: x, lambda x, y: y], x, y), y


def of_equal_elements(t, x, y):
    return lax.cond(t % 3 == 0, lambda x: x ^ x, lambda x: x, x), lax.cond(t % 2 == 0, jnp.zeros_like, lambda y: y, y)


def beside_an_update(t, x, y):
    y = y.at[t % 5].add(1)
    return lax.cond(t % 3 == 0, lambda x: x + y, lambda x: x, x), y


def out_of_an_updated_value(t, x, y):
    kept = lax.cond(t % 3 == 0, lambda y: y + 1, lambda y: y, y)
    return x + kept, y.at[t % 5].add(kept[0])


STEPS = [
    gated,
    computed_before,
    exchanged,
    one_for_both,
    inside_another,
    of_equal_elements,
    beside_an_update,
    out_of_an_updated_value,
]


def scanned(step, rounds):
    def body(carry, t):
        after = step(t, *carry)
        return after, (after[0], carry[1])

    return lambda x, y: lax.scan(body, (x, y), jnp.arange(rounds))


def repeated(step, rounds):
    def body(carry):
        return carry[0] + 1, *step(*carry)

    return lambda x, y: lax.while_loop(lambda carry: carry[0] < rounds, body, (0, x, y))


@pytest.mark.parametrize("loop", [scanned, repeated])
@pytest.mark.parametrize("step", STEPS)
def test_loops_of_such_branches(step, loop):
    agree(loop(step, 8), X, Y)


def test_a_single_round():
    agree(scanned(inside_another, 1), X, Y)


@pytest.mark.parametrize("step", [computed_before, inside_another])
def test_under_vmap(step):
    agree(jax.vmap(scanned(step, 6)), np.stack([X, Y]), np.stack([Y, X]))


def test_branches_without_a_loop_hand_on_operands_and_results():
    def f(p, x, y):
        z = x ^ y
        z = lax.cond(p, lambda z: z + 1, lambda z: z, z)
        return z, lax.cond(p, lambda z: z, lambda z: z * y, z).sum(0), lax.cond(p, lambda: x, lambda: y)

    agree(f, np.True_, X, Y)
    agree(f, np.False_, X, Y)


def test_what_is_found():
    types = [ShapedArray(shape, np.dtype(np.int32)) for shape in ((), X.shape, Y.shape)]
    program, _ = trace_program(lambda t, x, y: list(inside_another(t, x, y)), types)
    x = next(e.outputs[0] for e in program.equations if e.op.name == "sub")
    assert values_handed_on(program, program.outputs[0]) == [x, program.inputs[2]]
    assert values_handed_on(program, program.outputs[1]) == []
    assert values_handed_on(program, x) == []


def test_loops_with_branches_are_as_large_as_others(made):
    """A branch holds as many elements as the loop around it may."""
    x = jnp.ones((160, 200), np.float32)
    f = jax.jit(lambda x: lax.fori_loop(0, 6, lambda t, x: gated(t, x, x)[0], x))
    np.testing.assert_array_equal(f(x), np.full(x.shape, 16.0, np.float32))
    assert [[e.op.name for e in p.equations] for p in made] == [["scan"]]
