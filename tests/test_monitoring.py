"""Events reach their listeners, and what wraps calls takes them apart."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import api_util, monitoring, version


def test_events() -> None:
    seen: list[object] = []
    monitoring.register_event_listener(lambda event, **kw: seen.append((event, kw)))
    monitoring.register_event_duration_secs_listener(lambda *args, **kw: seen.append(args))
    monitoring.register_event_time_span_listener(lambda *args: seen.append(args))
    monitoring.register_scalar_listener(listener := lambda *args: seen.append(args))
    monitoring.record_event("/a", k=1)
    monitoring.record_event_duration_secs("/b", 2.0)
    monitoring.record_event_time_span("/c", 1.0, 2.0)
    monitoring.record_scalar("/d", 3.0)
    assert seen == [("/a", {"k": 1}), ("/b", 2.0), ("/c", 1.0, 2.0), ("/d", 3.0)]
    monitoring.unregister_scalar_listener(listener)
    monitoring.record_scalar("/d", 3.0)
    monitoring.clear_event_listeners()
    monitoring.record_event("/a")
    assert len(seen) == 4
    with pytest.raises(AssertionError):
        monitoring.unregister_event_listener(print)


def test_tracing_and_compiling_are_told() -> None:
    seen: list[tuple[str, str]] = []
    x = np.ones(3, np.float32)
    monitoring.register_event_duration_secs_listener(
        lambda event, secs, fun_name: seen.append((event.split("/")[-1], fun_name))
    )
    try:
        step = sw.jit(lambda x: x * 2)
        step(x)
        once = list(seen)
        step(x)
        assert seen == once == [("jaxpr_trace_duration", "<lambda>"), ("backend_compile_duration", "jit(<lambda>)")]
    finally:
        monitoring.clear_event_listeners()


def test_calls_taken_apart() -> None:
    assert version.__version__ == sw.__version__
    assert api_util.shaped_abstractify(np.ones((2, 3), np.float32)).str_short() == "f32[2,3]"
    assert api_util.shaped_abstractify(sw.ShapeDtypeStruct((2,), np.int32)).str_short() == "i32[2]"
    assert api_util.donation_vector((0,), ("k",), ((1, 2), 3), {"k": 4}) == (True, True, False, True)
    f, given = api_util.argnums_partial(lambda a, b, c: (a, b, c), (0, -1), (1, 2, 3))
    assert given == (1, 3) and f(7, 9) == (7, 2, 9)
    assert api_util.flatten_axes("in_axes", sw.tree.structure({"a": (1, 2), "b": 3}), {"a": 0, "b": 1}) == [0, 0, 1]
