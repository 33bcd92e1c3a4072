"""A pool of large buffers: memory that has been touched before costs no page faults, which cost more than arithmetic.

`pool.empty` gives an ndarray like `np.empty`. Its memory comes back when the last ndarray, memoryview or capsule that reaches
it has died, and not before: every view holds its base, and at the end of that chain stands a `_Lease`.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.errors import JaxRuntimeError
from shardwise.base.shapes import Ndarray
from shardwise.runtime import costs

_PAGE = 4096
_LINE = 64
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt
_DRAINED = 1 << 22  # bytes of a buffer that the pool takes back at once, as it may be more than may wait
_RETURNED = 64  # buffers after which it takes back all


def _memory_limit() -> int:
    """The bytes of memory this process may use."""
    found = []
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        found.append(4 << 30)
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    return min(found)


# NumPy makes the base of a view its base's base, as long as that is of the view's own type. Neither of these is.
class _Buffer(np.ndarray):
    """Bytes that the pool owns."""


class _Lease(np.ndarray):
    """The last array before the buffer in every chain of views. When it dies, nobody can reach the buffer."""

    def __del__(self) -> None:
        buffer = self.base
        if buffer is not None and pool is not None:  # pyright: ignore[reportUnnecessaryComparison]  # None as the interpreter ends
            pool.put_back(buffer)


class OutOfMemory(JaxRuntimeError, MemoryError):
    """There is no memory for an array."""

    topic: ClassVar[str] = "memory"


def out_of_memory(error: MemoryError) -> OutOfMemory:
    """The error to raise for one of NumPy's, which makes some arrays itself; ours is as it was."""
    if isinstance(error, OutOfMemory):
        return error
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is None or dtype is None:
        found = OutOfMemory(f"RESOURCE_EXHAUSTED: Out of memory. {error}".rstrip())
    else:
        found = _refusal(shape, dtype, pool.used)
    return found.with_traceback(error.__traceback__)


def _refusal(shape: Sequence[int], dtype: np.dtype[Any], used: int) -> OutOfMemory:
    size = math.prod(shape) * dtype.itemsize
    return OutOfMemory(
        f"RESOURCE_EXHAUSTED: Out of memory allocating {size} bytes. Unable to allocate {_readable(size)} for an array with shape "
        f"{tuple(map(int, shape))} and data type {dtype.name}; arrays of this process take {_readable(used)} already."
    )


def _readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"


class Pool:
    """Buffers by size class, the least recently returned ones dropped first beyond `limit` bytes.

    `held`: bytes of buffers that wait for use; `used`: bytes in live arrays, at most `peak` so far; `count`: arrays made.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.memory = _memory_limit()
        self.limit = self.memory // 4 if limit is None else limit
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked child; buffers in use stay valid."""
        self._lock = threading.Lock()
        self._free: dict[int, list[Ndarray]] = {}
        self._order: OrderedDict[int, Ndarray] = OrderedDict()  # by identity, the oldest first
        self._returned: deque[Ndarray] = deque()
        self.held = self.used = self.peak = self.count = 0

    def empty(self, shape: Sequence[int], dtype: Any) -> Ndarray:
        """A C-contiguous array with arbitrary contents; raises `OutOfMemory`."""
        dtype = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < costs.POOLED_FROM:
            return np.empty(shape, dtype)
        room = room_of(size)
        try:
            buffer = self._take(room)
        except (MemoryError, ValueError):  # ValueError: more than can be addressed
            raise _refusal(shape, dtype, self.used) from None
        lease = buffer.view(_Lease)
        return np.ndarray(shape, dtype, lease)  # type: ignore[arg-type]

    def _take(self, room: int) -> Ndarray:
        with self._lock:
            if self._returned:
                self._drain()
            if waiting := self._free.get(room):
                buffer = waiting.pop()
                del self._order[id(buffer)]
                self.held -= room
                self._count_buffer(room)
                return buffer
        try:
            buffer = _aligned_buffer(room)
        except MemoryError:
            self.trim(0)
            buffer = _aligned_buffer(room)
        with self._lock:
            self._count_buffer(room)
        return buffer

    def _count_buffer(self, room: int) -> None:
        self.count += 1
        self.used += room
        if self.used > self.peak:
            self.peak = self.used

    def put_back(self, buffer: Ndarray) -> None:
        """Take a buffer that nobody can reach any more. Safe to call from destructors, at any point of any thread."""
        self._returned.append(buffer)
        # Small buffers wait for the next call, which saves a third of what an array of theirs costs. The garbage collector may run a
        # destructor inside of our own locked parts: then the next call drains, too.
        if (buffer.nbytes >= _DRAINED or len(self._returned) >= _RETURNED) and self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def _drain(self) -> None:
        while self._returned:
            buffer = self._returned.popleft()
            room = buffer.nbytes
            self._free.setdefault(room, []).append(buffer)
            self._order[id(buffer)] = buffer
            self.held += room
            self.used -= room
        if self.held > self.limit:
            self._shrink(self.limit)

    def _shrink(self, limit: int) -> None:
        while self.held > limit and self._order:
            _, buffer = self._order.popitem(last=False)
            waiting = self._free[buffer.nbytes]
            waiting[:] = [b for b in waiting if b is not buffer]
            self.held -= buffer.nbytes

    def trim(self, limit: int = 0) -> None:
        """Give memory that waits for use back to the system, until at most `limit` bytes wait."""
        with self._lock:
            self._drain()
            self._shrink(limit)

    def stats(self) -> dict[str, int]:
        """Counts and bytes under the names of `Device.memory_stats()`; `pool_bytes` are those in use and those that wait."""
        with self._lock:
            self._drain()
            return {
                "num_allocs": self.count,
                "bytes_in_use": self.used,
                "peak_bytes_in_use": self.peak,
                "pool_bytes": self.used + self.held,
                "bytes_limit": self.memory,
            }


