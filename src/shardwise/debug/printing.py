"""`print`, `callback` and `log`: output of compiled programs while they run.

In: a format or a function, and traced or concrete arrays. Out: a line per run; inside shard_map one per device,
under vmap one per element.
"""

from __future__ import annotations

import builtins
import functools
import logging
import string
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.ops.control.callback import debug_callback

_LOG = logging.getLogger("shardwise.debug")


class _Check(string.Formatter):
    """Formats nothing, but complains about arguments that no field names."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        return value

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        by_position = [a for i, a in enumerate(args) if i not in used_args]
        by_name = [k for k in kwargs if k not in used_args]
        if by_position:
            raise ValueError(
                f"Unused positional arguments to `debug.print`: {by_position}. Give the format a {{}} for each."
            )
        if by_name:
            raise ValueError(
                f"Unused keyword arguments to `debug.print`: {by_name}. Give the format a {{name}} for each; an f-string "
                "is formatted before it arrives here."
            )


_check = _Check()


@functools.lru_cache(maxsize=1024)
def _printer(fmt: str, write: Callable[[str], None], options: tuple[tuple[str, Any], ...]) -> Callable[..., None]:
    """A function that formats its arguments as NumPy was told to when the program was traced."""

    def show(*args: Any, **kwargs: Any) -> None:
        with np.printoptions(**dict(options)):
            write(fmt.format(*args, **kwargs))

    return show


def _to_log(text: str) -> None:
    _LOG.info(text)


def _with_options(write: Callable[[str], None], options: dict[str, Any]) -> Callable[..., None]:
    """`print` or `log` with options alone: a function of the format and its arguments."""

    def show(fmt: Any, *args: Any, **kwargs: Any) -> None:
        _print_values(fmt, args, kwargs, write, **options)

    return show


def _no_arguments_yet(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args or kwargs:
        raise TypeError(
            f"debug_{name} received unexpected arguments in the two-call form: {[*args, *kwargs]}. The first call takes options; "
            "pass the arguments with the format or the function, in the second."
        )


def _print_values(
    fmt: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    write: Callable[[str], None],
    ordered: bool,
    partitioned: bool,
    skip_format_check: bool,
) -> None:
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print takes a format string first, got {fmt!r}.")
    if not skip_format_check:
        _check.format(fmt, *args, **kwargs)
    options = tuple((k, v) for k, v in np.get_printoptions().items() if not isinstance(v, dict))
    debug_callback(
        _printer(fmt, write, options), args, kwargs, ordered=ordered, partitioned=partitioned, name="debug.print"
    )


def print(
    fmt: Any = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Any:
    """Print ``fmt.format(*args, **kwargs)`` when the program runs.

    Args:
        fmt: a format string, ``"x = {x}"``; without it a function that takes format and arguments is returned.
        args, kwargs: arrays, traced or not, and any other values.
        ordered: keep the order of the program, which is always kept.
        partitioned: print each device's own part of sharded arrays instead of gathering them.
        skip_format_check: do not complain about arguments that the format does not name.

    Raises:
        ValueError: an argument that the format does not name.
        KeyError, IndexError: a field without an argument.

    >>> jax.jit(lambda x: jax.debug.print('x is {x}', x=x))(3)
    x is 3
    """
    options = dict(ordered=ordered, partitioned=partitioned, skip_format_check=skip_format_check)
    if fmt is None:
        _no_arguments_yet("print", args, kwargs)
        return _with_options(builtins.print, options)
    return _print_values(fmt, args, kwargs, builtins.print, **options)


def log(
    fmt: Any = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Any:
    """Like `print`, with its arguments `fmt`, `args`, `ordered`, `partitioned`, `skip_format_check` and `kwargs`, but
    to the logger ``shardwise.debug`` at level INFO.

    >>> jax.debug.log("x is {x}", x=jnp.arange(2))
    """
    options = dict(ordered=ordered, partitioned=partitioned, skip_format_check=skip_format_check)
    if fmt is None:
        _no_arguments_yet("log", args, kwargs)
        return _with_options(_to_log, options)
    return _print_values(fmt, args, kwargs, _to_log, **options)


def callback(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call ``callback(*args, **kwargs)`` with Arrays when the program runs; its result is ignored.

    Args:
        callback: the function; without it a function that takes callback and arguments is returned.
        args, kwargs: trees of arrays, traced or not, and any other values.
        ordered: keep the order of the program, which is always kept.
        partitioned: call per device with its own part of sharded arrays instead of gathering them.

    Raises:
        TypeError: `callback` is no function.
        JaxRuntimeError: when the program runs, if the function raised. Outside of programs its own error is raised.

    >>> jax.jit(lambda x: jax.debug.callback(lambda x: print('x is', x), x))(3)
    x is 3
    """
    options: dict[str, Any] = dict(ordered=ordered, partitioned=partitioned)
    if callback is None:
        _no_arguments_yet("callback", args, kwargs)

        def decorate(callback: Any, *args: Any, **kwargs: Any) -> Any:
            return debug_callback(callback, args, kwargs, **options)

        return decorate
    return debug_callback(callback, args, kwargs, **options)
