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
    gathers = [i for i, e in enumerate(program.equations) if e.op.collective is not None and _is_gather(e)]
    if not gathers:
        return program
    products = _products_before(program)
    again: dict[int, list[tuple[Equation, Var]]] = {}  # per position the copies that come before it
    renamed: dict[tuple[int, Var], Var] = {}  # per reader
    readers = _readers(program)
    results = set(program.outputs)
    for i in gathers:
        eqn = program.equations[i]
        out = eqn.outputs[0]
        if out in results:
            continue
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


def _is_gather(eqn: Equation) -> bool:
    """Whether an equation is a collective whose result is much larger than its operand, which would stay in its place."""
    if role_of(eqn) is not Role.COLLECTIVE or len(eqn.outputs) != 1:
        return False
    return 4 * sum(a.aval.nbytes for a in eqn.inputs) <= eqn.outputs[0].aval.nbytes


def _products_before(program: Program) -> list[int]:
    """Per equation the number of products and loops before it."""
    counts: list[int] = []
    count = 0
    for eqn in program.equations:
        counts.append(count)
        count += eqn.op.product or eqn.op.region is not None
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
