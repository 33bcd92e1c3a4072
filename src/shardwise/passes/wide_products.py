"""Products of 16-bit floats as what they are: conversions to float32, a product in float32, and a conversion of the result.

Comes in: a per-device program. Goes out: the program in which such products between fusable equations are spelled out, so that the
conversions become part of the groups before and after. Products that the processor can compute in their own type stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from shardwise.ir import Atom, Equation, Literal, Program, Var
from shardwise.ops.casts import convert_element_type_p
from shardwise.passes.parts import makers, users
from shardwise.runtime import amx
from shardwise.runtime.env import Env

_NARROW = ("float16", "bfloat16")


def with_wide_products(program: Program, env: Env, least: int) -> Program:
    """`program` with products of 16-bit floats that have at least so many elements, on all devices, spelled out."""
    if not any(_is_narrow(e) for e in program.equations):
        return program
    made, used = makers(program), users(program)
    devices = math.prod(env.axis_sizes)
    fusable = lambda i: (op := program.equations[i].op).emit is not None or op.fold is not None  # noqa: E731
    equations: list[Equation] = []
    for eqn in program.equations:
        before = [made[a] for a in eqn.inputs[:1] if isinstance(a, Var) and a in made]
        near = [*before, *(i for v in eqn.outputs for i in used.get(v, ()))]
        large = max((a.aval.size for a in (*eqn.inputs[:1], *eqn.outputs)), default=0) * devices >= least
        if _is_narrow(eqn) and large and any(map(fusable, near)):
            equations.extend(_wide(eqn))
        else:
            equations.append(eqn)
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _is_narrow(eqn: Equation) -> bool:
    """Whether this is a product in float32 of what is narrower, for which the processor has no instructions."""
    if eqn.op.contraction is None or any(isinstance(a, Literal) for a in eqn.inputs):
        return False
    types = [a.aval for a in eqn.inputs]
    names = [t.dtype.name for t in (*types, eqn.outputs[0].aval)]
    if (
        not any(n in _NARROW for n in names)
        or eqn.op.contraction(types, [eqn.outputs[0].aval], eqn.params) != np.float32
    ):
        return False
    _, batch = eqn.params["dimension_numbers"]
    return any(batch) or names[:2] != ["bfloat16"] * 2 or not amx.granted()


def _wide(eqn: Equation) -> Iterator[Equation]:
    operands: list[Atom] = []
    for atom in eqn.inputs:
        operands.append(atom if atom.aval.dtype == np.float32 else Var(atom.aval.update(dtype=np.dtype(np.float32))))
        if operands[-1] is not atom:
            yield _converted(atom, operands[-1], eqn)  # type: ignore[arg-type]
    (out,) = eqn.outputs
    result = out if out.aval.dtype == np.float32 else Var(out.aval.update(dtype=np.dtype(np.float32)))
    yield Equation(eqn.op, tuple(operands), (result,), {**eqn.params, "preferred_element_type": None}, eqn.source)
    if result is not out:
        yield _converted(result, out, eqn)


def _converted(x: Atom, out: Var, eqn: Equation) -> Equation:
    params = {"new_dtype": out.aval.dtype, "weak_type": out.aval.weak_type}
    return Equation(convert_element_type_p, (x,), (out,), params, eqn.source)
