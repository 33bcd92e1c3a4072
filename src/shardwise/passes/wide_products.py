"""Writing products of 16-bit floats out as conversions to float32, a product in float32, and a conversion of the result.

Comes in: a per-device program. Goes out: the program in which such products between fusable equations are written out, so that the
conversions join the groups before and after. Operands of a type that the processor multiplies directly are not converted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardwise.ir import Atom, Equation, Literal, Program, Var, map_equations, map_programs
from shardwise.ops.elementwise.casts import convert_element_type_p
from shardwise.passes.parts import makers, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine import available
from shardwise.runtime.products import amx

_NARROW = ("float16", "bfloat16")
_WIDE = np.dtype(np.float32)


def with_wide_products(program: Program, env: Env) -> Program:
    """`program` with its large products of 16-bit floats written out."""
    return _widen_products(program, env) if available() else program


def _widen_products(program: Program, env: Env) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _widen_products(inner, env)))
    if not any(_is_narrow(e) for e in program.equations):
        return program
    producers, used = makers(program), users(program)
    spread = env.spread
    fusable = lambda i: (op := program.equations[i].op).emit is not None or op.fold is not None  # noqa: E731
    equations: list[Equation] = []
    for eqn in program.equations:
        if not _is_narrow(eqn):
            equations.append(eqn)
            continue
        keeps = _multiplies_itself(eqn)
        operands = [] if keeps else [a for a in eqn.inputs[:1] if isinstance(a, Var) and a in producers]
        near = [*(producers[a] for a in operands), *(i for v in eqn.outputs for i in used.get(v, ()))]
        large = max(spread.elements(a.aval) for a in (*operands, *eqn.outputs)) >= costs.WIDE_PRODUCTS_FROM
        equations.extend(_wide(eqn, keeps) if large and any(map(fusable, near)) else [eqn])
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _is_narrow(eqn: Equation) -> bool:
    """Whether this is a product computed in float32 with narrower operands or a narrower result."""
    if eqn.op.contraction is None or any(isinstance(a, Literal) for a in eqn.inputs):
        return False
    types = [a.aval for a in eqn.inputs], [v.aval for v in eqn.outputs]
    narrow = any(t.dtype.name in _NARROW for side in types for t in side)
    return narrow and eqn.op.contraction(*types, eqn.params) == _WIDE


def _multiplies_itself(eqn: Equation) -> bool:
    """Whether the processor multiplies the operands directly and accumulates in float32."""
    _, batch = eqn.params["dimension_numbers"]
    return not any(batch) and all(a.aval.dtype.name == "bfloat16" for a in eqn.inputs) and amx.has_amx()


def _wide(eqn: Equation, keeps: bool) -> Iterator[Equation]:
    """The product with a float32 result, with float32 operands unless it `keeps` them, and the conversions around it."""
    operands: list[Atom] = []
    for atom in eqn.inputs:
        operands.append(atom if keeps or atom.aval.dtype == _WIDE else Var(atom.aval.update(dtype=_WIDE)))
        if operands[-1] is not atom:
            yield _convert_equation(atom, operands[-1], eqn)  # type: ignore[arg-type]
    (out,) = eqn.outputs
    result = out if out.aval.dtype == _WIDE else Var(out.aval.update(dtype=_WIDE))
    yield Equation(eqn.op, tuple(operands), (result,), {**eqn.params, "preferred_element_type": _WIDE}, eqn.source)
    if result is not out:
        yield _convert_equation(result, out, eqn)


def _convert_equation(x: Atom, out: Var, eqn: Equation) -> Equation:
    params = {"new_dtype": out.aval.dtype, "weak_type": out.aval.weak_type}
    return Equation(convert_element_type_p, (x,), (out,), params, eqn.source)
