"""`shardwise.interpreters.partial_eval`: the program of the part of a function that depends on unknown arguments; the rest runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.extend.linear_util import WrappedFun
from shardwise.ir import (
    Equation,
    NarrowedEquation,
    ProgramTrace,
    ShapedArray,
    Tracer,
    Var,
    bind,
    eval_program,
    infer_types,
    trace_program,
    tracing,
)
from shardwise.ir import Program as _Program
from shardwise.ir import ProgramTracer as DynamicJaxprTracer
from shardwise.ir import Trace as _Trace
from shardwise.ir.op import Op
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.passes import LiveResults
from shardwise.transforms.programs.jaxpr_views import Jaxpr

__all__ = ["DynamicJaxprTracer", "PartialVal", "dce_jaxpr", "trace_to_jaxpr_dynamic", "trace_to_jaxpr_nounits"]


class PartialVal(tuple[ShapedArray | None, Any]):
    """A known value, as ``(None, value)``, or an unknown one, as ``(type, None)``."""

    __slots__ = ()

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """A value."""
        return cls((None, const))

    @classmethod
    def unknown(cls, aval: ShapedArray) -> PartialVal:
        """A type."""
        return cls((aval, None))

    def is_known(self) -> bool:
        """Whether there is a value."""
        return self[0] is None

    def get_known(self) -> Any:
        """The value, or None."""
        return self[1]

    def get_aval(self) -> ShapedArray:
        """The type."""
        known_aval = self[0]
        return as_value(self[1]).aval if known_aval is None else known_aval


class PartialTrace(ProgramTrace):
    """Records equations with an unknown operand; others run in the parent.

    Calls of jitted functions are split in the same way. Of loops, branches and other calls, the results that follow from known
    operands alone are known: their equations run in the parent, and the whole is recorded for the others.
    """

    __slots__ = ()

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        unknown = [isinstance(a, Tracer) and a.owner is self for a in args]
        if not any(unknown):
            with tracing(self.parent):
                return bind(op, *args, **params)
        if not op.multiple_results or op.has_effects(params):
            return super().process(op, args, params)
        if op.inline is not None:
            program = op.inline(_equation(op, args, params))
            if op.call and not all(unknown):
                return eval_program(program, args)
            known_outs = self._known_of_call(program, args, unknown)
            outs = super().process(op, args, params)
        else:
            outs = super().process(op, args, params)
            known_outs = self._known_of_loop(op, args, params, unknown, len(outs))
        return [known_outs.get(i, out) for i, out in enumerate(outs)]

    constant = _Trace.constant

    def _known_of_call(self, program: _Program, args: Sequence[Any], unknown: Sequence[bool]) -> dict[int, Any]:
        """By position, the results of a program that follow from known operands."""
        part_of = LiveResults().part_of
        known_outputs = [
            i for i in range(len(program.outputs)) if not any(unknown[j] for j in part_of(program, (i,)).inputs)
        ]
        if not known_outputs:
            return {}
        part = part_of(program, known_outputs)
        with tracing(self.parent):
            return dict(
                zip(known_outputs, eval_program(part.program(part.inputs), [args[i] for i in part.inputs]), strict=True)
            )

    def _known_of_loop(
        self, op: Op, args: Sequence[Any], params: dict[str, Any], unknown: Sequence[bool], count: int
    ) -> dict[int, Any]:
        """By position, the results of a loop or of branches, `count` in all, that follow from known operands."""
        if op.narrow is None:
            return {}
        narrow, part_of = op.narrow, LiveResults().part_of
        parts: list[NarrowedEquation] = [narrow(params, [i == j for j in range(count)], part_of) for i in range(count)]
        is_known = [not any(unknown[j] for j in part.operands) for part in parts]
        if not any(is_known):
            return {}
        part = narrow(params, is_known, part_of)
        with tracing(self.parent):
            outs = bind(op, *[args[i] for i in part.operands], **part.params)
        return dict(zip(part.results, outs, strict=True))


def _equation(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Equation:
    """The equation of a call, with variables for its operands and results."""
    types = tuple([as_value(a).aval for a in args])
    outputs = tuple([Var(t) for t in infer_types(op, types, params)])
    return Equation(op, tuple([Var(t) for t in types]), outputs, params, None)


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Run the part of `fun` (flat values to flat values) that depends on known arguments alone.

    Returns a program of the unknown arguments for the unknown results (with the captured values in front, as in
    ``jaxpr.constvars``), one PartialVal per result, and the captured values. Results at `instantiate` count as unknown.
    """
    trace = PartialTrace(fun.__name__)
    entry_values = [as_array(as_value(p[1])) if p.is_known() else trace.new_arg(p.get_aval()) for p in pvals]
    with tracing(trace):
        outs = [as_value(x) for x in fun.call_wrapped(*entry_values)]
    wanted_flags = [instantiate] * len(outs) if isinstance(instantiate, bool) else list(instantiate)
    unknown = [w or (isinstance(x, Tracer) and x.owner is trace) for w, x in zip(wanted_flags, outs, strict=True)]
    program, consts = trace.finish([as_array(x) for x, u in zip(outs, unknown, strict=True) if u])
    results = [
        PartialVal.unknown(x.aval) if u else PartialVal.known(as_array(x)) for x, u in zip(outs, unknown, strict=True)
    ]
    return Jaxpr.of(program), results, list(consts)


def trace_to_jaxpr_dynamic(
    fun: WrappedFun, in_avals: Sequence[ShapedArray], **options: Any
) -> tuple[Jaxpr, list[ShapedArray], list[Any]]:
    """The program of `fun` (flat values to flat values), its result types, and its captured values."""
    if options:
        raise NotImplementedError(f"trace_to_jaxpr_dynamic takes no {', '.join(options)} here; use make_jaxpr.")
    program, consts = trace_program(
        lambda *args: [as_value(x) for x in fun.call_wrapped(*args)], list(in_avals), fun.__name__
    )
    return Jaxpr.of(program), list(program.out_types), list(consts)


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """The program for some of its results, and a mask of the arguments that it still takes; those at `instantiate` stay."""
    outs = jaxpr.outvars
    used = [used_outputs] * len(outs) if isinstance(used_outputs, bool) else list(used_outputs)
    keep = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    old = jaxpr.program
    outputs = tuple(a for a, u in zip(outs, used, strict=True) if u)
    live = LiveResults()(_Program(old.inputs, old.equations, outputs, old.num_consts, old.name))
    read = {a for e in live.equations for a in e.inputs if isinstance(a, Var)} | {
        a for a in outputs if isinstance(a, Var)
    }
    taken_inputs = [k or v in read for k, v in zip(keep, jaxpr.invars, strict=True)]
    inputs = (*jaxpr.constvars, *[v for v, t in zip(jaxpr.invars, taken_inputs, strict=True) if t])
    return Jaxpr.of(_Program(inputs, live.equations, outputs, old.num_consts, old.name)), taken_inputs


__dir__ = _listing(__name__)
