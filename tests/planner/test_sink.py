"""Parts of values that only loops read are taken in each trip."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardwise import lax
from shardwise.ir import Loop, Var, region_of, verify
from shardwise.planner.sink import with_moves_in_loops
from shardwise.planner.target import HERE, TPU
from tests.planner.device_programs import array, program_of

W, X = array(2, 8, 8), array(8, 8)


def run(part, x, times=3):
    return lax.fori_loop(0, times, lambda i, c: lax.dot(c, part), x)


def sunk(program, target=TPU):
    """The views outside of loops and those in each of them, and the loops' bodies."""
    changed = with_moves_in_loops(program, target)
    verify(changed, "sink", program)
    bodies = [r.body for e in changed.equations if isinstance(r := region_of(e), Loop)]
    views, *inside = [[e.op.name for e in p.equations if e.op.view] for p in (changed, *bodies)]
    return views, inside, bodies


def test_a_part_that_only_loops_read_is_taken_in_them():
    outside, inside, (body, _) = sunk(program_of(lambda w, x: [run(w[1], x), run(w[1], x, 5)], W, X))
    assert (outside, inside) == ([], [["slice", "squeeze"]] * 2)
    assert body.inputs[0].aval == W


def test_loops_that_were_alike_still_are():
    program = program_of(lambda w, x: [run(w[1], x)], W, X)
    loop = program.equations[-1]
    again = replace(loop, outputs=(Var(X),))
    _, _, (one, other) = sunk(replace(program, equations=(*program.equations, again)))
    assert one is other


@pytest.mark.parametrize(
    "f",
    [
        lambda w, x: [run(w[1], x), w[1]],
        lambda w, x: [run(w[1], lax.exp(w[1]))],
        lambda w, x: [run(x, w[1])],
        lambda w, x: [run(lax.exp(w[1]), x)],
    ],
)
def test_a_part_that_others_read_stays(f):
    outside, inside, _ = sunk(program_of(f, W, X))
    assert (outside, inside) == (["slice", "squeeze"], [[]])


def test_here_parts_are_views():
    outside, inside, _ = sunk(program_of(lambda w, x: [run(w[1], x)], W, X), HERE)
    assert (outside, inside) == (["slice", "squeeze"], [[]])
