"""Results of a program that are its inputs, also by way of loops, branches and calls that leave them as they are."""

from __future__ import annotations

from shardwise.ir import Equation, Program, Var
from shardwise.ir.program import Atom
from shardwise.ops.control.cond import cond_p
from shardwise.ops.control.scan import scan_p
from shardwise.ops.control.while_loop import while_p


def handed_through(program: Program) -> tuple[int | None, ...]:
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
    params = eqn.params
    if eqn.op is scan_p and i < params["num_carry"]:
        own = params["num_consts"] + i
        return eqn.inputs[own] if handed_through(params["body"])[i] == own else None
    if eqn.op is while_p:
        own = params["body_consts"] + i
        return eqn.inputs[params["cond_consts"] + own] if handed_through(params["body"])[i] == own else None
    if eqn.op is cond_p:
        found = {handed_through(b)[i] for b in params["branches"]}
        k = found.pop()
        return eqn.inputs[1 + k] if not found and k is not None else None
    if eqn.op.name == "jit" and all(s is None for s in (*params["in_shardings"], *params["out_shardings"])):
        k = handed_through(params["program"])[i]
        return eqn.inputs[k] if k is not None else None
    return None
