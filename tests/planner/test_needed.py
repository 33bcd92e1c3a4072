"""What results follow from, through barriers and loops."""

from __future__ import annotations

from shardwise import checkpoint, checkpoint_policies, grad, lax
from shardwise.ad_checkpoint import checkpoint_name
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.needed import needed_of
from shardwise.planner.roles import role_of
from shardwise.planner.target import TPU
from tests.planner.device_programs import array, device_program, names, program_of

X = array(256, 256)
N = 256 * 256 * 4


def needed(program):
    return needed_of(program, program.outputs, [role_of(e) for e in program.equations]).values


def test_of_a_barrier_only_what_is_read():
    program = program_of(lambda x, y: [lax.exp(lax.optimization_barrier((x, lax.tanh(y)))[0])], X, X)
    assert program.inputs[0] in needed(program)
    assert program.inputs[1] not in needed(program)
    found = groups(device_program(lambda x, y: [lax.exp(lax.optimization_barrier((x, lax.tanh(y)))[0])], X, X), TPU)
    assert [names(g) for g in found] == [["exp"]]


def test_stacked_results_that_nobody_reads_are_not_stored():
    def f(x):
        last, _ = lax.scan(lambda c, _: (lax.tanh(c), lax.exp(c)), x, None, length=10)
        return [last]

    program = device_program(f, X)
    assert memory_of(program, groups(program, TPU), TPU).temporaries == 0


def test_the_operand_of_a_saved_value_is_not_saved_besides():
    """The backward pass begins from the named value, which is the layer's input: the input itself is not needed."""

    def layer(x, w):
        x = checkpoint_name(lax.mul(x, 2.0), "input")
        return lax.tanh(lax.dot(x, w)), None

    def loss(x, stack):
        policy = checkpoint_policies.save_only_these_names("input")
        return lax.reduce_sum(lax.scan(checkpoint(layer, policy=policy), x, stack)[0], axes=(0, 1))

    program = device_program(lambda x, stack: [grad(loss, 1)(x, stack)], X, array(8, 256, 256))
    memory = memory_of(program, groups(program, TPU), TPU)
    saved = [b for b in memory.buffers if b.kind == "saved" and b.nbytes == 8 * N]
    assert sum(b.count for b in saved) == 1
