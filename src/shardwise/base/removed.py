"""Arguments that JAX 0.10 removed: the seed dialect takes them, the latest one refuses them as unknown arguments."""

from __future__ import annotations

from typing import Any

from shardwise.base import config


class _Absent:
    """The default of such an argument: it was not given."""

    def __repr__(self) -> str:
        return "None"


ABSENT: Any = _Absent()


def old_argument(function: str, name: str, value: Any, instead: str, default: Any = None) -> Any:
    """`value`, or `default` if it was not given.

    Raises:
        TypeError: it was given under the latest dialect.
    """
    if value is ABSENT:
        return default
    if not config.dialect.functions.keeps_removed:
        raise TypeError(
            f"{function}() got an unexpected keyword argument {name!r}. JAX 0.10 has it no more: {instead}."
        )
    return value
