"""Values that carry the whole batch though their step splits it, and the constraints that split them again.

Where a batch meets a weight that is split over the same axis (an embedding of fully sharded parameters), propagation keeps one of the
two layouts. If the weight's wins, all devices compute all examples from there on, and every product sums activations over devices.

In: a compiled step. Out: `Pin`s, which are constraints of single values, found by comparing the step's layouts with those that the batch
alone would give. The program with them is planned as any other layout.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes
from shardwise.engine.data_free import DataFree
from shardwise.ir import Atom, Equation, Program, Source, Var, map_programs, subprograms
from shardwise.ops.devices.layout import sharding_constraint
from shardwise.passes import PLACING, Context, Module, run_passes
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

MOST = 4  # pins of a program
LARGE = 64  # a value with less than this part of the largest one's bytes needs no pin

Layouts = Mapping[Var, DimAxes]


@dataclass(frozen=True, slots=True)
class Pin:
    """A value to constrain.

    Attributes:
        var: it.
        dims: per dim the axes that are to split it.
        op: the op that gives it.
        source: its line.
    """

    var: Var
    dims: DimAxes
    op: str
    source: Source | None


def lost_batches(executable: DataFree, batch: Mapping[int, int], mesh: Mesh) -> tuple[Pin, ...]:
    """The pins that give a step's batch back to the axes that split it; none if it keeps them.

    Args:
        executable: the step, over `mesh`.
        batch: by input of a batch the dim along which it lies.
        mesh: over which the pins are.
    """
    module, context, program = executable.module, executable.context, executable.request.program
    axes = {axis for i, dim in batch.items() for axis in module.in_dims[i][dim]}
    if not axes or not set(context.grid.names) <= set(mesh.axis_names):
        return ()
    alone = tuple(dims if i in batch else ((),) * len(dims) for i, dims in enumerate(module.in_dims))
    free_context = Context(context.grid, (False,) * len(alone), (None,) * len(context.results))
    wanted_layouts = _layouts(Module(program, program, program, alone), free_context)
    pins: tuple[Pin, ...] = ()
    layouts: Layouts = module.layouts
    while len(pins) < MOST:
        pinned_vars = {pin.var for pin in pins}
        lost_pins = [
            (eqn, var, dims)
            for eqn in _equations(program)
            for var in eqn.outputs
            if var not in pinned_vars and (dims := _dims_with_batch(wanted_layouts.get(var), layouts.get(var), axes))
        ]
        largest = max((var.aval.nbytes for _, var, _ in lost_pins), default=0)
        first = next(((e, v, d) for e, v, d in lost_pins if v.aval.nbytes * LARGE >= largest), None)
        if first is None:
            break
        eqn, var, dims = first
        pins = (*pins, Pin(var, dims, eqn.op.name, eqn.source))
        new_program = with_pins(program, pins, mesh)
        layouts = _layouts(Module(new_program, new_program, new_program, module.in_dims), context)
    return pins


def with_pins(program: Program, pins: Sequence[Pin], mesh: Mesh) -> Program:
    """The program with a constraint after each of these values, which all that follows reads."""
    shardings = {pin.var: NamedSharding(mesh, PartitionSpec(*(axes or None for axes in pin.dims))) for pin in pins}

    def add_pins(program: Program) -> Program:
        new: dict[Atom, Var] = {}
        equations: list[Equation] = []
        for eqn in program.equations:
            new_equation = map_programs(eqn, add_pins)
            if not new.keys().isdisjoint(eqn.inputs):
                new_equation = replace(new_equation, inputs=tuple(new.get(a, a) for a in eqn.inputs))
            equations.append(new_equation)
            for var in eqn.outputs:
                if var in shardings:
                    new[var] = Var(var.aval)
                    params = {"sharding": shardings[var]}
                    equations.append(Equation(sharding_constraint, (var,), (new[var],), params, eqn.source))
        if len(equations) == len(program.equations) and all(map(operator.is_, equations, program.equations)):
            return program
        outputs = tuple(new.get(a, a) for a in program.outputs)
        return Program(program.inputs, tuple(equations), outputs, program.num_consts, program.name)

    return add_pins(program)


def _layouts(module: Module, context: Context) -> Layouts:
    return run_passes(PLACING, module, context, {}).layouts


def _equations(program: Program) -> Iterator[Equation]:
    """The equations in order, those of inner programs before the one that holds them."""
    for eqn in program.equations:
        for _, inner in subprograms(eqn.params):
            yield from _equations(inner)
        yield eqn


def _dims_with_batch(wanted: DimAxes | None, own: DimAxes | None, axes: set[str]) -> DimAxes:
    """A value's layout with the batch's axes where the batch alone would put them; empty if all of them are there."""
    if wanted is None or own is None:
        return ()
    put = [tuple(a for a in dim if a in axes) for dim in wanted]
    missing_axes = {a for mine, dim in zip(put, own, strict=True) for a in mine if a not in dim}
    if not missing_axes:
        return ()
    moved_axes = {a for mine in put for a in mine}
    return tuple((*mine, *(a for a in dim if a not in moved_axes)) for mine, dim in zip(put, own, strict=True))
