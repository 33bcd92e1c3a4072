"""Equations name grid axes, whatever mesh the user wrote them for, in inner programs too."""

from __future__ import annotations

import numpy as np

import shardwise as sw
from shardwise import lax
from shardwise.ir import Program, ShapedArray, trace_program, verify
from shardwise.passes.grid import make_grid
from shardwise.passes.grid_params import on_grid
from shardwise.passes.inline import inline_calls
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

X = ShapedArray((8, 8), np.dtype("float32"))
GRID = make_grid(sw.devices(), [(("x", "y"), (2, 4)), (("i",), (8,))])


def constrained(x):
    return lax.with_sharding_constraint(x, NamedSharding(Mesh(sw.devices(), ("i",)), P("i")))


def layouts(program: Program) -> list[object]:
    found = []
    for eqn in program.equations:
        if eqn.op.name == "sharding_constraint":
            found.append(eqn.params["dims"])
        for value in eqn.params.values():
            if isinstance(value, Program):
                found += layouts(value)
    return found


def test_a_constraint_becomes_a_layout():
    program = inline_calls(trace_program(lambda x: [constrained(x)], [X])[0])
    assert layouts(verify(on_grid(program, GRID))) == [(("x", "y"), ())]


def test_in_loops_too():
    def f(x):
        return [lax.fori_loop(0, 3, lambda i, c: lax.sin(constrained(c)), x)]

    program = inline_calls(trace_program(f, [X])[0])
    assert layouts(verify(on_grid(program, GRID))) == [(("x", "y"), ())]


def test_what_names_no_mesh_is_handed_on():
    program = inline_calls(trace_program(lambda x: [lax.sin(x)], [X])[0])
    assert on_grid(program, GRID) is program
