"""The state of tracing: the current trace and the named axes. For libraries that guard their own state with it."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from shardwise.ir import Trace, current_trace, eagerly, in_program, is_eager, tracing
from shardwise.ir.axis_scope import AXIS_ENV
from shardwise.transforms.interpreters.batch_trace import BatchTrace


class OpaqueTraceState:
    """The trace that was current; equal to another if it is the same trace."""

    __slots__ = ("_trace",)

    def __init__(self, trace: Trace) -> None:
        self._trace = weakref.ref(trace)

    def __eq__(self, other: object) -> bool:
        return self._trace == other._trace if isinstance(other, OpaqueTraceState) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._trace)

    def __repr__(self) -> str:
        trace = self._trace()
        return f"OpaqueTraceState({'ended' if trace is None else type(trace).__name__})"


class TraceTag:
    """Tells the traces of one transformation from those of others."""


class TraceContext:
    """The state of the current trace, as attributes."""

    @property
    def trace(self) -> Trace:
        """The current trace."""
        return current_trace()

    def is_top_level(self) -> bool:
        """Whether ops run at once."""
        return is_eager()


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """A mark of the current trace, to be compared with ``==``; it does not depend on `convention`."""
    del convention
    return OpaqueTraceState(current_trace())


def find_top_trace(values: Iterable[Any] = ()) -> Trace:
    """The trace that an op on these `values` would go to: always the current one, whatever they are."""
    del values
    return current_trace()


def set_current_trace(trace: Trace, check_leaks: bool = False) -> AbstractContextManager[Any]:
    """Context in which ops go to `trace`. `check_leaks` has no effect: leaks are checked for traces that the library makes itself."""
    del check_leaks
    return tracing(trace)


@contextmanager
def take_current_trace() -> Generator[Trace]:
    """Context in which ops run eagerly; returns the trace that was current before."""
    before = current_trace()
    with eagerly():
        yield before


def _traces() -> Iterator[Trace]:
    trace: Trace | None = current_trace()
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent", None)


def under_jit() -> bool:
    """Whether a program is being recorded now, by jit or by the body of a loop or branch."""
    return in_program()


def under_vmap() -> bool:
    """Whether ops are mapped by vmap now."""
    return any(isinstance(t, BatchTrace) for t in _traces())


def axis_names() -> list[str]:
    """Names of the axes that collectives may use now."""
    return [name for name, _ in AXIS_ENV.get()]


def nonempty_axis_env() -> bool:
    """Whether any axis has a name now."""
    return bool(AXIS_ENV.get())
