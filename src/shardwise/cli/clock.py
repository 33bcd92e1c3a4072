"""Times the calls of a program's jitted functions, whichever library `jax` is.

In: the module `jax`. Out: `Clock.rows`, one `Row` per function and line that calls it. The file needs the standard library alone:
`shardwise bench --beside` runs it as a script of a Python that has JAX, where it writes its rows to a file.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, field
from types import CodeType, FrameType
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass

_COMPILE_EVENTS = "/jax/core/compile/"  # how the events of tracing and compiling begin
_MAKERS = ("jit", "pjit", "pmap")


@dataclass(slots=True)
class Row:
    """The calls of one function from one line.

    Attributes:
        function: its name.
        defined: the file and line where it begins; empty if it has no code of its own.
        site: the file and line of the calls.
        seconds: of each call, until its results are there.
        compiling: how many of these seconds went into tracing and compiling.
    """

    function: str
    defined: str
    site: str
    seconds: list[float] = field(default_factory=list[float])
    compiling: list[float] = field(default_factory=list[float])


class Clock:
    """Times calls of what `jax.jit` and its kin make from now on.

    `jax` is the module of that name. `repeat`: how often each call is made; those that donate arguments are made once.
    """

    def __init__(self, jax: Any, repeat: int = 1) -> None:
        self.rows: dict[tuple[str, str, str], Row] = {}
        self.repeat = repeat
        self._jax = jax
        self._inside = threading.local()  # calls inside of a call that is timed are part of it
        self._compiled = 0.0
        own = [os.path.dirname(jax.__file__), os.path.dirname(os.path.abspath(__file__))]
        paths = sysconfig.get_paths()
        folders = (*own, paths["purelib"], paths["stdlib"])
        self._foreign = ("<frozen", *(os.path.join(folder, "") for folder in folders))
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        for owner in (jax, sys.modules.get("jax.experimental.pjit")):
            for name in _MAKERS:
                maker = getattr(owner, name, None)
                if maker is not None:
                    setattr(owner, name, functools.update_wrapper(functools.partial(self._make, maker), maker))

    def _hear(self, event: str, seconds: float, **kwargs: Any) -> None:
        if event.startswith(_COMPILE_EVENTS):
            self._compiled += seconds

    def _make(self, maker: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The result of `jax.jit(...)`: a timed function, or a decorator that makes one."""
        once = any(options.get(name) not in (None, ()) for name in ("donate_argnums", "donate_argnames"))
        compiled_function = maker(*args, **options)
        if args or "fun" in options or "f" in options:
            return TimedFunction(compiled_function, self, once)

        def decorate(function: Any) -> TimedFunction:
            return TimedFunction(compiled_function(function), self, once)

        return decorate

    def call(self, timed: TimedFunction, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Call the function. The call counts unless it is a part of another, or of a trace."""
        if getattr(self._inside, "yes", False):
            return timed.inner(*args, **kwargs)
        result: Any = None
        self._inside.yes = True
        try:
            for _ in range(1 if timed.once else self.repeat):
                before, start = self._compiled, time.perf_counter()
                result = self._jax.block_until_ready(timed.inner(*args, **kwargs))
                seconds = time.perf_counter() - start
                if any(isinstance(leaf, self._jax.core.Tracer) for leaf in self._jax.tree_util.tree_leaves(result)):
                    return result
                row = self._row(timed, frame)
                row.seconds.append(seconds)
                row.compiling.append(self._compiled - before)
        finally:
            self._inside.yes = False
        return result

    def _row(self, timed: TimedFunction, frame: FrameType) -> Row:
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_filename.startswith(self._foreign):
            caller = caller.f_back
        caller = caller or frame
        site = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        return self.rows.setdefault((*timed.identity, site), Row(*timed.identity, site))


class TimedFunction:
    """A jitted function whose calls a clock times; in all else it is that function."""

    def __init__(self, inner: Any, clock: Clock, once: bool, identity: tuple[str, str] | None = None) -> None:
        self.inner, self.clock, self.once = inner, clock, once
        self.identity = identity or _identity(inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.clock.call(self, args, kwargs, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def __getattr__(self, name: str) -> Any:
        value = getattr(vars(self)["inner"], name)
        if name not in ("lower", "trace"):
            return value

        def stage(*args: Any, **kwargs: Any) -> _Stage:
            return _Stage(value(*args, **kwargs), self)

        return stage

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return repr(self.inner)


class _Stage:
    """A result of `lower` or `trace`, up to the compiled function, whose calls are timed."""

    def __init__(self, inner: Any, timed: TimedFunction) -> None:
        self._inner, self._timed = inner, timed

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_inner"], name)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        return _Stage(self._inner.lower(*args, **kwargs), self._timed)

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        own_timing = self._timed
        return TimedFunction(
            self._inner.compile(*args, **kwargs), own_timing.clock, own_timing.once, own_timing.identity
        )


def _identity(function: Any) -> tuple[str, str]:
    """The name of the function that was compiled, and where it begins."""
    while hasattr(function, "__wrapped__") and not isinstance(getattr(function, "__code__", None), CodeType):
        function = function.__wrapped__
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return name, f"{code.co_filename}:{code.co_firstlineno}" if isinstance(code, CodeType) else ""


def main(file: str, repeat: str, kind: str, text: str, *arguments: str) -> None:
    """Run a program with this Python's `jax`, and write the rows of its calls to `file`; also if it fails."""
    import jax  # of the Python that runs this file

    clock = Clock(jax, int(repeat))
    try:
        execute(kind, text, arguments)
    finally:
        with open(file, "w", encoding="utf-8") as out:
            json.dump({"version": jax.__version__, "rows": [asdict(row) for row in clock.rows.values()]}, out)


def execute(kind: str, text: str, arguments: Sequence[str]) -> None:
    """Run a file, a module or code as ``__main__``, as Python does."""
    sys.argv = [{"code": "-c"}.get(kind, text), *arguments]
    sys.path[0:1] = [os.path.dirname(os.path.abspath(text)) if kind == "file" else os.getcwd()]
    if kind == "file":
        runpy.run_path(os.path.abspath(text), run_name="__main__")
    elif kind == "module":
        runpy.run_module(text, run_name="__main__", alter_sys=True)
    else:
        exec(compile(text, "<string>", "exec", dont_inherit=True), {"__name__": "__main__"})


if __name__ == "__main__":
    main(*sys.argv[1:])
