"""Which carries of a loop are updated where they lie: ``x.at[i].set(v)`` in a loop's body touches a window, not all of `x`.

That is right where nobody reads what was there before: each value between a carry and its next one is overwritten by one update,
after all that reads it, and the windows that are read are copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.ir import Equation, Literal, Loop, Program, Var, is_update, region_of
from shardwise.runtime import costs


def updates(body: Program, before: Sequence[Var], after: Sequence[object], devices: int = 1) -> list[tuple[Var, ...]]:
    """For each carry its values in the body, from the one that comes in to the one that goes out; () where memory takes turns.

    On so many devices, what a slice reads must be small.
    """
    made = {v: i for i, e in enumerate(body.equations) for v in e.outputs}
    used: dict[Var, list[int]] = {}
    for i, eqn in enumerate(body.equations):
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                used.setdefault(atom, []).append(i)
    outputs = [a for a in body.outputs if isinstance(a, Var)]
    return [_chain(body, b, a, made, used, outputs, devices) for b, a in zip(before, after, strict=True)]


def carry_updates(loop: Loop, devices: int = 1) -> list[tuple[Var, ...]]:
    """`updates` of a loop's carries."""
    first, count = loop.num_consts, loop.num_carry
    return updates(loop.body, loop.body.inputs[first : first + count], loop.body.outputs[:count], devices)


def _chain(
    body: Program,
    before: Var,
    after: object,
    made: dict[Var, int],
    used: dict[Var, list[int]],
    outputs: list[Var],
    devices: int,
) -> tuple[Var, ...]:
    if not isinstance(after, Var) or after is before:
        return ()
    chain = [after]
    while chain[-1] is not before:
        at = made.get(chain[-1])
        if at is None:
            return ()
        eqn = body.equations[at]
        old = _overwritten(eqn, chain[-1], devices)
        if not isinstance(old, Var) or old in outputs or list(eqn.inputs).count(old) != 1:
            return ()
        if any(i > at or not (i == at or _copies(body.equations[i], old, devices)) for i in used[old]):
            return ()
        chain.append(old)
    return tuple(chain[::-1])


def _overwritten(eqn: Equation, new: Var, devices: int) -> object:
    """The operand in whose memory the equation can leave its result `new`: of an update, or of a loop of updates."""
    if is_update(eqn):
        return eqn.inputs[0]
    region, k = region_of(eqn), eqn.outputs.index(new)
    if not isinstance(region, Loop) or k >= region.num_carry:
        return None
    return eqn.inputs[region.carry][k] if carry_updates(region, devices)[k] else None


def _copies(eqn: Equation, x: Var, devices: int) -> bool:
    """Whether the equation only takes elements out of `x`, to memory or registers of their own."""
    op = eqn.op
    if any(a is x for a in eqn.inputs[1:] if not isinstance(a, Literal)):
        return False
    if op.extracts == "copies":
        return True
    size = eqn.outputs[0].aval.size
    part = len(eqn.outputs) == 1 and 2 * size <= x.aval.size and size * devices <= costs.SMALL_LARGEST
    return part and (op.extracts == "window" or (op.view and op.collective is None))
