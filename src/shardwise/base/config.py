"""Settings: process-wide values, thread-local overrides, and the token that names their combination.

A `Setting` has one process-wide value and, per thread, at most one override. Whatever can change how a function is
traced is *traced*: the values of all traced settings of a thread, mesh contexts included, are summed up in one
interned object, `context_token()`. Caches of traced programs put that object in their keys; comparing it is free.

`config` is the face of the named options (`jax_enable_x64`, ...). Layers above register checks on options with
`config.before_update` and make their own context variables with `Setting`.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import ContextDecorator, contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from shardwise.base.dialect import DIALECTS, LATEST, SEED, Dialect
from shardwise.base.locks import free_lock
from shardwise.base.nearest import did_you_mean
from shardwise.base.options import NO_EFFECT, OPTIONS, PROCESS_WIDE, from_text

T = TypeVar("T")
_LOG = logging.getLogger("shardwise")


class Token:
    """One combination of all traced settings; interned, so identity is equality."""

    __slots__ = ("__weakref__", "values")

    def __init__(self, values: tuple[Any, ...]):
        self.values = values

    def __repr__(self) -> str:
        pairs = zip(_traced_settings, self.values, strict=False)
        return "Token(" + ", ".join(f"{s.name}={v!r}" for s, v in pairs if v != s.initial) + ")"

    def differences(self, other: Token) -> list[tuple[str, Any, Any]]:
        """The settings that differ: name, value here, value there."""
        pairs = zip(_traced_settings, self.values, other.values, strict=False)
        return [(setting.name, here, there) for setting, here, there in pairs if here != there]


class _State:
    """One thread's overrides and its current token."""

    __slots__ = ("entered", "epoch", "overrides", "token", "values")

    def __init__(self) -> None:
        self.overrides: dict[Setting[Any], Any] = {}
        self.entered: list[tuple[Override, list[Any]]] = []  # open overrides, each with the values before it
        self.values: list[Any] = []
        self.token: Token | None = None
        self.epoch: object = None


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = _State()


thread_local = _Local()
_lock = free_lock()
_traced_settings: list[Setting[Any]] = []
_tokens: weakref.WeakValueDictionary[tuple[Any, ...], Token] = weakref.WeakValueDictionary()
_epoch = object()  # replaced whenever a process-wide value changes; threads compare it by identity


def context_token() -> Token:
    """The interned summary of this thread's traced settings and mesh contexts."""
    state = thread_local.state
    if state.epoch is _epoch:
        return state.token  # type: ignore[return-value]
    return _refresh(state)


def _refresh(state: _State) -> Token:
    epoch = _epoch
    state.values = [s.get() for s in _traced_settings]
    return _intern_token(state, epoch)


def _intern_token(state: _State, epoch: object) -> Token:
    values = tuple(state.values)
    token = _tokens.get(values)
    if token is None:
        token = _tokens.setdefault(values, Token(values))
    state.token = token
    state.epoch = epoch
    return token


def _bump() -> None:
    global _epoch
    _epoch = object()


class Setting(Generic[T]):
    """A value with thread-local overrides; a context variable if nobody ever sets it process-wide.

    Args:
        name: shown in `repr` and in the token's.
        initial: the process-wide value to begin with.
        traced: whether the value enters `context_token()`; it must then be hashable.
    """

    __slots__ = ("index", "initial", "name", "value")

    def __init__(self, name: str, initial: T, *, traced: bool = True):
        self.name = name
        self.initial = initial
        self.value = initial
        self.index = -1
        if traced:
            with _lock:
                self.index = len(_traced_settings)
                _traced_settings.append(self)
            _bump()

    def __repr__(self) -> str:
        return f"Setting({self.name}={self.get()!r})"

    def get(self) -> T:
        """This thread's value."""
        return thread_local.state.overrides.get(self, self.value)

    def set_global(self, value: T) -> None:
        """Change the process-wide value."""
        self.value = value
        _bump()

    def set(self, value: T) -> T:
        """Override the value in this thread until further notice; returns the value before."""
        before = self.get()
        self.put(value)
        return before

    def override(self, value: T) -> Override:
        """A context manager (and decorator) under which this thread sees `value`."""
        return Override({self: value})

    def put(self, value: Any) -> None:
        """Override the value in this thread; `_ABSENT` removes the override."""
        state = thread_local.state
        if value is _ABSENT:
            state.overrides.pop(self, None)
            value = self.value
        else:
            state.overrides[self] = value
        if self.index >= 0:
            if state.epoch is _epoch:
                state.values[self.index] = value
                _intern_token(state, state.epoch)
            else:
                state.epoch = None


_ABSENT: Any = object()


