"""The order of groups."""

from __future__ import annotations

from shardwise import lax
from shardwise.planner.fuse import fuse_program
from shardwise.planner.memory import program_frame, temporaries_of
from shardwise.planner.order import breadth_first, order_by_freed_bytes, order_groups, postpone_growth
from shardwise.planner.target import TPU
from tests.planner.device_programs import array, device_program, names

X = array(256, 256)
N = 256 * 256 * 4


def arranged(f, *types):
    program = device_program(f, *types)
    found = fuse_program(program.program, TPU)
    frame = program_frame(program, TPU)
    return found, lambda order: temporaries_of(frame, order, TPU)


def two_sums(x):
    a, b = lax.dot(x, x), lax.dot(lax.mul(x, 2.0), x)
    return [lax.reduce_sum(a, axes=(0, 1)), lax.reduce_sum(b, axes=(0, 1))]


def ops(groups):
    return [names(g)[-1] for g in groups]


def test_a_value_is_made_when_it_is_read():
    found, needs = arranged(two_sums, X)
    assert ops(found) == ["dot_general", "dot_general", "reduce_sum", "reduce_sum"]
    assert ops(order_groups(found, needs)) == ["dot_general", "reduce_sum"] * 2
    assert needs(order_groups(found, needs)) < needs(found)


def test_postponed_groups_stand_before_their_first_reader():
    found, _ = arranged(two_sums, X)
    assert ops(postpone_growth(found)) == ["dot_general", "reduce_sum"] * 2


def test_what_frees_most_runs_first():
    found, needs = arranged(two_sums, X)
    assert needs(order_by_freed_bytes(found)) < needs(found)


def test_breadth_first_runs_what_could_run_at_once():
    found, _ = arranged(two_sums, X)
    assert ops(breadth_first(found)) == ["dot_general", "dot_general", "reduce_sum", "reduce_sum"]


def test_every_order_keeps_what_depends_on_what():
    def f(x):
        y = lax.dot(x, x)
        z = lax.dot(y, x)
        return [lax.add(lax.dot(z, y), x), lax.reduce_sum(lax.dot(y, z), axes=(0,))]

    found, needs = arranged(f, X)
    for order in (
        order_groups(found, needs),
        postpone_growth(found),
        order_by_freed_bytes(found),
        breadth_first(found),
    ):
        assert sorted(map(id, order)) == sorted(map(id, found))
        made = set()
        for group in order:
            assert all(v in made for v in group.reads if any(v in g.writes for g in found))
            made.update(group.writes)
