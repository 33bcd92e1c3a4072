"""Planned runs: whether programs compute now, or only say what they would do on a machine that is not there.

In: a `Recorder`, which the planner installs for such a run. Out: what the engine tells it: each program compiled, each call, and each
attempt to read a value that nobody has computed. Without a recorder (the usual case) nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from shardwise.base.config import Setting


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
