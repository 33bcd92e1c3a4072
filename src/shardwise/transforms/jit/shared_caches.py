"""The caches of compiled functions: jits of one function with equal options share them.

In: a function and the options of its `jit`. Out: two tables, for its compiled calls and for its traces.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

from shardwise.base import caches
from shardwise.base.caches import Bounded
from shardwise.base.wrapping import code_of


class Clearable(Protocol):
    """A compiled function, which can forget its traces and compiled programs."""

    def clear_cache(self) -> None:
        """Forget them."""
        ...


_function_caches: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Bounded[Any, Any], Bounded[Any, Any]]]] = (
    weakref.WeakKeyDictionary()
)
_jitted_functions: weakref.WeakSet[Clearable] = weakref.WeakSet()


def shared_caches(fun: Callable[..., Any], options: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The compiled programs and traces that all jits of one function object with equal options share."""
    if code_of(fun) is None:
        return Bounded(), Bounded()
    try:
        return _function_caches.setdefault(fun, {}).setdefault(options, (Bounded(), Bounded()))
    except TypeError:  # options that do not hash (lists of shardings)
        return Bounded(), Bounded()


def clear_with_all(compiled: Clearable) -> None:
    """Clear the caches of this compiled function, too, in `clear_caches`."""
    _jitted_functions.add(compiled)


def clear_caches() -> None:
    """Forget every trace and compiled program.

    >>> f = jax.jit(jnp.sin)
    >>> f(0.0)
    Array(0., dtype=float32, weak_type=True)
    >>> jax.clear_caches()
    """
    for by_options in list(_function_caches.values()):
        for fast, traces in by_options.values():
            fast.clear()
            traces.clear()
    for jitted_function in list(_jitted_functions):
        jitted_function.clear_cache()
    caches.clear()
