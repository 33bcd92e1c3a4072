"""Carries of loops that are updated in place: ``x.at[i].set(v)`` in a loop's body touches a window, not all of `x`.

That is right if nobody reads the old elements afterwards: each value between a carry and its next value is overwritten by one update,
after all its readers, and windows that are read are copied. The update may stand in a branch, if the other branches return the value.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.ir import ALONE, Branches, Equation, Literal, Loop, Program, Spread, Var, is_update, region_of
from shardwise.runtime import costs


def updates(
    body: Program, before: Sequence[Var], after: Sequence[object], spread: Spread = ALONE
) -> list[tuple[Var, ...]]:
    """For each carry that is updated in place its values in the body, first to last; () for carries whose two buffers take turns.

    Slices of it must be small, with the parts of the devices in `spread`.
    """
    values = _Values(body, spread)
    chains = [() if a is b else values.chain(a) for b, a in zip(before, after, strict=True)]
    return [c if c and c[0] is b else () for b, c in zip(before, chains, strict=True)]


def carry_updates(loop: Loop, spread: Spread = ALONE) -> list[tuple[Var, ...]]:
    """`updates` of a loop's carries."""
    first, count = loop.num_consts, loop.num_carry
    return updates(loop.body, loop.body.inputs[first : first + count], loop.body.outputs[:count], spread)


def branch_updates(branches: Branches, k: int, spread: Spread = ALONE) -> tuple[int, list[tuple[Var, ...]]] | None:
    """The input in whose memory each branch can leave its result `k`, and the values of each branch that then lie there.

    None if there is none: each branch updates the same input, or passes it on.
    """
    chains: list[tuple[Var, ...]] = []
    for program in branches.programs:
        result = program.outputs[k]
        if not isinstance(result, Var):
            return None
        passed = result in program.inputs and program.outputs.count(result) == 1
        chains.append((result,) if passed else _Values(program, spread).chain(result))
        if not chains[-1]:
            return None
    first, *others = [p.inputs.index(c[0]) for p, c in zip(branches.programs, chains, strict=True)]
    return None if any(i != first for i in others) else (first, chains)


def values_handed_on(program: Program, result: object) -> list[Var]:
    """The values of a program whose memory branches may hand on as that of `result`, which they do not change."""
    if not isinstance(result, Var):
        return []
    eqn = next((e for e in program.equations if result in e.outputs), None)
    branches = None if eqn is None else region_of(eqn)
    if eqn is None or not isinstance(branches, Branches):
        return []
    k, operands = eqn.outputs.index(result), eqn.inputs[1:]
    atoms = [
        operands[branch.inputs.index(v)]
        for branch in branches.programs
        for v in (branch.outputs[k], *values_handed_on(branch, branch.outputs[k]))
        if v in branch.inputs
    ]
    return [a for a in dict.fromkeys(atoms) if isinstance(a, Var)]


class _Values:
    """Where the values of a program are made and used."""

    def __init__(self, program: Program, spread: Spread) -> None:
        self.program = program
        self.spread = spread
        self.inputs = set(program.inputs)
        self.outputs = {a for a in program.outputs if isinstance(a, Var)}
        self.made = {v: i for i, e in enumerate(program.equations) for v in e.outputs}
        self.used: dict[Var, list[int]] = {}
        for i, eqn in enumerate(program.equations):
            for atom in eqn.inputs:
                if isinstance(atom, Var):
                    self.used.setdefault(atom, []).append(i)

    def chain(self, after: object) -> tuple[Var, ...]:
        """The values from an input to `after`, each written over the one before; () if there are none."""
        if not isinstance(after, Var) or after in self.inputs:
            return ()
        chain = [after]
        while chain[-1] not in self.inputs:
            at = self.made.get(chain[-1])
            if at is None:
                return ()
            eqn = self.program.equations[at]
            old = _overwritten_operand(eqn, chain[-1], self.spread)
            if not isinstance(old, Var) or old in self.outputs or list(eqn.inputs).count(old) != 1:
                return ()
            readers = [i for i in self.used[old] if i != at]
            if any(i > at or not _copies(self.program.equations[i], old, self.spread) for i in readers):
                return ()
            chain.append(old)
        return tuple(chain[::-1])


def _overwritten_operand(eqn: Equation, new: Var, spread: Spread) -> object:
    """The operand in whose memory the equation can leave its result `new`: of an update, or of loops and branches of updates."""
    if is_update(eqn):
        return eqn.inputs[0]
    region, k = region_of(eqn), eqn.outputs.index(new)
    if isinstance(region, Branches):
        found = branch_updates(region, k, spread)
        return None if found is None else eqn.inputs[1 + found[0]]
    if region is None or k >= region.num_carry:
        return None
    return eqn.inputs[region.carry][k] if carry_updates(region, spread)[k] else None


def _copies(eqn: Equation, x: Var, spread: Spread) -> bool:
    """Whether the equation only takes elements out of `x`, to memory or registers of their own."""
    op, region = eqn.op, region_of(eqn)
    if isinstance(region, Branches):  # they hand on no memory that is updated
        return x is not eqn.inputs[0]
    if region is not None:
        return x not in eqn.inputs[region.carry]
    if any(a is x for a in eqn.inputs[1:] if not isinstance(a, Literal)):
        return False
    if op.extracts == "copies":
        return True
    size = spread.elements(eqn.outputs[0].aval)  # on all devices: the window may be as large as one device's part
    part = len(eqn.outputs) == 1 and 2 * size <= spread.elements(x.aval) and size <= costs.SMALL_LARGEST
    return part and (op.extracts == "window" or (op.view and op.collective is None))
