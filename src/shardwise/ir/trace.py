"""Tracing: every op call goes through `bind` to the current `Trace`, which executes it, records it or transforms it.

In: `bind(op, *values, **params)` where values are arrays, tracers or literals.
Out: the current trace's results: arrays (eager), tracers that record equations (`ProgramTrace`), ...
"""

from __future__ import annotations

import functools
import gc
import itertools
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from shardwise.base import config
from shardwise.base.caches import Bounded, at_clear
from shardwise.base.config import context_token
from shardwise.base.errors import (
    ConcretizationTypeError,
    LeakedTracerError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
    about,
)
from shardwise.ir.axis_scope import MAPPED_AXES
from shardwise.ir.explicit import complete_types
from shardwise.ir.keys import note_params, params_key
from shardwise.ir.op import Op
from shardwise.ir.program import Atom, Equation, Program, Var
from shardwise.ir.showing import SHOWING
from shardwise.ir.sources import Replay, user_source
from shardwise.ir.types import ShapedArray
from shardwise.ir.value import Array, Literal, check_index, check_scalar, check_truth
from shardwise.sharding.context import tracing as inside_trace

_numbers = itertools.count()


class Trace:
    """Interprets op calls; subclasses are final. Those of libraries say by `process_primitive` what becomes of calls of primitives."""

    __slots__ = ("__weakref__", "closed", "number")
    is_linear = False  # whether it records only what touches its inputs

    def __init__(self) -> None:
        self.closed = False
        self.number = next(_numbers)  # inner traces have larger ones

    @property
    def main(self) -> Trace:
        """The object by which libraries tell traces apart."""
        return self

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The results of `op` on `args`: one value, or a list if the op has multiple results."""
        return _PRIMITIVES[0](self, op, args, params)

    def process_primitive(self, primitive: Any, tracers: Sequence[Any], params: dict[str, Any]) -> Any:
        """The results of a primitive: one value, or a list if it has multiple results. For traces of libraries to define."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no process_primitive. Give the class one: it gets what ops are bound to."
        )

    def constant(self, value: Array | Literal) -> Array:
        """A value known now as one of the functions that this trace interprets: an array that a program is recorded with, or `value`."""
        parent = getattr(self, "parent", None)
        return (_EAGER[0] if parent is None else parent).constant(value)

    def full_raise(self, value: Any) -> Any:
        """`value`, which needs no lifting: for libraries that ask."""
        return value

    def leave_reference(self, value: Any, reference: Any) -> Any:
        """The value outside of this trace that is written to a reference from there."""
        return value


