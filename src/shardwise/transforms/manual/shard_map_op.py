"""The op that holds the body of a `shard_map`, a per-device Program.

Partitioned by resharding its operands to the dims of `in_dims` and splicing the body in.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from shardwise.base import config
from shardwise.base.shapes import DimAxes
from shardwise.ir import Equation, Program, ShapedArray, Shown, define_op
from shardwise.ir.key_uses import called_uses
from shardwise.ir.narrowed import narrow_call
from shardwise.ir.op import Params, Types
from shardwise.ops.control.bodies import program_effects
from shardwise.ops.rules.derivative import later
from shardwise.passes.propagate import Placement, propagate
from shardwise.sharding.rule import Rule
from shardwise.transforms.manual.shard_map_marks import Marks
from shardwise.transforms.manual.shard_map_scope import global_type
from shardwise.transforms.programs.jaxpr_shard_map import shard_map_params


def _type(
    *types: ShapedArray,
    program: Program,
    mesh: Any,
    manual: frozenset[str],
    out_dims: tuple[DimAxes, ...],
    out_marks: tuple[Marks, ...],
    **_: Any,
) -> tuple[ShapedArray, ...]:
    return tuple(
        marks.on(global_type(t, d, mesh, manual))
        for t, d, marks in zip(program.out_types, out_dims, out_marks, strict=True)
    )


def _rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    none = lambda types: tuple(((),) * t.ndim for t in types)  # noqa: E731
    return Rule(none(in_types), none(out_types), (), ())


def _to_grid(params: Params, grid: Any, in_types: Types, out_types: Types) -> Params:
    mesh = params["mesh"]
    names, sizes = mesh.axis_names, mesh.axis_sizes
    table = grid.axes_of(names, sizes) if grid.names else {a: () for a in names}
    manual = params["manual"]
    every = frozenset(g for a in manual for g in table[a])
    return {
        **params,
        "grid_in_dims": tuple(grid.rename(names, sizes, d) for d in params["in_dims"]),
        "grid_out_dims": tuple(grid.rename(names, sizes, d) for d in params["out_dims"]),
        "scope": {a: table[a] for a in manual},
        "grid_manual": every,
        "auto": tuple(g for g in grid.names if g not in every),
    }


def joined_dims(manual: DimAxes, auto: DimAxes) -> DimAxes:
    """The joined axes of each dim: manual axes are major to automatic ones."""
    return tuple(m + a for m, a in zip(manual, auto, strict=True))


def _shard_shape(shape: tuple[int, ...], dims: DimAxes, sizes: dict[str, int]) -> tuple[int, ...]:
    """The size of each dim on a device along the manual axes."""
    return tuple(n // math.prod(sizes[a] for a in axes) for n, axes in zip(shape, dims, strict=True))


def _dividing_axes(size: int, axes: tuple[str, ...], auto: dict[str, int]) -> tuple[str, ...]:
    """The automatic ones of a dim's axes, as far as they divide its size."""
    kept_axes: tuple[str, ...] = ()
    for axis in axes:
        if axis in auto and size % auto[axis] == 0:
            kept_axes, size = (*kept_axes, axis), size // auto[axis]
    return kept_axes


def _partition(region: Any, eqn: Equation) -> None:
    params = eqn.params
    program: Program = params["program"]
    manual: frozenset[str] = params["grid_manual"]
    auto = {a: n for a, n in region.grid.axis_sizes.items() if a in params["auto"] and a not in region.manual and n > 1}
    atoms, auto_dims = [], []
    for operand, dims in zip(eqn.inputs, params["grid_in_dims"], strict=True):
        atom, have = region.read(operand)
        have = have or ((),) * operand.aval.ndim
        shape = _shard_shape(operand.aval.shape, dims, region.grid.axis_sizes)
        rest = tuple(_dividing_axes(n, axes, auto) for n, axes in zip(shape, have, strict=True))
        atoms.append(region.reshard(atom, have, joined_dims(dims, rest), operand.aval))
        auto_dims.append(rest)
    placements: dict[Any, DimAxes] = {}
    if auto:
        inputs = [Placement(d, (False,) * len(d)) for d in auto_dims]
        wanted_layouts = [
            Placement(
                tuple(tuple(a for a in axes if a in auto) for axes in region.placements[v]), (True,) * v.aval.ndim
            )
            if v in region.placements
            else None
            for v in eqn.outputs
        ]
        placements = propagate(program, auto, inputs, wanted_layouts, grid=region.grid)
    body = region.sub(placements, scope={**region.scope, **params["scope"]}, manual=region.manual | manual)
    for var, atom, dims in zip(program.inputs, atoms, auto_dims, strict=True):
        body.define(var, atom, dims)
    body.run(program)
    for var, result, dims in zip(eqn.outputs, program.outputs, params["grid_out_dims"], strict=True):
        atom, rest = body.read(result)
        rest = rest or ((),) * result.aval.ndim
        if any(rest) and not config.dialect_of(params["era"]).shard_map.keeps_automatic_splits:
            whole = ((),) * result.aval.ndim
            atom, rest = body.reshard(atom, rest, whole, result.aval), whole
        layout = joined_dims(dims, rest)
        region.known.differs |= (atom.aval.vma & manual).difference(*layout)
        region.define(var, atom, layout)


shard_map_op = define_op(
    "shard_map",
    type_rule=_type,
    multiple_results=True,
    typed=True,
    rule=_rule,
    to_grid=_to_grid,
    partition=_partition,
    boundary=True,
    effects=program_effects,
    shown=Shown(renamed={"program": "jaxpr"}, whole=shard_map_params),
    keys=called_uses,
    narrow=partial(narrow_call, per_operand="in_dims", per_result=("out_dims", "out_marks")),
    **{
        rule: later("shardwise.transforms.manual.shard_map_rules", f"shard_map_{rule}")
        for rule in ("jvp", "linearize", "transpose", "batch")
    },
)
