"""Late sums: what loops only add up is summed over devices once, behind the loop.

    for each i: total = total + psum(x)        for each i: part = part + x
                                               total = total + psum(part)

Comes in: a per-device program. Goes out: the program with such sums behind their loops, inner loops first. A device then sends once
what it would send in every round: the gradients of a step that goes through its batch in parts are such sums. XLA's compilers for TPUs
and GPUs do the same (`while-loop-all-reduce-code-motion`). Integers stay equal; floats are added in another order.

Between the sum and the carry there may be whatever commutes with sums over devices (`Op.additive`): casts, reshapes, updates of a part
of the carry at places that are the same on all of these devices. Nothing else may read the carry or the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from shardwise.base.config import context_token
from shardwise.base.dtypes import is_key_dtype, issubdtype
from shardwise.base.shapes import Axes
from shardwise.ir import Atom, Equation, ExactParams, Literal, Loop, Program, ProgramMap, Var, literal, region_of
from shardwise.ir.program import Source
from shardwise.ops.elementwise.binary import add_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.passes.split import local_results


class _Total(NamedTuple):
    """A carry that only adds up sums over devices.

    Attributes:
        place: among the carry.
        sums: the equations that sum over devices, over the same axes.
        between: those through which their results, and the old carry, reach the new one; in order.
    """

    place: int
    sums: tuple[Equation, ...]
    between: tuple[Equation, ...]


def with_late_sums(program: Program, moves: Callable[[Axes], bool] = lambda axes: True) -> Program:
    """The same program with such sums behind its loops, if `moves` accepts their axes."""
    late = ProgramMap(lambda p: _move_sums(late.inside(p), moves))
    return late.of(program)


def _move_sums(program: Program, moves: Callable[[Axes], bool]) -> Program:
    equations: list[Equation] = []
    zeros: set[Atom] = set()
    for eqn in program.equations:
        if eqn.op is broadcast_in_dim_p and isinstance(a := eqn.inputs[0], Literal) and a.value == 0:
            zeros.add(eqn.outputs[0])
        loop = region_of(eqn)
        totals = list(_totals(loop, moves)) if isinstance(loop, Loop) else []
        if totals:
            equations += _Late(eqn, totals, zeros).equations
        else:
            equations.append(eqn)
    if len(equations) == len(program.equations):
        return program
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _totals(loop: Loop, moves: Callable[[Axes], bool]) -> Iterator[_Total]:
    """The carries of a loop that only add up sums over devices."""
    body = loop.body
    sums = [e for e in body.equations if _is_sum(e) and moves(e.params["axes"])]
    if not sums:
        return
    made = {v: e for e in body.equations for v in e.outputs}
    readers: dict[Atom, list[Equation | None]] = {}  # None: the body's results
    for e in body.equations:
        for a in e.inputs:
            readers.setdefault(a, []).append(e)
    for a in body.outputs:
        readers.setdefault(a, []).append(None)
    tested = _tested_places(loop)
    first, movable = loop.num_consts, set(sums)
    for place in range(loop.num_carry):
        carry, new = body.inputs[first + place], body.outputs[place]
        if place in tested or not isinstance(new, Var) or new is carry:
            continue
        found = _partial_values(carry, new, made, movable)
        if found is None:
            continue
        values, ends = found
        if len({e.params["axes"] for e in ends}) != 1:
            continue
        inside: set[Equation | None] = {made[v] for v in values if v in made} - ends
        if readers[new] == [None] and all(inside.issuperset(readers[v]) for v in values if v is not new):
            yield _Total(place, tuple(ends), tuple([e for e in body.equations if e in inside]))


def _partial_values(
    carry: Var, new: Var, made: dict[Var, Equation], sums: set[Equation]
) -> tuple[set[Var], set[Equation]] | None:
    """The values from the old carry and from sums over devices to the new carry, and these sums; None if it has other parts."""
    values: set[Var] = set()
    ends: set[Equation] = set()
    others: list[Atom] = []
    stack: list[Atom] = [new]
    while stack:
        atom = stack.pop()
        if isinstance(atom, Literal):
            return None
        if atom in values:
            continue
        values.add(atom)
        if atom is carry:
            continue
        eqn = made.get(atom)
        if eqn is None or len(eqn.outputs) > 1:
            return None
        if eqn in sums:
            ends.add(eqn)
            continue
        if not _keeps_sums(eqn):
            return None
        chosen = slice(None) if eqn.op.additive is True else slice(*eqn.op.additive or ())
        parts = eqn.inputs[chosen]
        stack += parts
        others += [a for a in eqn.inputs if not any(a is p for p in parts)]
    axes = {a for e in ends for a in e.params["axes"]}
    if carry not in values or not ends or any(axes.intersection(a.aval.vma) for a in others):
        return None
    return values, ends


def _keeps_sums(eqn: Equation) -> bool:
    """Whether an op commutes with sums over devices, and rounds no more than they do."""
    op, out = eqn.op, eqn.outputs[0].aval
    if op.additive is False or op.collective is not None or not _can_be_added(out.dtype):
        return False
    parts = eqn.inputs if op.additive is True else eqn.inputs[slice(*op.additive)]
    return bool(parts) and all(
        _can_be_added(a.aval.dtype) and a.aval.dtype.kind == out.dtype.kind and a.aval.itemsize <= out.itemsize
        if a.aval.dtype.kind in "iu"
        else issubdtype(a.aval.dtype, np.floating)
        and issubdtype(out.dtype, np.floating)
        and a.aval.itemsize <= out.itemsize
        for a in parts
    )


def _can_be_added(dtype: np.dtype) -> bool:
    """Whether partial sums of a type are worth what the sum is: numbers of at least a byte, floats of at least two."""
    if is_key_dtype(dtype):
        return False
    return dtype.kind in "iu" or (issubdtype(dtype, np.floating) and dtype.itemsize >= 2)


def _is_sum(eqn: Equation) -> bool:
    """Whether an equation is an all-reduce that sums, of all devices along its axes."""
    collective = eqn.op.collective
    if collective is None or collective.absorbed is None or len(eqn.inputs) != 1 or isinstance(eqn.inputs[0], Literal):
        return False
    reduction = collective.absorbed(eqn.params)
    plain = reduction is not None and reduction.kind == "sum" and reduction.rest is None
    return plain and _can_be_added(eqn.outputs[0].aval.dtype) and not eqn.inputs[0].aval.unreduced


def _tested_places(loop: Loop) -> set[int]:
    """The places of the carry that the loop's test reads."""
    if loop.test is None:
        return set()
    read: set[Atom] = {*loop.test.outputs, *[a for e in loop.test.equations for a in e.inputs]}
    carry = loop.test.inputs[loop.test_consts.stop - loop.test_consts.start :]
    return {i for i, v in enumerate(carry) if v in read}


