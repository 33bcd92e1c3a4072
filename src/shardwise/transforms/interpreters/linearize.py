"""Reverse mode: run forward, record only the operations that are linear in the tangents, then transpose that program.

A `LinearTrace` records the ops that touch tangents; everything else runs in its parent. So each op's jvp rule,
executed under it, splits by itself into the forward computation and a linear program with its residuals captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import (
    Equation,
    Literal,
    Program,
    ProgramTrace,
    Replay,
    ShapedArray,
    Trace,
    Tracer,
    UndefinedPrimal,
    Var,
    bind,
    tracing,
)
from shardwise.ir.axis_scope import CHECK_VMA, LOCAL_DERIVATIVES
from shardwise.ir.op import Op
from shardwise.ir.showing import SHOWING
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.layout import enter_auto_op
from shardwise.ops.devices.variance import pcast_op, pvary_op
from shardwise.ops.elementwise.binary import add_any_p, add_p
from shardwise.transforms.interpreters.jvp import (
    JVPTrace,
    JVPTracer,
    cotangent_type,
    has_tangent,
    on_mesh,
    tangent_type,
)


class LinearTrace(ProgramTrace):
    """Records equations with at least one linear operand; others run in the parent."""

    __slots__ = ()
    is_linear = True

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if any(isinstance(a, Tracer) and a.owner is self for a in args):
            return super().process(op, args, params)
        with tracing(self.parent):
            return bind(op, *args, **params)

    constant = Trace.constant


@dataclass(frozen=True)
class LinearizedProgram:
    """Primal results, and the program that maps input tangents to output tangents.

    `program.inputs` are the residuals, then one tangent per differentiable input (`ins`); its outputs are the tangents of
    the results in `outs` (positions); the other results have zero tangents.
    """

    results: list[Any]
    program: Program
    residuals: list[Any]
    ins: tuple[int, ...]
    outs: tuple[int, ...]


def linearize_flat(
    fun: Callable[..., Sequence[Any]], primals: Sequence[Any], active: Sequence[bool] | None = None
) -> LinearizedProgram:
    """Run `fun` (flat values to flat values) on `primals`, recording its linear part at `active` inputs."""
    linear = LinearTrace("linear")
    trace = JVPTrace(linear)
    chosen = [has_tangent(p.aval) and (active is None or active[i]) for i, p in enumerate(primals)]
    entry_values = []
    for p, is_chosen in zip(primals, chosen, strict=True):
        entry_values.append(JVPTracer(trace, p, linear.new_arg(tangent_type(p.aval))) if is_chosen else p)
    with tracing(trace):
        outs = fun(*entry_values)
    pairs = [trace.unwrap(o) for o in outs]
    trace.closed = True
    positions = tuple(i for i, (_, t) in enumerate(pairs) if t is not None)
    program, residuals = linear.finish([pairs[i][1] for i in positions])
    return LinearizedProgram(
        [p for p, _ in pairs], program, list(residuals), tuple(i for i, c in enumerate(chosen) if c), positions
    )


def transpose_program(program: Program, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of a linear program's inputs (after its residuals) from those of its outputs; None is zero."""
    linear = [UndefinedPrimal(v.aval) for v in program.inputs[len(residuals) :]]
    return transpose_linear(program, [*residuals, *linear], cotangents)[len(residuals) :]


def pull_back(program: Program, residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """`transpose_program` for calls of grad and vjp inside of programs.

    In a body of the seed era's shard_map, derivatives are per device: a psum transposes to a psum, and cotangents of
    replicated values stay unsummed. Derivatives of the whole shard_map are not: its own rule transposes the body by its types.
    """
    with CHECK_VMA.override(CHECK_VMA.get() and not LOCAL_DERIVATIVES.get()):
        return transpose_program(program, residuals, cotangents)


def transpose_linear(program: Program, args: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of a program's inputs, None for zero. The program is linear in the inputs given as `UndefinedPrimal`.

    Equations that touch no linear value are evaluated; the others are transposed, last one first.
    """
    values = {v: a for v, a in zip(program.inputs, args, strict=True) if not isinstance(a, UndefinedPrimal)}
    cts: dict[Var, Any] = {}
    with Replay(backward=True) as replay:
        linear: list[Equation] = []
        for eqn in program.equations:
            replay.source = eqn.source
            if all(isinstance(a, Literal) or a in values for a in eqn.inputs):
                outs = bind(eqn.op, *[a if isinstance(a, Literal) else values[a] for a in eqn.inputs], **eqn.params)
                values.update(zip(eqn.outputs, outs if eqn.op.multiple_results else [outs], strict=True))
            else:
                linear.append(eqn)
        for atom, ct in zip(program.outputs, cotangents, strict=True):
            if ct is not None and isinstance(atom, Var) and atom not in values:
                accumulate(cts, atom, ct)
        for eqn in reversed(linear):
            out_cts = [cts.pop(v, None) for v in eqn.outputs]
            if all(c is None for c in out_cts):
                continue
            replay.source = eqn.source
            args = [
                a if isinstance(a, Literal) else values[a] if a in values else UndefinedPrimal(a.aval)
                for a in eqn.inputs
            ]
            results = apply_transpose(eqn.op, out_cts, args, dict(eqn.params))
            for atom, ct in zip(eqn.inputs, results, strict=True):
                if ct is not None and isinstance(atom, Var) and atom not in values:
                    accumulate(cts, atom, ct)
    return [cts.get(v) for v in program.inputs]


def apply_transpose(op: Op, cts: Sequence[Any], args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """The op's transpose rule, as a list with one cotangent or None per operand."""
    if op.transpose is None:
        raise NotImplementedError(
            f"op {op.name} has no transpose rule, so reverse mode cannot pass through it. Use jvp or jacfwd, or "
            "wrap it in custom_vjp."
        )
    if op.multiple_results:
        return list(op.transpose(cts, *args, **params))
    return list(op.transpose(cts[0], *args, **params))


def accumulate(cts: dict[Var, Any], var: Var, ct: Any) -> None:
    """Add a cotangent to the sum of its variable's cotangents."""
    ct = fit_cotangent(ct, var.aval)
    sum_so_far = cts.get(var)
    cts[var] = ct if sum_so_far is None else bind(add_any_p if SHOWING.get() else add_p, sum_so_far, ct)


def fit_cotangent(ct: Any, aval: ShapedArray) -> Any:
    """A cotangent fitted to a value of this type: summed over mesh axes over which it varies and the value does not (the value was
    used on all of them), varying over the value's axes, and with the value's explicit layout."""
    if ct.aval.vma != aval.vma and CHECK_VMA.get():
        extra, missing_axes = tuple(sorted(ct.aval.vma - aval.vma)), tuple(sorted(aval.vma - ct.aval.vma))
        parts = tuple(a for a in extra if a in aval.reduced)
        summed_axes = tuple(a for a in extra if a not in parts)
        if summed_axes:
            ct = bind(all_reduce, ct, axes=summed_axes, kind="sum", groups=None)
        if parts:
            ct = bind(pcast_op, ct, axes=parts, to="unreduced")
        if missing_axes:
            ct = bind(pvary_op, ct, axes=missing_axes)
    wanted_type = cotangent_type(aval)
    have = ct.aval
    if wanted_type.mesh is None and have.mesh is not None:
        ct = bind(enter_auto_op, ct, axes=have.mesh.explicit_axes)
    if wanted_type.mesh is not None and (
        have.mesh is None
        or have.spec != wanted_type.spec
        or have.unreduced != wanted_type.unreduced
        or have.reduced != wanted_type.reduced
    ):
        ct = on_mesh(ct, wanted_type)
    return ct
