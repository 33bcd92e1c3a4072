"""`plan(f, *args, on=...)`: the plan of one function on a machine that one does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.plan.session import on as planned_run
from shardwise.planner.device_program import device_program_of
from shardwise.planner.machine import Machine
from shardwise.planner.plan import make_plan
from shardwise.planner.result import Plan
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.wrapped import JitWrapped


def plan(f: Callable[..., Any], *args: Any, on: str | Machine, **kwargs: Any) -> Plan:
    """The plan of one call ``f(*args, **kwargs)`` on the machine `on`.

    Args:
        f: a function, jitted or not.
        *args: arrays, or ShapeDtypeStructs with shardings over a mesh of as many devices as the machine has (or fewer): a Mesh of
            the devices of a planned run, of this machine's, or an AbstractMesh.
        on: the machine's name, such as ``v5p-256``, or a `Machine`.
        **kwargs: passed by name.

    Raises:
        ValueError: there is no such machine, or the mesh does not fit it.
    """
    wrapped = f if isinstance(f, JitWrapped) else jit(f)
    with planned_run(on) as run:
        executable = wrapped.lower(*args, **kwargs)._entry.executable
    return make_plan(device_program_of(executable), run.machine, notes=run.notes)
