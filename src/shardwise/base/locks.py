"""Locks, and values computed once, that leave nothing held in a forked child.

A child has one thread. A lock that another thread of the parent held at the fork would never be released in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()


def free_lock() -> threading.Lock:
    """A lock that is free in a child. It may guard only data that is valid, or can be rebuilt, at whatever line a thread stopped."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def free_reentrant_lock() -> threading.RLock:
    """A reentrant lock that is free in a child, likewise."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _free_all() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # as Python's own modules do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:
        """As in `functools`, where before Python 3.12 one lock is held while any object computes its value. Threads that
        compute one object's value at once share the first."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self.func = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = self.func(instance)
            return instance.__dict__.setdefault(self._name, value)
