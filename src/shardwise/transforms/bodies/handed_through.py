"""Results of a program that are its inputs, also by way of loops, branches and calls that leave them as they are."""

from __future__ import annotations

from shardwise.ir import Branches, Equation, Loop, Program, Var, region_of
from shardwise.ir.op import find_op
from shardwise.ir.program import Atom


def forwarded_inputs(program: Program) -> tuple[int | None, ...]:
    """For each result the number of the input that it is, or None."""
    places = {v: i for i, v in enumerate(program.inputs)}
    makers = {v: (eqn, i) for eqn in program.equations for i, v in enumerate(eqn.outputs)}

    def place(value: Atom) -> int | None:
        while isinstance(value, Var) and value not in places:
            maker = makers.get(value)
            source = None if maker is None else _source(*maker)
            if source is None:
                return None
            value = source
        return places[value] if isinstance(value, Var) else None

    return tuple(map(place, program.outputs))


def _source(eqn: Equation, i: int) -> Atom | None:
    """The operand that result `i` of an equation is."""
    region, params = region_of(eqn), eqn.params
    if isinstance(region, Loop):
        stays = i < region.num_carry and forwarded_inputs(region.body)[i] == region.num_consts + i
        return eqn.inputs[region.carry][i] if stays else None
    if isinstance(region, Branches):
        sources = {forwarded_inputs(b)[i] for b in region.programs}
        k = sources.pop()
        return eqn.inputs[1 + k] if not sources and k is not None else None
    if eqn.op is find_op("jit") and all(s is None for s in (*params["in_shardings"], *params["out_shardings"])):
        k = forwarded_inputs(params["program"])[i]
        return eqn.inputs[k] if k is not None else None
    return None
