"""Equations by their ops' sharding rules: the axes that split each factor, the moves for that, and each device's own equation.

    x[8@a, 6@b] @ w[6@b, 4]      b splits the factor that is summed: each device has a part of the sum, which an all-reduce completes

Comes in: an equation whose operands are laid out. Goes out: reshards, windows of neighbours, the op with local params, and reductions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardwise.base.config import context_token
from shardwise.base.shapes import Axes, DimAxes
from shardwise.ir import Atom, Equation, ExactParams, ShapedArray, Var, literal, unwrap_op
from shardwise.ir.op import Op
from shardwise.ir.program import Need
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.reduce_scatter import psum_scatter_op
from shardwise.passes.moves import copies_of
from shardwise.passes.reduction import plan_reduction
from shardwise.passes.shared_windows import exchanged_windows
from shardwise.passes.split import Split, cheaper_split, dim_of, local_params, local_results, shape_of, split_of
from shardwise.sharding.rule import Kind, Rule

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


def partition_by_rule(region: Region, eqn: Equation, out_dims: tuple[DimAxes, ...]) -> None:
    """Choose a split for each factor of the rule, reshard the operands, compute, and bring the results into these layouts."""
    in_types = tuple([a.aval for a in eqn.inputs])
    out_types = tuple([v.aval for v in eqn.outputs])
    local_ins = [region.read(a) for a in eqn.inputs]
    in_dims = tuple([dims for _, dims in local_ins])
    params = eqn.params
    if not any(map(any, in_dims)) and not any(map(any, out_dims)):
        _local(region, eqn, [a for a, _ in local_ins], in_dims, out_dims, params)
        return
    split_key = (eqn.op, id(params), in_types, out_types, in_dims, out_dims)
    known_split = region.known.splits.get(split_key)
    if known_split is None:
        exactly = ExactParams(params)
        split = split_of(eqn.op, in_types, out_types, exactly, in_dims + out_dims, region.sizes)
        known_split = region.known.splits[split_key] = params, exactly, split
    split = known_split[2]
    if split.moves_much:
        key = eqn.op, in_types, out_types, known_split[1], in_dims + out_dims, region.sizes
        region.known.changes.weighed = True
        copies = copies_of(region, [a for a, _ in local_ins], [t.shape for t in in_types])
        split = cheaper_split(*key, region.readers_of(eqn), region.worth, region.grid.crowding, copies)
    atoms = [
        a if have == want else region.move_value(operand, a, have, want)
        for operand, (a, have), want in zip(eqn.inputs, local_ins, split.operands, strict=True)
    ]
    for f in split.exchanged:
        atoms, params = with_windows_fetched(region, eqn, split.rule, f, split.factors[f], atoms, params)
    compute(region, eqn, split, atoms, params, out_dims)


def compute(
    region: Region,
    eqn: Equation,
    split: Split,
    atoms: Sequence[Atom],
    params: Mapping[str, Any],
    out_dims: tuple[DimAxes, ...],
) -> None:
    """Run an op on operands in the layouts of its split, and bring the results into these layouts."""
    _local(region, eqn, atoms, split.operands, split.results, params)
    for var, dims, placed in zip(eqn.outputs, split.results, out_dims, strict=True):
        if split.partial:
            finish(region, eqn, var, dims, placed, split.partial)
        elif dims != placed:
            atom, _ = region.values[var]
            region.define(var, region.reshard(atom, dims, placed, var.aval), placed)


def with_windows_fetched(
    region: Region, eqn: Equation, rule: Rule, factor: int, axes: Axes, atoms: Sequence[Atom], params: Mapping[str, Any]
) -> tuple[list[Atom], Mapping[str, Any]]:
    """Fetch the window of operand 0 that each device's part of the result needs, or its part of operand 1 if the factor is summed."""
    n = math.prod(region.sizes_of(axes))
    sums = rule.kinds[factor] is Kind.REDUCE
    d, d_other = dim_of(rule.inputs[0], factor), dim_of(rule.inputs[1] if sums else rule.outputs[0], factor)
    assert d is not None and d_other is not None and eqn.op.halo is not None
    aval = eqn.inputs[0].aval
    part = (eqn.inputs[1] if sums else eqn.outputs[0]).aval.shape[d_other] // n
    halo = eqn.op.halo(params, d, tuple(a.aval for a in eqn.inputs), part)
    assert halo is not None
    fill = atoms[halo.fill_operand] if halo.fill_operand is not None else literal(halo.fill, aval.dtype)
    window = {"sizes": region.sizes_of(axes), "dim": d, "step": halo.step, "start": halo.start, "width": halo.width}
    window |= {"pieces": ((0, 0, 0, aval.shape[d]),), "split": (True,)}
    return [exchanged_windows(region, [atoms[0]], fill, axes, aval, window), *atoms[1:]], dict(halo.params)


