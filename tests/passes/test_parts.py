"""Parts of a program come out in an order in which each has what it needs, and effects keep theirs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise.ir import ShapedArray, Var, trace_program
from shardwise.passes.parts import Part, makers, order_parts, users

X = ShapedArray((4,), np.dtype("float32"))


def test_makers_and_users():
    program, _ = trace_program(lambda x: [lax.add(lax.sin(x), lax.cos(x))], [X])
    sin, cos, add = program.equations
    assert makers(program) == {sin.outputs[0]: 0, cos.outputs[0]: 1, add.outputs[0]: 2}
    assert users(program)[program.inputs[0]] == [0, 1]
    assert users(program)[sin.outputs[0]] == [2]


def test_a_part_waits_for_what_its_first_member_needs():
    """Members 0 and 3 run as one, but 3 needs what 2 makes: 1 and 2 go first."""

    def f(x):
        a, b = lax.sin(x), lax.cos(x)
        return [a, lax.add(lax.neg(b), b)]

    program, _ = trace_program(f, [X])
    parts = order_parts(program, [Part((0, 3)), Part((1,)), Part((2,))])
    assert [p.members for p in parts] == [(1,), (2,), (0, 3)]


def test_effects_keep_their_order():
    def f(x):
        sw.debug.print("a {}", x)
        sw.debug.print("b {}", x)
        return [x]

    program, _ = trace_program(f, [X])
    numbers = [i for i, e in enumerate(program.equations) if e.op.has_effects(e.params)]
    assert len(numbers) == 2
    parts = order_parts(program, [Part((i,)) for i in reversed(range(len(program.equations)))])
    assert [p.members[0] for p in parts if p.members[0] in numbers] == numbers


@given(st.data())
def test_each_part_comes_after_those_it_needs(data):
    count = data.draw(st.integers(2, 12))
    operands = [data.draw(st.tuples(st.integers(0, i), st.integers(0, i))) for i in range(count)]

    def f(x):
        values = [x]
        for a, b in operands:
            values.append(lax.add(values[a], values[b]))
        return values[1:]

    program, _ = trace_program(f, [X])
    cut = sorted(data.draw(st.sets(st.integers(1, count - 1))))
    bounds = [0, *cut, count]
    parts = [Part(tuple(range(a, b))) for a, b in itertools.pairwise(bounds)]
    order = order_parts(program, data.draw(st.permutations(parts)))
    made = makers(program)
    done: set[int] = set()
    for part in order:
        done.update(part.members)
        for i in part.members:
            assert all(made[a] in done for a in program.equations[i].inputs if isinstance(a, Var) and a in made)
    assert done == set(range(count))


def test_nothing_is_nothing():
    program, _ = trace_program(lambda x: [x], [X])
    assert order_parts(program, []) == []
    assert makers(program) == users(program) == {}


@pytest.mark.parametrize("members", [(0,), (0, 1)])
def test_parts_compare_by_their_members(members):
    assert Part(members) == Part(members) and hash(Part(members)) == hash(Part(members))
