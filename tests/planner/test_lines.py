"""Each task and each temporary of a plan names a line of the user's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from shardwise.base.config import use_dialect
from shardwise.planner import device_program_of, for_chip, make_plan
from shardwise.planner.machines import find
from shardwise.planner.result import Schedule, Task
from tests.traffic.programs import TABLE

MACHINES = ("h100-8", "v5e-8", "cpu-8x16")
SOME = list(TABLE)[::6]
# Their results lie otherwise than the program leaves them: what brings them there belongs to no line.
OUTPUTS = {"experts_over_three_axes", "optimizer_states_split"}


def tasks_of(schedule: Schedule) -> Iterator[Task]:
    for task in schedule.tasks:
        yield task
        if task.body is not None:
            yield from tasks_of(task.body)


@pytest.mark.parametrize("name", [name for name in SOME if name not in OUTPUTS])
def test_each_task_and_each_temporary_has_a_line(name):
    with use_dialect("latest"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dims that axes do not divide are kept whole
        executable = TABLE[name].compiled("shardwise").runtime_executable()
    for machine in map(find, MACHINES):
        plan = make_plan(device_program_of(executable, for_chip(machine.chip)), machine)
        assert [t.name for t in tasks_of(plan.schedule) if t.source is None] == []
        given = ("argument", "result", "constant")
        pool = "freed, waits for values of its size"
        assert [b.name for b in plan.buffers if b.source is None and b.kind not in given and b.name != pool] == []
