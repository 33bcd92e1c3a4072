"""Late sums: what loops only add up is summed over devices once, behind the loop.

    for each i: total = total + psum(x)        for each i: part = part + x
                                               total = total + psum(part)

Comes in: a per-device program. Goes out: the program with such sums behind their loops, inner loops first. A device then sends once
what it would send in every round: the gradients of a step that goes through its batch in parts are such sums. XLA's compilers for TPUs
and GPUs do the same (`while-loop-all-reduce-code-motion`). Integers stay equal; floats are added in another order.

Between the sum and the carry there may be whatever commutes with sums over devices (`Op.additive`): casts, reshapes, updates of a part
of the carry at places that are the same on all of these devices. Nothing else may read the carry or the sum. Small sums
that a loop stacks are taken behind it, too. Compilers leave two kinds of sums where they are that could move: those that are multiplied
before they are added (means), and large ones that a loop stacks, which an outer loop may add up. Plans try what it would bring if the
program moved these (`far`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shardwise.base.config import context_token
from shardwise.base.shapes import Axes
from shardwise.ir import Atom, Equation, ExactParams, Literal, Loop, Program, ProgramMap, Var, literal, region_of
from shardwise.ops.elementwise.binary import add_any_p, add_p, sub_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.passes.partial_sums import can_be_added, is_float, is_zero, keeps_sums, summed_operands
from shardwise.passes.split import local_results
from shardwise.runtime import costs


class _Total(NamedTuple):
    """A result of a loop's body that is made of sums over devices alone: the terms of a carry, or stacked values.

    Attributes:
        place: among the results of the body, the carry first.
        sums: the equations that sum over devices, over the same axes.
        between: those through which their results, and the old carry, reach the new one; in order.
    """

    place: int
    sums: tuple[Equation, ...]
    between: tuple[Equation, ...]


def with_late_sums(
    program: Program, moves: Callable[[Axes], bool] = lambda axes: True, *, far: bool = False
) -> Program:
    """The same program with such sums behind its loops, if `moves` accepts their axes. `far`: also those that compilers leave."""
    late = ProgramMap(lambda p: _move_sums(late.inside(p), moves, far))
    return late.of(program)


def _move_sums(program: Program, moves: Callable[[Axes], bool], far: bool) -> Program:
    equations: list[Equation] = []
    zeros: set[Atom] = set()
    for eqn in program.equations:
        if eqn.op is broadcast_in_dim_p and is_zero(eqn.inputs[0]):
            zeros.add(eqn.outputs[0])
        loop = region_of(eqn)
        totals = list(_totals(loop, eqn.inputs, zeros, moves, far)) if isinstance(loop, Loop) else []
        if totals:
            equations += _Late(eqn, totals, zeros).equations
        else:
            equations.append(eqn)
    if len(equations) == len(program.equations):
        return program
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _totals(
    loop: Loop, operands: Sequence[Atom], zeros: Collection[Atom], moves: Callable[[Axes], bool], far: bool
) -> Iterator[_Total]:
    """The results of the body of a loop with these operands whose sums over devices can be taken behind the loop.

    A carry that is more than added to, as one that each round turns around, must begin with zeros: its parts do.
    """
    body = loop.body
    sums = [e for e in body.equations if _is_sum(e) and moves(e.params["axes"])]
    if not sums:
        return
    producers = {v: e for e in body.equations for v in e.outputs}
    readers: dict[Atom, list[Equation | None]] = {}  # None: the body's results
    for e in body.equations:
        for a in e.inputs:
            readers.setdefault(a, []).append(e)
    for a in body.outputs:
        readers.setdefault(a, []).append(None)
    tested_places = _tested_places(loop)
    first, movable = loop.num_consts, set(sums)
    for place, new in enumerate(body.outputs):
        carry = body.inputs[first + place] if place < loop.num_carry else None
        if place in tested_places or not isinstance(new, Var) or new is carry:
            continue
        if carry is None and not far and new.aval.nbytes > costs.STACKED_SUM_BYTES:
            continue
        parts = _Parts(producers, movable, carry, far)
        if not parts.follow(new, False) or (carry is not None and carry not in parts.values):
            continue
        axes = {e.params["axes"] for e in parts.sums}
        if len(axes) != 1 or any(not v.aval.vma.isdisjoint(*axes) for v in parts.others):
            continue
        inside = {producers[v] for v in parts.values if v in producers and producers[v] not in parts.sums}
        if readers[new] != [None] or not all(inside.issuperset(readers[v]) for v in parts.values if v is not new):
            continue
        if carry is None or operands[loop.carry.start + place] in zeros or _is_added_to(carry, new, readers):
            yield _Total(place, tuple(parts.sums), tuple([e for e in body.equations if e in inside]))


def _is_added_to(carry: Atom, new: Atom, readers: Mapping[Atom, Sequence[Equation | None]]) -> bool:
    """Whether a new carry is the old one with something added."""
    value = carry
    while value is not new:
        if len(readers[value]) != 1 or (eqn := readers[value][0]) is None:
            return False
        is_addition = eqn.op is add_p or eqn.op is add_any_p
        if not is_addition and not (eqn.op is sub_p and value is eqn.inputs[0]):
            return False
        value = eqn.outputs[0]
    return True


class _Parts:
    """What a result of a body is made of.

    Attributes:
        made: the equation that makes each value of the body.
        movable: the equations whose sums may move.
        carry: that may be among the parts.
        far: whether parts may be multiplied.
        values: those from the old carry and from sums over devices to the result.
        sums: the equations that sum over devices.
        others: what else equations between these values read.
    """

    def __init__(self, made: dict[Var, Equation], movable: set[Equation], carry: Var | None, far: bool) -> None:
        self.made, self.movable, self.carry, self.far = made, movable, carry, far
        self.values: set[Atom] = set()
        self.sums: dict[Equation, None] = {}  # a set in the order in which they were found
        self.others: list[Atom] = []

    def follow(self, atom: Atom, multiplied: bool) -> bool:
        """Whether a value is made of sums, and of the carry if it is not `multiplied` since. The parts are noted."""
        if isinstance(atom, Literal) or (atom is self.carry and multiplied):
            return False
        if atom is self.carry or atom in self.values:
            self.values.add(atom)
            return True
        eqn = self.made.get(atom)
        if eqn is None or len(eqn.outputs) > 1:
            return False
        self.values.add(atom)
        if eqn in self.movable:
            self.sums[eqn] = None
            return True
        if not keeps_sums(eqn):
            return self.far and self._follow_factor(eqn)
        parts = summed_operands(eqn)
        self.others += [a for a in eqn.inputs if not any(a is p for p in parts)]
        return all([self.follow(a, multiplied) for a in parts])

    def _follow_factor(self, eqn: Equation) -> bool:
        """The same for the one operand of an elementwise op that is made of sums, if the op is linear in it."""
        if eqn.op.emit is None or not is_float(eqn.outputs[0].aval.dtype):
            return False
        for a in eqn.inputs[: eqn.op.scales]:
            alone = _Parts(self.made, self.movable, self.carry, self.far)
            if alone.follow(a, True):
                self.values |= alone.values
                self.sums |= alone.sums
                self.others += [*alone.others, *[b for b in eqn.inputs if b is not a]]
                return True
        return False


def _is_sum(eqn: Equation) -> bool:
    """Whether an equation is an all-reduce that sums, of all devices along its axes."""
    collective = eqn.op.collective
    if collective is None or collective.absorbed is None or len(eqn.inputs) != 1 or isinstance(eqn.inputs[0], Literal):
        return False
    reduction = collective.absorbed(eqn.params)
    plain = reduction is not None and reduction.kind == "sum" and reduction.rest is None
    return plain and can_be_added(eqn.outputs[0].aval.dtype) and not eqn.inputs[0].aval.unreduced


def _tested_places(loop: Loop) -> set[int]:
    """The places of the carry that the loop's test reads."""
    if loop.test is None:
        return set()
    read: set[Atom] = {*loop.test.outputs, *[a for e in loop.test.equations for a in e.inputs]}
    carry = loop.test.inputs[loop.test_consts.stop - loop.test_consts.start :]
    return {i for i, v in enumerate(carry) if v in read}


