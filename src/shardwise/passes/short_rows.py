"""Reductions along short rows and a dim outside of the rows, as two: first along the outer dims, in vectors across the rows.

Comes in: a per-device program. Goes out: the program in which sums over the positions and the channels of a group (`x.sum((1, 3))` of
[batch, positions, groups, channels], as normalizations of groups have them) are sums over positions, and then over the few channels. In
one loop, a vector would hold a part of a row, and each row would end with a sum across a vector.
"""

from __future__ import annotations

import math

from shardwise.ir import Equation, Program, Spread, Var, map_equations, map_programs
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.loops import dtype_name, lanes_of
from shardwise.runtime.machine import TYPES, available


def with_short_rows(program: Program, env: Env) -> Program:
    """`program` with such reductions of many elements as two."""
    return _in_two(program, env.spread) if available() else program


def _in_two(program: Program, spread: Spread) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _in_two(inner, spread)))
    rows_by_place = {i: rows for i, e in enumerate(program.equations) if (rows := _rows(e, spread))}
    if not rows_by_place:
        return program
    equations = tuple(
        new
        for i, e in enumerate(program.equations)
        for new in (_split(e, rows_by_place[i]) if i in rows_by_place else (e,))
    )
    return Program(program.inputs, equations, program.outputs, program.num_consts, program.name)


def _rows(eqn: Equation, spread: Spread) -> tuple[int, ...]:
    """The dims of the rows, if they are short; else none."""
    if eqn.op.fold is None or eqn.op.reduction is None or len(eqn.inputs) != 1 or set(eqn.params) != {"axes"}:
        return ()
    (x,), axes = eqn.inputs, eqn.params["axes"]
    shape, rank = x.aval.shape, x.aval.ndim
    rows = tuple(d for d in range(rank) if d in axes and all(e in axes for e in range(d, rank)))
    outside = [n for d, n in enumerate(shape) if d in axes and d not in rows]
    name = dtype_name(x.aval)
    # Narrow floats would be rounded twice.
    if not rows or not outside or name not in TYPES or (x.aval.dtype.kind not in "iub" and x.aval.dtype.itemsize < 4):
        return ()
    lanes, length = lanes_of(name), math.prod(shape[d] for d in rows)
    beside = math.prod(shape[max(d for d in axes if d not in rows) + 1 : rows[0]])  # rows that lie side by side
    short = 1 < length < 2 * lanes and lanes <= length * beside and math.prod(outside) >= lanes
    return rows if short and spread.elements(x.aval) >= costs.FUSED_FEWEST else ()


def _split(eqn: Equation, rows: tuple[int, ...]) -> tuple[Equation, Equation]:
    (x,), outer = eqn.inputs, tuple(d for d in eqn.params["axes"] if d not in rows)
    kept_dims = [d for d in range(x.aval.ndim) if d not in outer]
    between = Var(eqn.outputs[0].aval.update(shape=tuple(x.aval.shape[d] for d in kept_dims)))
    last = tuple(kept_dims.index(d) for d in rows)
    return (
        Equation(eqn.op, (x,), (between,), {"axes": outer}, eqn.source),
        Equation(eqn.op, (between,), eqn.outputs, {"axes": last}, eqn.source),
    )
