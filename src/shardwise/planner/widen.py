"""Widening: products and collectives of 16-bit floats on machines that compute them in float32.

XLA's compiler for CPUs converts operands to float32, and results back; all readers of a value share its conversion. Stacked
operands whose entries a loop only converts are converted before the loop, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.ir import Atom, Equation, Program, Source, Var, map_programs, unwrap_op
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.planner.roles import Role, role_of
from shardwise.planner.target import Target
from shardwise.planner.values import loop_of, rows_of

_FLOAT = np.dtype(np.float32)


def with_wide_products(program: Program, target: Target) -> Program:
    """The program with the target's casts around products and collectives of 16-bit floats."""
    if not target.widens:
        return program
    wide: dict[Var, Var] = {}
    equations: list[Equation] = []

    def widen_atom(atom: Atom, source: Source | None) -> Atom:
        if not isinstance(atom, Var) or not _is_narrow(atom):
            return atom
        if atom not in wide:
            wide[atom] = Var(atom.aval.update(dtype=_FLOAT))
            equations.append(_cast(atom, wide[atom], source))
        return wide[atom]

    for eqn in program.equations:
        role = role_of(eqn)
        if role is Role.LOOP:
            eqn = _with_wide_rows(eqn, widen_atom, target)
        if role not in (Role.PRODUCT, Role.COLLECTIVE) or not any(map(_is_narrow, eqn.inputs)):
            equations.append(eqn)
            continue
        inputs = tuple([widen_atom(a, eqn.source) for a in eqn.inputs])
        outputs = tuple(Var(v.aval.update(dtype=_FLOAT)) if _is_narrow(v) else v for v in eqn.outputs)
        params = eqn.params
        if unwrap_op(eqn.op, params)[0].product and params.get("preferred_element_type") is not None:
            params = {**params, "preferred_element_type": _FLOAT}
        equations.append(Equation(eqn.op, inputs, outputs, params, eqn.source))
        casts = zip(outputs, eqn.outputs, strict=True)
        equations += [_cast(new, old, eqn.source) for new, old in casts if new is not old]
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _with_wide_rows(eqn: Equation, widened: Callable[[Atom, Source | None], Atom], target: Target) -> Equation:
    """The loop with stacked operands in float32 if only products and collectives read their entries."""
    loop = loop_of(eqn)
    body = loop.body
    others = {a for e in body.equations if role_of(e) not in (Role.PRODUCT, Role.COLLECTIVE) for a in e.inputs}
    others.update(body.outputs)
    first = len(body.inputs) - len(rows_of(loop))
    wide_inputs = {i: v for i, v in enumerate(body.inputs) if i >= first and _is_narrow(v) and v not in others}
    if not wide_inputs:
        return eqn
    wide = {v: Var(v.aval.update(dtype=_FLOAT)) for v in wide_inputs.values()}
    inputs = tuple(wide.get(v, v) for v in body.inputs)
    equations = tuple(
        Equation(
            e.op, tuple(wide.get(a, a) if isinstance(a, Var) else a for a in e.inputs), e.outputs, e.params, e.source
        )
        for e in body.equations
    )
    new = with_wide_products(Program(inputs, equations, body.outputs, body.num_consts, body.name), target)
    start = loop.rows.start - first
    operands = tuple(widened(a, eqn.source) if i - start in wide_inputs else a for i, a in enumerate(eqn.inputs))
    return map_programs(
        Equation(eqn.op, operands, eqn.outputs, eqn.params, eqn.source), lambda p: new if p is body else p
    )


def _is_narrow(atom: Atom) -> bool:
    return atom.aval.itemsize == 2 and issubdtype(atom.aval.dtype, np.floating)


def _cast(operand: Var, result: Var, source: Source | None) -> Equation:
    """A cast attributed to a line of the user's."""
    params = {"new_dtype": result.aval.dtype, "weak_type": False}
    return Equation(convert_element_type_p, (operand,), (result,), params, source)
