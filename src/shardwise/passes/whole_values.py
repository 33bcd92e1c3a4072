"""Programs on whole values: where one memory has all parts, devices need not exchange them.

Comes in: a global program, and what each device runs of it. Goes out: the same program for one device, if the devices would exchange
anything else than sums that products and reductions take over all parts at once. It takes and gives whole values, of which the devices'
parts are views, so that its time does not depend on their number. What is on record is what separate devices would do.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardwise.base.shapes import DimAxes
from shardwise.ir import Equation, Program, calls_user, subprograms
from shardwise.passes.grid import Grid
from shardwise.passes.partition import partition
from shardwise.passes.simplify import simplify


def whole_program(program: Program, device_program: Program, grid: Grid) -> Program | None:
    """`program` on whole values; None where its devices exchange nothing, where it has code of the user's for each device's part, and
    where processes share the work.
    """
    if len(grid.devices) == 1 or grid.spans or not grid.one_memory or not any(map(_exchanges, _all(device_program))):
        return None
    if any(map(calls_user, program.equations)) or any(e.op.boundary or e.op.holds_functions for e in _all(program)):
        return None
    outs: list[DimAxes | None] = [whole_layout(a.aval.ndim) for a in program.outputs]
    local, *_ = partition(program, grid.one_device, {}, [whole_layout(v.aval.ndim) for v in program.inputs], outs)
    return simplify(local, 1)


def whole_layout(ndim: int) -> DimAxes:
    """The layout of a value of that many dims none of which is split."""
    return ((),) * ndim


def _exchanges(eqn: Equation) -> bool:
    """Whether devices exchange values for an equation, or each reads from its part all that is asked for and keeps what lies there."""
    if eqn.op.collective is not None:
        return True
    return bool(eqn.params.get("sum_axes")) and not (eqn.op.product or eqn.op.fold or eqn.op.updates)


def _all(program: Program) -> Iterator[Equation]:
    """The equations of a program and of its inner programs."""
    for eqn in program.equations:
        yield eqn
        for _, inner in subprograms(eqn.params):
            yield from _all(inner)
