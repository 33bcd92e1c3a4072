"""The dims along which loops may be cut, so that parts go round by themselves, and the programs of the parts.

Comes in: an equation with a loop. Goes out: where a dim is in each value (`cut`), the program of a part along it (`localize`) or of one
entry (`one_apart`), and a scan over parts that follow each other (`sweep`). A dim is followed through the loop by the sharding rules: each
equation must say that it computes its parts apart from each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardwise.ir import (
    ANY_GOES_ON,
    Atom,
    Branches,
    Equation,
    Literal,
    Loop,
    Program,
    ShapedArray,
    Var,
    map_programs,
    region_of,
    subprograms,
)
from shardwise.ops.control.scan import scan_p
from shardwise.ops.shapes.pieces import slice_p
from shardwise.ops.shapes.reshape import reshape_p
from shardwise.passes.equals import merge_equal
from shardwise.sharding.rule import Kind

_TRUE = Literal(np.asarray(True), ShapedArray((), np.dtype(np.bool_)))


def alone(eqn: Equation) -> Program:
    """An equation as a program of its operands that have names."""
    inputs = tuple(dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var)))
    return Program(inputs, (eqn,), eqn.outputs, 0, "pieces")


def simple(program: Program, *, products: bool = False) -> bool:
    """Whether all equations are elementwise, reductions, moves or, if they may be, products, and know nothing of other devices."""
    return all(_is_simple(e, products) for e in program.equations)


def _is_simple(eqn: Equation, products: bool) -> bool:
    op = eqn.op
    if op.has_effects(eqn.params) or op.collective is not None or op.place is not None:
        return False
    if any(eqn.params.get("sum_axes", ())):
        return False
    if region_of(eqn) is not None:
        return all(simple(p, products=products) for _, p in subprograms(eqn.params))
    if op.product:
        return products
    return op.emit is not None or op.fold is not None or op.view or op.boxes is not None


def outermost(program: Program, dims: dict[Var, int]) -> bool:
    """Whether entries along the cut dim follow each other in the memory of operands and results."""
    ends = (*program.inputs, *program.equations[0].outputs)
    return all(math.prod(v.aval.shape[: dims[v]]) == 1 for v in ends if v in dims)


class _Whole(Exception):
    """The dim is needed as a whole somewhere."""


def cut(program: Program, fewest: int = 2) -> FollowedDim | None:
    """Where a dim is in each value that has it: of the largest carry, the first dim that can be cut and has the `fewest` entries."""
    (eqn,) = program.equations
    loop = region_of(eqn)
    assert isinstance(loop, Loop)
    carries = loop.body.inputs[loop.num_consts : loop.num_consts + loop.num_carry]
    seed = max(carries, key=lambda v: v.aval.size)
    for d, n in enumerate(seed.aval.shape):
        if n >= fewest:
            try:
                return FollowedDim(seed, d, n).through(program)
            except _Whole:
                continue
    return None


class FollowedDim:
    """A dim, followed from one value to all that have it."""

    def __init__(self, seed: Var, dim: int, size: int) -> None:
        self.dims = {seed: dim}
        self.size = size
        self._apart: list[tuple[Var, ...]] = []  # the carries of loops that stop at different times

    @property
    def stop_apart(self) -> bool:
        """Whether its elements stop at different times."""
        return bool(self._apart)

    def through(self, program: Program) -> FollowedDim:
        """The dim in each value; `_Whole` where parts of it meet."""
        count = 0
        while count != len(self.dims):
            count = len(self.dims)
            self._program(program)
        if any(v not in self.dims for carries in self._apart for v in carries):
            raise _Whole  # it would go round more often for some pieces than for others
        return self

    def _program(self, program: Program, goes_on: Atom | None = None, carries: tuple[Var, ...] = ()) -> None:
        """`goes_on`: whether any element does, in a loop with these carries."""
        for eqn in program.equations:
            region = region_of(eqn)
            if isinstance(region, Loop):
                self._loop(eqn, region)
            elif isinstance(region, Branches):
                for p in region.programs:
                    self._same(zip(eqn.inputs[1:], p.inputs, strict=True))
                    self._same(zip(eqn.outputs, p.outputs, strict=True))
                    self._program(p)
            else:
                reduces = eqn.outputs[0] is goes_on and any(a in self.dims for a in eqn.inputs if isinstance(a, Var))
                if reduces:
                    self._apart.append(carries)
                self._equation(eqn, reduces)

    def _loop(self, eqn: Equation, loop: Loop) -> None:
        body, n, k = loop.body, loop.num_consts, loop.num_carry
        self._same(zip(eqn.inputs[loop.consts], body.inputs[:n], strict=True))
        for group in zip(
            eqn.inputs[loop.carry], body.inputs[n : n + k], body.outputs[:k], eqn.outputs[:k], strict=True
        ):
            self._same(itertools.pairwise(group))
        for rows, row in (
            *zip(eqn.inputs[loop.rows], body.inputs[n + k :], strict=True),
            *zip(eqn.outputs[k:], body.outputs[k:], strict=True),
        ):
            self._row(rows, row)
        self._program(body)
        if loop.test is not None:
            test, first = loop.test, loop.test_consts.stop - loop.test_consts.start
            self._same(zip(eqn.inputs[loop.test_consts], test.inputs[:first], strict=True))
            self._same(zip(body.inputs[n : n + k], test.inputs[first:], strict=True))
            self._program(test, test.outputs[0] if test.name == ANY_GOES_ON else None, test.inputs[first:])

    def _equation(self, eqn: Equation, reduces: bool) -> None:
        """`reduces`: it may combine the parts, because each part of the loop asks only for its own."""
        atoms = (*eqn.inputs, *eqn.outputs)
        if not any(isinstance(a, Var) and a in self.dims for a in atoms):
            return
        in_types, out_types = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
        rule = eqn.op.sharding_rule(in_types, out_types, eqn.params)
        factors = {rule.tensors[t][self.dims[a]] for t, a in enumerate(atoms) if isinstance(a, Var) and a in self.dims}
        (dim, *others) = factors
        if others or len(dim) != 1 or rule.kinds[dim[0]] is not (Kind.REDUCE if reduces else Kind.PASS):
            raise _Whole
        for tensor, atom in zip(rule.tensors, atoms, strict=True):
            places = [d for d, fs in enumerate(tensor) if dim[0] in fs]
            if len(places) > 1 or any(tensor[d] != dim for d in places):
                raise _Whole
            if places:
                self._set(atom, places[0])
            elif isinstance(atom, Var) and atom in self.dims:
                raise _Whole

    def _same(self, pairs: object) -> None:
        for a, b in pairs:  # type: ignore[attr-defined]
            self._link(a, b, 0)

    def _row(self, rows: Atom, row: Atom) -> None:
        self._link(rows, row, 1)

    def _link(self, a: Atom, b: Atom, more: int) -> None:
        """Value `a` has the dim `more` places further back than `b`."""
        if isinstance(a, Var) and a in self.dims:
            self._set(b, self.dims[a] - more)
        if isinstance(b, Var) and b in self.dims:
            self._set(a, self.dims[b] + more)

    def _set(self, atom: Atom, dim: int) -> None:
        if isinstance(atom, Literal) or dim < 0 or self.dims.setdefault(atom, dim) != dim:
            raise _Whole


def localize(program: Program, dims: dict[Var, int], size: int) -> Program:
    """`program` for parts of `size` elements along these dims."""
    local_vars: dict[Var, Var] = {}

    def var(v: Var) -> Var:
        if v not in local_vars:
            d, shape = dims.get(v), v.aval.shape
            local_vars[v] = Var(v.aval if d is None else v.aval.update(shape=(*shape[:d], size, *shape[d + 1 :])))
        return local_vars[v]

    def atoms(given: Sequence[Atom]) -> tuple[Atom, ...]:
        return tuple([a if isinstance(a, Literal) else var(a) for a in given])

    def of(p: Program) -> Program:
        equations = tuple(map(equation, p.equations))
        return replace(p, inputs=tuple(map(var, p.inputs)), equations=equations, outputs=atoms(p.outputs))

    def equation(e: Equation) -> Equation:
        inputs, outputs = atoms(e.inputs), tuple(map(var, e.outputs))
        params = map_programs(e, of).params
        if e.op.localize is not None and any(a in dims for a in (*e.inputs, *e.outputs)):
            params = dict(e.op.localize(params, tuple([a.aval for a in inputs]), tuple([v.aval for v in outputs])))
        return Equation(e.op, inputs, outputs, params, e.source)

    return of(program)


def one_apart(program: Program, dims: dict[Var, int]) -> Program:
    """`program` for one entry: in a loop whose elements stop at different times, each round then knows that it goes on."""
    one = localize(program, dims, 1)
    (eqn,) = one.equations
    loop = region_of(eqn)
    if not isinstance(loop, Loop) or loop.test is None or loop.test.name != ANY_GOES_ON:
        return one
    body = _body_past_test(eqn, loop, loop.test)
    return replace(one, equations=(map_programs(eqn, lambda p: body if p is loop.body else p),))


def _body_past_test(eqn: Equation, loop: Loop, test: Program) -> Program:
    """The body of a loop, with True for what its test has found to be."""
    body, n = loop.body, loop.num_consts
    own: dict[Atom, Atom] = dict(zip(eqn.inputs[loop.consts], body.inputs[:n], strict=True))
    own_operands = [own.get(a) for a in eqn.inputs[loop.test_consts]]
    given = [*own_operands, *body.inputs[n : n + loop.num_carry]]
    names: dict[Atom, Atom] = {v: v if a is None else a for v, a in zip(test.inputs, given, strict=True)}
    equations = [replace(e, inputs=tuple([names.get(a, a) for a in e.inputs])) for e in test.equations]
    *_, last = equations
    answer = last.inputs[0]
    equal = merge_equal([*equations, *body.equations], {})[1]
    answer_vars = [v for v in (*body.inputs, *_results(body)) if equal.get(v, v) is equal.get(answer, answer)]
    if answer.aval.size != 1 or last.outputs != test.outputs or not answer_vars:
        return body
    true: dict[Atom, Var] = {v: Var(v.aval) for v in answer_vars}
    shape_equations = [
        Equation(reshape_p, (_TRUE,), (v,), {"new_sizes": v.aval.shape, "out_sharding": None}) for v in true.values()
    ]
    renamed_equations = [replace(e, inputs=tuple([true.get(a, a) for a in e.inputs])) for e in body.equations]
    return replace(body, equations=(*shape_equations, *renamed_equations))


def _results(program: Program) -> list[Var]:
    return [v for e in program.equations for v in e.outputs]


def sweep(piece: Program, length: int, whole: Program, dims: dict[Var, int]) -> Program:
    """`piece` for one entry after the other of its operands that `whole` has cut: these have a dim more in front, as have results."""
    cut = [v in dims for v in whole.inputs]
    inputs = tuple([Var(_more(v.aval, length) if c else v.aval) for v, c in zip(piece.inputs, cut, strict=True)])
    consts, rows = ([i for i, c in enumerate(cut) if c is which] for which in (False, True))
    order = [*consts, *rows]
    body = replace(piece, inputs=tuple([piece.inputs[i] for i in order]))
    stacked_vars = tuple([Var(_more(a.aval, length)) for a in piece.outputs])
    params = {"body": body, "num_consts": len(consts), "num_carry": 0, "length": length, "reverse": False}
    equations = [Equation(scan_p, tuple([inputs[i] for i in order]), stacked_vars, params)]
    outputs: list[Var] = []
    for var, atom, result in zip(stacked_vars, piece.outputs, whole.outputs, strict=True):
        if result in dims:
            outputs.append(var)
        else:  # the same for all
            first, one = Var(_more(atom.aval, 1)), Var(atom.aval)
            zero, shape = (0,) * var.aval.ndim, first.aval.shape
            slice_params = {"start_indices": zero, "limit_indices": shape, "strides": None}
            equations.append(Equation(slice_p, (var,), (first,), slice_params))
            reshape_params = {"new_sizes": atom.aval.shape, "out_sharding": None}
            equations.append(Equation(reshape_p, (first,), (one,), reshape_params))
            outputs.append(one)
    return Program(inputs, tuple(equations), tuple(outputs), 0, piece.name)


def _more(aval: ShapedArray, length: int) -> ShapedArray:
    return aval.update(shape=(length, *aval.shape))
