"""Updates that a scalar holds back: ``where(p, x.at[i].set(v), x)`` writes a window or nothing, rather than choose between whole arrays.

Comes in: a per-device program. Goes out: the program in which such a choice between a value and its update is the update held back
(`Op.hold`), so that the next value can lie where the old one lies, as in pipelines and caches that only some devices or steps write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.ir import Atom, Equation, Literal, Program, Var, bind, is_update, trace_program
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.elementwise.unary import not_p
from shardwise.passes.parts import makers, users


def held_updates(program: Program) -> Program:
    """`program` with choices between a value and its update as updates that are held back."""
    if not any(is_update(e) for e in program.equations):
        return program
    producers, used = makers(program), users(program)
    result_vars = {v for v in program.outputs if isinstance(v, Var)}
    replacements: dict[int, Sequence[Equation]] = {}
    for i, eqn in enumerate(program.equations):
        if eqn.op is not select_n_p or len(eqn.inputs) != 3:
            continue
        which, *cases = eqn.inputs
        if which.aval.shape or which.aval.dtype.kind != "b":
            continue
        for new, old in ((1, 0), (0, 1)):
            chosen = cases[new]
            if not isinstance(chosen, Var) or chosen in result_vars or used[chosen] != [i]:
                continue
            at = producers.get(chosen)
            if at is None:
                continue
            update = program.equations[at]
            held_form = _hold_update(update, eqn, turned=new == 0) if _of(update, cases[old]) else None
            if held_form is not None:
                replacements[at], replacements[i] = (), held_form
                break
    if not replacements:
        return program
    equations = [e for i, e in enumerate(program.equations) for e in replacements.get(i, (e,))]
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _of(eqn: Equation, old: Atom) -> bool:
    """Whether the equation gives an update of that value, at most half of it, and no other device writes what it writes."""
    if eqn.op.hold is None:
        return False
    params, (first, *rest) = eqn.params, eqn.inputs
    apart = params.get("operand_axes") or params.get("update_axes") or params.get("sum_axes")
    return first is old and not apart and 2 * sum(a.aval.size for a in rest) <= old.aval.size


def _hold_update(update: Equation, choice: Equation, turned: bool) -> list[Equation] | None:
    """The equations that give the result of `choice`: the update where its scalar is true, or, if `turned`, where it is false."""
    assert update.op.hold is not None
    hold = update.op.hold(update.params, tuple([a.aval for a in update.inputs]))
    if hold is None:
        return None

    def run(going: Any, *values: Any) -> list[Any]:
        return [hold(bind(not_p, going) if turned else going, *values)]

    inputs = (choice.inputs[0], *update.inputs)
    program, _ = trace_program(run, [a.aval.update(vma=frozenset()) for a in inputs])
    atom_map: dict[Atom, Atom] = dict(zip(program.inputs, inputs, strict=True))
    new_equations: list[Equation] = []
    for eqn in program.equations:
        operands = tuple([a if isinstance(a, Literal) else atom_map[a] for a in eqn.inputs])
        vma = frozenset[str]().union(*[a.aval.vma for a in operands])
        results = tuple([Var(v.aval.update(vma=vma)) for v in eqn.outputs])
        if program.outputs == eqn.outputs:
            results = choice.outputs
        atom_map.update(zip(eqn.outputs, results, strict=True))
        new_equations.append(Equation(eqn.op, operands, results, eqn.params, choice.source))
    return new_equations if new_equations and new_equations[-1].outputs == choice.outputs else None
