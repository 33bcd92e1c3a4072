"""Values that are gathered again for readers far apart."""

from __future__ import annotations

import dataclasses

from shardwise import lax
from shardwise.planner.gathers import NEAR, with_gathers_again
from shardwise.planner.target import TPU
from tests.planner.device_programs import array, gathered, program_of, varying

X, PART = array(256, 256), varying(32, 256)


def gathers(f, *types, target=TPU):
    program = with_gathers_again(program_of(f, *types), target)
    return [e.op.name for e in program.equations].count("all_gather")


def between(n):
    """The gathered value is read, then there are `n` products, then it is read again."""

    def f(x, part):
        whole = gathered(part, 8)
        y = lax.dot(x, whole)
        for _ in range(n):
            y = lax.dot(y, x)
        return [lax.dot(y, whole)]

    return f


def test_readers_far_apart_have_gathers_of_their_own():
    assert gathers(between(NEAR + 1), X, PART) == 2


def test_readers_close_together_share_one():
    assert gathers(between(1), X, PART) == 1


def test_not_where_the_compiler_keeps_gathered_values():
    assert gathers(between(20), X, PART, target=dataclasses.replace(TPU, gathers_again=False)) == 1


def test_each_reader_gets_the_gather_before_it():
    program = with_gathers_again(program_of(between(NEAR + 1), X, PART), TPU)
    last = program.equations[-1]
    made = {v: e.op.name for e in program.equations[-2:-1] for v in e.outputs}
    assert [made.get(a) for a in last.inputs] == [None, "all_gather"]  # type: ignore[arg-type]
