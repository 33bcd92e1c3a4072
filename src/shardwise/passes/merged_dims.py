"""Dims that reshapes merge stay apart, where devices could not keep their parts of a merged one.

    f32[8@x, 6@y] -> f32[48]  *  f32[8@x, 6@y] -> f32[48]  ->  f32[]        f32[8@x, 6@y]  *  f32[8@x, 6@y]  ->  f32[]

Comes in: a global program and the layouts that propagation chose. Goes out: the program in which values of merged dims have the dims
that these were merged from, up to sums, products and reshapes that end them; layouts are chosen anew for it. The parts that devices
have of [8, 6] are no slices of [48]: merging would gather dim 1. Inner products of whole arrays (`vdot`, as solvers call it) are such
programs, and losses and layers that work on all tokens of all sequences at once, of which devices have parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, Equation, Program, ProgramMap, Var
from shardwise.ops.shapes.reshape import reshape_p
from shardwise.passes.dim_groups import Groups, equation_apart, is_merged, merged_groups, single, sizes
from shardwise.passes.parts import makers


def with_merged_dims_apart(program: Program, layouts: Mapping[Var, DimAxes]) -> Program:
    """The program with such dims apart; the program itself if there are none."""
    apart = ProgramMap(lambda p: _apart(apart.inside(p), layouts))
    return apart.of(program)


def _apart(program: Program, layouts: Mapping[Var, DimAxes]) -> Program:
    starts = {e.outputs[0] for e in program.equations if e.op is reshape_p and _loses_axes(e, layouts)}
    if not starts:
        return program
    groups = _Survey(program).groups_near(starts)
    return _Apart(program, groups).program() if groups else program


def _loses_axes(eqn: Equation, layouts: Mapping[Var, DimAxes]) -> bool:
    """Whether the equation merges dims, and its result is split by fewer axes than its operand."""
    (x,), (out,) = eqn.inputs, eqn.outputs
    before, after = layouts.get(x, ()) if isinstance(x, Var) else (), layouts.get(out, ())
    if not set(chain(*after)) < set(chain(*before)):
        return False
    groups = merged_groups(x.aval.shape, out.aval.shape)
    return groups is not None and is_merged(groups)


class _Survey:
    """Which values of a program can have their dims apart: those whose makers and readers can, all of them.

    Attributes:
        groups: of values of merged dims, the sizes of the dims that these were merged from.
        near: of such a value those that have their dims apart if it has.
        makeable: whether a value without merged dims can be made with such groups.
        stuck: those that someone reads who needs the merged dims.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.made = program, makers(program)
        self.groups: dict[Var, Groups] = {}
        self.near: dict[Var, set[Var]] = {}
        self.makeable: dict[tuple[Atom, Groups], bool] = {}
        self.stuck = {v for v in program.outputs if isinstance(v, Var)}
        for eqn in program.equations:
            self._visit(eqn)

    def groups_near(self, starts: set[Var]) -> dict[Var, Groups]:
        """The groups of the values that are connected with one of `starts`, where none of these is stuck."""
        wanted_groups: dict[Var, Groups] = {}
        for start in starts & self.groups.keys():
            stack, together = [start], {start}
            while stack:
                new_values = self.near[stack.pop()] - together
                together |= new_values
                stack += new_values
            if not together & self.stuck:
                wanted_groups |= {v: self.groups[v] for v in together}
        return wanted_groups

    def _visit(self, eqn: Equation) -> None:
        known_groups = _known_groups(eqn, self.groups)
        merged_values = {a for a in eqn.inputs if isinstance(a, Var) and a in self.groups}
        if not merged_values and eqn.op is not reshape_p:
            return
        apart = equation_apart(eqn, known_groups)
        if apart is None or not all(map(self._fits, eqn.inputs, known_groups, apart.operands)):
            self.stuck |= merged_values
            return
        if is_merged(apart.result):
            (out,) = eqn.outputs
            self.groups[out], self.near[out] = apart.result, set()
            merged_values.add(out)
        for v in merged_values:
            self.near[v] |= merged_values

    def _fits(self, x: Atom, known_groups: Groups | None, wanted_groups: Groups) -> bool:
        """Whether an operand has these groups, can take them by dims of size 1, or can be made with them."""
        if _differ_by_ones(known_groups or single(x.aval.shape), wanted_groups):
            return True
        if known_groups is not None or not isinstance(x, Var) or x not in self.made:
            return False
        is_makeable = self.makeable.get((x, wanted_groups))
        if is_makeable is None:
            is_makeable = self.makeable[x, wanted_groups] = self._can_make(
                self.program.equations[self.made[x]], wanted_groups
            )
        return is_makeable

    def _can_make(self, maker: Equation, groups: Groups) -> bool:
        """Whether an equation without merged dims can give its result with such groups."""
        apart = equation_apart(maker, [None] * len(maker.inputs), groups)
        return apart is not None and all(
            self._fits(a, None, w) for a, w in zip(maker.inputs, apart.operands, strict=True)
        )


