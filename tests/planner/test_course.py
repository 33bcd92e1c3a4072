"""Times in the program's order: heavy tasks are where they run, small ones that run at another time do not move them."""

from __future__ import annotations

from shardwise.planner.course import times_by_place
from shardwise.planner.result import Schedule, Task


def times(*tasks):
    made = [Task("t", kind, "compute", start, seconds, place=i) for i, (kind, start, seconds) in enumerate(tasks)]
    end = max(t.start + t.seconds for t in made)
    found = times_by_place(Schedule(tuple(sorted(made, key=lambda t: t.start)), end))
    assert [t.place for _, t in found] == list(range(len(tasks)))
    return [time for time, _ in found]


def test_tasks_in_order_keep_their_starts():
    assert times(("fused", 0, 1), ("product", 1, 2), ("product", 3, 1)) == [0, 1, 3]


def test_a_collective_has_the_time_of_the_next_computation():
    assert times(("fused", 0, 1), ("collective", 0, 5), ("product", 5, 2), ("collective", 7, 1)) == [0, 5, 5, 8]


def test_small_tasks_out_of_order_do_not_move_large_ones():
    late = times(("product", 1, 9), ("product", 10, 9), ("fused", 0, 1))  # the last one starts first
    assert late == [1, 10, 19]
    early = times(("fused", 19, 1), ("product", 0, 9), ("product", 9, 10))  # the first one starts last
    assert early == [0, 0, 9]
