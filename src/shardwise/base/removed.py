"""Arguments that JAX 0.10 removed: the dialect 0.5 takes them, 0.10 refuses them as unknown arguments."""

from __future__ import annotations

from typing import Any

from shardwise.base import config
from shardwise.base.errors import about


class _Absent:
    """The default of such an argument: it was not given."""

    def __repr__(self) -> str:
        return "None"


ABSENT: Any = _Absent()


def old_argument(function: str, name: str, value: Any, instead: str) -> Any:
    """`value`, or None if it was not given.

    Raises:
        TypeError: it was given under the dialect 0.10.
    """
    if value is ABSENT:
        return None
    if not config.dialect.functions.keeps_removed:
        raise about(
            "dialect",
            TypeError(
                f"{function}() got an unexpected keyword argument {name!r}. JAX 0.10 has it no more: {instead}. {config.dialect.switch}"
            ),
        )
    return value
