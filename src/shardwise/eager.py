"""Op-by-op execution: each op on concrete arrays is compiled once per signature and then looked up.

Comes in: `bind` calls outside of any trace. Goes out: Arrays, placed where the operands are.
"""

from __future__ import annotations

from typing import Any

from shardwise.array import ArrayImpl
from shardwise.base.config import context_token
from shardwise.base.errors import UnexpectedTracerError
from shardwise.compile import Executable, compile_program
from shardwise.ir import Equation, Literal, Program, Trace, Tracer, Var, infer_types, install_eager, tracing
from shardwise.ir.op import Op
from shardwise.ir.trace import user_source
from shardwise.sharding import SingleDeviceSharding
from shardwise.sharding.device import default_device
from shardwise.signature import Signature, signature

_cache: dict[Any, Executable] = {}
_CACHE_LIMIT = 8192


def literal_signature(x: Literal) -> Signature:
    """Literals are uncommitted scalars on the default device."""
    if isinstance(x, Tracer):
        raise UnexpectedTracerError(
            f"a traced array ({x.aval.str_short()}) was passed to a compiled function outside of its trace{x.describe()}. "
            "Return values from traced functions instead of storing them outside."
        )
    return signature(x.aval, SingleDeviceSharding(default_device()), False)


class EagerTrace(Trace):
    """Executes each op at once."""

    __slots__ = ()

    def process(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.eager is not None and not any(isinstance(a, Tracer) for a in args):
            return op.eager(*args, **params)
        try:
            operands = [a._sig if type(a) is ArrayImpl else a.aval if type(a) is Literal else a for a in args]
            key = (op, context_token(), *operands, *params.items())
            executable = _cache.get(key)
        except TypeError:  # a param that does not hash, or a tracer
            key, executable = None, None
        if executable is None:
            trace = next((a.owner for a in args if isinstance(a, Tracer) and not a.owner.closed), None)
            if trace is not None:  # within ensure_compile_time_eval: what is traced goes on being traced
                with tracing(trace):
                    return trace.process(op, args, params)
            executable = self._compile(op, args, params)
            if key is not None:
                if len(_cache) >= _CACHE_LIMIT:
                    _cache.clear()
                _cache[key] = executable
        out = executable.call(args)
        return out if op.multiple_results else out[0]

    def _compile(self, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Executable:
        sigs = []
        for a in args:
            if isinstance(a, ArrayImpl):
                a._check_alive()
                sigs.append(a._sig)
            elif isinstance(a, Literal):
                sigs.append(literal_signature(a))
            elif isinstance(a, Tracer):
                raise UnexpectedTracerError(
                    f"op {op.name} got a traced array ({a.aval.str_short()}) outside of its trace{a.describe()}. "
                    "Return values from traced functions instead of storing them outside."
                )
            else:
                raise TypeError(f"op {op.name} takes arrays, got {type(a).__name__}")
        inputs = tuple(Var(s.aval) for s in sigs)
        types = infer_types(op, tuple(s.aval for s in sigs), params)
        outputs = tuple(Var(t) for t in types)
        equation = Equation(op, inputs, outputs, params, user_source())
        program = Program(inputs, (equation,), outputs, 0, op.name)
        return compile_program(program, sigs, [None] * len(outputs), names=_operand_names(len(sigs)))


def _operand_names(n: int) -> list[str]:
    return ["x", "y"][:n] if n <= 2 else [f"number {i}" for i in range(n)]


def clear_eager_cache() -> None:
    """Forget compiled ops."""
    _cache.clear()


install_eager(EagerTrace())
