"""Joining sums over devices: their partial results are added first, and summed over devices once.

Comes in: a device program. Goes out: the program in which `add(psum(a), psum(b))` is `psum(add(a, b))`, as XLA reassociates
all-reduces. The gradients of a layer's input through queries, keys and values are such sums if heads are split over devices: one
all-reduce replaces three. Only sums that the partitioner inserted move, never sums that a user wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from shardwise.base.shapes import Axes
from shardwise.ir import Equation, Program, ProgramMap, Var, exact_items
from shardwise.ops.elementwise.binary import add_p


def join_reductions(program: Program, joins: Callable[[Axes], bool] = lambda axes: True) -> Program:
    """The same program with such sums joined, in loop bodies and branches too, if `joins` accepts their axes."""
    join_map = ProgramMap(lambda p: _join_sums(join_map.inside(p), joins))
    return join_map.of(program)


def _join_sums(program: Program, joins: Callable[[Axes], bool]) -> Program:
    collectives = [e for e in program.equations if e.op.collective is not None]
    if sum(_is_sum(e) and joins(e.params["axes"]) for e in collectives) < 2:
        return program
    uses: dict[Var, int] = {}
    for atom in (*[a for e in program.equations for a in e.inputs], *program.outputs):
        if isinstance(atom, Var):
            uses[atom] = uses.get(atom, 0) + 1
    sums: dict[Var, int] = {}  # the positions of sums whose result one equation reads
    equations: list[Equation | None] = []
    for eqn in program.equations:
        places: list[int] = []
        if eqn.op is add_p:
            places = [p for a in eqn.inputs if isinstance(a, Var) and (p := sums.get(a)) is not None]
        pair = [e for p in places if (e := equations[p]) is not None]
        if len(pair) == 2 and _are_alike(*pair):
            for p in places:
                equations[p] = None
            sum_equation, eqn = _sum_of_parts(eqn, *pair)
            equations.append(sum_equation)
        equations.append(eqn)
        if _is_sum(eqn) and uses.get(eqn.outputs[0]) == 1 and joins(eqn.params["axes"]):
            sums[eqn.outputs[0]] = len(equations) - 1
    remaining = tuple([e for e in equations if e is not None])
    return Program(program.inputs, remaining, program.outputs, program.num_consts, program.name)


def _is_sum(eqn: Equation) -> bool:
    """Whether an equation is a sum over devices that the partitioner inserted: an all-reduce or a reduce-scatter."""
    collective = eqn.op.collective
    if collective is None:
        return False
    reduction = None if collective.absorbed is None else collective.absorbed(eqn.params)
    if reduction is None or reduction.kind != "sum" or len(eqn.inputs) != 1 or not isinstance(eqn.inputs[0], Var):
        return False
    return eqn.source is not None and eqn.source.need is not None and eqn.source.need.implicit


def _are_alike(one: Equation, other: Equation) -> bool:
    """Whether two sums have the same axes and operand type."""
    a, b = one.inputs[0].aval, other.inputs[0].aval
    same = a.shape == b.shape and a.dtype == b.dtype and one.outputs[0].aval.shape == other.outputs[0].aval.shape
    return same and one.op is other.op and exact_items(one.params) == exact_items(other.params)


def _sum_of_parts(eqn: Equation, one: Equation, other: Equation) -> tuple[Equation, Equation]:
    """The replacement of `eqn`, which adds two sums over devices: the sum of their operands, and its sum over devices."""
    out = eqn.outputs[0]
    parts = [e.inputs[0].aval for e in (one, other)]
    part = Var(parts[0].update(weak_type=out.aval.weak_type, vma=parts[0].vma | parts[1].vma))
    sum_equation = Equation(eqn.op, (one.inputs[0], other.inputs[0]), (part,), eqn.params, eqn.source)
    return sum_equation, Equation(other.op, (part,), (out,), other.params, other.source)