def _local(
    region: Region,
    eqn: Equation,
    atoms: Sequence[Atom],
    in_dims: tuple[DimAxes, ...],
    out_dims: tuple[DimAxes, ...],
    params: Mapping[str, Any],
) -> None:
    """Append the equation with operands in the layouts `in_dims` and results in `out_dims`."""
    types = tuple([a.aval for a in atoms])
    out_types = tuple([v.aval for v in eqn.outputs])
    key = (eqn.op, id(params), types, in_dims, out_dims, out_types, region.scoped)
    form = region.known.forms.get(key)
    if form is None:
        form = region.known.forms[key] = params, *_local_form(region, eqn, types, in_dims, out_dims, out_types, params)
    _, local, outs, need = form
    for var, out, dims in zip(eqn.outputs, region.append(eqn.op, atoms, outs, local, need), out_dims, strict=True):
        region.values[var] = out, dims


def _local_form(
    region: Region,
    eqn: Equation,
    types: tuple[ShapedArray, ...],
    in_dims: tuple[DimAxes, ...],
    out_dims: tuple[DimAxes, ...],
    out_types: tuple[ShapedArray, ...],
    given: Mapping[str, Any],
) -> tuple[Mapping[str, Any], tuple[ShapedArray, ...], Need | None]:
    """The local params of an equation, the local types of its results, and why it is a collective."""
    op, params = eqn.op, dict(given)
    need = None
    if unwrap_op(op, params)[0].collective is not None:
        params = _on_grid(region, op, params)
        type_list = ", ".join(a.aval.str_short() for a in eqn.inputs)
        need = Need(unwrap_op(op, params)[0].name, type_list, implicit=False)
    if op.localize is not None or op.place is not None:
        params = local_params(op, ExactParams(params), types, in_dims, out_dims, out_types, region.sizes, region.scoped)
    varying_axes = frozenset([a for dims in out_dims for axes in dims for a in axes])
    outs = local_results(op, types, ExactParams(params), varying_axes, context_token())
    for out, aval, dims in zip(outs, out_types, out_dims, strict=True):
        expected_shape = shape_of(aval.shape, dims, region.sizes)
        fits = out.shape == expected_shape and not any(out.spec)
        assert fits, f"{eqn}: local result {out} should have shape {expected_shape}, split over no mesh"
    return params, outs, need


def _on_grid(region: Region, op: Op, params: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a user's collective, under any number of vmaps, in grid axes: the grid may split a mesh axis further."""
    if op.collective is None:
        inner = _on_grid(region, params["mapped_op"], dict(params["inner"]))
        return {**params, "inner": tuple(inner.items())}
    axes = tuple(g for a in params["axes"] for g in region.scope.get(a, (a,)))
    sizes = {"sizes": region.sizes_of(axes)} if "sizes" in params else {}
    # No local type is cast: what all devices receive is typed as the same on all, as gathers of the partitioner are.
    same = {"invariant": True} if params.get("invariant") is False and not params.get("groups") else {}
    return {**params, "axes": axes, **sizes, **same}


def finish(region: Region, eqn: Equation, var: Var, dims: DimAxes, placed: DimAxes, partial: Axes) -> None:
    """Finish a result of which each device holds a partial reduction: reduce-scatter dims that shall be split, all-reduce the rest."""
    atom, _ = region.values[var]
    kind = eqn.op.reduction_of(eqn.params)
    aval = var.aval
    plan = plan_reduction(
        dims, placed, partial, aval.shape, aval.itemsize, region.grid.axis_sizes, scatters=kind == "sum"
    )
    for d, axes in plan.scatters:
        params = {"sizes": region.sizes_of(axes), "dim": d, "tiled": True}
        atom = region.collective(psum_scatter_op, [atom], axes, aval, params)
    if plan.rest:
        atom = region.collective(all_reduce, [atom], plan.rest, aval, {"kind": kind})
    region.define(var, region.reshard(atom, plan.dims, placed, aval), placed)
