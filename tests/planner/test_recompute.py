"""Which light values are stored."""

from __future__ import annotations

import dataclasses

from shardwise import grad, lax
from shardwise.planner.recompute import choose_stored
from shardwise.planner.target import TPU
from shardwise.planner.values import values_of
from tests.planner.device_programs import array, program_of

X = array(256, 256)


def stored(f, *types, target=TPU):
    """The names of the ops whose results are stored, in order."""
    program = program_of(f, *types or (X,))
    chosen = choose_stored(values_of(program, target), target)
    return [e.op.name for e in program.equations if not chosen.stored.isdisjoint(e.outputs)]


def backward(activation):
    """The gradient of a layer: its operand's product is there in the backward pass."""

    def f(x, y, z):
        return [grad(lambda x: lax.reduce_sum(lax.dot(activation(lax.dot(x, y)), z), axes=(0, 1)))(x)]

    return f


def test_an_activation_is_computed_again_in_the_backward_pass():
    def f(x, y, z):
        hidden = lax.dot(x, y)
        active = lax.mul(hidden, lax.tanh(hidden))
        return [lax.dot(active, z), lax.dot(x, active), hidden]

    assert stored(f, X, X, X) == ["dot_general"] * 3


def test_what_takes_longer_than_storing_it_is_kept():
    def f(x, y):
        bits = lax.tanh(lax.tanh(lax.tanh(lax.tanh(lax.tanh(lax.tanh(lax.tanh(lax.tanh(lax.tanh(x)))))))))
        return [lax.dot(bits, y), lax.dot(y, bits)]

    assert "tanh" in stored(f, X, X)
    cheap = dataclasses.replace(TPU, cost_limit=1e9)
    assert "tanh" not in stored(f, X, X, target=cheap)


def test_of_a_sum_and_what_it_is_made_of_the_smaller_is_kept():
    def f(x, y, z):
        total = lax.add(lax.dot(x, y), lax.dot(y, x))
        return [lax.dot(total, z), lax.dot(z, total)]

    assert stored(f, X, X, X) == ["dot_general", "dot_general", "add", "dot_general", "dot_general"]


def test_a_cast_to_fewer_bytes_is_kept_rather_than_its_operand():
    def f(x, y):
        narrow = lax.convert_element_type(lax.dot(x, y), "bfloat16")
        return [lax.dot(narrow, narrow), lax.exp(narrow)]

    assert "convert_element_type" in stored(f, X, X)


def test_the_derivative_of_an_activation_needs_only_the_operand():
    names = stored(backward(lax.tanh), X, X, X)
    assert names.count("tanh") == 0
