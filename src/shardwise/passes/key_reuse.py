"""Reuse of random keys, found in a program: which operands it consumes, and which results are fresh keys.

Comes in: a traced program. Goes out: its `KeyUses`, or KeyReuseError where an equation consumes a key that is consumed already. A
program's `KeyUses` say how a call of it changes the state of the arrays that it is called with, and of those that come out.

A key is consumed by what draws from it or splits it: ops say so in `Op.keys`. Whether parts of an array of keys are consumed is known
part by part where they were cut out by static slices.
"""

from __future__ import annotations

import numpy as np

from shardwise.base.errors import KeyReuseError
from shardwise.ir import Literal, Program, Var
from shardwise.ir.key_uses import KeyUses, Mask, equation_uses, is_key, overlap, union
from shardwise.ir.program import source_text


def key_uses(program: Program) -> KeyUses:
    """What `program` does with keys.

    Raises:
        KeyReuseError: it consumes one twice.
    """
    consumed: dict[Var, Mask] = {}
    origin: dict[Var, Var] = {}  # of values that are other values handed on

    def root(atom: Var | Literal) -> Var | None:
        if isinstance(atom, Literal):
            return None
        return origin.get(atom, atom)

    for eqn in program.equations:
        if not any(is_key(a) for a in (*eqn.inputs, *eqn.outputs)) and not callable(eqn.op.keys):
            continue
        uses = equation_uses(eqn, key_uses)
        for out, operand in uses.forwards.items():
            if (found := root(eqn.inputs[operand])) is not None:
                origin[eqn.outputs[out]] = found
        for i, mask in uses.sinks.items():
            var = root(eqn.inputs[i])
            if var is None or not is_key(var):
                continue
            if overlap(consumed.get(var, False), mask):
                where = f" at {source_text(eqn.source)}" if eqn.source else ""
                raise KeyReuseError(
                    f"In {eqn.op.name}{where}, argument {i} is already consumed: a key of type {var.aval.str_short()} was used or split "
                    f"before, in {program.name}. Split keys, and use each part once."
                )
            consumed[var] = union(consumed.get(var, False), mask)
        for i, out in enumerate(eqn.outputs):
            if is_key(out) and out not in origin:
                consumed[out] = i not in uses.sources

    inputs = {v: i for i, v in enumerate(program.inputs)}
    sinks = {i: consumed[v] for v, i in inputs.items() if is_key(v) and np.any(consumed.get(v, False))}
    sources, forwards = set(), {}
    for i, atom in enumerate(program.outputs):
        var = root(atom)
        if var is None or not is_key(var):
            continue
        if var in inputs:
            forwards[i] = inputs[var]
        elif not np.any(consumed.get(var, False)):
            sources.add(i)
    return KeyUses(sinks, frozenset(sources), forwards)
