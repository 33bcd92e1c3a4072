"""Op-by-op execution: each op on concrete arrays is compiled once per signature and then looked up.

Comes in: `bind` calls outside of any trace. Goes out: Arrays on the operands' devices.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from shardwise.base.caches import Bounded, at_clear
from shardwise.base.config import context_token
from shardwise.base.wrapping import name_of
from shardwise.engine.array import ArrayImpl, from_literal
from shardwise.engine.compile import compile_program
from shardwise.engine.executable import Executable
from shardwise.engine.guards import guard_moves
from shardwise.engine.signature import Signature, signature
from shardwise.ir import (
    Array,
    Equation,
    Literal,
    Program,
    Trace,
    Tracer,
    Var,
    exact_items,
    infer_types,
    install_eager,
    note_params,
    trace_of_operands,
    trace_program,
    tracing,
    unexpected_tracer,
)
from shardwise.ir.op import Op
from shardwise.ir.sources import user_source
from shardwise.sharding import SingleDeviceSharding
from shardwise.sharding.backend import default_device

_cache: Bounded[Any, Executable] = Bounded()
_cached_executable = _cache.get
at_clear(_cache.clear)


def literal_signature(x: Literal) -> Signature:
    """Literals are uncommitted scalars on the default device."""
    if isinstance(x, Tracer):
        raise unexpected_tracer(x, "a compiled function")
    return signature(x.aval, SingleDeviceSharding(default_device()), False)


class EagerTrace(Trace):
    """Executes each op at once."""

    __slots__ = ()

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.eager is not None and not any(isinstance(a, Tracer) for a in args):
            return op.eager(*args, **params)
        try:
            count = len(args)
            if count == 1 and type(args[0]) is ArrayImpl:
                operands = (args[0]._sig,)
            elif count == 2:  # spelled out, as most calls have one or two
                x, y = args
                operands = (
                    x._sig if type(x) is ArrayImpl else x.aval if type(x) is Literal else x,
                    y._sig if type(y) is ArrayImpl else y.aval if type(y) is Literal else y,
                )
            else:
                operands = [a._sig if type(a) is ArrayImpl else a.aval if type(a) is Literal else a for a in args]
            if not params:
                key = (op, context_token(), *operands)
            elif op.numeric:
                key = (op, context_token(), *operands, *exact_items(params))
            else:  # like `params_key`, without the call
                values = params.values()
                key = (op, context_token(), *operands, *params, *values, *map(type, values))
            executable = _cached_executable(key)
        except TypeError:  # a param that does not hash, or a tracer
            key = executable = None
            operands = ()
        if executable is None:
            trace = trace_of_operands(args)
            if trace is not None:  # within ensure_compile_time_eval
                with tracing(trace):
                    return trace.process(op, args, params)
            executable = self._compile(op, args, params)
            if key is not None:
                if note_params(op, params):
                    key = (op, context_token(), *operands, *exact_items(params))
                _cache[key] = executable
        out = executable.call(args)
        return out if op.multiple_results else out[0]

    def constant(self, value: Array | Literal) -> Array:
        """The value itself, as an array."""
        return from_literal(value) if isinstance(value, Literal) else value

    def _compile(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Executable:
        sigs = []
        for a in args:
            if isinstance(a, ArrayImpl):
                a._check_alive()
                sigs.append(a._sig)
            elif isinstance(a, Literal):
                sigs.append(literal_signature(a))
            elif isinstance(a, Tracer):
                raise unexpected_tracer(a, f"op {op.name}")
            else:
                raise TypeError(f"op {op.name} takes arrays, got {type(a).__name__}")
        inputs = tuple(Var(s.aval) for s in sigs)
        types = infer_types(op, tuple(s.aval for s in sigs), params)
        outputs = tuple(Var(t) for t in types)
        equation = Equation(op, inputs, outputs, params, user_source())
        program = Program(inputs, (equation,), outputs, 0, _called_name(params) if op.call else op.name)
        names = _operand_names(len(sigs))
        executable = compile_program(program, sigs, [None] * len(outputs), names=names, jitted=op.call)
        guard_moves(op.name, args, executable.grid.devices)
        return executable


def run_composed(fun: Callable[..., Array], static: Hashable, *args: ArrayImpl | Literal) -> ArrayImpl:
    """`fun(static, *args)`: several ops on concrete values, run as one program, which is made once per `static` and types.

    `fun` applies ops without effects and gives one result; it is the same object at each call.
    """
    key = (fun, context_token(), static, *[a._sig if type(a) is ArrayImpl else a.aval for a in args])
    executable = _cached_executable(key)
    if executable is None:
        sigs = [literal_signature(a) if isinstance(a, Literal) else a._sig for a in args]
        names = _operand_names(len(args))
        program, _ = trace_program(lambda *xs: [fun(static, *xs)], [s.aval for s in sigs], name_of(fun), names)
        executable = compile_program(program, sigs, [None], names=names)
        guard_moves(program.name, args, executable.grid.devices)
        _cache[key] = executable
    return executable.call(args)[0]


def _called_name(params: dict[str, Any]) -> str:
    """The name of a jitted function's program, or of the one that derivatives outside of `jit` make of it."""
    name = params["name"]
    return name if params["program"].name == name else f"derivative of {name}"


def _operand_names(n: int) -> list[str]:
    return ["x", "y"][:n] if n <= 2 else [f"number {i}" for i in range(n)]


install_eager(EagerTrace())
