"""Tables that do not grow for good: programs that meet ever new shapes, meshes and functions must not fill the memory.

| table | what it forgets |
|---|---|
| `Bounded` | the older half of its entries, when there are too many |
| `recent(n)` | as `functools.lru_cache(n)` does |
| `Interned` | objects that nobody else has |

All of them are looked up as plain dicts are. `clear` empties those that belong to modules, which is what `jax.clear_caches` does.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

ENTRIES = 2048  # of a table whose entries take kilobytes
LAYOUTS = 64  # strides that one program meets

_clearing: list[Callable[[], object]] = []
_interned: list[Interned[Any, Any]] = []


def at_clear(forget: Callable[[], object]) -> None:
    """Have `forget` called when caches are cleared."""
    _clearing.append(forget)


def clear() -> None:
    """Forget what can be made again, then all interned objects that are in use no more."""
    for forget in _clearing:
        forget()
    gc.collect()  # generated functions refer to themselves
    before = -1
    while before != (before := sum(map(len, _interned))):  # some hold others
        for table in _interned:
            table.sweep()


def recent(entries: int = ENTRIES) -> Callable[[F], F]:
    """`functools.lru_cache`, cleared with the others."""

    def decorate(function: F) -> F:
        cached: Any = lru_cache(entries)(function)
        at_clear(cached.cache_clear)
        return cached

    return decorate


class Bounded(dict[K, V]):
    """A dict of at most `limit` entries: one more, and the older half goes."""

    __slots__ = ("limit",)

    def __init__(self, limit: int = ENTRIES) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit and key not in self:
            for old in list(self)[: max(1, self.limit // 2)]:
                self.pop(old, None)  # another thread may have done it
        super().__setitem__(key, value)


class Interned(dict[K, V], Generic[K, V]):
    """Objects of which there is one per key, as long as anybody has it. Look-ups are a dict's; what is new goes through `keep`."""

    __slots__ = ("_least", "_lock", "_next")

    def __init__(self, least: int = 1024) -> None:
        super().__init__()
        self._least = self._next = least
        self._lock = threading.RLock()
        _interned.append(self)

    def keep(self, key: K, value: V) -> V:
        """The object of that key, which is `value` if there was none."""
        with self._lock:
            if len(self) >= self._next:
                self.sweep()
                self._next = max(self._least, 2 * len(self))
            return self.setdefault(key, value)

    def sweep(self) -> None:
        """Forget the objects that nobody has. Once out of the table, one that nobody has stays so; others go back."""
        if not _COUNTED:
            return
        with self._lock:
            for key in list(self):
                value = self.pop(key, _UNFOUND)  # a user's sharding may hash otherwise than it did
                if value is not _UNFOUND and _references(value) > _ALONE:
                    super().__setitem__(key, value)


_UNFOUND: Any = object()


def _references(value: object) -> int:
    return sys.getrefcount(value)


def _fewest() -> int:
    """The references to an object that only the caller's variable holds, as `sweep` sees it."""
    table = {0: object()}
    value = table.pop(0)
    return _references(value)


_ALONE = _fewest()
_COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)()  # without the lock, counts say little
