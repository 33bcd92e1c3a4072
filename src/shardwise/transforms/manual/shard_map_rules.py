"""Derivatives and batching of `shard_map`: its body is transformed, and the results are shard_maps again.

Reverse mode makes two: the forward body, whose residuals leave it stacked along a new leading dim over the axes on which
they vary, and a body that is linear in the tangents, which the backward pass transposes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.shapes import DimAxes
from shardwise.ir import (
    Program,
    ProgramTrace,
    ProgramTracer,
    ShapedArray,
    UndefinedPrimal,
    bind,
    eval_program,
    trace_program,
    tracing,
)
from shardwise.ir.axis_scope import SPMD_AXES
from shardwise.ir.op import Params, find_op
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.rules.derivative import do
from shardwise.sharding import AbstractMesh, Mesh
from shardwise.transforms.interpreters.batch_trace import batch_program
from shardwise.transforms.interpreters.jvp import jvp_program
from shardwise.transforms.interpreters.linearize import LinearizedProgram, linearize_flat, transpose_linear
from shardwise.transforms.manual.shard_map_marks import Marks, marks_of
from shardwise.transforms.manual.shard_map_scope import body_scope, local_type, split_by_vmaps


def _whole(ndim: int) -> DimAxes:
    return ((),) * ndim


def _bind(
    params: Params,
    program: Program,
    consts: Sequence[Any],
    args: Sequence[Any],
    in_dims: Sequence[DimAxes],
    out_dims: Sequence[DimAxes],
    out_marks: Sequence[Marks],
) -> list[Any]:
    """A shard_map of another body; the body may capture values of the surrounding trace."""
    captured_dims = tuple(_whole(c.aval.ndim) for c in consts)
    return bind(
        find_op("shard_map"),
        *consts,
        *args,
        **{
            **params,
            "program": program,
            "in_dims": (*captured_dims, *in_dims),
            "out_dims": tuple(out_dims),
            "out_marks": tuple(out_marks),
        },
    )


def _scope(params: Params) -> Any:
    return body_scope(params["mesh"], params["manual"], params["check"], params["era"])


def _retrace(
    params: Params, fun: Callable[..., Sequence[Any]], types: Sequence[ShapedArray]
) -> tuple[Program, list[Any]]:
    with _scope(params):
        return trace_program(fun, types, params["program"].name)


# -- forward mode --------------------------------------------------------------------------------------------------------


def shard_map_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """One shard_map of values and tangents."""
    program, in_dims, out_dims, marks = (params[k] for k in ("program", "in_dims", "out_dims", "out_marks"))
    live = [i for i, t in enumerate(tangents) if t is not None]
    count = len(primals)
    moving_results: list[int] = []

    def both(*blocks: Any) -> list[Any]:
        ts: list[Any] = [None] * count
        for i, t in zip(live, blocks[count:], strict=True):
            ts[i] = t
        outs, touts = jvp_program(program, blocks[:count], ts)
        moving_results[:] = [i for i, t in enumerate(touts) if t is not None]
        return [*outs, *[touts[i] for i in moving_results]]

    types = [*program.in_types, *[program.in_types[i] for i in live]]
    body, consts = _retrace(params, both, types)
    outs = _bind(
        params,
        body,
        consts,
        [*primals, *[tangents[i] for i in live]],
        [*in_dims, *[in_dims[i] for i in live]],
        [*out_dims, *[out_dims[i] for i in moving_results]],
        [*marks, *[marks[i] for i in moving_results]],
    )
    results: list[Any] = [None] * len(out_dims)
    for i, t in zip(moving_results, outs[len(out_dims) :], strict=True):
        results[i] = t
    return outs[: len(out_dims)], results


# -- reverse mode --------------------------------------------------------------------------------------------------------


def stacking_spec(aval: ShapedArray, mesh: Mesh | AbstractMesh, manual: frozenset[str]) -> DimAxes:
    """The out_spec of a residual: its blocks along a new first dim, split over the axes on which it varies."""
    axes = tuple(a for a in mesh.axis_names if a in aval.vma and a in manual)
    return (axes, *_whole(aval.ndim))


def shard_map_linearize(
    trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: Params
) -> tuple[list[Any], list[Any]]:
    """The forward shard_map with its residuals, and the linear one, recorded in `trace`."""
    program, in_dims, out_dims, mesh, manual = (params[k] for k in ("program", "in_dims", "out_dims", "mesh", "manual"))
    forward = ProgramTrace(program.name)
    with _scope(params), tracing(forward):
        blocks = [forward.new_arg(t) for t in program.in_types]
        lin: LinearizedProgram = linearize_flat(
            lambda *xs: eval_program(program, xs), blocks, [t is not None for t in tangents]
        )
        given = {id(b): i for i, b in enumerate(blocks)}
        inner = [r for r in lin.residuals if isinstance(r, ProgramTracer) and r.owner is forward and id(r) not in given]
        stacked_residuals = [
            do.broadcast_in_dim(
                r, shape=(1, *r.shape), broadcast_dimensions=tuple(range(1, r.ndim + 1)), out_sharding=None
            )
            for r in inner
        ]
        body, consts = forward.finish([*lin.results, *stacked_residuals])
    inner_dims = [stacking_spec(r.aval, mesh, manual) for r in inner]
    marks = params["out_marks"]
    outs = _bind(params, body, consts, primals, in_dims, [*out_dims, *inner_dims], [*marks, *[Marks()] * len(inner)])
    results, saved_values = outs[: len(out_dims)], outs[len(out_dims) :]

    # Residuals that are arguments or captured values of the body enter the linear one unchanged.
    values, dims, types, squeezes = [], [], [], []
    residual_of = {
        id(r): (v, d, s.aval) for r, v, d, s in zip(inner, saved_values, inner_dims, stacked_residuals, strict=True)
    }
    for r in lin.residuals:
        if id(r) in residual_of:
            value, dim, aval = residual_of[id(r)]
        elif id(r) in given:
            value, dim, aval = primals[given[id(r)]], in_dims[given[id(r)]], r.aval
        else:
            value, dim, aval = r, _whole(r.ndim), r.aval
        values.append(value)
        dims.append(dim)
        types.append(aval)
        squeezes.append(id(r) in residual_of)

    def linear(*xs: Any) -> list[Any]:
        n = len(values)
        own = [do.squeeze(x, dimensions=(0,)) if s else x for x, s in zip(xs[:n], squeezes, strict=True)]
        return eval_program(lin.program, [*own, *xs[n:]])

    ts = [tangents[i] for i in lin.ins]
    body, consts = _retrace(params, linear, [*types, *[program.in_types[i] for i in lin.ins]])
    touts = _bind(
        params,
        body,
        consts,
        [*values, *ts],
        [*dims, *[in_dims[i] for i in lin.ins]],
        [out_dims[i] for i in lin.outs],
        [marks[i] for i in lin.outs],
    )
    by_position = dict(zip(lin.outs, touts, strict=True))
    return results, [by_position.get(i) for i in range(len(out_dims))]


def shard_map_transpose(cts: Sequence[Any], *args: Any, **params: Any) -> list[Any]:
    """A shard_map from the blocks of cotangents of the results to those of the linear operands.

    Without checked types each device's cotangent of a replicated result is its share of the whole, and cotangents of
    replicated operands are summed over the devices.
    """
    program, in_dims, out_dims, mesh, manual = (params[k] for k in ("program", "in_dims", "out_dims", "mesh", "manual"))
    live = [i for i, c in enumerate(cts) if c is not None]
    known_operands = [i for i, a in enumerate(args) if not isinstance(a, UndefinedPrimal)]
    live_operands: list[int] = []

    def pull_blocks(*blocks: Any) -> list[Any]:
        values: list[Any] = [UndefinedPrimal(t) for t in program.in_types]
        for i, b in zip(known_operands, blocks, strict=False):
            values[i] = b
        given: list[Any] = [None] * len(cts)
        for i, b in zip(live, blocks[len(known_operands) :], strict=True):
            given[i] = b if params["check"] else _share(b, out_dims[i], mesh, manual)
        results = transpose_linear(program, values, given)
        live_operands[:] = [i for i, c in enumerate(results) if c is not None]
        return [results[i] if params["check"] else _total(results[i], in_dims[i], mesh, manual) for i in live_operands]

    types = [
        local_type(args[i].aval, in_dims[i], mesh, manual).update(
            unreduced=program.in_types[i].unreduced, reduced=program.in_types[i].reduced
        )
        for i in known_operands
    ]
    types += [local_type(cts[i].aval, out_dims[i], mesh, manual) for i in live]
    body, consts = _retrace(params, pull_blocks, types)
    outs = _bind(
        params,
        body,
        consts,
        [*[args[i] for i in known_operands], *[cts[i] for i in live]],
        [*[in_dims[i] for i in known_operands], *[out_dims[i] for i in live]],
        [in_dims[i] for i in live_operands],
        [marks_of(args[i].aval).dual for i in live_operands],
    )
    by_position = dict(zip(live_operands, outs, strict=True))
    return [by_position.get(i) for i in range(len(args))]


def _unmentioned_axes(dims: DimAxes, mesh: Mesh | AbstractMesh, manual: frozenset[str]) -> tuple[str, ...]:
    """The manual axes that a value's spec does not mention, except axes that split a vmap's dim."""
    named_axes = {a for axes in dims for a in axes} | split_by_vmaps()
    return tuple(a for a in mesh.axis_names if a in manual and a not in named_axes)


def _share(ct: Any, dims: DimAxes, mesh: Mesh | AbstractMesh, manual: frozenset[str]) -> Any:
    n = math.prod(mesh.shape[a] for a in _unmentioned_axes(dims, mesh, manual))
    return ct if n == 1 else do.div(ct, n)


def _total(ct: Any, dims: DimAxes, mesh: Mesh | AbstractMesh, manual: frozenset[str]) -> Any:
    axes = _unmentioned_axes(dims, mesh, manual)
    return bind(all_reduce, ct, axes=axes, kind="sum", groups=None) if axes else ct


# -- batching ------------------------------------------------------------------------------------------------------------


def shard_map_batch(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> tuple[list[Any], list[int | None]]:
    """A shard_map of blocks with one more dim, split over the axes of `spmd_axis_name` if vmap gives it."""
    program, in_dims, out_dims, manual = (params[k] for k in ("program", "in_dims", "out_dims", "manual"))
    spmd = SPMD_AXES.get() or _split_already(values, dims)
    for axes in (*in_dims, *out_dims):
        clash = {a for dim in axes for a in dim} & set(spmd)
        if clash:
            raise ValueError(
                f"vmap spmd_axis_name cannot appear in shard_map in_specs or out_specs, got {sorted(clash)} in both."
            )
    split = tuple(a for a in spmd if a in manual)
    local = size // math.prod(params["mesh"].shape[a] for a in split)
    with_dim = lambda axes, d: axes if d is None else (*axes[:d], split, *axes[d:])  # noqa: E731
    new_dims = tuple(with_dim(a, d) for a, d in zip(in_dims, dims, strict=True))
    types = [
        t if d is None else _with_size(t, d, local, frozenset(split), v)
        for t, d, v in zip(program.in_types, dims, values, strict=True)
    ]
    result_dims: list[int | None] = []

    def map_blocks(*blocks: Any) -> list[Any]:
        outs, result_dims[:] = batch_program(program, local, axis_name, blocks, dims)
        return outs

    body, consts = _retrace(params, map_blocks, types)
    outs = _bind(
        params,
        body,
        consts,
        values,
        new_dims,
        [with_dim(a, d) for a, d in zip(out_dims, result_dims, strict=True)],
        params["out_marks"],
    )
    return outs, result_dims


def _split_already(values: Sequence[Any], dims: Sequence[int | None]) -> tuple[str, ...]:
    """The Explicit axes over which the mapped dim is split, the same for all values."""
    return next((axes for v, d in zip(values, dims, strict=True) if d is not None and (axes := v.aval.spec[d])), ())


def _with_size(aval: ShapedArray, dim: int, size: int, vma: frozenset[str], value: Any) -> ShapedArray:
    shape = (*aval.shape[:dim], size, *aval.shape[dim:])
    if aval.mesh is None:
        return aval.update(shape=shape, vma=aval.vma | vma)
    outer = tuple(a for a in value.aval.spec[dim] if a in aval.mesh.explicit_axes and a not in vma)
    return aval.update(shape=shape, spec=(*aval.spec[:dim], outer, *aval.spec[dim:]), vma=aval.vma | vma)
