"""The source lines of equations: the innermost line of user code, or that of an equation which is bound once more.

Out: a `Source` per recorded equation.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from shardwise.base.tracebacks import user_frame
from shardwise.ir.program import NOWHERE, Kernel, Source


class NameStack(NamedTuple):
    """Names of open scopes (`named_scope`), the outermost first."""

    stack: tuple[str, ...] = ()

    def extend(self, name: str) -> NameStack:
        """These names, with `name` as the innermost."""
        return NameStack((*self.stack, name))

    def __add__(self, inner: object) -> NameStack:
        """These names, with those of `inner` within."""
        if not isinstance(inner, NameStack):
            return NotImplemented
        return NameStack(self.stack + inner.stack)

    def __str__(self) -> str:
        return "/".join(self.stack)


class SourceInfo(NamedTuple):
    """An origin: the line in the user's code (None if unknown) and the scopes around it."""

    traceback: Source | None
    name_stack: NameStack

    def replace(self, *, traceback: Source | None = None, name_stack: NameStack | None = None) -> SourceInfo:
        """This source with some fields replaced."""
        return SourceInfo(traceback or self.traceback, self.name_stack if name_stack is None else name_stack)


class _State(threading.local):
    replay: Replay | None = None
    kernel: Kernel | None = None


_state = _State()


class Replay:
    """Context in which equations are bound once more, or transposed: the new equations have their source lines.

    The caller sets `source` for each equation. User code that is called back has lines of its own: `frame` is the user's frame that asked
    for the replay. `backward`: whether it is for a backward pass.
    """

    __slots__ = ("_outer", "backward", "frame", "source")

    def __init__(self, backward: bool = False) -> None:
        self.backward = backward
        self.source: Source | None = None

    def __enter__(self) -> Replay:
        self._outer = outer = _state.replay
        if outer is not None and outer.backward:
            self.backward = True
        self.frame = user_frame()
        _state.replay = self
        return self

    def __exit__(self, *_: object) -> None:
        _state.replay = self._outer
        self.frame = None


@contextmanager
def as_one_kernel(kernel: Kernel) -> Generator[None]:
    """Context whose equations an accelerator runs as one kernel; the outermost one counts."""
    outer = _state.kernel
    _state.kernel = outer or kernel
    try:
        yield
    finally:
        _state.kernel = outer


def user_source() -> Source | None:
    """The source of the equation that is recorded now: the innermost line of user code, or that of the equation that is replayed."""
    frame, replay, kernel = user_frame(), _state.replay, _state.kernel
    backward = False
    if replay is not None:
        backward, source = replay.backward, replay.source
        if source is not None and frame is replay.frame:
            if kernel is not None and source.kernel is None:
                source = source._replace(kernel=kernel)
            return source if source.backward or not backward else source._replace(backward=True, need=None)
    if frame is None:
        return None if kernel is None else NOWHERE._replace(kernel=kernel)
    return Source(frame.f_code.co_filename, frame.f_lineno, backward, None, kernel)
