"""Gathers: a value that is gathered for several readers far apart is gathered for each of them.

XLA's partitioner for TPUs does not keep a gathered value for later readers (`cache_all_gather` is off there): each reader gathers it
anew, and gathers that stand close to each other are merged again. So a weight split over devices is gathered in the forward
and in the backward pass, and is in memory only while it is used.
"""

from __future__ import annotations

from shardwise.ir import Atom, Equation, Program, Var
from shardwise.planner.roles import Role, role_of
from shardwise.planner.target import Target

# Readers are close where at most so many products run between them.
NEAR = 4


def with_gathers_again(program: Program, target: Target) -> Program:
    """The program with its gathers where their results are read."""
    if not target.gathers_again:
        return program
    roles = [role_of(e) for e in program.equations]
    products = _products_before(roles)
    again: dict[int, list[tuple[Equation, Var]]] = {}  # per position the copies that come before it
    renamed: dict[tuple[int, Var], Var] = {}  # per reader
    readers = _readers(program)
    for i, eqn in enumerate(program.equations):
        if roles[i] is not Role.COLLECTIVE or len(eqn.outputs) != 1 or eqn.outputs[0] in program.outputs:
            continue
        out = eqn.outputs[0]
        if 4 * sum(a.aval.nbytes for a in eqn.inputs) > out.aval.nbytes:
            continue  # what would stay in its place is as large
        last, copy = i, out
        for reader in readers.get(out, ()):
            if products[reader] - products[last] > NEAR:
                copy = Var(out.aval)
                new = Equation(eqn.op, eqn.inputs, (copy,), eqn.params, eqn.source)
                again.setdefault(reader, []).append((new, copy))
            if copy is not out:
                renamed[reader, out] = copy
            last = reader
    return _rewritten(program, again, renamed) if again else program


def _products_before(roles: list[Role]) -> list[int]:
    counts: list[int] = []
    count = 0
    for role in roles:
        counts.append(count)
        count += role in (Role.PRODUCT, Role.LOOP)
    return counts


def _readers(program: Program) -> dict[Var, list[int]]:
    """Per value the positions of the equations that read it."""
    readers: dict[Var, list[int]] = {}
    for i, eqn in enumerate(program.equations):
        for atom in dict.fromkeys(eqn.inputs):
            if isinstance(atom, Var):
                readers.setdefault(atom, []).append(i)
    return readers


def _rewritten(
    program: Program, again: dict[int, list[tuple[Equation, Var]]], renamed: dict[tuple[int, Var], Var]
) -> Program:
    equations: list[Equation] = []
    for i, eqn in enumerate(program.equations):
        equations += [new for new, _ in again.get(i, ())]
        inputs: tuple[Atom, ...] = tuple(renamed.get((i, a), a) if isinstance(a, Var) else a for a in eqn.inputs)
        same = all(a is b for a, b in zip(inputs, eqn.inputs, strict=True))
        equations.append(eqn if same else Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source))
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)
