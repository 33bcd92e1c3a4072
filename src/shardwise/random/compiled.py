"""Samplers are compiled once for each combination of shape, dtype and other static arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise.ir import Array, exact
from shardwise.ir.showing import SHOWING
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.shown_calls import programs_are_shown


def compile_sampler(sample: Callable[..., Any], shown: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """``sample(*arrays, **static)`` under `jit`, the keyword arguments being static. Programs that are shown call `shown` in its place.

    A call looks up its compiled form by the static values. Scalars become arrays, whose values a compiled form does not
    depend on; so a call finds `jit`'s fast path.
    """
    forms: dict[tuple[Any, ...], Callable[..., Any]] = {}
    name = sample.__name__

    @functools.wraps(sample)
    def call(*values: Any, **static: Any) -> Any:
        if shown is not None and programs_are_shown():
            return shown(*values, **static)
        key = exact(tuple(static.values()))
        form = forms.get(key)
        if form is None:

            def sample_fixed(*values: Any) -> Any:
                return sample(*values, **static)

            sample_fixed.__name__ = sample_fixed.__qualname__ = name
            form = forms[key] = jit(sample_fixed)
        return form(*[v if isinstance(v, Array) else as_array(v) for v in values])

    return call


def compiled_in_calls(sample: Callable[..., Any]) -> Callable[..., Any]:
    """`compile_sampler`, for a function that JAX does not compile by itself: in programs that are shown its ops are the caller's."""
    form = compile_sampler(sample)

    @functools.wraps(sample)
    def call(*values: Any, **static: Any) -> Any:
        if not SHOWING.get():
            return form(*values, **static)
        return sample(*[v if isinstance(v, Array) else as_value(v) for v in values], **static)

    return call
