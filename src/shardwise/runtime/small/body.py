"""`BodyWriter`: the equations of a small program, one after the other, as instructions of a `Code`.

Comes in: a Program, the `Value`s of its inputs, memory wanted for outputs. Goes out: the outputs' Values. Elementwise equations
and reductions over values in memory wait until somebody else needs their results, and then run as one loop.

Ops with an `Emit` or a `Fold` are written here, others by their forms (see `forms`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.ir import Atom, Equation, Literal, Program, SmallForm, Var
from shardwise.runtime import costs
from shardwise.runtime.loops import dtype_name, leaf_of, reduction_of
from shardwise.runtime.machine import Lane
from shardwise.runtime.monoids import MONOIDS
from shardwise.runtime.small.code import Code, Value
from shardwise.runtime.small.devices import over_devices
from shardwise.runtime.small.forms import form_of
from shardwise.runtime.small.group import Group, GroupReduction, along_all, write_group
from shardwise.runtime.small.in_place import values_handed_on
from shardwise.runtime.small.leads import axes_reduced
from shardwise.runtime.small.loops import reduce_in_register, store
from shardwise.runtime.small.moves import cells, in_cell, store_boxes


class BodyWriter:
    """Writes one program. `stable`: how many inputs are the same in each round of the loop around; `places`: memory of values."""

    def __init__(
        self,
        code: Code,
        program: Program,
        inputs: Sequence[Value],
        stable: int = 0,
        places: Mapping[Var, Value] | None = None,
    ) -> None:
        self.code = code
        self.program = program
        self.values: dict[Var, Value] = {}
        self.stable = set(program.inputs[:stable])
        self.uses: dict[Var, int] = {}
        for atom in (*[a for e in program.equations for a in e.inputs], *program.outputs):
            if isinstance(atom, Var):
                self.uses[atom] = self.uses.get(atom, 0) + 1
        for var, value in zip(program.inputs, inputs, strict=True):
            self._define(var, value)
        self.waiting: dict[Var, Equation] = {}
        self.gathering: dict[Var, Equation] = {}  # reductions, which wait for the same loop
        self.shape: Shape = ()  # of those that wait
        self.axes: Shape = ()  # over which they are reduced
        self.wanted: dict[Var, Value] = dict(places or {})
        self.rooms: dict[Atom, Value] = {}  # windows in which updates are computed
        # Values that are read otherwise than element by element.
        self.whole = {a for e in program.equations if not self.by_element(e) for a in e.inputs} | {*program.outputs}

    def run(self, wanted: Sequence[Value | None] = ()) -> list[Value]:
        """The outputs' values; those for which memory is given are there."""
        for atom, into in zip(self.program.outputs, wanted, strict=False):
            if isinstance(atom, Var) and into is not None:
                self.wanted.setdefault(atom, into)
        for atom, into in zip(self.program.outputs, wanted, strict=False):
            if into is not None and into.spare:
                spare = replace(into, place=into.spare, among=(), spare="")
                for v in [v for v in values_handed_on(self.program, atom) if v not in self.program.inputs][:1]:
                    self.wanted.setdefault(v, spare)
        for eqn in self.program.equations:
            self._equation(eqn)
        self._flush()
        outs = [self.value(a) for a in self.program.outputs]
        for k, into in enumerate(wanted):
            if into is not None and not outs[k].lies_in(into):
                store(self.code, outs[k], into)
                outs[k] = into if into.among else outs[k]  # the address counts
        for value in self.values.values():
            self.code.release(value)
        return outs

    def inner(
        self, program: Program, inputs: Sequence[Value], stable: int = 0, places: Mapping[Var, Value] | None = None
    ) -> BodyWriter:
        """The writer of a program inside of this one."""
        return BodyWriter(self.code, program, inputs, stable, places)

    def value(self, atom: Atom) -> Value:
        """The value of an atom; a literal is one element."""
        if isinstance(atom, Literal):
            return self.code.constant_value(atom.value, dtype_name(atom.aval), (1,) * self.code.lead)
        value = self.values[atom]
        return self._put_together(atom, value) if value.boxes else value

    def _put_together(self, var: Var, value: Value) -> Value:
        """A value that is in boxes, in memory from now on."""
        into = self._memory(var, value.shape)
        store_boxes(self.code, value, into)
        self.values[var] = into
        self.code.hold(into)
        self.code.release(value)
        return into

    @staticmethod
    def by_element(eqn: Equation) -> bool:
        """Whether an equation computes element by element."""
        return eqn.op.emit is not None and form_of(eqn.op) is None

    def is_stable(self, atom: Atom) -> bool:
        """Whether the value is there before the loop around."""
        return isinstance(atom, Literal) or atom in self.stable

    # -- equations -----------------------------------------------------------------------------------------------------------

    def _equation(self, eqn: Equation) -> None:
        form = form_of(eqn.op)
        if form is None and eqn.op.emit is not None:
            self._elementwise(eqn)
            return
        if any(a in self.gathering for a in eqn.inputs):
            self._flush()
        crossed = axes_reduced(eqn) if eqn.op.collective is None else ()
        if eqn.op.fold is not None and not crossed and self._gather(eqn):
            return
        if any(a in self.waiting for a in eqn.inputs):
            self._make_room(eqn, form)
            self._flush()
        operands = [self.value(a) for a in eqn.inputs]
        if crossed:
            results = [self._over_devices(eqn, operands, form, crossed)]
        elif eqn.op.fold is not None:
            results = [reduce_in_register(self.code, eqn, self.code.settle_value(operands[0]))]
        else:
            assert form is not None
            wanted = [self.wanted.get(v) for v in eqn.outputs]
            code = self.code
            code.puts_off = eqn.op.region is None and wanted == [None] and eqn.outputs[0] not in self.whole
            results = form.write(self, eqn, operands, wanted)
            code.puts_off = False
        for var, value in zip(eqn.outputs, results, strict=True):
            self._define(var, value)
        self._used(eqn)
        self.code.tidy()

    def _over_devices(
        self, eqn: Equation, operands: Sequence[Value], form: SmallForm | None, axes: Sequence[str]
    ) -> Value:
        """The result of an op that reduces over mesh axes, too: its own dims at once, else after it."""
        (out,), code = eqn.outputs, self.code
        monoid, dtype, wanted = MONOIDS[eqn.op.reduction_of(eqn.params)], dtype_name(out.aval), self.wanted.get(out)
        if form is None:
            dims = tuple(a + code.lead for a in eqn.params["axes"])
            return over_devices(code, monoid, operands[0], axes, dims, dtype, wanted)
        done = () if form.sums is None else form.sums(code, eqn, operands)
        left = [a for a in axes if a not in done]
        (part,) = form.write(self, eqn, operands, [None if left else wanted])
        if not left:
            return part
        return over_devices(code, monoid, part, left, (), dtype, wanted)

    def _make_room(self, eqn: Equation, form: SmallForm | None) -> None:
        """Let operand 1 be computed where the equation puts it, if only that is still to come."""
        if form is None or form.room is None:
            return
        update = eqn.inputs[1]
        if (
            isinstance(update, Var)
            and self.uses[update] == 1
            and [a for a in eqn.inputs if a in self.waiting] == [update]
        ):
            room = form.room(self, eqn)
            if room is not None and update not in self.wanted:
                self.rooms[update] = self.wanted[update] = room

    def _gather(self, eqn: Equation) -> bool:
        """Let a reduction wait for the loop over its operand, unless that fits into a register."""
        (x,), (out,) = eqn.inputs, eqn.outputs
        shape = self.shape if x in self.waiting else self.value(x).shape
        if math.prod(shape) <= costs.REGISTER_ELEMENTS:
            return False
        axes = tuple(a + self.code.lead for a in eqn.params["axes"])
        cost = sum(e.op.emit.cost for e in self.waiting.values() if e.op.emit is not None)
        if not self._joins(shape) or cost > costs.SMALL_GATHERED or (self.gathering and axes != self.axes):
            self._flush()
        self.shape, self.axes = shape, axes
        self.gathering[out] = eqn
        return True

    def _joins(self, shape: Shape) -> bool:
        """Whether an equation over that shape can wait with the others."""
        count = len(self.waiting) + len(self.gathering)
        return 0 < count < costs.SMALL_LOOP_EQUATIONS and shape == self.shape

    def _elementwise(self, eqn: Equation) -> None:
        code, (out,) = self.code, eqn.outputs
        if any(a in self.gathering for a in eqn.inputs):
            self._flush()
        rank = code.lead + out.aval.ndim
        shapes = [self._shape(a, rank) for a in eqn.inputs]
        shape = np.broadcast_shapes((1,) * code.lead + out.aval.shape, *shapes)
        joins = self._joins(shape)
        if any(a in self.waiting for a in eqn.inputs) and not joins:
            self._flush()
            joins = False
        if not joins and all(a not in self.waiting and self._raw(a).even for a in eqn.inputs):
            self._in_register(eqn, (1,) * rank, shape)
        elif not joins and math.prod(shape) <= costs.REGISTER_ELEMENTS:
            self._in_register(eqn, shape, shape)
        else:
            if not joins:
                self._flush()
            self.shape = shape
            self.waiting[out] = eqn
            return
        self._used(eqn)
        code.tidy()

    def _raw(self, atom: Atom) -> Value:
        """The value of an atom, perhaps in boxes."""
        return self.value(atom) if isinstance(atom, Literal) else self.values[atom]

    def _shape(self, atom: Atom, rank: int) -> Shape:
        if atom in self.waiting:  # a scalar may differ from device to device, and be used with arrays
            lead, shape = self.code.lead, self.shape
            return shape[:lead] + (1,) * (rank - len(shape)) + shape[lead:]
        value = self._raw(atom)
        same = value.boxes and len(value.shape) == rank
        return value.shape if same else self.code.align_rank(self.value(atom), rank).shape

    def _in_register(self, eqn: Equation, inner: Shape, shape: Shape) -> None:
        code, (out,) = self.code, eqn.outputs
        lanes = list[Lane]()
        for atom in eqn.inputs:
            value = self.value(atom)
            lanes.append(
                _one(code, value) if inner != shape else code.lane_of(code.align_rank(value, len(shape)), inner)
            )
        width = math.prod(inner)
        dtype = dtype_name(out.aval)
        lane = code.at(width).emit(eqn.op, lanes, eqn.params, dtype)
        self._define(out, code.of_lane(lane, shape, dtype, width))

    def _flush(self) -> None:
        """Write the loop of the equations that wait."""
        if not self.waiting and not self.gathering:
            return
        code, group, gathering, shape = self.code, self.waiting, self.gathering, self.shape
        axes = self.axes if gathering else ()
        self.waiting, self.gathering = {}, {}
        members = [*group.values(), *gathering.values()]
        operands = list(dict.fromkeys(a for e in members for a in e.inputs if isinstance(a, Var) and a not in group))
        self._limit_cells(operands, shape, bool(gathering))
        inside: dict[Var, int] = {}
        for e in members:
            for a in e.inputs:
                if a in group:
                    assert isinstance(a, Var)
                    inside[a] = inside.get(a, 0) + 1
        results = {v: self._memory(v, shape) for v in group if self.uses.get(v, 0) > inside.get(v, 0)}
        kept = tuple(n for d, n in enumerate(shape) if d not in axes)
        made = {v: self._memory(v, kept) for v in gathering}
        gathered = [
            GroupReduction(reduction_of(e, e.inputs[0]), along_all(made[v], shape, axes)) for v, e in gathering.items()
        ]
        leaf = leaf_of(code, group.values(), lambda e: e.inputs)
        values = {v: self.values[v] for v in operands}
        if not any(v.boxes for v in values.values()):
            write_group(code, Group(shape, values, leaf, results, axes, gathered))
        else:
            values = {v: x if x.boxes or x.even else code.in_memory(x) for v, x in values.items()}
            for start, size in cells([v for v in values.values() if v.boxes], shape):
                here, there = (
                    {v: in_cell(code, x, start, size) for v, x in some.items()} for some in (values, results)
                )
                write_group(code, Group(size, here, leaf, there))
        for var, value in (results | made).items():
            self._define(var, code.settle_value(value))
        for e in members:
            self._used(e)
        code.tidy()

    def _limit_cells(self, operands: Sequence[Var], shape: Shape, gathers: bool) -> None:
        """Put together what the loop of a group cannot read in boxes, or not without many cells."""
        boxed = sorted([v for v in operands if self.values[v].boxes], key=lambda v: len(self.values[v].boxes))
        for v in boxed if gathers else [v for v in boxed if self.values[v].shape != shape]:
            self.value(v)
        boxed = [v for v in boxed if self.values[v].boxes]
        while boxed and len(cells([self.values[v] for v in boxed], shape)) > costs.SMALL_CELLS:
            self.value(boxed.pop())

    def _memory(self, var: Var, shape: Shape) -> Value:
        """Where a result of that shape goes: the memory where it is wanted, or a buffer."""
        given = self.wanted.get(var)
        return given if given is not None and given.shape == shape else self.code.buffer(shape, dtype_name(var.aval))

    # -- bookkeeping -----------------------------------------------------------------------------------------------------------

    def _define(self, var: Var, value: Value) -> None:
        self.values[var] = value
        self.code.hold(value)
        if not self.uses.get(var):
            self._dead(var)

    def _used(self, eqn: Equation) -> None:
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                self.uses[atom] -= 1
                if not self.uses[atom]:
                    self._dead(atom)

    def _dead(self, var: Var) -> None:
        value = self.values.pop(var, None)
        if value is not None:
            self.code.release(value)


def _one(code: Code, value: Value) -> Lane:
    """The one element of an even value, in a register of one lane."""
    code.at(1)
    if value.constant is not None:
        return code.constant(value.constant, value.dtype)
    assert value.lane is not None
    return value.lane
