"""Bounded tables: a program that keeps meeting new shapes, meshes and functions must not fill the memory.

| table | what it forgets |
|---|---|
| `Bounded` | the older half of its entries, when there are too many |
| `recent(n)` | as `functools.lru_cache(n)` does |
| `InternTable` | objects to which it holds the last reference |

Look-ups are those of a plain dict. `clear` empties the tables of all modules, for `jax.clear_caches`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Generic, TypeVar

from shardwise.base.locks import free_reentrant_lock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

ENTRIES = 2048  # of a table whose entries take kilobytes
LAYOUTS = 64  # strides that one program meets

_clear_functions: list[Callable[[], object]] = []
_intern_tables: list[InternTable[Any, Any]] = []


def at_clear(forget: Callable[[], object]) -> None:
    """Have `forget` called when caches are cleared."""
    _clear_functions.append(forget)


def clear() -> None:
    """Empty the caches, then drop all interned objects that are no longer in use."""
    for forget in _clear_functions:
        forget()
    gc.collect()  # generated functions refer to themselves
    before = -1
    while before != (before := sum(map(len, _intern_tables))):  # some hold others
        for table in _intern_tables:
            table.sweep()


def recent(entries: int = ENTRIES) -> Callable[[F], F]:
    """`functools.lru_cache`, cleared with the others."""

    def decorate(function: F) -> F:
        cached_function: Any = lru_cache(entries)(function)
        at_clear(cached_function.cache_clear)
        return cached_function

    return decorate


class Bounded(dict[K, V]):
    """A dict of at most `limit` entries: adding one more drops the older half."""

    __slots__ = ("limit",)

    def __init__(self, limit: int = ENTRIES) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit and key not in self:
            for old in list(self)[: max(1, self.limit // 2)]:
                self.pop(old, None)  # another thread may have done it
        super().__setitem__(key, value)


class InternTable(dict[K, V], Generic[K, V]):
    """One object per key, for as long as something refers to it. Look-ups are a dict's; `keep` adds objects."""

    __slots__ = ("_least", "_lock", "_next")

    def __init__(self, least: int = 1024) -> None:
        super().__init__()
        self._least = self._next = least
        self._lock = free_reentrant_lock()
        _intern_tables.append(self)

    def keep(self, key: K, value: V) -> V:
        """The object of that key; `value` becomes it if there is none."""
        with self._lock:
            if len(self) >= self._next:
                self.sweep()
                self._next = max(self._least, 2 * len(self))
            return self.setdefault(key, value)

    def sweep(self) -> None:
        """Drop the objects that only the table refers to. Each is taken out, counted, and put back if it has other references."""
        if not _COUNTS_REFERENCES:
            return
        with self._lock:
            for key in list(self):
                value = self.pop(key, _UNFOUND)  # the hash of a user's sharding may have changed
                if value is not _UNFOUND and _references(value) > _ALONE:
                    super().__setitem__(key, value)


_UNFOUND: Any = object()


def _references(value: object) -> int:
    return sys.getrefcount(value)


def _fewest() -> int:
    """The reference count that `sweep` sees for an object that only its own variable holds."""
    table = {0: object()}
    value = table.pop(0)
    return _references(value)


_ALONE = _fewest()
_COUNTS_REFERENCES = getattr(sys, "_is_gil_enabled", lambda: True)()  # without the GIL, reference counts are unreliable
