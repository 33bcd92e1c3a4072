"""The text of tracers."""

from __future__ import annotations

from typing import Any

import numpy as np

import shardwise as sw
from shardwise.base.config import use_dialect


def test_tracers_show_what_they_hold() -> None:
    shown: list[str] = []

    def f(x: Any) -> Any:
        shown.append(repr(x))
        return x * 2

    with use_dialect("latest"):
        sw.jvp(f, (2.0,), (1.0,))
        sw.grad(f)(2.0)
        sw.vmap(f)(np.ones(3, np.float32))
        sw.jit(f)(2.0)
        sw.vmap(sw.grad(f))(np.ones(3, np.float32))
        sw.jacfwd(f)(2.0)
    assert shown == [
        "JVPTracer(primal=2.0, tangent=1.0)",
        "GradTracer(primal=2.0, typeof(tangent)=f32[])",
        "VmapTracer(aval=float32[], batched=float32[3])",
        "JitTracer(~float32[])",
        "GradTracer(primal=VmapTracer(aval=float32[], batched=float32[3]), typeof(tangent)=f32[])",
        "JVPTracer(primal=2.0, tangent=VmapTracer(aval=~float32[], batched=~float32[1]))",
    ]
