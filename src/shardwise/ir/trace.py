"""Tracing: every op call goes through `bind` to the current `Trace`, which executes it, records it or transforms it.

In: `bind(op, *values, **params)` where values are arrays, tracers or literals.
Out: the current trace's results: arrays (eager), tracers that record equations (`ProgramTrace`), ...
"""

from __future__ import annotations

import functools
import gc
import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
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
from shardwise.ir.axis_scope import MAPPED_AXES, visible_type
from shardwise.ir.explicit import complete_types
from shardwise.ir.keys import note_params, params_key
from shardwise.ir.op import Op
from shardwise.ir.types import ShapedArray
from shardwise.ir.value import Array, Literal, check_index, check_scalar, check_truth

_numbers = itertools.count()


class Trace:
    """Interprets op calls; subclasses are final. Those of libraries interpret primitives by `process_primitive`."""

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
        """A value known now as one of the function that runs: in a program that is recorded an array of it, else `value`."""
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
        """The origin of the value, for error messages."""
        return ""

    def __repr__(self) -> str:
        if config.dialect.types.tracers_show_values:
            return self._text()
        return f"Traced<{self.aval!r}>with<{self._trace_kind}>"

    def _text(self) -> str:
        """A text for messages: the kind of tracer and its type."""
        return f"JitTracer({visible_type(self.aval)})"

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

    def __reduce__(self) -> Any:
        raise self.concretization_error("pickle")

    def item(self, *args: Any) -> Any:
        """Not available while tracing: raises ConcretizationTypeError."""
        raise self.concretization_error("item()")

    def tolist(self) -> Any:
        """Not available while tracing: raises ConcretizationTypeError."""
        raise self.concretization_error("tolist()")

    def __getattr__(self, name: str) -> Any:
        if name in _CONCRETE_METHODS:
            return functools.partial(_raise_not_concrete, self, name)
        if name in _CONCRETE_ONLY:
            raise self.concretization_error(f".{name}")
        way = _WAYS_OUT.get(name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}" + (f": {way}." if way else ""))


def primal_of(x: Any) -> Any:
    """The value of which `x` is a tracer of derivatives; `x` if it is none."""
    while hasattr(type(x), "primal"):
        x = x.primal
    return x


def is_concrete(x: Any) -> bool:
    """Whether the value of `x` is known now: it is no tracer, or one of a derivative of a known value."""
    return not isinstance(primal_of(x), Tracer)


# Methods that only concrete arrays support. Tracers have them, too, so that `hasattr` finds them; calling one raises.
_CONCRETE_METHODS = frozenset(
    "devices addressable_data unsafe_buffer_pointer on_device_size_in_bytes tobytes is_deleted delete".split()
)
_CONCRETE_ONLY = frozenset(
    "addressable_shards global_shards committed is_fully_addressable is_fully_replicated".split()
)
# What `hasattr` denies, as JAX's tracers do, and what to do in its place.
_WAYS_OUT = {
    **dict.fromkeys(
        ("sharding", "device"),
        "a traced array lies nowhere yet. jax.typeof(x).sharding is the layout that its type fixes, and "
        "jax.debug.inspect_array_sharding(x, callback=print) prints the one that it gets",
    ),
    **dict.fromkeys(
        ("block_until_ready", "copy_to_host_async", "is_ready"),
        "a traced array has no value yet. Call it on a result, outside of the transformed function",
    ),
}


def _raise_not_concrete(tracer: Tracer, name: str, *_: Any, **__: Any) -> NoReturn:
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


def trace_of_operands(values: Iterable[Any]) -> Trace | None:
    """Within `eagerly`, the innermost trace that records one of these values; None where there is none, and elsewhere.

    Calls that are more than one op (of compiled functions, of functions with rules of their own) are recorded there as a whole.
    """
    if not is_eager():
        return None
    traces = [v.owner for v in values if isinstance(v, Tracer) and not v.owner.closed]
    return max(traces, key=lambda trace: trace.number, default=None)


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
    return _state.trace.constant(value)


# -- types ---------------------------------------------------------------------------------------------------------------


def infer_types(op: Op, in_types: tuple[ShapedArray, ...], params: dict[str, Any]) -> tuple[ShapedArray, ...]:
    """The result types of `op`: its type rule, completed with explicit specs and varying axes."""
    if op.holds_functions:
        return _infer(op, in_types, params)
    try:  # type rules may read the context mesh and the x64 flag
        key = (op, in_types, context_token(), *params_key(op, params))
        known_value = _inferred_types.get(key)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _infer(op, in_types, params)
    if known_value is None:
        if note_params(op, params):
            return infer_types(op, in_types, params)
        known_value = _infer(op, in_types, params)
        _inferred_types[key] = known_value
    return known_value


_inferred_types: Bounded[Any, tuple[ShapedArray, ...]] = Bounded(8192)
at_clear(_inferred_types.clear)


def _infer(op: Op, in_types: tuple[ShapedArray, ...], params: dict[str, Any]) -> tuple[ShapedArray, ...]:
    out = op.type_rule(*in_types, **params)
    outs = tuple(out) if op.multiple_results else (out,)
    outs = outs if op.typed else complete_types(op, in_types, outs, params)
    mapped_axes = MAPPED_AXES.get()
    return tuple(t.update(vma=t.vma - mapped_axes) if t.vma & mapped_axes else t for t in outs) if mapped_axes else outs


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
    leaks: list[Any] = [x for x in gc.get_objects() if issubclass(type(x), Tracer) and x.owner is trace]
    if leaks:
        leak_list = "; ".join(f"{t.aval.str_short()}{t.describe()}{_holder(t, leaks)}" for t in leaks[:3])
        raise LeakedTracerError(
            f"Leaked trace {type(trace).__name__}: {len(leaks)} traced value(s) of {name} are still referred to after it returned: "
            f"{leak_list}. Return them instead of storing them outside."
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
