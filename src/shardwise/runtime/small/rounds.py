"""Loops over values in memory whose elements do not meet: a few vectors go through all rounds in registers, then the next ones.

    for 50 rounds: x = 0.99 * x + 0.01 * x * x        for each vector of x: for 50 rounds: vector = 0.99 * vector + ...

Comes in: a loop whose carries have one shape, or are scalars, and whose equations are elementwise. Goes out: a group of which the leaf is
that loop for values of a vector's shape; None for other loops. Scalars, such as counters, are computed anew for each of these vectors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardwise.base.shapes import Shape
from shardwise.ir import Atom, Equation, Literal, Loop, Program, Var
from shardwise.runtime import costs
from shardwise.runtime.loops import Values, dtype_name, lanes_of
from shardwise.runtime.small.code import Value
from shardwise.runtime.small.group import Group, write_group
from shardwise.runtime.small.leads import carry_shapes

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter

WriteLoop = Callable[["BodyWriter", Loop, list[Value], list[Value | None]], list[Value]]


def vector_by_vector(
    body: BodyWriter, loop: Loop, values: list[Value], wanted: Sequence[Value | None], write: WriteLoop
) -> list[Value] | None:
    """The results of such a loop, for which memory may be given; `write` writes a loop over values in registers."""
    code, carries = body.code, carry_shapes(loop, values, body.code.env)
    shapes = [v.shape for v in values]
    shapes[loop.carry] = carries
    shape = _shape(loop, carries)
    wide = None if shape is None else _wide(body, loop, shapes, shape)
    if shape is None or wide is None:
        return None
    values = [code.settle_value(code.align_rank(v, len(s))) for v, s in zip(values, shapes, strict=True)]
    read = {i: v for i, v in enumerate(values) if v.size > 1 and not v.even}
    dtypes = [dtype_name(v.aval) for v in loop.body.inputs[loop.num_consts :]]
    into = [
        w if w is not None and w.shape == s else code.buffer(s, dtype)
        for w, s, dtype in zip(wanted, carries, dtypes, strict=True)
    ]
    lanes = lanes_of(*dtypes, *(v.dtype for v in read.values()))

    def leaf(found: Values) -> None:
        width = code.width
        part = lanes if width % lanes == 0 else width
        ones = (1,) * (len(shape) - 1) + (part,)
        copies = _Copies(wide, ones[code.lead :], width // part)

        def parts(i: int, value: Value) -> list[Value]:
            if math.prod(shapes[i]) == 1:
                return [value]
            if i not in read:
                return [replace(value, shape=ones)] * copies.count
            cut = [code.shuffle_lanes(found[i], width, range(k, k + part)) for k in range(0, width, part)]
            return [code.of_lane(lane, ones, value.dtype, part) for lane in cut]

        few, order = copies.loop(loop)
        given = [part for i in order for part in parts(i, values[i])]
        results = iter(write(body, few, given, [None] * few.num_carry))
        for j, own in enumerate(carries):
            made = [next(results) for _ in range(1 if math.prod(own) == 1 else copies.count)]
            registers = [code.lane_of(code.align_rank(code.settle_value(v), len(shape)), ones) for v in made]
            lane = code.at(part).side_by_side(registers * (copies.count // len(registers)))
            found[len(values) + j] = lane
        code.at(width)

    for v in into:
        code.hold(v)
    results = {len(values) + j: _everywhere(v, shape) for j, v in enumerate(into)}
    registers = max(1, costs.SMALL_ABREAST // max(2, carries.count(shape)))
    write_group(code, Group(shape, read, leaf, results, registers=registers))
    for v in into:
        code.release(v)
    return [code.settle_value(v) for v in into]


def _everywhere(value: Value, shape: Shape) -> Value:
    """The memory of a result; a scalar is written by each of the loops over `shape`."""
    return value if value.shape == shape else replace(value, shape=shape, steps=(0,) * len(shape))


# -- which loops ---------------------------------------------------------------------------------------------------------


def _shape(loop: Loop, carries: Sequence[Shape]) -> Shape | None:
    """The shape of the carries in memory, if they have one, the others are scalars, and nothing else goes into rounds or comes out."""
    large = {s for s in carries if math.prod(s) > costs.REGISTER_ELEMENTS}
    if len(large) != 1 or any(math.prod(s) != 1 for s in carries if s not in large):
        return None
    return large.pop() if loop.rows.stop == loop.rows.start and len(loop.body.outputs) == len(carries) else None


def _wide(body: BodyWriter, loop: Loop, shapes: Sequence[Shape], shape: Shape) -> set[Var] | None:
    """The values of a loop that differ from element to element; None unless its equations compute those element by element, and other
    ones of scalars.
    """
    wide, own = set[Var](), shape[body.code.lead :]
    for program, consts in ((loop.body, loop.consts), *([] if loop.test is None else [(loop.test, loop.test_consts)])):
        for var, given in zip(program.inputs, (*shapes[consts], *shapes[loop.carry]), strict=True):
            if math.prod(given) > 1:
                if len(given) != len(shape) or any(n not in (1, m) for n, m in zip(given, shape, strict=True)):
                    return None
                wide.add(var)
        if math.prod(own) == 1 or not all(_follow(body, e, wide, own) for e in program.equations):
            return None
    return None if loop.test is not None and loop.test.outputs[0] in wide else wide


def _follow(body: BodyWriter, eqn: Equation, wide: set[Var], own: Shape) -> bool:
    """Whether an equation is one of those; its results join `wide`."""
    op = eqn.op
    if op.has_effects(eqn.params) or op.collective is not None or op.place is not None or op.at_positions:
        return False
    if any(a in wide for a in eqn.inputs):
        wide.update(eqn.outputs)
        return body.by_element(eqn) and all(v.aval.ndim == len(own) for v in eqn.outputs)
    simple = op.emit is not None or (op.fold is not None and not any(eqn.params.get("sum_axes", ()))) or op.view
    if not simple or any(a.aval.size != 1 for a in eqn.inputs):
        return False
    if eqn.outputs[0].aval.shape == own:  # a scalar in each element
        wide.update(eqn.outputs)
    return all(v in wide or v.aval.size == 1 for v in eqn.outputs)


# -- several vectors side by side ------------------------------------------------------------------------------------------


class _Copies:
    """Programs in which each of the values `wide` is `count` values of another shape, those of vectors that do not wait for each other."""

    def __init__(self, wide: set[Var], shape: Shape, count: int) -> None:
        self.wide, self.shape, self.count = wide, shape, count
        self._made: dict[Var, list[Var]] = {}

    def loop(self, loop: Loop) -> tuple[Loop, list[int]]:
        """The loop, and which operands it takes, each as often as there are values of it."""
        bodies = [self._program(p) for p in loop.programs]
        groups = [loop.consts, loop.carry, loop.test_consts]
        inputs = [loop.body.inputs[: loop.num_consts], loop.body.inputs[loop.num_consts :]]
        inputs.append(() if loop.test is None else loop.test.inputs[: len(loop.test.inputs) - loop.num_carry])
        ends = [0]
        for variables in inputs:
            ends.append(ends[-1] + len(self._all(variables)))
        slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
        few = Loop(
            bodies[0],
            slices[0],
            slices[1],
            length=loop.length,
            test=bodies[1] if loop.test is not None else None,
            test_consts=slices[2],
        )
        return few, [i for group in groups for i in range(group.start, group.stop)]

    def _of(self, atom: Atom) -> Sequence[Atom]:
        if isinstance(atom, Literal):
            return [atom]
        if atom not in self._made:
            own = atom in self.wide
            aval = atom.aval.update(shape=self.shape) if own else atom.aval
            self._made[atom] = [Var(aval) for _ in range(self.count if own else 1)]
        return self._made[atom]

    def _all(self, atoms: Iterable[Atom]) -> list[Atom]:
        return [copy for a in atoms for copy in self._of(a)]

    def _program(self, program: Program) -> Program:
        inputs = [v for v in self._all(program.inputs) if isinstance(v, Var)]
        # One after the other: side by side, they would need more registers than there are for what each computes on its way.
        equations = [e for k in range(self.count) for eqn in program.equations for e in self._equations(eqn, k)]
        return Program(tuple(inputs), tuple(equations), tuple(self._all(program.outputs)), 0, program.name)

    def _equations(self, eqn: Equation, k: int) -> Iterable[Equation]:
        """The equation of vector `k`; with the first one what all have in common."""
        wide = eqn.outputs[0] in self.wide
        if k and not wide:
            return
        taken = tuple([each[k if len(each) > 1 else 0] for each in map(self._of, eqn.inputs)])
        outs = tuple([v for v in [self._of(v)[k] for v in eqn.outputs] if isinstance(v, Var)])
        params = eqn.params
        if eqn.op.localize is not None and wide:
            params = eqn.op.localize(params, tuple([a.aval for a in taken]), tuple([v.aval for v in outs]))
        yield Equation(eqn.op, taken, outs, params, eqn.source)
