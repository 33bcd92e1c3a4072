"""Python's garbage collector, paused while many lasting objects are made."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def pause_collector(make: Callable[P, R]) -> Callable[P, R]:
    """`make` with the collector paused: each of its rounds over the heap costs more than a small program's passes do."""

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not gc.isenabled():
            return make(*args, **kwargs)
        gc.disable()
        try:
            return make(*args, **kwargs)
        finally:
            gc.enable()

    return call