class _Late:
    """A loop's equation, and the equations before and behind it, with sums over devices behind. `zeros` are values without other elements.

    Attributes:
        equations: those that replace the loop's.
    """

    def __init__(self, eqn: Equation, totals: Iterable[_Total], zeros: Collection[Atom]) -> None:
        loop = region_of(eqn)
        assert isinstance(loop, Loop)
        self.equations: list[Equation] = []
        operands, results, behind = list(eqn.inputs), list(eqn.outputs), list[Equation]()
        inputs, outputs = list(loop.body.inputs), list(loop.body.outputs)
        tests = list(loop.test.inputs) if loop.test is not None else []
        tested_from = loop.test_consts.stop - loop.test_consts.start
        changed: dict[Equation, Equation | None] = {}
        for total in totals:
            at, result = loop.num_consts + total.place, eqn.outputs[total.place]
            varying = frozenset[str]().union(*[e.inputs[0].aval.vma for e in total.sums])
            part = Var(inputs[at].aval.update(vma=inputs[at].aval.vma | varying))
            names: dict[Atom, Atom] = {inputs[at]: part}
            for e in total.sums:
                names[e.outputs[0]] = e.inputs[0]
                changed[e] = None
            for e in total.between:
                changed[e] = new = _retyped(e, names)
                names[e.outputs[0]] = new.outputs[0]
            inputs[at], outputs[total.place] = part, names[outputs[total.place]]
            if tests:
                tests[tested_from + total.place] = Var(part.aval)
            started = loop.carry.start + total.place
            before, operands[started] = operands[started], self._zeros(part, eqn.source)
            results[total.place] = Var(part.aval)
            behind += _total_equations(before, before in zeros, results[total.place], result, total.sums[0])
        equations = [n for e in loop.body.equations if (n := changed.get(e, e)) is not None]
        body = Program(tuple(inputs), tuple(equations), tuple(outputs), loop.body.num_consts, loop.body.name)
        programs: dict[object, Program] = {loop.body: body}
        if loop.test is not None:
            t = loop.test
            programs[t] = Program(tuple(tests), t.equations, t.outputs, t.num_consts, t.name)
        params = {k: programs.get(v, v) if isinstance(v, Program) else v for k, v in eqn.params.items()}
        self.equations += [Equation(eqn.op, tuple(operands), tuple(results), params, eqn.source), *behind]

    def _zeros(self, like: Var, source: Source | None) -> Var:
        """Zeros of the type of a value, before the loop."""
        zero = literal(np.zeros((), like.aval.dtype)[()], like.aval.dtype, weak_type=like.aval.weak_type)
        out = Var(like.aval)
        params = {"shape": like.aval.shape, "broadcast_dimensions": (), "out_sharding": None}
        self.equations.append(Equation(broadcast_in_dim_p, (zero,), (out,), params, source))
        return out


def _retyped(eqn: Equation, names: dict[Atom, Atom]) -> Equation:
    """An equation on renamed operands, whose result varies where they do."""
    inputs = tuple([names.get(a, a) for a in eqn.inputs])
    out = eqn.outputs[0].aval
    vma = out.vma.union(*[a.aval.vma for a in inputs])
    return Equation(eqn.op, inputs, (Var(out.update(vma=vma)),), eqn.params, eqn.source)


def _total_equations(before: Atom, empty: bool, part: Var, result: Var, total: Equation) -> list[Equation]:
    """The equations that sum a part over devices, as `total` did, and add it to what was there before the loop.

    If that is `empty`, zeros that the part began with, too, the sum is the result: no sum of such a part is a negative zero.
    """
    (aval,) = local_results(total.op, (part.aval,), ExactParams(total.params), frozenset(), context_token())
    if empty and aval is result.aval:
        return [Equation(total.op, (part,), (result,), total.params, total.source)]
    summed = Var(aval)
    return [
        Equation(total.op, (part,), (summed,), total.params, total.source),
        Equation(add_p, (before, summed), (result,), {}, total.source),
    ]
