"""Gathers: a value with readers far apart is gathered for each of them.

XLA's partitioner for TPUs does not keep a gathered value for later readers (`cache_all_gather` is off there): each reader gathers it
anew, and gathers that stand close to each other are merged again. So a weight split over devices is gathered in the forward
and in the backward pass, and is in memory only while it is used.
"""

from __future__ import annotations

from shardwise.ir import Atom, Equation, Program, Var
from shardwise.planner.roles import Role, role_of
from shardwise.planner.target import Target

# The most products between two readers that count as close.
NEAR = 4


def with_gathers_again(program: Program, target: Target) -> Program:
    """The program with its gathers next to the readers of their results."""
    if not target.gathers_again:
        return program
    gathers = [i for i, e in enumerate(program.equations) if e.op.collective is not None and _is_gather(e)]
    if not gathers:
        return program
    products = _products_before(program)
    again: dict[int, list[tuple[Equation, Var]]] = {}  # by position: the copies that precede it
    renamed_inputs: dict[int, dict[Atom, Var]] = {}  # by reader
    readers = _readers(program, {program.equations[i].outputs[0] for i in gathers})
    results = set(program.outputs)
    moved_places: set[int] = set()
    for i in gathers:
        eqn = program.equations[i]
        out = eqn.outputs[0]
        if out in results:
            continue
        last, copy = i, out
        for reader in readers.get(out, ()):
            if products[reader] - products[last] > NEAR:
                if last == i:
                    moved_places.add(i)  # unread in its old place
                copy = Var(out.aval)
                new = Equation(eqn.op, eqn.inputs, (copy,), eqn.params, eqn.source)
                again.setdefault(reader, []).append((new, copy))
            if copy is not out:
                renamed_inputs.setdefault(reader, {})[out] = copy
            last = reader
    return _rewrite_gathers(program, again, renamed_inputs, moved_places) if again else program


def _is_gather(eqn: Equation) -> bool:
    """Whether an equation is a collective whose result is much larger than its operand, which would stay in its place."""
    if role_of(eqn) is not Role.COLLECTIVE or len(eqn.outputs) != 1:
        return False
    return 4 * sum(a.aval.nbytes for a in eqn.inputs) <= eqn.outputs[0].aval.nbytes


def _products_before(program: Program) -> list[int]:
    """For each equation the number of products and loops before it."""
    counts: list[int] = []
    count = 0
    for eqn in program.equations:
        counts.append(count)
        count += eqn.op.product or eqn.op.region is not None
    return counts


def _readers(program: Program, values: set[Var]) -> dict[Var, list[int]]:
    """The positions of the readers of each value."""
    readers: dict[Var, list[int]] = {}
    for i, eqn in enumerate(program.equations):
        if not values.isdisjoint(eqn.inputs):
            for var in values.intersection(eqn.inputs):
                readers.setdefault(var, []).append(i)
    return readers


def _rewrite_gathers(
    program: Program,
    again: dict[int, list[tuple[Equation, Var]]],
    renamed: dict[int, dict[Atom, Var]],
    moved: set[int],
) -> Program:
    equations: list[Equation] = []
    for i, eqn in enumerate(program.equations):
        if i in again:
            equations += [new for new, _ in again[i]]
        if i in moved:
            continue
        names = renamed.get(i)
        if names is not None:
            inputs = tuple([names.get(a, a) for a in eqn.inputs])
            eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        equations.append(eqn)
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)
