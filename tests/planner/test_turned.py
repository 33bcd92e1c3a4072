"""Where the elements of a view lie, and which views have to be copied; the figures of programs are those that XLA for CPUs says."""

from __future__ import annotations

import pytest

from shardwise import lax
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.target import CPU_XLA
from shardwise.planner.turned import order_of
from tests.planner.device_programs import array, device_program, program_of

X, TALL = array(256, 256), array(512, 256)
N = 256 * 256 * 4


@pytest.mark.parametrize(
    ("view", "order"),
    [
        (lambda x: lax.transpose(x, (2, 0, 1)), (1, 2, 0)),
        (lambda x: lax.reshape(lax.transpose(x, (1, 0, 2)), (4, 2, 3, 10)), (2, 0, 1, 3)),  # a dim in two
        (lambda x: lax.reshape(lax.transpose(x, (2, 0, 1)), (10, 24)), (1, 0)),  # two dims that lie side by side as one
        (lambda x: lax.reshape(lax.transpose(x, (1, 0, 2)), (1, 8, 3, 10)), (2, 1, 3)),
        (lambda x: lax.reshape(lax.transpose(x, (1, 0, 2)), (24, 10)), None),
        (lambda x: lax.reshape(lax.transpose(x, (1, 0, 2)), (8, 30)), None),
        (lambda x: lax.reshape(lax.transpose(x, (2, 1, 0)), (5, 48)), None),
    ],
)
def test_a_view_of_a_turned_view(view, order):
    program = program_of(lambda x: [view(x)], array(3, 8, 10))
    orders = {}
    for eqn in program.equations:
        orders[eqn.outputs[0]] = order_of(eqn, orders)
    assert orders[program.outputs[0]] == order


def patches(x, w):
    return lax.dot(lax.reshape(lax.transpose(lax.reshape(x, (16, 16, 16, 16)), (0, 2, 1, 3)), (256, 256)), w)


def heads(x):
    return lax.exp(lax.reshape(lax.transpose(lax.reshape(x, (256, 4, 64)), (1, 0, 2)), (4, 4, 64, 64)))


def scanned(c, rows):
    return lax.scan(lambda c, row: (lax.dot(c, lax.tanh(row)), None), c, rows)[0]


def turned_stack(c, x):
    return scanned(c, lax.transpose(lax.reshape(x, (256, 2, 256)), (1, 0, 2)))


def two_layers(w, x):
    return lax.fori_loop(0, 4, lambda i, c: lax.tanh(lax.dot(c, w[0]) + lax.dot(c, w[1])), x)


@pytest.mark.parametrize(
    ("f", "types", "needed"),
    [
        (patches, (X, X), N),
        (heads, (X,), 0),
        (lambda x: lax.dot(lax.rev(x, (0,)), x), (X,), N),
        (turned_stack, (X, TALL), 4 * N),
        (lambda x: lax.sort((x, lax.broadcasted_iota("int32", (256, 256), 1)), num_keys=1)[1], (X,), N),
        (two_layers, (array(2, 256, 256), X), 3 * N),
    ],
)
def test_moved_elements_take_what_xla_gives_them(f, types, needed):
    program = device_program(lambda *operands: [f(*operands)], *types)
    assert memory_of(program, groups(program, CPU_XLA), CPU_XLA).temporaries == needed
