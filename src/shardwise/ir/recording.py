"""Recording programs: tracers whose ops become equations, and programs bound again on other values.

In: a function and the types of its arguments; or a program and values.
Out: a `Program` with the values that it captured; or the current trace's results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.errors import UnexpectedTracerError
from shardwise.ir.op import Op
from shardwise.ir.program import Atom, Equation, Program, Var
from shardwise.ir.showing import SHOWING
from shardwise.ir.sources import Replay, user_source
from shardwise.ir.trace import (
    Trace,
    Tracer,
    bind,
    check_leaks,
    current_trace,
    in_trace,
    infer_types,
    tracing,
    unexpected_tracer,
)
from shardwise.ir.types import ShapedArray
from shardwise.ir.value import Array, Literal
from shardwise.sharding.context import tracing as inside_trace


class ProgramTracer(Tracer):
    """A value of a program under construction."""

    __slots__ = ("variable",)

    def __init__(self, trace: ProgramTrace, var: Atom) -> None:
        self.owner = trace
        self.aval = var.aval
        self.variable = var

    def __repr__(self) -> str:
        trace = self.owner
        assert isinstance(trace, ProgramTrace)
        return super().__repr__() if trace.show is None else trace.show(self)

    def describe(self) -> str:
        trace = self.owner
        assert isinstance(trace, ProgramTrace)
        if self.variable in trace.arg_names:
            return f"; it is argument {trace.arg_names[self.variable]} of {trace.name}"
        for eqn in trace.equations:
            if self.variable in eqn.outputs and eqn.source:
                return f"; it was computed by {eqn.op.name} at {eqn.source[0]}:{eqn.source[1]} in {trace.name}"
        return f" of {trace.name}"


class ProgramTrace(Trace):
    """Records every op call as an equation."""

    show: Callable[[ProgramTracer], str] | None = None  # the text of a value, where it is not that of its type
    knows_outer = True  # whether scalars that the traces around know are literals here, and no captured values
    __slots__ = (
        "adopted",
        "arg_names",
        "captured",
        "captured_vars",
        "declares_reads",
        "equations",
        "inputs",
        "name",
        "parent",
        "used_references",
    )

    def __init__(self, name: str = "f") -> None:
        super().__init__()
        self.name = name
        self.parent = current_trace()
        self.equations: list[Equation] = []
        self.inputs: list[Var] = []
        self.arg_names: dict[Var, str] = {}
        self.captured: list[Any] = []
        self.captured_vars: dict[int, Var] = {}
        self.used_references: dict[Any, bool] = {}  # those that are no inputs of the program: whether they were written
        # Whether references that are used have to be inputs, as the program is kept for later calls, and those that became some.
        self.declares_reads = False
        self.adopted: dict[Any, ProgramTracer] = {}

    def new_arg(self, aval: ShapedArray, name: str = "") -> ProgramTracer:
        """A fresh input of the program."""
        var = Var(aval)
        self.inputs.append(var)
        if name:
            self.arg_names[var] = name
        return ProgramTracer(self, var)

    def atom(self, x: Any) -> Atom:
        """The program's name for a value: its own, a literal, or a captured constant."""
        if isinstance(x, ProgramTracer) and (
            x.owner is self or (type(x.variable) is Literal and self.knows_outer and not x.owner.closed)
        ):
            return x.variable
        if isinstance(x, Literal):
            return x
        if isinstance(x, Tracer):
            self._check_alive(x)
        elif not isinstance(x, Array):
            raise TypeError(f"{type(x).__name__} is not a value that an op takes: {x!r}")
        var = self.captured_vars.get(id(x))
        if var is None:
            var = self.captured_vars[id(x)] = Var(self.captured_type(x))
            self.captured.append(x)
        return var

    def constant(self, value: Array | Literal) -> Array:
        """A value known now as one of the program, which has no equation for it; traced values are unchanged."""
        return value if isinstance(value, Tracer) else ProgramTracer(self, self.atom(value))

    def captured_type(self, x: Any) -> ShapedArray:
        """The type under which a value from outside enters."""
        return x.aval

    def _check_alive(self, x: Tracer) -> None:
        trace: Trace | None = self
        while isinstance(trace, ProgramTrace):
            trace = trace.parent
            if trace is x.owner:
                return
        if x.owner.closed:
            raise unexpected_tracer(x, self.name)

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        atoms = tuple([self.atom(a) for a in args])
        outs = self.emit(op, atoms, params)
        tracers = [ProgramTracer(self, v) for v in outs]
        return tracers if op.multiple_results else tracers[0]

    def emit(self, op: Op, atoms: tuple[Atom, ...], params: dict[str, Any]) -> tuple[Var, ...]:
        """Append an equation; returns its output variables."""
        if self.closed:
            raise UnexpectedTracerError(
                f"Encountered an unexpected tracer: op {op.name} was recorded into {self.name} after its trace had ended"
            )
        types = infer_types(op, tuple([a.aval for a in atoms]), params)
        outs = tuple([Var(t) for t in types])
        self.equations.append(Equation(op, atoms, outs, params, user_source()))
        return outs

    def finish(self, outputs: Sequence[Any]) -> tuple[Program, list[Any]]:
        """The program and the values it captured (its leading inputs)."""
        atoms = tuple(self.atom(x) for x in outputs)
        self.closed = True
        consts = [self.captured_vars[id(x)] for x in self.captured]
        program = Program((*consts, *self.inputs), tuple(self.equations), atoms, len(consts), self.name)
        return program, self.captured


