"""Programs: what passes ask of the programs that equations hold."""

from __future__ import annotations

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ProgramMap, subprograms


def loops(x):
    for _ in range(3):
        x, _ = lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=2)
    return jnp.cos(x)


def program():
    return sw.make_jaxpr(loops)(jnp.ones(4)).jaxpr.program


def test_a_program_whose_inner_programs_stay_is_the_same_object():
    found = program()
    assert ProgramMap(lambda p: p).inside(found) is found


def test_inner_programs_are_changed_in_place_of_the_old_ones():
    asked = []

    def renamed(p):
        asked.append(p)
        return type(p)(p.inputs, p.equations, p.outputs, p.num_consts, "other")

    before = program()
    after = ProgramMap(renamed).inside(before)
    assert [e.op for e in after.equations] == [e.op for e in before.equations]
    assert [(e.inputs, e.outputs) for e in after.equations] == [(e.inputs, e.outputs) for e in before.equations]
    inner = [p for e in after.equations for _, p in subprograms(e.params)]
    assert len(inner) == 3
    assert {p.name for p in inner} == {"other"}
    assert len(asked) == len(set(asked))
    assert all(
        one is other
        for one, other in zip(before.equations, after.equations, strict=True)
        if not subprograms(one.params)
    )