class _Late:
    """A loop's equation with sums over devices behind it. `zeros` are values without other elements.

    Attributes:
        equations: those that replace the loop's.
    """

    def __init__(self, eqn: Equation, totals: Iterable[_Total], zeros: Collection[Atom]) -> None:
        loop = region_of(eqn)
        assert isinstance(loop, Loop)
        self._eqn, self._loop, self._zeros = eqn, loop, zeros
        self._operands, self._results = list(eqn.inputs), list(eqn.outputs)
        self._inputs, self._outputs = list(loop.body.inputs), list(loop.body.outputs)
        self._tested = [] if loop.test is None else list(loop.test.inputs)
        self._changed: dict[Equation, Equation | None] = {}
        self._ahead, self._behind = list[Equation](), list[Equation]()
        for total in totals:
            self._move(total)
        self.equations = [*self._ahead, self._new_loop(), *self._behind]

    def _move(self, total: _Total) -> None:
        place, loop = total.place, self._loop
        names: dict[Atom, Atom] = {e.outputs[0]: e.inputs[0] for e in total.sums}
        part = None
        if place < loop.num_carry:
            at = loop.num_consts + place
            aval = self._inputs[at].aval
            part = Var(aval.update(vma=aval.vma.union(*[e.inputs[0].aval.vma for e in total.sums])))
            names[self._inputs[at]], self._inputs[at] = part, part
            if self._tested:
                self._tested[loop.test_consts.stop - loop.test_consts.start + place] = Var(part.aval)
        for e in total.sums:
            self._changed[e] = None
        for e in total.between:
            self._changed[e] = new = _retype(e, names)
            names[e.outputs[0]] = new.outputs[0]
        self._outputs[place] = new = names[self._outputs[place]]
        result, first = self._results[place], total.sums[0]
        self._results[place] = partial = Var(result.aval.update(vma=new.aval.vma))
        if part is None:
            self._behind.append(_sum_equation(first, partial, result))
            return
        operand_place = loop.carry.start + place
        before, self._operands[operand_place] = self._operands[operand_place], self._start(part)
        sum_equation = _sum_equation(first, partial, None if before not in self._zeros else result)
        self._behind.append(sum_equation)
        if before not in self._zeros:
            self._behind.append(Equation(add_p, (before, sum_equation.outputs[0]), (result,), {}, first.source))

    def _start(self, part: Var) -> Var:
        """Zeros of the type of a partial sum, before the loop."""
        zero = literal(np.zeros((), part.aval.dtype)[()], part.aval.dtype, weak_type=part.aval.weak_type)
        out = Var(part.aval)
        params = {"shape": part.aval.shape, "broadcast_dimensions": (), "out_sharding": None}
        self._ahead.append(Equation(broadcast_in_dim_p, (zero,), (out,), params, self._eqn.source))
        return out

    def _new_loop(self) -> Equation:
        body, test, eqn = self._loop.body, self._loop.test, self._eqn
        equations = [n for e in body.equations if (n := self._changed.get(e, e)) is not None]
        new = {body: Program(tuple(self._inputs), tuple(equations), tuple(self._outputs), body.num_consts, body.name)}
        if test is not None:
            new[test] = Program(tuple(self._tested), test.equations, test.outputs, test.num_consts, test.name)
        params = {k: new.get(v, v) if isinstance(v, Program) else v for k, v in eqn.params.items()}
        return Equation(eqn.op, tuple(self._operands), tuple(self._results), params, eqn.source)


def _retype(eqn: Equation, names: dict[Atom, Atom]) -> Equation:
    """An equation on renamed operands, whose result varies where they do."""
    inputs = tuple([names.get(a, a) for a in eqn.inputs])
    out = eqn.outputs[0].aval
    vma = out.vma.union(*[a.aval.vma for a in inputs])
    return Equation(eqn.op, inputs, (Var(out.update(vma=vma)),), eqn.params, eqn.source)


def _sum_equation(like: Equation, part: Var, result: Var | None) -> Equation:
    """The equation that sums a part over devices, as `like` did; it gives `result` if that is not None.

    A carry that begins with zeros ends with the sum itself: a part that began with zeros is no negative zero.
    """
    (aval,) = local_results(like.op, (part.aval,), ExactParams(like.params), frozenset(), context_token())
    return Equation(like.op, (part,), (result or Var(aval),), like.params, like.source)