class Override(ContextDecorator):
    """Overrides settings in the entering thread; may be entered again, nested or from several threads."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[Setting[Any], Any]):
        self._values = values

    def __enter__(self) -> None:
        state = thread_local.state
        state.entered.append((self, [state.overrides.get(setting, _ABSENT) for setting in self._values]))
        for setting, value in self._values.items():
            setting.put(value)

    def __exit__(self, *exc: object) -> None:
        for setting, value in zip(self._values, self._values_before(thread_local.state.entered), strict=True):
            setting.put(value)

    def _values_before(self, entered: list[tuple[Override, list[Any]]]) -> list[Any]:
        """The values from before this thread last entered; other overrides may have been entered since."""
        for i in range(len(entered) - 1, -1, -1):
            if entered[i][0] is self:
                return entered.pop(i)[1]
        names = ", ".join(setting.name for setting in self._values)
        raise RuntimeError(
            f"an override of {names} ends in a thread that did not enter it. Leave the context where it was entered."
        )


class _Option(NamedTuple):
    setting: Setting[Any]
    parse: Callable[[str, Any], Any]


class Config:
    """The named options. Read them as attributes, change them with `update`.

    `dialect` is a plain attribute kept up to date, which makes reading it cheap; every option is looked up by name.
    """

    dialect: Dialect

    def __init__(self) -> None:
        self.dialect = SEED
        self._options: dict[str, _Option] = {}
        self._checks: dict[str, list[Callable[[Any, Any], None]]] = {}
        for row in OPTIONS:
            value = row.default
            for variable in row.environment:
                if variable in os.environ:
                    value = row.parse(row.name, from_text(row.name, os.environ[variable], row.default))
                    break
            setting: Setting[Any] = Setting(row.name, row.default, traced=row.traced)
            setting.value = value
            self._options[row.name] = _Option(setting, row.parse)
        self._follow_dialect()

    def update(self, name: str, value: Any) -> None:
        """Set an option process-wide.

        Raises:
            AttributeError: there is no such option.
            ValueError, TypeError: the option does not take this value.
            RuntimeError: the option describes devices that exist already.
        """
        if name in NO_EFFECT:
            _LOG.info("%s has no effect in shardwise: %s.", name, NO_EFFECT[name][1])
        setting, parse = self.option(name)
        value = parse(name, value)
        for check in self._checks.get(name, ()):
            check(setting.value, value)
        setting.set_global(value)
        if name == "shardwise_dialect":
            self._follow_dialect()
        elif name == "jax_transfer_guard":
            for direction in TRANSFER_DIRECTIONS:
                self._options[direction].setting.set_global(value)

    def read(self, name: str) -> Any:
        """The process-wide value of an option, whatever this thread overrides."""
        return self.option(name).setting.value

    def setting(self, name: str) -> Setting[Any]:
        """The `Setting` behind an option, for code that reads it often."""
        return self.option(name).setting

    def before_update(self, name: str, check: Callable[[Any, Any], None]) -> None:
        """Call `check(old, new)` before `name` changes; it may raise to refuse."""
        self._checks.setdefault(name, []).append(check)

    @property
    def values(self) -> dict[str, Any]:
        """Every option and its process-wide value."""
        return {name: option.setting.value for name, option in self._options.items()}

    @property
    def x64(self) -> bool:
        """Whether 64-bit dtypes are kept in this thread."""
        return _X64.get()

    x64_enabled = x64

    def override(self, name: str, value: Any) -> Override:
        """A context manager that overrides one option in this thread; ValueError for one that the whole process shares."""
        if name in PROCESS_WIDE:
            raise ValueError(
                f"{name} holds for the whole process, not for a context; set it with config.update({name!r}, {value!r})."
            )
        setting, parse = self.option(name)
        value = parse(name, value)
        for check in self._checks.get(name, ()):
            check(setting.value, value)
        if name == "jax_transfer_guard":
            return Override({setting: value} | {self.setting(direction): value for direction in TRANSFER_DIRECTIONS})
        return Override({setting: value})

    def parse_flags_with_absl(self) -> None:
        """Take options from the command line: `--jax_name=value`, `--jax_flag`, `--nojax_flag`."""
        for argument in sys.argv[1:]:
            if argument == "--":
                break
            flag, _, text = argument.lstrip("-").partition("=")
            flag = flag.replace("-", "_")
            if not argument.startswith("-"):
                continue
            if flag in self._options:
                default = self._options[flag].setting.initial
                self.update(flag, from_text(flag, text or "true", default))
            elif flag.startswith("no") and flag[2:] in self._options:
                self.update(flag[2:], False)

    config_with_absl = parse_flags_with_absl
    context_token = staticmethod(context_token)

    def option(self, name: str) -> _Option:
        """The setting and the parser of an option; AttributeError if there is none."""
        try:
            return self._options[name]
        except KeyError:
            raise self._unknown_option_error(name) from None

    def _unknown_option_error(self, name: str) -> AttributeError:
        hint = did_you_mean(name, self._options)
        return AttributeError(f"Unrecognized config option: {name}" + (hint and f".{hint}"))

    def dialect_of(self, era: str | None) -> Dialect:
        """The dialect of this name; None for the current one."""
        return self.dialect if era is None else DIALECTS[era]

    def _follow_dialect(self) -> None:
        self.dialect = DIALECTS[self.shardwise_dialect]

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.get("_options", {})
        if name not in options:
            raise self._unknown_option_error(name)
        return options[name].setting.get()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._options]

    def __reduce__(self) -> str:
        return "config"  # there is one, which copies and pickled objects name


TRANSFER_DIRECTIONS = (
    "jax_transfer_guard_host_to_device",
    "jax_transfer_guard_device_to_device",
    "jax_transfer_guard_device_to_host",
)

config = Config()
BEFORE, TODAY = SEED.name, LATEST.name
"""The eras: names that only one of them has behave as in it under either dialect."""
_X64: Setting[bool] = config.setting("jax_enable_x64")


@contextmanager
def use_dialect(name: str) -> Generator[None]:
    """Switch the whole process to a dialect for the duration of a `with` block; meant for tests."""
    before = config.shardwise_dialect
    config.update("shardwise_dialect", name)
    try:
        yield
    finally:
        config.update("shardwise_dialect", before)
