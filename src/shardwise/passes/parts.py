"""Groups of equations that run as one, and an order in which each part comes after the parts that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Branches, Equation, Program, Spread, Var, region_of
from shardwise.runtime import costs


@dataclass(frozen=True, slots=True)
class Part:
    """A unit of execution: a single equation, or the members of a group. Ordered by its last member."""

    members: tuple[int, ...]


def calls_replaced(eqn: Equation, spread: Spread) -> float:
    """How many calls of NumPy's functions an equation on such devices stands for: much elementwise work counts as several, and a kernel
    whose bits differ from the machine code's as many as it makes.
    """
    emit, form = eqn.op.emit, eqn.op.small
    if emit is None:
        read = sum(spread.elements(a.aval) for a in eqn.inputs)
        if form is None:
            return 1
        return max(1 + form.spared * read / costs.SMALL_CALL, 1 if form.is_alike(eqn) else form.calls_for(eqn, spread))
    size = spread.elements(eqn.outputs[0].aval)
    return 1 + emit.cost * size / costs.SMALL_WORK + emit.spared * size / costs.SMALL_CALL


def devices_part(eqn: Equation) -> bool:
    """Whether devices may go different ways through the equation's programs."""
    held = region_of(eqn)
    if isinstance(held, Branches):
        return bool(eqn.inputs[0].aval.vma)
    return held is not None and held.test is not None and bool(held.test.out_types[0].vma)


def numpy_calls(eqn: Equation, spread: Spread) -> int:
    """The approximate number of NumPy calls in the op's own kernel, which gives the bits of the machine code."""
    form = eqn.op.small
    return form.calls_for(eqn, spread) if form is not None and form.is_alike(eqn) else 1


def makers(program: Program) -> dict[Var, int]:
    """The equation that makes each value."""
    return {v: i for i, e in enumerate(program.equations) for v in e.outputs}


def users(program: Program) -> dict[Var, list[int]]:
    """The equations that read each value."""
    users_by_var: dict[Var, list[int]] = {}
    for i, eqn in enumerate(program.equations):
        for atom in dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var)):
            users_by_var.setdefault(atom, []).append(i)
    return users_by_var


def read_by_loops(program: Program, spread: Spread) -> Callable[[Var], bool]:
    """Whether a value is large, and read by elementwise equations alone, which loops compute."""
    used, result_vars = users(program), {v for v in program.outputs if isinstance(v, Var)}

    def reads(v: Var) -> bool:
        emits = [program.equations[i].op.emit for i in used.get(v, ())]
        large = spread.elements(v.aval) > costs.FUSED_FEWEST and v not in result_vars
        return large and bool(emits) and all(emit is not None and not emit.moves for emit in emits)

    return reads


def order_parts(program: Program, parts: Sequence[Part]) -> list[Part]:
    """The parts, each after the parts that it needs, otherwise by last member: values live no longer than before."""
    producers = makers(program)
    of = {i: p for p in parts for i in p.members}
    last_effect: int | None = None
    needs: dict[Part, list[Part]] = {p: [] for p in parts}
    for i, eqn in enumerate(program.equations):
        for atom in eqn.inputs:
            j = producers.get(atom) if isinstance(atom, Var) else None
            if j is not None and of[j] is not of[i]:
                needs[of[i]].append(of[j])
        if eqn.op.has_effects(eqn.params):
            if last_effect is not None:
                needs[of[i]].append(of[last_effect])
            last_effect = i
    parts_done: set[Part] = set()
    result: list[Part] = []
    for part in sorted(parts, key=lambda p: p.members[-1]):
        stack = [part]
        while stack:
            top = stack[-1]
            waiting_parts = [p for p in needs[top] if p not in parts_done]
            if top in parts_done or not waiting_parts:
                stack.pop()
                if top not in parts_done:
                    parts_done.add(top)
                    result.append(top)
            else:
                stack.extend(waiting_parts)
    return result