class ShownTrace(ProgramTrace):
    """Records op calls as JAX's programs have them."""

    __slots__ = ()
    knows_outer = False

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        parts = op.shown.parts
        if parts is not None:
            with tracing(self):
                result = parts(args, params)
            if result is not None:
                return self.constant(result) if isinstance(result, Literal) else result
        return super().process(op, args, params)


def recording_trace(name: str = "f") -> ProgramTrace:
    """A new trace that records a function's ops, in the form that programs are traced for: to be compiled, or to be shown."""
    return (ShownTrace if SHOWING.get() else ProgramTrace)(name)


def in_program() -> bool:
    """Whether a program is being recorded now, by jit or by the body of a loop or branch; tangents of linearize are none."""
    trace: Any = current_trace()
    while trace is not None:
        if isinstance(trace, ProgramTrace) and not trace.is_linear:
            return True
        trace = getattr(trace, "parent", None)
    return False


def trace_program(
    fun: Callable[..., Sequence[Any]],
    types: Sequence[ShapedArray],
    name: str = "f",
    arg_names: Sequence[str] = (),
    trace: ProgramTrace | None = None,
) -> tuple[Program, list[Any]]:
    """Trace `fun(*tracers) -> flat list of values` into a Program; returns it with the captured values.

    Under `checking_leaks` raises LeakedTracerError if a tracer of this trace is still referred to afterwards.
    """
    trace = trace or recording_trace(name)
    try:
        record = _record(fun, types, list(arg_names) or [""] * len(types), trace)
    finally:
        trace.closed = True
    check_leaks(trace, name)
    return record


def _record(
    fun: Callable[..., Sequence[Any]], types: Sequence[ShapedArray], names: Sequence[str], trace: ProgramTrace
) -> tuple[Program, list[Any]]:
    with tracing(trace), inside_trace.override(True):
        last: dict[Any, Any] = {}
        try:
            outs = fun(*[trace.new_arg(t, n) for t, n in zip(types, names, strict=True)])
        finally:
            for reference in trace.used_references:
                last[reference] = reference.leave(trace)
        record = trace.finish([*outs, *[last[r] for r in trace.adopted]])
    undeclared_references = [r for r, is_written in trace.used_references.items() if is_written or trace.declares_reads]
    if undeclared_references:
        whole = len(undeclared_references) == len(trace.adopted)
        raise undeclared_references[0].undeclared_error(undeclared_references, (trace, *record) if whole else None)
    return record


def as_literal(value: Any) -> Any:
    """The number that an array of a program stands for, if it stands for one that the current trace knows; other values as they are."""
    if not isinstance(value, ProgramTracer) or type(value.variable) is not Literal:
        return value
    trace = current_trace()
    is_known = trace is value.owner or not isinstance(trace, ProgramTrace) or trace.knows_outer
    return value.variable if is_known else value


# -- programs on other values --------------------------------------------------------------------------------------------


def _bind_equation(eqn: Equation, inputs: Sequence[Any]) -> Any:
    return bind(eqn.op, *inputs, **eqn.params)


def eval_program(
    program: Program, values: Sequence[Any], bound: Callable[[Equation, Sequence[Any]], Any] = _bind_equation
) -> list[Any]:
    """Re-bind a program's equations on `values` (captured values first) under the current trace. `bound` binds one of them."""
    env: dict[Var, Any] = dict(zip(program.inputs, values, strict=True))
    read = lambda a: a if isinstance(a, Literal) else env[a]  # noqa: E731
    with Replay() as replay:
        for eqn in program.equations:
            replay.source = eqn.source
            outs = bound(eqn, [read(a) for a in eqn.inputs])
            env.update(zip(eqn.outputs, outs if eqn.op.multiple_results else [outs], strict=True))
    return [in_trace(x) if isinstance(x, Literal) else x for x in map(read, program.outputs)]


def splice(program: Program, values: Sequence[Any]) -> list[Any]:
    """`eval_program` of a program traced in this very context: its equations are recorded as they stand, params and sources shared.

    Where the current trace does more than record, they are bound.
    """
    trace = current_trace()
    if type(trace) is not ProgramTrace or any(
        v.aval is not x.aval for v, x in zip(program.inputs, values, strict=True)
    ):
        return eval_program(program, values)
    names: dict[Atom, Atom] = dict(zip(program.inputs, map(trace.atom, values), strict=True))
    find, record = names.get, trace.equations.append
    for eqn in program.equations:
        outs = tuple([Var(v.aval) for v in eqn.outputs])
        record(Equation(eqn.op, tuple([find(a, a) for a in eqn.inputs]), outs, eqn.params, eqn.source))
        names.update(zip(eqn.outputs, outs, strict=True))
    return [ProgramTracer(trace, find(a, a)) for a in program.outputs]
