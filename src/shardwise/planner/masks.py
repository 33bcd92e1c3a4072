"""Products in groups, for compilers without a kernel for them: one product of all groups with all rows, those of other groups masked.

XLA expands `ragged_dot` so for GPUs and CPUs unless it is asked otherwise: it does as many times the operations as there are groups, and
keeps the masked operand, as many times larger, in memory. For TPUs, and here, each row meets its own group alone.

In: a per-device program. Out: the program with the masked products in their places.
"""

from __future__ import annotations

from shardwise.ir import Equation, Program
from shardwise.planner.expand import expand_equations
from shardwise.planner.target import Target


def with_masked_products(program: Program, target: Target) -> Program:
    """The program as the target's compiler computes it."""
    return expand_equations(program, _masked_product) if target.masks else program


def _masked_product(eqn: Equation) -> Program | None:
    return None if eqn.op.grouped is None else eqn.op.grouped.masked(eqn)
