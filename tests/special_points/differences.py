"""Where shardwise gives something else than JAX at special points, and why.

``differences.txt`` lists reasons, and under each the expressions that it is about with what differs there: ``value:`` or ``slope:`` (a
derivative) and one of `comparison.KINDS`, or ``derivative`` if only one of the two has one. Expressions are listed in full: no row is
about others. What shardwise gives there is in the record.
"""

from __future__ import annotations

import functools
from pathlib import Path

_TABLE = Path(__file__).with_name("differences.txt")


@functools.cache
def rows() -> list[tuple[str, str, str]]:
    """Expression, what differs, reason."""
    out, why = [], ""
    for line in _TABLE.read_text().splitlines():
        if line.startswith("#"):
            why = line[1:].strip()
        elif line:
            differs, _, expression = line.partition(" | ")
            out += [(expression, what, why) for what in differs.split()]
    return out


@functools.cache
def reasons() -> dict[str, dict[str, str]]:
    """By expression, by what differs, the reason."""
    out: dict[str, dict[str, str]] = {}
    for expression, what, why in rows():
        out.setdefault(expression, {})[what] = why
    return out
