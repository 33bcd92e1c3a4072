"""Collections that users give: read as tuples, or refused with the expected kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def given_items(value: Any, expected: str) -> tuple[Any, ...]:
    """The items of a collection. TypeError, with what was `expected`, for a value that is none."""
    if not isinstance(value, Iterable):
        raise TypeError(f"{expected}; got {value!r} of type {type(value).__name__}.")
    return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def given_keys(value: Any, expected: str) -> tuple[Any, ...]:
    """`given_items` that can be looked up. TypeError for one that has no hash."""
    items = given_items(value, expected)
    for item in items:
        try:
            hash(item)
        except TypeError:
            raise TypeError(f"{expected}; got {item!r} of type {type(item).__name__}, which is mutable.") from None
    return items
