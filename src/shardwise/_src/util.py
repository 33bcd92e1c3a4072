"""`util`: maps and zips of lists of equal lengths."""

from collections.abc import Iterable
from typing import Any

from shardwise.api_util import safe_map as safe_map


def safe_zip(*iterables: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The tuples of items at the same places; AssertionError where the lengths differ."""
    return safe_map(lambda *items: items, *iterables)
