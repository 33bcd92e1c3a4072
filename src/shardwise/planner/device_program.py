"""From what the engine compiled in a planned run to what the planner works on.

In: a `DataFree` executable. Out: its `DeviceProgram`, and the FLOPs by which programs are compared while they run.
"""

from __future__ import annotations

from shardwise.engine.data_free import DataFree
from shardwise.ir import Program, region_of, rounds_of, unwrapped
from shardwise.planner.flops import product_of
from shardwise.planner.work import DeviceProgram


def device_program_of(executable: DataFree) -> DeviceProgram:
    """The program of one device, with the paths, layouts and shapes of its arguments."""
    shapes = tuple(sig.aval.shape for sig in executable.in_sigs)
    names = tuple(name or f"argument {i}" for i, name in enumerate(executable.names))
    return DeviceProgram(
        executable.device_program,
        executable.grid.axis_sizes,
        names,
        executable.in_dims,
        executable.out_dims,
        shapes,
        executable.owned,
    )


def product_flops_of(program: Program) -> float:
    """FLOPs of all products, loops counted as often as they run (once where that is unknown)."""
    total = 0.0
    for eqn in program.equations:
        region = region_of(eqn)
        if region is not None:
            total += (rounds_of(eqn) or 1) * sum(product_flops_of(p) for p in region.programs)
        elif unwrapped(eqn.op, eqn.params)[0].product:
            total += product_of(eqn).flops
    return total
