"""Equations that hold programs: how their bodies become per-device programs, and run under a predicate that varies.

In Auto mode a predicate is one value for all devices. Inside shard_map it may differ from device to device, and under vmap
from element to element; then every device goes on until the last is done, and those that are done keep their values.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import DimAxes, Ndarray
from shardwise.ir import Atom, Literal, Program, ShapedArray, Var, live_equations, subprograms
from shardwise.ir.op import Params, Types
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.loop import readers_first
from shardwise.runtime.plan import Plan
from shardwise.sharding.rule import Rule


def no_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Nothing of an equation that holds programs can be split but through those (see `edges` and `partition`)."""
    return Rule(tuple(((),) * t.ndim for t in in_types), tuple(((),) * t.ndim for t in out_types), (), ())


# -- partitioning ----------------------------------------------------------------------------------------------------


def layout(region: Any, var: Atom) -> DimAxes:
    """The layout that propagation chose for a value."""
    return region.placements.get(var, ((),) * var.aval.ndim)


def move_operand(region: Any, operand: Atom, dims: DimAxes) -> Atom:
    """The local atom of an operand, in this layout."""
    atom, have = region.read(operand)
    return region.reshard(atom, have or ((),) * operand.aval.ndim, dims, operand.aval)


def local_program(
    region: Any,
    program: Program,
    inputs: Sequence[tuple[DimAxes, frozenset[str]]],
    outputs: Sequence[DimAxes],
    loop: tuple[int, int | None] | None = None,
) -> Program:
    """The per-device form of a body: inputs in these layouts, varying over these axes; outputs in those.

    `loop`, for the body of a loop: the number of its constants, and of its rounds if that is known.
    """
    key = (tuple(inputs), tuple(outputs), loop)
    return region.body(program, key, lambda: _local_program(region, program, inputs, outputs, loop))


def _local_program(
    region: Any,
    program: Program,
    inputs: Sequence[tuple[DimAxes, frozenset[str]]],
    outputs: Sequence[DimAxes],
    loop: tuple[int, int | None] | None,
) -> Program:
    body = region.sub()
    body.equations = []
    variables = []
    for var, (dims, vma) in zip(program.inputs, inputs, strict=True):
        # Operands may vary over fewer axes than the body's own types name: a value that all devices have gathered is the same on all.
        local = Var(region.local_type(var.aval, dims).update(vma=vma.union(*dims)))
        variables.append(local)
        body.define(var, local, dims)
    if loop is not None:
        constants, rounds = loop
        body.steady.update(variables[:constants])
        body.rounds = costs.LOOP_ROUNDS if rounds is None else rounds
    body.run(program)
    results = [body.output(a, d) for a, d in zip(program.outputs, outputs, strict=True)]
    return live_equations(Program(tuple(variables), tuple(body.equations), tuple(results), 0, program.name))


def settle_variance(
    build: Callable[[list[frozenset[str]]], tuple[Any, list[frozenset[str]]]],
    first: Sequence[frozenset[str]],
) -> Any:
    """The result of `build(varying axes of each carry)` once the carries vary over no more axes than were assumed.

    `build` also gives the axes over which the carries vary after an iteration.
    """
    axes = list(first)
    while True:
        built_bodies, after = build(axes)
        wider = [a | b for a, b in zip(axes, after, strict=True)]
        if wider == axes:
            return built_bodies
        axes = wider


def check_uniform(name: str, programs: Sequence[Program], varying: frozenset[str]) -> None:
    """ValueError where devices that may have taken another way would have to take part in a collective."""
    if not varying:
        return
    for program in programs:
        for eqn in program.equations:
            shared_axes = varying.intersection(eqn.op.exchange_axes(eqn.params))
            if shared_axes:
                at = f" at {eqn.source[0]}:{eqn.source[1]}" if eqn.source else ""
                raise ValueError(
                    f"{eqn.op.name} over {tuple(eqn.op.exchange_axes(eqn.params))}{at} stands inside {name} whose predicate varies over "
                    f"{tuple(sorted(shared_axes))}: devices that took another way would never join it. Make the predicate equal on "
                    "those devices (psum or pmax it first), or move the collective out."
                )
            check_uniform(name, [p for _, p in subprograms(eqn.params)], varying)


