"""What became of a cell here, beside what became of it under JAX."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\bid=\d+")
_PLACE = re.compile(
    r"(?:[^\s()]*/)?([^\s()/:]+(?:, cell \d+>)?):(\d+)(?::\d+)? ?(?:\([\w.<>]+\))?"
)  # here without columns and functions
_TIMING = re.compile(r"\d[\d.]*(?:e[+-]?\d+)?\s*(?:s|sec|secs|seconds|ms|us|µs|ns|milliseconds|microseconds)\b")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|\bnan\b|[-+]?\binf\b", re.I)


@dataclass(frozen=True)
class Verdict:
    """One of the kinds, with a reason where the cell is not the same."""

    kind: str
    reason: str = ""

    KINDS: ClassVar[tuple[str, ...]] = ("same", "digits", "differs", "raises", "raises in JAX", "not in JAX")


def verdict(theirs: dict[str, Any], ours: dict[str, Any]) -> Verdict:
    """Compare what one cell did under JAX and here: whether it raised, and what it printed."""
    if theirs["raised"] in ("Overdue", "Ended", "ModuleNotFoundError", "URLError", "NameError"):
        return Verdict("not in JAX", theirs["raised"])  # the cell says nothing: data or packages are missing
    if ours["raised"] and not theirs["raised"]:
        return Verdict("raises", f"{ours['raised']}: {ours['message']}")
    if theirs["raised"] and theirs["raised"] == ours["raised"]:
        return Verdict("same")
    if theirs["raised"]:  # most of these need a machine that is not here
        return Verdict("raises in JAX", f"{theirs['raised']}, here {ours['raised'] or 'runs'}")
    return compare_texts(theirs["printed"], ours["printed"])


def compare_texts(theirs: str, ours: str) -> Verdict:
    """Whether two printed texts are equal but for white space, timings and addresses, or at least but for digits of numbers."""
    a, b = _normalized(theirs), _normalized(ours)
    if a == b:
        return Verdict("same")
    x, y = _NUMBER.findall(a), _NUMBER.findall(b)
    if len(x) == len(y) and _squeezed(_NUMBER.sub("#", a)) == _squeezed(_NUMBER.sub("#", b)):
        far = [(p, q) for p, q in zip(x, y, strict=True) if not _close(float(p), float(q))]
        if not far:
            return Verdict("digits")
        return Verdict("differs", f"numbers: {far[0][0]} in JAX, {far[0][1]} here")
    return Verdict("differs", "text")


def _normalized(text: str) -> str:
    return " ".join(_PLACE.sub(r"\1:\2", _TIMING.sub("TIME", _ADDRESS.sub("ADDRESS", text))).split())


def _squeezed(text: str) -> str:
    """Without white space: columns are as wide as their widest number."""
    return re.sub(r"\s+", "", text)


def _close(a: float, b: float) -> bool:
    if a != a or b != b:
        return a != a and b != b
    # Pages print four to eight digits, and train: rounding in float32 grows over the steps.
    return a == b or abs(a - b) <= 1e-6 + 1e-3 * max(abs(a), abs(b))
