"""Sleeping until another process writes to memory that both see, and waking it: Linux's futex.

In: the address of four bytes of shared memory. A process that sleeps there leaves the processor at once, and the system runs it soon
after it is woken; one that only offers its processor waits for the turns of all others that compute.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any

_NUMBERS = {"x86_64": 202, "aarch64": 98}  # of the system call
_WAIT, _WAKE, _ALL = 0, 1, (1 << 31) - 1


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _system_call() -> Callable[..., Any] | None:
    number = _NUMBERS.get(os.uname().machine) if sys.platform == "linux" and sys.byteorder == "little" else None
    if number is None:
        return None
    call = ctypes.CDLL(None).syscall
    call.argtypes = (
        ctypes.c_long,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_uint32,
    )
    return lambda at, what, value, time: call(number, at, what, value, time, None, 0)


_futex = _system_call()
can_sleep = _futex is not None


def sleep_at(address: int, value: int, seconds: float) -> None:
    """Sleep until somebody wakes those that sleep at the address; not if its four bytes are not `value`, and no longer than `seconds`."""
    assert _futex is not None
    whole = int(seconds)
    time = _Time(whole, int((seconds - whole) * 1e9))
    _futex(address, _WAIT, value & 0xFFFFFFFF, ctypes.byref(time))


def wake_at(address: int) -> None:
    """Wake all processes that sleep at the address."""
    assert _futex is not None
    _futex(address, _WAKE, _ALL, None)
