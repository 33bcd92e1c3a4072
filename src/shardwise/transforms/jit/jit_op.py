"""The op 'jit': a call of a compiled function inside a program that is being traced."""

from __future__ import annotations

from functools import partial
from typing import Any

from shardwise.base import config
from shardwise.ir import Equation, Program, ShapedArray, Shown, Var, define_op
from shardwise.ir.key_uses import called_uses
from shardwise.ir.narrowed import narrow_call
from shardwise.ir.program import called_effects
from shardwise.ops.devices.layout import sharding_constraint
from shardwise.ops.rules.derivative import later
from shardwise.sharding import Sharding


def _jit_inline(eqn: Equation) -> Program:
    """The called program, with its in_shardings and out_shardings as constraints."""
    program: Program = eqn.params["program"]
    ins, outs = eqn.params["in_shardings"], eqn.params["out_shardings"]
    if not any(s is not None for s in (*ins, *outs)):
        return program
    inputs = tuple(Var(v.aval) for v in program.inputs)
    equations: list[Equation] = []

    def constrain_atom(atom: Any, sharding: Sharding | None) -> Any:
        if sharding is None:
            return atom
        out = Var(atom.aval)
        equations.append(Equation(sharding_constraint, (atom,), (out,), {"sharding": sharding}, eqn.source))
        return out

    entry_atoms = tuple(constrain_atom(v, s) for v, s in zip(inputs, ins, strict=True))
    results = tuple(Var(t) for t in program.out_types)
    equations.append(
        Equation(
            jit_op,
            entry_atoms,
            results,
            {**eqn.params, "in_shardings": (None,) * len(ins), "out_shardings": (None,) * len(outs)},
            eqn.source,
        )
    )
    left = tuple(constrain_atom(v, s) for v, s in zip(results, outs, strict=True))
    return Program(inputs, tuple(equations), left, 0, program.name)


def _jit_type(*types: ShapedArray, program: Program, **_: Any) -> tuple[ShapedArray, ...]:
    return program.out_types


def _shown_params(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    """The params that differ from their defaults."""
    plain = lambda v: v is False or (isinstance(v, tuple) and all(x is None or x is False for x in v))  # noqa: E731
    return {k: v for k, v in shown.items() if not plain(v)}


_SHOWN_CALL = Shown(
    lambda: config.dialect.jit.name, aliases=("jit", "pjit"), renamed={"program": "jaxpr"}, change=_shown_params
)
jit_op = define_op(
    "jit",
    type_rule=_jit_type,
    multiple_results=True,
    typed=True,
    inline=_jit_inline,
    effects=called_effects,
    shown=_SHOWN_CALL,
    keys=called_uses,
    call=True,
    narrow=partial(narrow_call, per_operand="in_shardings", per_result=("out_shardings",)),
    **{
        rule: later("shardwise.transforms.bodies.jit_rules", f"jit_{rule}")
        for rule in ("jvp", "linearize", "transpose", "batch")
    },
)
