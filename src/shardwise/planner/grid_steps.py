"""The work of a kernel in all steps of its grid: code that depends on the position counts as often as it runs.

In: a `Kernel`. Out: its `Work`. A kernel that computes nothing above a diagonal, or initializes in its first step, says so by values that
follow from the position: these are computed here, for all positions at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray
from shardwise.ir import Atom, Branches, Equation, Kernel, Literal, Loop, Program, Var, region_of
from shardwise.passes import inline_calls
from shardwise.planner.flops import Product, Work, work_of
from shardwise.runtime.env import Env
from shardwise.runtime.plan import Plan

_KnownValues = Mapping[Atom, Ndarray]  # a value per position, whose dims are the grid's axes, or 1
_LONGEST = 1 << 14  # trips of a loop that are followed


@recent()
def work_in_grid(kernel: Kernel) -> Work:
    """The work of all steps; of branches that depend on other values the heaviest."""
    assert kernel.body is not None
    axes = len(kernel.grid)
    program = inline_calls(kernel.body)
    indices = program.inputs[program.num_consts : program.num_consts + axes]
    known_values: dict[Atom, Ndarray] = {}
    for i, (var, size) in enumerate(zip(indices, kernel.grid, strict=True)):
        known_values[var] = np.arange(size, dtype=np.int32).reshape([size if d == i else 1 for d in range(axes)])
    steps = _Steps(math.prod(kernel.grid), Env(extra=axes))
    steps.take(program, known_values, np.ones((1,) * axes, np.int64))
    return steps.work()


class _Steps:
    """The work that was found so far."""

    def __init__(self, positions: int, env: Env) -> None:
        self._positions = positions
        self._env = env
        self._products: list[Product] = []
        self._vector = self._transcendentals = self._arithmetic = self._functions = self._bytes = 0.0

    def work(self) -> Work:
        """All of it."""
        return Work(
            tuple(self._products), self._vector, self._transcendentals, self._arithmetic, self._functions, self._bytes
        )

    def take(self, program: Program, known: _KnownValues, runs: Ndarray) -> None:
        """Add a program that runs so often at each position."""
        scalar_values = {**known, **self._compute_scalars(program.equations, known)}
        for eqn in program.equations:
            region = region_of(eqn)
            if region is None:
                self._add(work_of((eqn,)), self._count(runs))
            elif isinstance(region, Loop):
                self._take_loop(eqn, region, scalar_values, runs)
            else:
                self._take_branches(eqn, region, scalar_values, runs)

    def _take_branches(self, eqn: Equation, region: Branches, known: _KnownValues, runs: Ndarray) -> None:
        which = _value(eqn.inputs[0], known)
        if which is None:
            self._add(work_of((eqn,)), self._count(runs))
            return
        number = np.clip(which.astype(np.int64), 0, len(region.programs) - 1)
        for i, program in enumerate(region.programs):
            there = runs * (number == i)
            if there.any():
                self.take(program, _known_inputs(program.inputs, eqn.inputs[1:], known), there)

    def _take_loop(self, eqn: Equation, loop: Loop, known: _KnownValues, runs: Ndarray) -> None:
        consts, carry = eqn.inputs[loop.consts], eqn.inputs[loop.carry]
        inside = _known_inputs(loop.body.inputs, consts, known)
        if loop.length is not None:
            self.take(loop.body, inside, runs * loop.length)
            return
        trips = self._trips(eqn, loop, _known_inputs(loop.body.inputs[loop.num_consts :], carry, known), inside, known)
        self.take(loop.body, inside, runs if trips is None else runs * trips)

    def _trips(
        self, eqn: Equation, loop: Loop, first: dict[Atom, Ndarray], inside: _KnownValues, known: _KnownValues
    ) -> Ndarray | None:
        """How often a loop runs at each position; None if that follows from other values."""
        test = loop.test
        assert test is not None
        (goes_on,) = test.outputs
        body_carry = loop.body.inputs[loop.num_consts : loop.num_consts + loop.num_carry]
        test_carry = test.inputs[loop.test_consts.stop - loop.test_consts.start :]
        test_values = _known_inputs(test.inputs, eqn.inputs[loop.test_consts], known)
        now = [first.get(v) for v in body_carry]
        trips, is_going = np.zeros((), np.int64), np.ones((), np.bool_)
        ask, go = self._compile_scalars(test.equations), self._compile_scalars(loop.body.equations)
        for _ in range(_LONGEST):
            given = {**test_values, **{v: x for v, x in zip(test_carry, now, strict=True) if x is not None}}
            answer = _value(goes_on, {**given, **ask(given)})
            if answer is None:
                return None
            is_going = is_going & answer
            if not is_going.any():
                return trips
            trips = trips + is_going
            given = {**inside, **{v: x for v, x in zip(body_carry, now, strict=True) if x is not None}}
            next_values = {**given, **go(given)}
            now = [_value(a, next_values) for a in loop.body.outputs[: loop.num_carry]]
        return None

    def _compute_scalars(self, equations: Sequence[Equation], known: _KnownValues) -> dict[Atom, Ndarray]:
        return self._compile_scalars(equations)(known)

    def _compile_scalars(self, equations: Sequence[Equation]) -> Callable[[_KnownValues], dict[Atom, Ndarray]]:
        """A function that computes the scalars which follow from known ones."""
        plans: dict[frozenset[Atom], tuple[Plan, tuple[Var, ...], tuple[Var, ...]]] = {}

        def compute(known: _KnownValues) -> dict[Atom, Ndarray]:
            key = frozenset(known)
            if key not in plans:
                program = _scalars(equations, known)
                outputs = tuple([v for v in program.outputs if isinstance(v, Var)])
                plans[key] = Plan(program, self._env), program.inputs, outputs
            plan, inputs, outputs = plans[key]
            if not outputs:
                return {}
            return dict(zip(outputs, plan.run(*[known[v] for v in inputs]), strict=True))

        return compute

    def _count(self, runs: Ndarray) -> int:
        """In how many steps, all in all, something runs."""
        return int(runs.sum()) * self._positions // runs.size

    def _add(self, work: Work, times: int) -> None:
        self._products += [replace(p, batch=p.batch * times) for p in work.products if times]
        self._vector += times * work.vector
        self._transcendentals += times * work.transcendentals
        self._arithmetic += times * work.arithmetic
        self._functions += times * work.functions
        self._bytes += times * work.bytes


def _scalars(equations: Sequence[Equation], known: _KnownValues) -> Program:
    """The equations that compute scalars from known ones alone, as a program."""
    scalar_atoms: set[Atom] = set(known)
    equations_found: list[Equation] = []
    for eqn in equations:
        if eqn.op.region is None and not eqn.op.effects and eqn.op.collective is None:
            scalar = all(a.aval.ndim == 0 for a in (*eqn.inputs, *eqn.outputs))
            if scalar and all(isinstance(a, Literal) or a in scalar_atoms for a in eqn.inputs):
                equations_found.append(eqn)
                scalar_atoms.update(eqn.outputs)
    read = dict.fromkeys([a for e in equations_found for a in e.inputs if isinstance(a, Var) and a in known])
    return Program(
        tuple(read),
        tuple(equations_found),
        tuple([v for e in equations_found for v in e.outputs]),
        0,
        "steps of a grid",
    )


def _value(atom: Atom, known: _KnownValues) -> Ndarray | None:
    """The value of a scalar at each position; None if it is not known."""
    return np.asarray(atom.value) if isinstance(atom, Literal) else known.get(atom)


def _known_inputs(inputs: Sequence[Var], operands: Sequence[Atom], known: _KnownValues) -> dict[Atom, Ndarray]:
    """The known values of the first inputs of a program with these operands."""
    known_operands = [(v, _value(a, known)) for v, a in zip(inputs, operands, strict=False) if v.aval.ndim == 0]
    return {v: x for v, x in known_operands if x is not None}
