"""Where processes that have come for different things differ: in the program, in a value, or in how an array was made.

Comes in: the next step of each process, as it announces it. Goes out: a reason for each, for the error.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """A call of a program in detail.

    `lines` are its equations, each with its digest; `arguments` are a number that stands for the argument, its name or value, and
    whether each process brings it itself; `recent` are origins and names of what the process has computed lately.
    """

    number: int
    lines: Sequence[tuple[bytes, str]]
    arguments: Sequence[tuple[int, str, bool]]
    recent: Sequence[tuple[int, str]]


def reasons(told: Sequence[Evidence | None]) -> list[str]:
    """The difference of each process from the others; empty where nothing is known beyond what each is about to do."""
    calls = [known for known in told if known is not None]
    if len(calls) != len(told):
        return [""] * len(told)
    if len({c.number for c in calls}) > 1:
        found = first_of_its_own([c.lines for c in calls])
        return ["the first equation of its own: " + text if text else "" for text in found]
    if len({len(c.arguments) for c in calls}) > 1:
        return [""] * len(told)
    for arguments in zip(*[c.arguments for c in calls], strict=True):
        if len({number for number, _, _ in arguments}) > 1 and arguments[0][2]:
            return [f"on values of each process's own, which must be equal: {text}" for _, text, _ in arguments]
    for arguments in zip(*[c.arguments for c in calls], strict=True):
        if len({number for number, _, _ in arguments}) > 1:
            made = first_of_its_own([c.recent[:-1] for c in calls])
            return [
                f"{text} was made otherwise" + (f", by {how}" if how else "")
                for (_, text, _), how in zip(arguments, made, strict=True)
            ]
    return [""] * len(told)


def first_of_its_own(lists: Sequence[Sequence[tuple[object, str]]]) -> list[str | None]:
    """Of each list of (number, text) the first text whose number is not in all of them."""
    common = set.intersection(*[{number for number, _ in items} for items in lists])
    return [next((text for number, text in items if number not in common), None) for items in lists]


def apart(known: Sequence[Sequence[int]]) -> bool:
    """Whether two of several processes have computed what the other has not."""
    counts = [Counter(dict(found)) for found in {frozenset(Counter(numbers).items()) for numbers in known}]
    return any(a - b and b - a for a, b in itertools.combinations(counts, 2))