def _known_groups(eqn: Equation, groups: Mapping[Var, Groups]) -> list[Groups | None]:
    """The groups of the operands that have merged dims."""
    return [groups.get(a) if isinstance(a, Var) else None for a in eqn.inputs]


def _differ_by_ones(own: Groups, wanted_groups: Groups) -> bool:
    """Whether a reshape that adds dims of size 1 leads from one to the other."""
    return all(g == w or math.prod(w) == 1 for g, w in zip(own, wanted_groups, strict=True))


class _Apart:
    """Writes the program in which the values of `groups` have their dims apart."""

    def __init__(self, program: Program, groups: Mapping[Var, Groups]) -> None:
        self.source, self.groups, self.made = program, groups, makers(program)
        self.values: dict[tuple[Atom, Groups], Atom] = {}  # with these dims apart
        self.equations: list[Equation] = []

    def program(self) -> Program:
        """The program."""
        p = self.source
        for eqn in p.equations:
            (out, *_) = (*eqn.outputs, None)
            if out in self.groups:
                self._make(out, self.groups[out], eqn)
            elif not self.groups.keys().isdisjoint(eqn.inputs):
                apart = equation_apart(eqn, _known_groups(eqn, self.groups))
                assert apart is not None
                inputs = [self._operand(a, w) for a, w in zip(eqn.inputs, apart.operands, strict=True)]
                self.equations.append(Equation(eqn.op, tuple(inputs), eqn.outputs, apart.params, eqn.source))
            else:
                self.equations.append(eqn)
        return Program(p.inputs, tuple(self.equations), p.outputs, p.num_consts, p.name)

    def _make(self, out: Var, groups: Groups, eqn: Equation) -> Atom:
        """The result of an equation with its dims apart."""
        apart = equation_apart(eqn, _known_groups(eqn, self.groups), None if out in self.groups else groups)
        assert apart is not None
        assert apart.result == groups
        inputs = [self._operand(a, w) for a, w in zip(eqn.inputs, apart.operands, strict=True)]
        if eqn.op is reshape_p and inputs[0].aval.shape == sizes(groups):  # it only merged dims
            result = inputs[0]
        else:
            result = Var(out.aval.update(shape=sizes(groups)))
            self.equations.append(Equation(eqn.op, tuple(inputs), (result,), apart.params, eqn.source))
        self.values[out, groups] = result
        return result

    def _operand(self, x: Atom, wanted_groups: Groups) -> Atom:
        """An operand with its dims apart."""
        own = (self.groups.get(x) if isinstance(x, Var) else None) or single(x.aval.shape)
        value = self.values.get((x, own), x)
        if own == wanted_groups:
            return value
        known_value = self.values.get((x, wanted_groups))
        if known_value is not None:
            return known_value
        if not _differ_by_ones(own, wanted_groups):
            assert isinstance(x, Var)
            return self._make(x, wanted_groups, self.source.equations[self.made[x]])
        result = self.values[x, wanted_groups] = Var(value.aval.update(shape=sizes(wanted_groups)))
        params = {"new_sizes": sizes(wanted_groups), "out_sharding": None}
        self.equations.append(Equation(reshape_p, (value,), (result,), params))
        return result
