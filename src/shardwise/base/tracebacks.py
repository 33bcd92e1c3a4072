"""Tracebacks that show the user's frames and hide ours.

`jax_traceback_filtering` chooses: 'off' leaves tracebacks whole, 'tracebackhide' marks our frames for IPython and pytest
to hide, 'remove_frames' removes them and says so in a note, 'quiet_remove_frames' says nothing. 'auto' is the second
under IPython and the third elsewhere.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import ParamSpec, TypeVar

from shardwise.base import config

NOTE = (
    "The frames inside shardwise were left out of this traceback; the variable JAX_TRACEBACK_FILTERING=off, or "
    "config.update('jax_traceback_filtering', 'off'), shows them."
)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Files and folders of further libraries whose frames are hidden.
EXCLUDED: list[str] = []

P = ParamSpec("P")
T = TypeVar("T")


def user_facing(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator of functions that call user code: a traceback through one shows only its own frame of all of ours."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise filtered(error)  # noqa: B904  the same error

    return call


def filtered(error: Exception) -> Exception:
    """`error` itself, its traceback filtered as the configuration says."""
    if isinstance(error, MemoryError):
        _tell_place(error)
    mode = config.jax_traceback_filtering
    if mode == "auto":
        mode = "tracebackhide" if _under_ipython() else "remove_frames"
    if mode == "tracebackhide":
        for frame in _frames(error.__traceback__):
            if _is_ours(frame):
                frame.tb_frame.f_locals["__tracebackhide__"] = True
    elif mode != "off":
        error.__traceback__ = _without_ours(error.__traceback__)
        if mode == "remove_frames" and NOTE not in getattr(error, "__notes__", ()):
            error.add_note(NOTE)
    return error


PLACES = "__places__"  # for generated code: the user's file and line per generated line


def _tell_place(error: MemoryError) -> None:
    """Add a note with the user's line that the failing program line computes."""
    for frame in _frames(error.__traceback__):
        source = frame.tb_frame.f_globals.get(PLACES, {}).get(frame.tb_lineno)
        note = f"The memory was needed at {source[0]}:{source[1]}." if source else ""
        if note and note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _under_ipython() -> bool:
    return getattr(sys.modules.get("builtins"), "__IPYTHON__", False)


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def is_users(frame: FrameType) -> bool:
    """Whether a frame is neither ours nor in an excluded file or folder."""
    file = frame.f_code.co_filename
    return not (
        file.startswith(_OURS)
        or (EXCLUDED and any(file == p or file.startswith(os.path.join(p, "")) for p in EXCLUDED))
    )


def is_users_code(code: CodeType | None) -> bool:
    """Whether code that is compiled is the user's; what has no code of its own (partial functions, callable objects) is."""
    return code is None or not code.co_filename.startswith(_OURS)


def user_frame() -> FrameType | None:
    """The innermost frame of user code, starting at the caller; None if all frames are ours."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (frame.f_code.co_filename.startswith(_OURS) or (EXCLUDED and not is_users(frame))):
        frame = frame.f_back
    return frame


def user_stacklevel() -> int:
    """The `stacklevel` that makes the caller's warning point at the innermost frame of user code."""
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and not is_users(frame):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(frame: TracebackType) -> bool:
    return not is_users(frame.tb_frame)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames; None if the error is in the call itself and no user code ran."""
    kept = None
    for frame in reversed(list(_frames(traceback))):
        if not _is_ours(frame):
            kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept
