"""Kernels that a GPU runs besides those of a program's groups: second halves of reductions, and what loops do between two trips.

In: groups and equations. Out: seconds. Each was counted in profiles of JAX's programs on an H100 (`benchmarks/planning/gpu_measure.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.ir import Equation, Loop, region_of
from shardwise.planner.efficiency import reach_of
from shardwise.planner.machine import Chip
from shardwise.planner.roles import reduces_rows
from shardwise.planner.work import Group


def more_kernels(equations: Sequence[Equation], chip: Chip) -> float:
    """Seconds until the second kernel of a reduction in two begins: blocks reduce parts, and then one what they give."""
    return chip.overhead if chip.platform == "gpu" and any(map(_reduces_in_two, equations)) else 0.0


def _reduces_in_two(eqn: Equation) -> bool:
    """Whether an equation reduces all elements, or other dims than the last."""
    if eqn.op.fold is None or 2 * eqn.outputs[0].aval.size > eqn.inputs[0].aval.size:
        return False
    return eqn.outputs[0].aval.size == 1 or not reduces_rows(eqn)


def between_trips(group: Group, chip: Chip) -> float:
    """Seconds of a trip besides its body: trips are counted in a kernel of its own, and carries copied that were made elsewhere."""
    if chip.platform != "gpu" or not isinstance(region_of(group.equations[-1]), Loop):
        return 0.0
    copy_seconds = 2 * group.carried / (chip.hbm_bandwidth * reach_of(chip).memory)
    return copy_seconds + chip.overhead * (2 if copy_seconds else 1)


def before_trips(group: Group, chip: Chip) -> float:
    """Seconds in which a loop fills the stacks of its results, before its first trip."""
    return group.filled / (chip.hbm_bandwidth * reach_of(chip).memory) + chip.overhead if group.filled else 0.0
