"""`Body`: the equations of a small program, one after the other, as instructions of a `Code`.

Comes in: a Program, the `Value`s of its inputs, memory wanted for outputs. Goes out: the outputs' Values. Elementwise equations over
values in memory wait until somebody else needs their results, and then run as one loop.

Ops with an `Emit` or a `Fold` are written here, others by their forms (see `forms`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shardwise.ir import Atom, Equation, Literal, Program, SmallForm, Var
from shardwise.runtime import costs
from shardwise.runtime.machine.lanes import Lane
from shardwise.runtime.small.code import Code, Shape, Value, name_of
from shardwise.runtime.small.forms import form_of
from shardwise.runtime.small.loops import each, reduced, store


class Body:
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
        self.shape: Shape = ()  # of those that wait
        self.wanted: dict[Var, Value] = dict(places or {})
        self.rooms: dict[Atom, Value] = {}  # windows in which updates are computed

    def run(self, wanted: Sequence[Value | None] = ()) -> list[Value]:
        """The outputs' values; those for which memory is given are there."""
        for atom, into in zip(self.program.outputs, wanted, strict=False):
            if isinstance(atom, Var) and into is not None:
                self.wanted.setdefault(atom, into)
        for eqn in self.program.equations:
            self._equation(eqn)
        self._flush()
        outs = [self.value(a) for a in self.program.outputs]
        for value, into in zip(outs, wanted, strict=False):
            if into is not None and (value.place, value.steps) != (into.place, into.steps):
                store(self.code, value, into)
        for value in self.values.values():
            self.code.release(value)
        return outs

    def inner(
        self, program: Program, inputs: Sequence[Value], stable: int = 0, places: Mapping[Var, Value] | None = None
    ) -> Body:
        """One that writes a program inside of this one."""
        return Body(self.code, program, inputs, stable, places)

    def value(self, atom: Atom) -> Value:
        """What stands for an atom; a literal has one element for all."""
        if isinstance(atom, Literal):
            return self.code.known(atom.value, name_of(atom.aval), (1,) * self.code.lead)
        return self.values[atom]

    def is_stable(self, atom: Atom) -> bool:
        """Whether the value is there before the loop around."""
        return isinstance(atom, Literal) or atom in self.stable

    # -- equations -----------------------------------------------------------------------------------------------------------

    def _equation(self, eqn: Equation) -> None:
        form = form_of(eqn.op)
        if form is None and eqn.op.emit is not None:
            self._elementwise(eqn)
            return
        if any(a in self.waiting for a in eqn.inputs):
            self._make_room(eqn, form)
            self._flush()
        operands = [self.value(a) for a in eqn.inputs]
        wanted = [self.wanted.get(v) for v in eqn.outputs]
        if eqn.op.fold is not None:
            into = wanted[0]
            shape = tuple(n for d, n in enumerate(operands[0].shape) if d - self.code.lead not in eqn.params["axes"])
            results = [reduced(self.code, eqn, operands[0], into if into is not None and into.shape == shape else None)]
        else:
            assert form is not None
            results = form.write(self, eqn, operands, wanted)
        for var, value in zip(eqn.outputs, results, strict=True):
            self._define(var, value)
        self._used(eqn)
        self.code.tidy()

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

    def _elementwise(self, eqn: Equation) -> None:
        code, (out,) = self.code, eqn.outputs
        rank = code.lead + out.aval.ndim
        shapes = [self.shape if a in self.waiting else code.aligned(self.value(a), rank).shape for a in eqn.inputs]
        shape = np.broadcast_shapes((1,) * code.lead + out.aval.shape, *shapes)
        joins = self.waiting and shape == self.shape and len(self.waiting) < costs.SMALL_LOOP_EQUATIONS
        if any(a in self.waiting for a in eqn.inputs) and not joins:
            self._flush()
            joins = False
        if not joins and all(self.value(a).even for a in eqn.inputs):
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

    def _in_register(self, eqn: Equation, inner: Shape, shape: Shape) -> None:
        code, (out,) = self.code, eqn.outputs
        lanes = []
        for atom in eqn.inputs:
            value = self.value(atom)
            lanes.append(_one(code, value) if inner != shape else code.lane_of(code.aligned(value, len(shape)), inner))
        width = math.prod(inner)
        dtype = name_of(out.aval)
        lane = code.at(width).emitted(eqn.op, lanes, eqn.params, dtype)
        self._define(out, code.of_lane(lane, shape, dtype, width))

    def _flush(self) -> None:
        """Write the loop of the equations that wait."""
        if not self.waiting:
            return
        code, group, shape = self.code, self.waiting, self.shape
        self.waiting = {}
        operands = list(
            dict.fromkeys(a for e in group.values() for a in e.inputs if isinstance(a, Var) and a not in group)
        )
        inside: dict[Var, int] = {}
        for e in group.values():
            for a in e.inputs:
                if a in group:
                    assert isinstance(a, Var)
                    inside[a] = inside.get(a, 0) + 1
        results = [v for v in group if self.uses.get(v, 0) > inside.get(v, 0)]
        into = []
        for var in results:
            given = self.wanted.get(var)
            into.append(given if given is not None and given.shape == shape else code.buffer(shape, name_of(var.aval)))

        def write(lanes: list[Lane]) -> list[Lane]:
            width = code.width
            known = dict(zip(operands, lanes, strict=True))
            for e in group.values():
                (out,) = e.outputs
                code.at(width)
                given = [
                    code.constant(a.value, name_of(a.aval)) if isinstance(a, Literal) else known[a] for a in e.inputs
                ]
                known[out] = code.emitted(e.op, given, e.params, name_of(out.aval))
            return [known[v] for v in results]

        each(code, shape, [self.values[v] for v in operands], write, into)
        for var, value in zip(results, into, strict=True):
            self._define(var, value)
        for e in group.values():
            self._used(e)
        code.tidy()

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
