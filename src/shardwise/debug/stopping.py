"""`breakpoint`: stop where a program is, compiled or not, and look at the values around."""

from __future__ import annotations

import bdb
import builtins
import pdb
import sys
from typing import Any

from shardwise.base.tracebacks import user_frame
from shardwise.base.tree import tree_map
from shardwise.ir import Array, is_eager
from shardwise.ops.control.callback import StopDebugging, debug_callback
from shardwise.ops.rules.convert import as_array


def _interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _say(file: str, line: int, function: str, values: dict[str, Any]) -> None:
    builtins.print(f"breakpoint at {file}:{line} in {function}")
    for name, value in values.items():
        builtins.print(f"  {name} = {value!r}")


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> Any:
    """Print where the program is and the arrays that are there by name, and start `pdb` if the terminal is
    interactive.

    In a compiled program this happens when it runs, inside shard_map once per device. Quitting the debugger ends the
    program with StopDebugging. Further `kwargs` are refused.

    Args:
        backend: None or 'pdb'.
        filter_frames, num_frames: only the caller's frame is available, that is ``num_frames=None`` or 1.
        ordered: keep the order of the program, which is always kept.
        token: a tree of arrays to wait for; it is returned unchanged.

    Raises:
        ValueError: another backend, or `ordered` together with `token`.
        NotImplementedError: more than one frame.
        TypeError: there are others.

    >>> x = jnp.arange(2)
    >>> jax.debug.breakpoint(num_frames=2)
    Traceback (most recent call last):
        ...
    NotImplementedError: debug.breakpoint offers the caller's frame only; ...
    """
    if kwargs:
        raise TypeError(f"breakpoint got an unexpected keyword argument {next(iter(kwargs))!r}")
    if backend not in (None, "pdb", "cli"):
        raise ValueError(f"debug.breakpoint: no debugger named {backend!r}; there is 'pdb'.")
    if num_frames not in (None, 1) or not filter_frames:
        raise NotImplementedError(
            "debug.breakpoint offers the caller's frame only; run the function under disable_jit and call "
            "Python's breakpoint() to walk the stack."
        )
    if token is not None and ordered:
        raise ValueError("`ordered` and `token` are mutually exclusive arguments.")
    frame = user_frame() or sys._getframe()  # pyright: ignore[reportPrivateUsage]
    file, line, function = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
    arrays = {k: v for k, v in frame.f_locals.items() if isinstance(v, Array)}
    if is_eager():
        _say(file, line, function, arrays)
        if _interactive():
            debugger = pdb.Pdb()
            debugger.set_trace(frame)
        return token
    others = {k: v for k, v in frame.f_locals.items() if k not in arrays}
    scope = frame.f_globals

    def stop_here(values: dict[str, Any], waited_for: Any) -> None:
        _say(file, line, function, values)
        if _interactive():
            _stop(file, line, {**scope, **others, **values})

    if token is not None:
        arrays.pop("token", None)
    debug_callback(
        stop_here,
        (arrays, None if token is None else as_array_tree(token)),
        {},
        ordered=ordered,
        name="debug.breakpoint",
    )
    return token


def as_array_tree(tree: Any) -> Any:
    """The tree with its leaves as Arrays."""

    return tree_map(as_array, tree)


def _stop(file: str, line: int, namespace: dict[str, Any]) -> None:
    """pdb at the user's line, among the values of this run."""
    namespace["__pdb"] = pdb.Pdb()
    code = compile("\n" * max(line - 2, 0) + "__pdb.set_trace()\npass", file, "exec")
    try:
        exec(code, namespace)
    except bdb.BdbQuit:
        raise StopDebugging("the debugger was quit") from None
