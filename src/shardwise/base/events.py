"""Events recorded by the library and by programs, and the listeners to them.

The library records how long it took to trace a function (``/jax/core/compile/jaxpr_trace_duration``) and to compile it
(``/jax/core/compile/backend_compile_duration``), each with the function's name as ``fun_name``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TRACED, COMPILED = "/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/backend_compile_duration"

_EVENTS: list[Callable[..., None]] = []
_DURATIONS: list[Callable[..., None]] = []
_SPANS: list[Callable[..., None]] = []
_SCALARS: list[Callable[..., None]] = []


def record_event(event: str, **kwargs: Any) -> None:
    """Tell the listeners that something happened."""
    for listener in list(_EVENTS):
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: Any) -> None:
    """Tell the listeners how long something took."""
    for listener in list(_DURATIONS):
        listener(event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
    """Tell the listeners when something began and ended."""
    for listener in list(_SPANS):
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float, **kwargs: Any) -> None:
    """Tell the listeners a number."""
    for listener in list(_SCALARS):
        listener(event, value, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, **kwargs)`` at each `record_event`."""
    _EVENTS.append(callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, duration, **kwargs)`` at each `record_event_duration_secs`."""
    _DURATIONS.append(callback)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, start_time, end_time, **kwargs)`` at each `record_event_time_span`."""
    _SPANS.append(callback)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, value, **kwargs)`` at each `record_scalar`."""
    _SCALARS.append(callback)


def _without(listeners: list[Callable[..., None]], callback: Callable[..., None]) -> None:
    assert callback in listeners, f"{callback} is not registered"
    listeners.remove(callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Remove the listener; AssertionError if it is not registered."""
    _without(_EVENTS, callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """Remove the listener; AssertionError if it is not registered."""
    _without(_DURATIONS, callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Remove the listener; AssertionError if it is not registered."""
    _without(_SPANS, callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """Remove the listener; AssertionError if it is not registered."""
    _without(_SCALARS, callback)


def clear_event_listeners() -> None:
    """Remove all listeners."""
    for listeners in (_EVENTS, _DURATIONS, _SPANS, _SCALARS):
        listeners.clear()
