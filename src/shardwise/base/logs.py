"""The logger `shardwise`, and the two options of JAX that choose which messages the terminal shows.

``jax_logging_level`` sets the level of our logger and shows its messages; ``jax_debug_log_modules`` shows all messages of the
loggers that it names (a name of JAX's means ours). Without them, Python's logging decides.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from shardwise.base.config import config

_LOGGER = logging.getLogger("shardwise")
_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"}


class _Terminal(logging.StreamHandler[TextIO]):
    """Writes to the current sys.stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _handler() -> logging.Handler:
    handler = _Terminal()
    handler.setFormatter(logging.Formatter("{levelname}:{asctime}:{name}: {message}", style="{"))
    return handler


_console = _handler()
_debug_handlers: list[tuple[logging.Logger, int, logging.Handler]] = []


def _set_level(old: str | None, new: str | None) -> None:
    level = None if new in (None, "NOTSET") else _LEVELS.get(new, new)
    _LOGGER.setLevel(level or logging.NOTSET)
    if level is None:
        _LOGGER.removeHandler(_console)
    else:
        _LOGGER.addHandler(_console)


def _set_modules(old: str | None, new: str | None) -> None:
    while _debug_handlers:
        logger, level, handler = _debug_handlers.pop()
        logger.removeHandler(handler)
        logger.setLevel(level)
    for name in filter(None, (part.strip() for part in (new or "").split(","))):
        ours = "shardwise" if name.split(".")[0] in ("jax", "jaxlib") else name
        logger = logging.getLogger(ours)
        _debug_handlers.append((logger, logger.level, _handler()))
        logger.addHandler(_debug_handlers[-1][2])
        logger.setLevel(logging.DEBUG)


config.before_update("jax_logging_level", _set_level)
config.before_update("jax_debug_log_modules", _set_modules)
_set_level(None, config.jax_logging_level)
_set_modules(None, config.jax_debug_log_modules)