def exchanged_axes(programs: Sequence[Program]) -> frozenset[str]:
    """The axes over which equations of these programs, and of those inside of them, exchange values."""
    axes: set[str] = set()
    for program in programs:
        for eqn in program.equations:
            axes.update(eqn.op.exchange_axes(eqn.params), exchanged_axes([p for _, p in subprograms(eqn.params)]))
    return frozenset(axes)


def disputed_axes(region: Any, programs: Sequence[Program], varying: frozenset[str]) -> tuple[str, ...]:
    """Automatic axes over which a predicate varies, as copies of a value may, and over which the programs it chooses exchange values.

    Along these axes all devices follow the first one: the user did not write that they may differ.
    """
    open_axes = varying - region.manual
    return tuple(sorted(open_axes & exchanged_axes(programs))) if open_axes else ()


# -- running ---------------------------------------------------------------------------------------------------------


def plan_of(program: Program, env: Env) -> Callable[..., tuple[Ndarray, ...]]:
    """The body as a function of blocks."""
    return Plan(_mark_varying(program) if env.extra else program, env).run


def loop_plan(
    program: Program, env: Env, num_consts: int, num_carry: int
) -> Callable[[list[Ndarray]], tuple[Ndarray, ...]]:
    """The body as a function of a list of blocks, which it empties: it may write over carries that nothing else refers to."""
    program = readers_first(_mark_varying(program) if env.extra else program)
    plan = Plan(program, env, range(num_consts, num_consts + num_carry))
    return plan.run if plan.owned else lambda blocks: plan.run(*blocks)


class LoopKernel:
    """A loop over a list of blocks, which it empties; handed that list, it may write over carries that die with the call."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[[list[Ndarray]], tuple[Ndarray, ...]]) -> None:
        self._run = run

    def __call__(self, *blocks: Ndarray) -> tuple[Ndarray, ...]:
        return self._run(list(blocks))  # the caller refers to them all

    def over(self, free: Sequence[int], blocks: list[Ndarray]) -> tuple[Ndarray, ...]:
        """The results. The first step copies operands that others refer to, and those outside of `free`."""
        del free
        return self._run(blocks)


def _mark_varying(program: Program) -> Program:
    """`program` with all its scalars typed as varying: under vmap any of them may have one value per element."""
    new_vars: dict[Var, Var] = {}

    def new(var: Var) -> Var:
        if var not in new_vars:
            aval: ShapedArray = var.aval
            new_vars[var] = var if aval.ndim else Var(aval.update(vma=aval.vma | {"vmap"}))
        return new_vars[var]

    def atom(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else new(a)

    equations = tuple(
        type(e)(e.op, tuple(map(atom, e.inputs)), tuple(map(new, e.outputs)), e.params, e.source)
        for e in program.equations
    )
    outputs = tuple(map(atom, program.outputs))
    return Program(tuple(map(new, program.inputs)), equations, outputs, program.num_consts, program.name)


class _Active(threading.local):
    """The devices that take part in the equation that runs now: None for all, or a bool block of leading dims alone."""

    mask: Ndarray | None = None


_active = _Active()


def active() -> Ndarray | None:
    """The devices (and vmap elements) whose results count at the moment; None for all."""
    return _active.mask


def run_masked(
    mask: Ndarray, run: Callable[..., tuple[Ndarray, ...]], blocks: Sequence[Ndarray]
) -> tuple[Ndarray, ...]:
    """`run(*blocks)` where only the results of devices in `mask` count, so that inner loops need not wait for others."""
    outer = _active.mask
    _active.mask = mask if outer is None else mask & outer
    try:
        return run(*blocks)
    finally:
        _active.mask = outer


def choose_by_mask(mask: Ndarray, new: Ndarray, old: Ndarray) -> Ndarray:
    """Per device `new` where the mask (leading dims alone) is true, else `old`."""
    return np.where(mask.reshape(mask.shape + (1,) * (new.ndim - mask.ndim)), new, old)
