"""Events recorded by the library and by programs, and the listeners to them.

The library records how long it took to trace a function (``/jax/core/compile/jaxpr_trace_duration``) and to compile it
(``/jax/core/compile/backend_compile_duration``), each with the function's name as ``fun_name``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TRACE_EVENT, COMPILE_EVENT = "/jax/core/compile/jaxpr_trace_duration", "/jax/core/compile/backend_compile_duration"

_EVENTS: list[Callable[..., None]] = []
_DURATIONS: list[Callable[..., None]] = []
_SPANS: list[Callable[..., None]] = []
_SCALARS: list[Callable[..., None]] = []


def record_event(event: str, **kwargs: Any) -> None:
    """Tell the listeners that `event`, a name, happened; `kwargs` go along.

    >>> jax.monitoring.register_event_listener(lambda event, **kwargs: print(event, kwargs))
    >>> jax.monitoring.record_event("saved", step=3)
    saved {'step': 3}
    >>> jax.monitoring.clear_event_listeners()
    """
    for listener in list(_EVENTS):
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: Any) -> None:
    """Tell the listeners that `event` took `duration` seconds; `kwargs` go along.

    >>> jax.monitoring.register_event_duration_secs_listener(lambda event, duration, **kwargs: print(event, duration))
    >>> jax.monitoring.record_event_duration_secs("save", 0.5)
    save 0.5
    >>> jax.monitoring.clear_event_listeners()
    """
    for listener in list(_DURATIONS):
        listener(event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: Any) -> None:
    """Tell the listeners that `event` lasted from `start_time` to `end_time`; `kwargs` go along.

    >>> jax.monitoring.register_event_time_span_listener(lambda event, start, end, **kwargs: print(event, end - start))
    >>> jax.monitoring.record_event_time_span("save", 1.0, 1.5)
    save 0.5
    >>> jax.monitoring.clear_event_listeners()
    """
    for listener in list(_SPANS):
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float, **kwargs: Any) -> None:
    """Tell the listeners that `event` has the number `value`; `kwargs` go along.

    >>> jax.monitoring.register_scalar_listener(lambda event, value, **kwargs: print(event, value))
    >>> jax.monitoring.record_scalar("loss", 0.25)
    loss 0.25
    >>> jax.monitoring.clear_event_listeners()
    """
    for listener in list(_SCALARS):
        listener(event, value, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, **kwargs)`` at each `record_event`.

    >>> jax.monitoring.register_event_listener(lambda event, **kwargs: print(event))
    >>> jax.monitoring.clear_event_listeners()
    """
    _EVENTS.append(callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, duration, **kwargs)`` at each `record_event_duration_secs`.

    >>> jax.monitoring.register_event_duration_secs_listener(lambda event, duration, **kwargs: print(event, duration))
    >>> jax.monitoring.clear_event_listeners()
    """
    _DURATIONS.append(callback)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, start_time, end_time, **kwargs)`` at each `record_event_time_span`.

    >>> jax.monitoring.register_event_time_span_listener(lambda event, start, end, **kwargs: print(event))
    >>> jax.monitoring.clear_event_listeners()
    """
    _SPANS.append(callback)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Call ``callback(event, value, **kwargs)`` at each `record_scalar`.

    >>> jax.monitoring.register_scalar_listener(lambda event, value, **kwargs: print(event, value))
    >>> jax.monitoring.clear_event_listeners()
    """
    _SCALARS.append(callback)


def _without(listeners: list[Callable[..., None]], callback: Callable[..., None]) -> None:
    assert callback in listeners, f"{callback} is not registered"
    listeners.remove(callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Remove the listener `callback`; AssertionError if it is not registered.

    >>> jax.monitoring.register_event_listener(print)
    >>> jax.monitoring.unregister_event_listener(print)
    """
    _without(_EVENTS, callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """Remove the listener `callback`; AssertionError if it is not registered.

    >>> jax.monitoring.register_event_duration_secs_listener(print)
    >>> jax.monitoring.unregister_event_duration_listener(print)
    """
    _without(_DURATIONS, callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Remove the listener `callback`; AssertionError if it is not registered.

    >>> jax.monitoring.register_event_time_span_listener(print)
    >>> jax.monitoring.unregister_event_time_span_listener(print)
    """
    _without(_SPANS, callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """Remove the listener `callback`; AssertionError if it is not registered.

    >>> jax.monitoring.register_scalar_listener(print)
    >>> jax.monitoring.unregister_scalar_listener(print)
    """
    _without(_SCALARS, callback)


def clear_event_listeners() -> None:
    """Remove all listeners.

    >>> jax.monitoring.clear_event_listeners()
    """
    for listeners in (_EVENTS, _DURATIONS, _SPANS, _SCALARS):
        listeners.clear()
