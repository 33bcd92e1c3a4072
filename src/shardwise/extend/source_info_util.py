"""`shardwise.extend.source_info_util`: source lines and names of the code that is traced now, and the frames that count as user code."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from shardwise.base.listing import listing as _listing
from shardwise.base.tracebacks import EXCLUDED_PATHS as _EXCLUDED_PATHS
from shardwise.ir.program import Source as _Source
from shardwise.ir.program import source_text as _source_text
from shardwise.ir.sources import NameStack as NameStack
from shardwise.ir.sources import Replay as _Replay
from shardwise.ir.sources import SourceInfo as SourceInfo
from shardwise.ir.sources import user_source as _user_source
from shardwise.transforms.tracing import SCOPES as _SCOPES
from shardwise.transforms.tracing import named_scope as extend_name_stack

__all__ = [
    "NameStack",
    "SourceInfo",
    "current",
    "current_name_stack",
    "extend_name_stack",
    "new_name_stack",
    "new_source_info",
    "register_exclusion",
    "reset_name_stack",
    "set_name_stack",
    "summarize",
    "user_context",
]


def current() -> SourceInfo:
    """The line and the scopes of the code that is traced now."""
    return SourceInfo(_user_source(), current_name_stack())


def current_name_stack() -> NameStack:
    """The open scopes."""
    return NameStack(_SCOPES.get())


def new_name_stack(name: str = "") -> NameStack:
    """A stack of one name, or of none."""
    return NameStack((name,) if name else ())


def new_source_info() -> SourceInfo:
    """No line and no scopes."""
    return SourceInfo(None, NameStack())


@contextmanager
def set_name_stack(name_stack: NameStack) -> Generator[None]:
    """A context in which these scopes are the open ones."""
    with _SCOPES.override(name_stack.stack):
        yield


@contextmanager
def reset_name_stack() -> Generator[None]:
    """A context without open scopes."""
    with _SCOPES.override(()):
        yield


class user_context:
    """A context in which the caller's equations have this line, a `SourceInfo.traceback`, and these scopes; None leaves them."""

    def __init__(self, traceback: _Source | None, *, name_stack: NameStack | None = None) -> None:
        self._replay = _Replay()
        self._replay.source = traceback
        self._scopes = None if name_stack is None else set_name_stack(name_stack)

    def __enter__(self) -> None:
        self._replay.__enter__()  # not through contextlib, whose frame would be the innermost of the user
        if self._scopes is not None:
            self._scopes.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._scopes is not None:
            self._scopes.__exit__(None, None, None)
        self._replay.__exit__()


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """Up to `num_frames` lines as text; one is known of each: ``file:line``."""
    return (_source_text(source_info.traceback) or "unknown") if num_frames else ""


def register_exclusion(path: str) -> None:
    """Frames of files below `path` are hidden from tracebacks and are no source lines of programs."""
    _EXCLUDED_PATHS.append(path)


__dir__ = _listing(__name__)
