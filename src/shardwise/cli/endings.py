"""How programs end, for commands that report on them afterwards.

In: the report. Out: it is made however the program ends, and on the standard output that the command found, whatever the program has
made of that: closed it, sent it to a file, or put another object in its place.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

Report = Callable[[int], int]  # from the program's exit status to that of the command


class Output:
    """Standard output as it was when the command began.

    Args:
        apart: what the program prints goes to standard error.
    """

    def __init__(self, apart: bool) -> None:
        self._stream: TextIO = sys.stdout or _open_stream(os.devnull)
        self._copy: int | None = None
        self._apart = apart
        with suppress(OSError, ValueError):  # a stream without a file
            self._copy = os.dup(self._stream.fileno())
        self._send_apart()

    def _send_apart(self) -> None:
        if not self._apart:
            return
        sys.stdout.flush()
        with suppress(OSError, ValueError):
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the program's children print, too
        sys.stdout = sys.stderr

    @contextmanager
    def restore(self) -> Generator[None]:
        """Make it standard output again, inside; the program's atexit functions print afterwards."""
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        if not self._is_intact():
            self._stream = _open_stream(os.devnull if self._copy is None else os.dup(self._copy), self._stream)
        sys.stdout = self._stream
        yield
        self._send_apart()

    def _is_intact(self) -> bool:
        if self._copy is None:
            return not self._stream.closed
        try:
            return os.path.sameopenfile(self._copy, self._stream.fileno())
        except (OSError, ValueError):
            return False


def _open_stream(file: str | int, like: TextIO | None = None) -> TextIO:
    """A stream that lives as long as the process."""
    return open(file, "w", encoding=getattr(like, "encoding", None), errors=getattr(like, "errors", None))


@contextmanager
def report_at_exit(report: Report) -> Generator[None]:
    """Make `report` before the program inside ends this process at once, by `os._exit`, or puts another in its place by `os.exec...`."""
    owner, own = os.getpid(), {name: getattr(os, name) for name in ("_exit", "execv", "execve")}

    def restore() -> None:
        for name, function in own.items():
            setattr(os, name, function)

    @functools.wraps(own["_exit"])
    def leave(status: int) -> None:
        if os.getpid() == owner:  # a child of `fork` ends for itself
            restore()
            status = report(status)
        own["_exit"](status)

    def replace_function(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def replace(path: Any, *rest: Any) -> Any:
            if os.getpid() == owner and os.access(path, os.X_OK):
                restore()
                print("shardwise: the program puts another in its place, of which nothing is seen", file=sys.stderr)
                report(0)
            return function(path, *rest)

        return replace

    os._exit = leave  # type: ignore[assignment]
    os.execv, os.execve = replace_function(own["execv"]), replace_function(own["execve"])
    try:
        yield
    finally:
        restore()