def is_pooled(x: Ndarray) -> bool:
    """Whether an array lies in memory of the pool."""
    held: Any = x
    while isinstance(held, np.ndarray):
        if isinstance(held, _Buffer):
            return True
        held = held.base
    return False


def _aligned_buffer(size: int) -> Ndarray:
    """A new buffer that begins with a cache line."""
    raw = np.empty(size + _LINE, np.uint8)
    start = -raw.__array_interface__["data"][0] % _LINE
    return _Buffer(size, np.uint8, raw, start)  # type: ignore[arg-type]


@recent(256)
def room_of(size: int) -> int:
    """The bytes of the buffer for an array of `size` bytes: one of eight steps per power of two.

    At most an eighth is wasted, and never touched.
    """
    step = max(_PAGE, 1 << (size.bit_length() - 4))
    return -(-size // step) * step


pool = Pool()


def _keep_freed_memory() -> None:
    """Let C's allocator keep the memory of arrays that are not from the pool: small ones, and NumPy's temporaries. Not where the user has
    tuned it, or where it cannot be told.
    """
    tuned = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")
    if any(name in os.environ for name in tuned) or not (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        return
    mallopt(_MMAP_THRESHOLD, costs.MAPPED_FROM)
    mallopt(_TRIM_THRESHOLD, costs.KEPT_FREED)


_keep_freed_memory()


# -- whether anybody else can see a buffer --------------------------------------------------------------------------------


def _references(holder: list[Ndarray], i: int) -> tuple[list[int], Any, Any]:
    """The references to ``holder[i]`` and to each array that it is a view of, the last of these arrays, and the lease in which that one
    lies, if any, whose references are the last count.
    """
    block = holder[i]
    counts = [sys.getrefcount(block)]
    last, base = None, block.base
    while type(base) is np.ndarray:
        counts.append(sys.getrefcount(base))
        last, base = base, base.base
    if base is not None:
        counts.append(sys.getrefcount(base))
    return counts, last, base


# How many references `_references` itself and the holder have: it differs between versions of Python.
_TOP, _BELOW = _references([pool.empty((costs.POOLED_FROM,), np.uint8)], 0)[0]
_ALONE = [[_TOP] + [_BELOW] * k for k in range(8)]  # by the number of arrays below

_COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)()  # without the lock, counts say little


def alone(holder: list[Ndarray], i: int) -> bool:
    """Whether ``holder[i]`` fills a buffer, of the pool or of NumPy's, and nothing else reaches it: no array, view, memoryview or
    capsule sees what is written there. Nothing but the list may refer to the block.
    """
    counts, last, base = _references(holder, i)
    if counts != _ALONE[min(len(counts), len(_ALONE)) - 1] or not _COUNTED:
        return False
    block = holder[i]
    if not block.flags.writeable:  # a broadcast value
        return False
    if base is None:
        owner = block if last is None else last
        return owner.flags.owndata and owner.nbytes == block.nbytes
    buffer = base.base if type(base) is _Lease else None
    return buffer is not None and buffer.nbytes == room_of(block.nbytes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.forget)