class Tracer(Array):
    """A value that stands for an array while a function is traced."""

    __slots__ = ("__weakref__", "aval", "owner")

    def __init__(self, trace: Trace, aval: ShapedArray) -> None:
        self.owner = trace
        self.aval = aval

    @property
    def _trace(self) -> Trace:  # under the name that libraries know
        return self.owner

    @_trace.setter
    def _trace(self, trace: Trace) -> None:
        self.owner = trace

    def describe(self) -> str:
        """Where the value came from, for error messages."""
        return ""

    def __repr__(self) -> str:
        if config.dialect.types.tracers_show_values:
            return self._text()
        return f"Traced<{self.aval!r}>with<{self._trace_kind}>"

    def _text(self) -> str:
        """What it is, and what it holds."""
        return f"JitTracer({self.aval})"

    _trace_kind = "DynamicJaxprTrace"

    def __setitem__(self, index: Any, value: Any) -> None:
        raise about(
            "immutable",
            TypeError(
                "JAX arrays are immutable and do not support in-place item assignment. Instead of x[idx] = y, use "
                "x = x.at[idx].set(y)."
            ),
        )

    def __bool__(self) -> bool:
        check_truth(self)
        raise TracerBoolConversionError(
            f"Attempted boolean conversion of traced array {self.aval.str_short()}, which has no value yet{self.describe()}. "
            "Use jnp.where or lax.cond, or mark the argument static."
        )

    def __index__(self) -> int:
        check_index(self)
        raise TracerIntegerConversionError(
            f"The __index__() method was called on traced array {self.aval.str_short()}, which has no value yet{self.describe()}. "
            "Mark the argument static, or index with lax.dynamic_index_in_dim."
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise TracerArrayConversionError(
            f"The conversion method __array__() was called on traced array {self.aval.str_short()}, which has no value "
            f"yet{self.describe()}. "
            "Use shardwise.numpy functions on it."
        )

    def concretization_error(self, what: str) -> ConcretizationTypeError:
        """The error for `what`, which needs a concrete value."""
        return not_concrete(
            self, f"{what} needs one", "Move the call out of the transformed function, or mark the argument static."
        )

    def __float__(self) -> float:
        check_scalar(self)
        raise self.concretization_error("float()")

    def __int__(self) -> int:
        check_scalar(self)
        raise self.concretization_error("int()")

    def __complex__(self) -> complex:
        check_scalar(self)
        raise self.concretization_error("complex()")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def item(self, *args: Any) -> Any:
        """Not available while tracing: raises ConcretizationTypeError."""
        raise self.concretization_error("item()")

    def tolist(self) -> Any:
        """Not available while tracing: raises ConcretizationTypeError."""
        raise self.concretization_error("tolist()")

    def __getattr__(self, name: str) -> Any:
        if name in _CONCRETE_METHODS:
            return functools.partial(_not_called, self, name)
        if name in _CONCRETE_ONLY:
            raise self.concretization_error(f".{name}")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


def primal_of(x: Any) -> Any:
    """The value of which `x` is a tracer of derivatives; `x` if it is none."""
    while hasattr(type(x), "primal"):
        x = x.primal
    return x


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` is known now: it is no tracer, or one of a derivative of a known value."""
    return not isinstance(primal_of(x), Tracer)


# What only values have. A tracer has the methods, so that `hasattr` says so; calling one raises.
_CONCRETE_METHODS = frozenset("devices addressable_data unsafe_buffer_pointer tobytes is_deleted delete".split())
_CONCRETE_ONLY = frozenset(
    "addressable_shards global_shards committed is_fully_addressable is_fully_replicated".split()
)


def _not_called(tracer: Tracer, name: str, *_: Any, **__: Any) -> NoReturn:
    raise tracer.concretization_error(f"{name}()")


class _State(threading.local):
    def __init__(self) -> None:
        self.trace: Trace = _EAGER[0]


class _NoEager(Trace):
    __slots__ = ()

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        raise RuntimeError("the eager executor is not installed; import shardwise first")


_EAGER: list[Trace] = [_NoEager()]
_state = _State()


def install_eager(trace: Trace) -> None:
    """Install the trace that executes ops eagerly (done by `shardwise.engine.array`'s dispatcher at import)."""
    _EAGER[0] = trace
    _state.trace = trace


_PRIMITIVES: list[Callable[[Trace, Op, tuple[Any, ...], dict[str, Any]], Any]] = []


def install_primitives(process: Callable[[Trace, Op, tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Install what shows a call to a library's trace as that of a primitive (done where primitives are defined)."""
    _PRIMITIVES.append(process)


def current_trace() -> Trace:
    """The innermost trace of this thread."""
    return _state.trace


def eager_trace() -> Trace:
    """The trace that executes ops."""
    return _EAGER[0]


def is_eager() -> bool:
    """Whether ops run eagerly in this thread."""
    return _state.trace is _EAGER[0]


@contextmanager
def tracing(trace: Trace) -> Generator[Trace]:
    """Make `trace` the current one."""
    outer = _state.trace
    _state.trace = trace
    try:
        yield trace
    finally:
        _state.trace = outer


def eagerly() -> Any:
    """Context in which ops run eagerly even inside a traced function."""
    return tracing(_EAGER[0])


def bind(op: Op, /, *args: Any, **params: Any) -> Any:
    """Apply `op` under the current trace. Values are `Array`s or `Literal`s; params are hashable."""
    return _state.trace.process(op, args, params)


def in_trace(value: Array | Literal) -> Array:
    """A value known now as one of the function that runs: within a traced one an array of its program, else the value itself."""
    return value if isinstance(value, Tracer) else _state.trace.constant(value)


def as_literal(value: Any) -> Any:
    """The number that an array of a program stands for, if it stands for one; other values as they are."""
    return value.variable if isinstance(value, ProgramTracer) and type(value.variable) is Literal else value


# -- types ---------------------------------------------------------------------------------------------------------------


def infer_types(op: Op, in_types: tuple[ShapedArray, ...], params: dict[str, Any]) -> tuple[ShapedArray, ...]:
    """The result types of `op`: its type rule, completed with explicit specs and varying axes."""
    try:  # type rules may read the context mesh and the x64 flag
        key = (op, in_types, context_token(), *params_key(op, params))
        found = _inferred.get(key)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _infer(op, in_types, params)
    if found is None:
        if note_params(op, params):
            return infer_types(op, in_types, params)
        found = _infer(op, in_types, params)
        _inferred[key] = found
    return found


_inferred: Bounded[Any, tuple[ShapedArray, ...]] = Bounded(8192)
at_clear(_inferred.clear)


def _infer(op: Op, in_types: tuple[ShapedArray, ...], params: dict[str, Any]) -> tuple[ShapedArray, ...]:
    out = op.type_rule(*in_types, **params)
    outs = tuple(out) if op.multiple_results else (out,)
    outs = outs if op.typed else complete_types(op, in_types, outs, params)
    mapped = MAPPED_AXES.get()
    return tuple(t.update(vma=t.vma - mapped) if t.vma & mapped else t for t in outs) if mapped else outs


# -- recording programs ----------------------------------------------------------------------------------------------------


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
    __slots__ = (
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
        self.declares_reads = (
            False  # whether references that are read have to be inputs, as the program is kept for later calls
        )

    def new_arg(self, aval: ShapedArray, name: str = "") -> ProgramTracer:
        """A fresh input of the program."""
        var = Var(aval)
        self.inputs.append(var)
        if name:
            self.arg_names[var] = name
        return ProgramTracer(self, var)

    def atom(self, x: Any) -> Atom:
        """The program's name for a value: its own, a literal, or a captured constant."""
        if isinstance(x, ProgramTracer) and (x.owner is self or (type(x.variable) is Literal and not x.owner.closed)):
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
        """A value known now as one of the program, which has no equation for it."""
        return ProgramTracer(self, self.atom(value))

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
        atoms = tuple(self.atom(a) for a in args)
        outs = self.emit(op, atoms, params)
        tracers = [ProgramTracer(self, v) for v in outs]
        return tracers if op.multiple_results else tracers[0]

    def emit(self, op: Op, atoms: tuple[Atom, ...], params: dict[str, Any]) -> tuple[Var, ...]:
        """Append an equation; returns its output variables."""
        if self.closed:
            raise UnexpectedTracerError(
                f"Encountered an unexpected tracer: op {op.name} was recorded into {self.name} after its trace had ended"
            )
        types = infer_types(op, tuple(a.aval for a in atoms), params)
        outs = tuple(Var(t) for t in types)
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
        recorded = _record(fun, types, list(arg_names) or [""] * len(types), trace)
    finally:
        trace.closed = True
    check_leaks(trace, name)
    return recorded


def _record(
    fun: Callable[..., Sequence[Any]], types: Sequence[ShapedArray], names: Sequence[str], trace: ProgramTrace
) -> tuple[Program, list[Any]]:
    with tracing(trace), inside_trace.override(True):
        try:
            outs = fun(*[trace.new_arg(t, n) for t, n in zip(types, names, strict=True)])
            recorded = trace.finish(list(outs))
        finally:
            for reference in trace.used_references:
                reference.leave(trace)
    undeclared = [r for r, written in trace.used_references.items() if written or trace.declares_reads]
    if undeclared:
        raise undeclared[0].undeclared(undeclared)
    return recorded


def not_concrete(x: Tracer, need: str, remedy: str) -> ConcretizationTypeError:
    """The error of an operation that needs the value of a traced array. `need` names it, `remedy` is the advice."""
    return ConcretizationTypeError(
        f"Abstract tracer value encountered where concrete value is expected: {need}, but {x.aval.str_short()} is a traced "
        f"array{x.describe()}. {remedy}"
    )


def unexpected_tracer(x: Tracer, where: str) -> UnexpectedTracerError:
    """The error of a tracer used after its trace has ended. `where` names the user."""
    return UnexpectedTracerError(
        f"Encountered an unexpected tracer: {where} got a traced array ({x.aval.str_short()}) outside of its trace{x.describe()}. A "
        "traced function kept it by a side effect: return values instead of storing them outside. jax.checking_leaks() finds "
        "where that happens."
    )


def check_leaks(trace: Trace, name: str) -> None:
    """Under `checking_leaks`: LeakedTracerError if a tracer of `trace`, which has ended, is still referred to."""
    if not config.jax_check_tracer_leaks:
        return
    gc.collect()
    leaked: list[Any] = [x for x in gc.get_objects() if issubclass(type(x), Tracer) and x.owner is trace]
    if leaked:
        shown = "; ".join(f"{t.aval.str_short()}{t.describe()}{_holder(t, leaked)}" for t in leaked[:3])
        raise LeakedTracerError(
            f"Leaked trace {type(trace).__name__}: {len(leaked)} traced value(s) of {name} are still referred to after it returned: "
            f"{shown}. Return them instead of storing them outside."
        )


def _holder(x: Tracer, known: list[Any]) -> str:
    """The name of an object that refers to a leaked tracer, if the garbage collector finds one."""
    for referrer in gc.get_referrers(x):
        if type(referrer) is dict:
            key = next((k for k, v in referrer.items() if v is x), None)
            for owner in gc.get_referrers(referrer):
                if getattr(owner, "__dict__", None) is referrer:
                    return f", kept as {key!r} of {getattr(owner, '__name__', type(owner).__name__)}"
            return f", kept in a dict under {key!r}"
        if type(referrer) in (list, tuple, set) and referrer is not known:
            return f", kept in a {type(referrer).__name__} of {len(referrer)}"
        if type(referrer).__name__ == "cell":
            return ", kept in a variable of a closure"
    return ""


def _bound(eqn: Equation, inputs: Sequence[Any]) -> Any:
    return bind(eqn.op, *inputs, **eqn.params)


def eval_program(
    program: Program, values: Sequence[Any], bound: Callable[[Equation, Sequence[Any]], Any] = _bound
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
    trace = _state.trace
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
