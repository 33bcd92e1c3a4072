"""Planned runs: whether programs compute now, or only say what they would do on a machine that is not there.

In: a `Recorder`, which the planner installs for such a run. Out: what the engine tells it: each program compiled, each call, and each
attempt to read a value that nobody has computed. Without a recorder (the usual case) nothing here costs anything.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Protocol

from shardwise.base.config import Setting
from shardwise.base.dtypes import physical
from shardwise.base.errors import JaxRuntimeError
from shardwise.sharding import Sharding


class Recorder(Protocol):
    """Whoever plans a run."""

    def compiled(self, executable: Any) -> None:
        """A program was compiled: a `DataFree`."""
        ...

    def called(self, executable: Any) -> None:
        """It is about to be called."""
        ...

    def read(self, shape: Sequence[int], dtype: Any) -> None:
        """Someone reads a value without data; may raise to refuse."""
        ...


# Traced: programs are compiled anew for a planned run, and again after it.
_recorder: Setting[Recorder | None] = Setting("plan", None)


def recorder() -> Recorder | None:
    """The recorder of the planned run, if this is one."""
    return _recorder.value


def install_recorder(new: Recorder | None) -> Recorder | None:
    """Begin or end a planned run in all threads; returns the recorder before."""
    before = _recorder.value
    _recorder.set_global(new)
    return before


def check_attached(sharding: Sharding) -> None:
    """Raise JaxRuntimeError if the devices exist in a description of a machine only, and this is no planned run."""
    first = sharding.device_list[0]
    if first.client.stands_for_all and _recorder.value is None:
        raise JaxRuntimeError(
            f"no data can lie on {first}: it is of a machine that this process has only a description of. Lower and compile for it with "
            "ShapeDtypeStructs, or run the program under shardwise.plan.on(...), where arrays have no data."
        )


def check_room(shape: Sequence[int], dtype: Any, what: str) -> None:
    """In a planned run refuse to lay out a value in real memory that this machine does not have. Elsewhere the memory is in use already.

    Raises:
        MemoryError: `what` needs more than is free.
    """
    if _recorder.value is None:
        return
    needed, free = math.prod(shape) * physical(dtype).itemsize, free_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"{what} of {dtype.name}[{','.join(map(str, shape))}] takes {needed / 2**30:,.1f} GiB of this machine's memory, of which "
            f"{free / 2**30:,.1f} GiB are free. Arrays of a planned run take none: read them by np.asarray(x), or leave the copy out."
        )


def free_memory() -> int | None:
    """The bytes that this machine has left for programs, where it says so."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_AVPHYS_PAGES" in names else None
