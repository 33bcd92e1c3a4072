"""Errors that nobody catches are shown with the user's frames alone, in whatever way the library was called.

Eager calls cross no boundary at which frames could be taken out, so this is done where errors are shown: by `sys.excepthook`,
`threading.excepthook`, and under IPython by its handler of exceptions. Causes and contexts are treated alike. The option
`jax_traceback_filtering` chooses as for errors that cross a boundary (`tracebacks`).
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import traceback
from typing import Any

import numpy as np

from shardwise.base import tracebacks
from shardwise.base.errors import topic_of
from shardwise.base.nearest import did_you_mean


def show_error(error: BaseException) -> BaseException:
    """`error` itself, without our frames, and its causes likewise. Causes that lie wholly inside the package are left out."""
    if not tracebacks.removes_frames():
        return error
    seen_ids: set[int] = set()
    waiting_errors, has_removals = [error], False
    while waiting_errors:
        each = waiting_errors.pop()
        if id(each) in seen_ids:
            continue
        seen_ids.add(id(each))
        tracebacks.tell_topic(each)
        tracebacks.strip(each)
        has_removals |= tracebacks.take_back_note(each)
        context = each.__context__
        if context is not None and context is not each.__cause__ and tracebacks.is_internal(context):
            each.__suppress_context__ = True
        waiting_errors += [e for e in (each.__cause__, context) if e is not None]
        waiting_errors += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
    hint = _hint(error)
    if hint and hint not in getattr(error, "__notes__", ()):
        error.add_note(hint)
    topic = topic_of(error) or ("not-implemented" if has_removals and isinstance(error, NotImplementedError) else "")
    if topic:
        error.add_note(f"More about this error: shardwise help {topic}")
    if has_removals:  # told once is enough, and last
        error.add_note(tracebacks.NOTE)
    return error


def _hint(error: BaseException) -> str:
    """The name that a user may have meant. Python's own hook knows it, too, but until 3.12 not the module `traceback`."""
    name = getattr(error, "name", None)
    if not isinstance(name, str) or error.__cause__ is not None:
        return ""
    if isinstance(error, AttributeError) and error.obj is not None:
        if hasattr(np.ndarray, name) and type(error.obj).__module__ in ("shardwise", "jax"):
            return (
                f"NumPy's arrays have it: numpy.asarray(x).{name}. Arrays here cannot be written to: x.at[index].set(value) "
                "gives a new one."
            )
        attributes = dir(error.obj)
    elif isinstance(error, NameError) and error.__traceback__ is not None:
        frame = list(traceback.walk_tb(error.__traceback__))[-1][0]
        attributes = [*frame.f_locals, *frame.f_globals, *dir(builtins)]
    else:
        return ""
    return "" if sys.version_info >= (3, 12) else did_you_mean(name, attributes).strip()


def install() -> None:
    """Show errors so from now on. Hooks that others have set are called, with the rest of the traceback."""
    before, of_threads = sys.excepthook, threading.excepthook

    @functools.wraps(before)
    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        show_error(error)
        if before is sys.__excepthook__:
            traceback.print_exception(
                error
            )  # unlike that hook, it knows the text of notebook cells and of code from the command line
        else:
            before(kind, error, error.__traceback__)

    def thread_hook(args: threading.ExceptHookArgs, /) -> None:
        if args.exc_value is not None:
            show_error(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        of_threads(args)

    if before is sys.__excepthook__:
        _plain.append(hook)
    sys.excepthook, threading.excepthook = hook, thread_hook
    _install_in_ipython()


def plain_text(hook: Any, error: BaseException) -> str | None:
    """The text that a hook of `install` would print of an error; None for other hooks, and where one stands behind it."""
    if hook not in _plain:
        return None
    return "".join(traceback.format_exception(show_error(error)))


_plain: list[Any] = []  # the hooks that print, and ask no other


def _install_in_ipython() -> None:
    module = sys.modules.get("IPython")
    shell: Any = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    if shell is None or getattr(shell, "custom_exceptions", ()):
        return

    def handler(
        shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None = None
    ) -> None:
        tracebacks.hide(error)
        shell.showtraceback((kind, show_error(error), error.__traceback__), tb_offset=tb_offset)

    shell.set_custom_exc((Exception,), handler)
