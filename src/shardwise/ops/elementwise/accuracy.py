"""Accuracy requests of elementary functions: what callers may ask for, and that it is met."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

_ULPS = 4  # what every elementary function here keeps, in units of the last place


class AccuracyMode(enum.Enum):
    """How exact an elementary function should be. Both members give the same, most exact, result here."""

    HIGHEST = 1
    DEFAULT = 2


@dataclass(frozen=True)
class Tolerance:
    """Bounds on the error of an elementary function: absolute, relative, and in units of the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.atol < 0 or self.rtol < 0 or self.ulps < 0:
            raise ValueError(f"tolerances cannot be negative: {self!r}")


def check_accuracy(name: str, accuracy: Any) -> None:
    """Raise unless the request is one that results keep anyway: TypeError or NotImplementedError."""
    if accuracy is None or isinstance(accuracy, AccuracyMode):
        return
    if not isinstance(accuracy, Tolerance):
        raise TypeError(f"lax.{name}: accuracy= takes an AccuracyMode or a Tolerance, got {accuracy!r}.")
    if 0 < accuracy.ulps < _ULPS:
        raise NotImplementedError(
            f"lax.{name} keeps {_ULPS} ulps, not {accuracy.ulps}. Compute in float64 (jax_enable_x64) for more."
        )
