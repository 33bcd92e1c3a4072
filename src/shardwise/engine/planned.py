"""Planned runs: programs report their work on a machine that is not present, and compute nothing unless they are asked to.

In: a `Recorder`, which the planner installs for such a run. Out: the engine's reports to it: each compiled program, each call, and each
attempt to read a value that nobody has computed. Without a recorder (the usual case) this module costs nothing.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from shardwise.base.config import Setting
from shardwise.base.dtypes import physical
from shardwise.base.errors import JaxRuntimeError
from shardwise.sharding import Sharding


class Recorder(Protocol):
    """The planner's side of a planned run."""

    @property
    def computes(self) -> bool:
        """Whether programs that are planned for another machine compute on this one."""
        ...

    def note_program(self, executable: Any) -> None:
        """A program (a `DataFree`) was compiled."""
        ...

    def note_call(self, executable: Any) -> None:
        """The program is about to be called."""
        ...

    def read(self, shape: Sequence[int], dtype: Any) -> None:
        """A value without data is read; the recorder may raise to refuse."""
        ...


# A traced setting: programs are compiled again for a planned run, and again after it.
_recorder: Setting[Recorder | None] = Setting("plan", None)


def recorder() -> Recorder | None:
    """The recorder of the current planned run, or None."""
    return _recorder.value


def install_recorder(new: Recorder | None) -> Recorder | None:
    """Begin or end a planned run in all threads; returns the previous recorder."""
    before = _recorder.value
    _recorder.set_global(new)
    return before


# -- processes that the program of a planned run starts -----------------------------------------------------------------------

_FROM = "SHARDWISE_PLANNED_ON"  # a variable of the environment, which they inherit
_has_told = False


@contextmanager
def mark_children(machine: str) -> Generator[None]:
    """Let processes that are started inside know that a run planned for this machine has started them."""
    os.environ[_FROM] = machine
    try:
        yield
    finally:
        os.environ.pop(_FROM, None)


def tell_of_parent() -> None:
    """In a process that a planned run has started, say once that it is none itself."""
    global _has_told
    if _has_told or _FROM not in os.environ:
        return
    _has_told = True
    print(
        f"shardwise: process {os.getpid()} was started by a run planned for {os.environ[_FROM]}. It computes, with the devices of this "
        "machine, and nothing of it is in the plan: to see what it needs, plan the program that it runs.",
        file=sys.stderr,
    )


def check_attached(sharding: Sharding) -> None:
    """Raise JaxRuntimeError if the devices exist only in the description of a machine, and this is no planned run."""
    first = sharding.device_list[0]
    if first.client.stands_for_all and _recorder.value is None:
        raise JaxRuntimeError(
            f"no data can lie on {first}: it is of a machine that this process has only a description of. Lower and compile for it with "
            "ShapeDtypeStructs, or run the program under shardwise.plan.on(...), where arrays have no data."
        )


def check_room(shape: Sequence[int], dtype: Any, what: str) -> None:
    """In a planned run, refuse to allocate more memory than this machine has free. In other runs the memory is in use already.

    Raises:
        MemoryError: `what` needs more than the free memory.
    """
    if _recorder.value is None:
        return
    needed_bytes, free = math.prod(shape) * physical(dtype).itemsize, free_memory()
    if free is not None and needed_bytes > free:
        raise MemoryError(
            f"{what} of {dtype.name}[{','.join(map(str, shape))}] takes {needed_bytes / 2**30:,.1f} GiB of this machine's memory, of which "
            f"{free / 2**30:,.1f} GiB are free. Arrays of a planned run take none: read them by np.asarray(x), or leave the copy out."
        )


def free_memory() -> int | None:
    """The bytes of free memory on this machine; None if unknown."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_AVPHYS_PAGES" in names else None
