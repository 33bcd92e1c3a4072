"""Finding reuse of random keys in a program: the operands that it consumes, and the results that are fresh keys.

Comes in: a traced program. Goes out: its `KeyUses`, or KeyReuseError if an equation consumes a key that is consumed already. A
program's `KeyUses` tell how a call changes the key state of its arguments and results.

An op that draws from a key or splits it consumes it (`Op.keys`). In an array of keys, parts cut out by static slices are tracked
separately.
"""

from __future__ import annotations

import numpy as np

from shardwise.base.errors import KeyReuseError
from shardwise.ir import Literal, Program, Var
from shardwise.ir.key_uses import KeyUses, Mask, equation_uses, is_key, overlap, union
from shardwise.ir.program import source_text


def key_uses(program: Program) -> KeyUses:
    """The uses of keys in `program`.

    Raises:
        KeyReuseError: it consumes a key twice.
    """
    consumed_masks: dict[Var, Mask] = {}
    origin: dict[Var, Var] = {}  # the original value of each copy

    def root(atom: Var | Literal) -> Var | None:
        if isinstance(atom, Literal):
            return None
        return origin.get(atom, atom)

    for eqn in program.equations:
        if not any(is_key(a) for a in (*eqn.inputs, *eqn.outputs)) and not callable(eqn.op.keys):
            continue
        uses = equation_uses(eqn, key_uses)
        for out, operand in uses.forwards.items():
            if (key_root := root(eqn.inputs[operand])) is not None:
                origin[eqn.outputs[out]] = key_root
        for i, mask in uses.sinks.items():
            var = root(eqn.inputs[i])
            if var is None or not is_key(var):
                continue
            if overlap(consumed_masks.get(var, False), mask):
                where = f" at {source_text(eqn.source)}" if eqn.source else ""
                raise KeyReuseError(
                    f"In {eqn.op.name}{where}, argument {i} is already consumed: a key of type {var.aval.str_short()} was used or split "
                    f"before, in {program.name}. Split keys, and use each part once."
                )
            consumed_masks[var] = union(consumed_masks.get(var, False), mask)
        for i, out in enumerate(eqn.outputs):
            if is_key(out) and out not in origin:
                consumed_masks[out] = i not in uses.sources

    inputs = {v: i for i, v in enumerate(program.inputs)}
    sinks = {i: consumed_masks[v] for v, i in inputs.items() if is_key(v) and np.any(consumed_masks.get(v, False))}
    sources, forwards = set(), {}
    for i, atom in enumerate(program.outputs):
        var = root(atom)
        if var is None or not is_key(var):
            continue
        if var in inputs:
            forwards[i] = inputs[var]
        elif not np.any(consumed_masks.get(var, False)):
            sources.add(i)
    return KeyUses(sinks, frozenset(sources), forwards)
