"""Tracebacks that show the user's frames and hide ours.

`jax_traceback_filtering` chooses: 'off' leaves tracebacks whole, 'tracebackhide' marks our frames for IPython and pytest
to hide, 'remove_frames' removes them and says so in a note, 'quiet_remove_frames' says nothing. 'auto' is the second
under IPython and the third elsewhere.
"""

from __future__ import annotations

import functools
import opcode
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import ParamSpec, TypeVar

import numpy

from shardwise.base import config
from shardwise.base.errors import about, topic_of
from shardwise.base.topics import topic_at

NOTE = (
    "The frames inside shardwise were left out of this traceback; the variable JAX_TRACEBACK_FILTERING=off, or "
    "config.update('jax_traceback_filtering', 'off'), shows them."
)
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(os.__file__) + os.sep
_SUPPORT = (os.path.dirname(numpy.__file__) + os.sep, "<frozen ")
_GENERATED_CODE = ("<plan of ", "<call of ", "<loop of ", "<small program ")  # code that we write
# Files and folders of further libraries whose frames are hidden.
EXCLUDED_PATHS: list[str] = []

P = ParamSpec("P")
T = TypeVar("T")


def user_facing(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator of functions that call user code: a traceback through one shows none of our frames."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            filter_traceback(error)
            raise  # without a value, which would add this frame again

    return call


def filter_traceback(error: Exception) -> None:
    """Filter the traceback of `error` as the configuration says."""
    if isinstance(error, MemoryError):
        _tell_place(error)
    tell_topic(error)
    mode = _mode()
    if mode == "tracebackhide":
        hide(error)
    elif mode != "off":
        error.__traceback__ = _without_ours(error.__traceback__)
        _note(error, mode)


_RAISE = opcode.opmap["RAISE_VARARGS"]


def tell_topic(error: BaseException) -> None:
    """Note the page about the error, by the place that raised it, before frames are removed. Errors from outside the package have none."""
    frames = list(_frames(error.__traceback__))
    if not frames or topic_of(error) or isinstance(error, (AttributeError, NotImplementedError)):
        return
    code, at = frames[-1].tb_frame.f_code, frames[-1].tb_lasti
    if not code.co_filename.startswith(_OURS) or code.co_code[at] != _RAISE:
        return
    topic = topic_at(code.co_filename.removeprefix(_OURS))
    if topic:
        about(topic, error)


def removes_frames() -> bool:
    """Whether the configuration lets our frames be taken out."""
    return _mode() != "off"


def hide(error: BaseException) -> None:
    """Mark our frames for IPython and pytest to hide."""
    for frame in _frames(error.__traceback__):
        if _is_ours(frame):
            frame.tb_frame.f_locals["__tracebackhide__"] = True


def strip(error: BaseException) -> None:
    """Take our frames out of the traceback of an error that is to be shown, and the frames of libraries that we called.

    A traceback of such frames alone stays as it is: it is a mistake of ours.
    """
    kept_frames, inside = [], False
    every = list(_frames(error.__traceback__))
    for frame in every:
        inside = _is_ours(frame) or (inside and _is_support(frame.tb_frame.f_code.co_filename))
        if not inside:
            kept_frames.append(frame)
    if kept_frames and len(kept_frames) < len(every):
        rest = None
        for frame in reversed(kept_frames):
            rest = TracebackType(rest, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        error.__traceback__ = rest
        _note(error, _mode())


def is_internal(error: BaseException) -> bool:
    """Whether an error came up and was dealt with inside of us alone."""
    every = list(_frames(error.__traceback__))
    return bool(every) and all(_is_ours(f) or _is_support(f.tb_frame.f_code.co_filename) for f in every)


def _mode() -> str:
    mode: str = config.jax_traceback_filtering
    return ("tracebackhide" if _under_ipython() else "remove_frames") if mode == "auto" else mode


def _note(error: BaseException, mode: str) -> None:
    if mode == "remove_frames" and NOTE not in getattr(error, "__notes__", ()):
        error.add_note(NOTE)


def take_back_note(error: BaseException) -> bool:
    """Drop the note that frames were left out; whether there was one."""
    notes: list[str] = getattr(error, "__notes__", [])
    has_note = NOTE in notes
    if has_note:
        notes.remove(NOTE)
    return has_note


def _is_support(file: str) -> bool:
    """Whether a file is of the libraries that we compute with."""
    return file.startswith(_SUPPORT) or (file.startswith(_STANDARD) and "site-packages" not in file)


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
        or (EXCLUDED_PATHS and any(file == p or file.startswith(os.path.join(p, "")) for p in EXCLUDED_PATHS))
    )


def is_users_code(code: CodeType | None) -> bool:
    """Whether compiled code is the user's; callables without code of their own (partial functions, objects) count as the user's."""
    return code is None or not code.co_filename.startswith(_OURS)


def user_frame() -> FrameType | None:
    """The innermost frame of user code, starting at the caller; None if all frames are ours."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _our_files:
            if not file.startswith(_OURS):
                if not EXCLUDED_PATHS or is_users(frame):
                    break
            else:
                _our_files.add(file)
        frame = frame.f_back
    return frame


_our_files: set[str] = set()  # those met; to look here is quicker


def user_stacklevel() -> int:
    """The `stacklevel` that makes the caller's warning point at the innermost frame of user code."""
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and not is_users(frame):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(frame: TracebackType) -> bool:
    return not is_users(frame.tb_frame) or frame.tb_frame.f_code.co_filename.startswith(_GENERATED_CODE)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames; None if the error is in the call itself and no user code ran."""
    user_frames = None
    for frame in reversed(list(_frames(traceback))):
        if not _is_ours(frame):
            user_frames = TracebackType(user_frames, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return user_frames
