"""Forward-mode derivatives: each op's own rule, applied when the op is bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import float0
from shardwise.ir import (
    Equation,
    ShapedArray,
    Trace,
    Tracer,
    Var,
    bind,
    current_trace,
    eval_program,
    in_program,
    infer_types,
    tracing,
)
from shardwise.ir.axis_scope import checks_variance
from shardwise.ir.op import Op
from shardwise.ir.references import written_with_tangent
from shardwise.ops.devices.layout import reshard_op
from shardwise.ops.devices.variance import pvary_op
from shardwise.ops.rules.derivative import full_cotangent, has_tangent
from shardwise.sharding.context import get_concrete_mesh


class JVPTracer(Tracer):
    """A value and its tangent (None where zero)."""

    __slots__ = ("primal", "tangent")
    _trace_kind = "JVPTrace"

    def __init__(self, trace: JVPTrace, primal: Any, tangent: Any) -> None:
        self.owner = trace
        self.primal = primal
        self.tangent = tangent
        self.aval = primal.aval

    def __getattr__(self, name: str) -> Any:
        # A concrete primal has a value: print, `if` and int() see it, as derivatives of eager code expect. float() and complex()
        # do not, because their results would go on without the tangent.
        if name in ("tangent", "primal"):
            raise AttributeError(name)
        return super().__getattr__(name)

    def _text(self) -> str:
        owner = getattr(self.tangent, "owner", None)
        if owner is not None and owner.is_linear:  # reverse mode only records what happens to the tangent
            return f"GradTracer(primal={self.primal}, typeof(tangent)={self.tangent.aval.str_short(short_dtypes=True)})"
        return f"JVPTracer(primal={self.primal}, tangent={self.tangent})"

    def __bool__(self) -> bool:
        return bool(self.primal)

    def __int__(self) -> int:
        return int(self.primal)

    def __index__(self) -> int:
        return self.primal.__index__()

    def item(self, *args: Any) -> Any:
        """One element of the primal as a Python scalar, if the primal is concrete."""
        return self.primal.item(*args)


class JVPTrace(Trace):
    """Applies derivative rules."""

    __slots__ = ("parent",)

    def __init__(self, parent: Trace | None = None) -> None:
        super().__init__()
        self.parent = parent or current_trace()

    def unwrap(self, x: Any) -> tuple[Any, Any]:
        """The primal and the tangent or None."""
        return (x.primal, x.tangent) if isinstance(x, JVPTracer) and x.owner is self else (x, None)

    def leave_reference(self, value: Any, reference: Any) -> Any:
        """The primal of a value without a tangent."""
        primal, tangent = self.unwrap(value)
        if tangent is not None:
            raise written_with_tangent(reference)
        return primal

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        pairs = [self.unwrap(a) for a in args]
        primals, tangents = [p for p, _ in pairs], [t for _, t in pairs]
        with tracing(self.parent):
            if all(t is None for t in tangents):
                return bind(op, *primals, **params)
            if op.linearize is not None and getattr(self.parent, "is_linear", False):
                outs, touts = op.linearize(self.parent, primals, tangents, params)
            else:
                outs, touts = apply_jvp(op, primals, tangents, params)
        tracers = [o if t is None else JVPTracer(self, o, t) for o, t in zip(outs, touts, strict=True)]
        return tracers if op.multiple_results else tracers[0]


def apply_jvp(
    op: Op, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """The op's results and their tangents, as lists."""
    rule = op.jvp
    if rule is None and op.inline is not None:
        return _jvp_inlined(op, primals, tangents, params)
    if rule is None:
        types = infer_types(op, tuple(p.aval for p in primals), params)
        if any(has_tangent(t) for t in types):
            raise NotImplementedError(
                f"op {op.name} has no derivative rule. Wrap the computation in custom_jvp, or use stop_gradient."
            )
        touts: Any = [None] * len(types) if op.multiple_results else None
        outs = bind(op, *primals, **params)
    elif rule == "linear":
        given = [zeros(p.aval) if t is None else t for t, p in zip(tangents, primals, strict=True)]
        outs, touts = bind(op, *primals, **params), bind(op, *given, **params)
    else:
        outs, touts = rule(primals, tangents, **params)
    if not op.multiple_results:
        outs, touts = [outs], [touts]
    return list(outs), list(touts)


def _jvp_inlined(
    op: Op, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """An op that calls a program: the program's equations, one by one."""

    assert op.inline is not None
    call_equation = Equation(op, tuple(Var(p.aval) for p in primals), (), params)
    program = op.inline(call_equation)
    return jvp_program(program, primals, tangents)


def jvp_program(program: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Results and tangents of a program under the current trace."""
    trace = JVPTrace()
    with tracing(trace):
        entry_values = [p if t is None else JVPTracer(trace, p, t) for p, t in zip(primals, tangents, strict=True)]
        outs = eval_program(program, entry_values)
    pairs = [trace.unwrap(o) for o in outs]
    return [p for p, _ in pairs], [t for _, t in pairs]


def tangent_type(aval: ShapedArray) -> ShapedArray:
    """The type of tangents: the value's own for floats and complex numbers, float0 for others."""
    if has_tangent(aval):
        return aval
    return ShapedArray(aval.shape, np.dtype(float0), vma=aval.vma)


def cotangent_type(aval: ShapedArray) -> ShapedArray:
    """The type of cotangents: over the value's `reduced` axes they are partial sums."""
    if aval.reduced or aval.unreduced:
        return aval.update(reduced=aval.unreduced, unreduced=aval.reduced)
    return aval


def zeros(aval: ShapedArray) -> Any:
    """A zero of a type, laid out like the value."""
    value = full_cotangent(cotangent_type(aval))  # `full_cotangent` gives the cotangents of a type
    return bind(pvary_op, value, axes=tuple(sorted(aval.vma))) if aval.vma else value


def cotangent_zeros(aval: ShapedArray) -> Any:
    """A zero as cotangent of a value of this type."""
    return zeros(cotangent_type(aval))


def instantiate(tangent: Any, aval: ShapedArray) -> Any:
    """The tangent, or an explicit zero for None."""
    return zeros(tangent_type(aval)) if tangent is None else tangent


def apart(aval: ShapedArray, other: ShapedArray) -> bool:
    """Whether both types name the axes that split their values, and differ in it."""
    return aval.mesh is not None and other.mesh is not None and other.spec != aval.spec


def needs_implicit_sum(aval: ShapedArray, ct: ShapedArray) -> bool:
    """Whether a cotangent of type `ct` differs between devices on which the value is the same, so that it would be summed."""
    return not ct.vma <= aval.vma and checks_variance()


def on_mesh(x: Any, aval: ShapedArray) -> Any:
    """A tangent or cotangent in the explicit layout of this type. One without a mesh stays as it is where nothing says which devices
    the mesh has: outside of compiled functions, with no mesh in context. Ops that meet it with values on the mesh move it there."""
    if x.aval.mesh is None and get_concrete_mesh().empty and not in_program():
        return x
    return bind(reshard_op, x, sharding=aval.sharding, concrete=None)


def conform_tangent(x: Any, aval: ShapedArray) -> Any:
    """A tangent with the variance and the explicit layout of its value."""
    if aval.mesh is not None and (x.aval.mesh is None or x.aval.spec != aval.spec):
        x = on_mesh(x, aval)
    missing_axes = tuple(sorted(aval.vma - x.aval.vma))
    return bind(pvary_op, x, axes=missing_axes) if missing_axes else x
