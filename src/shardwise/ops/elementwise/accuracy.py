"""Accuracy requests of elementary functions, and the check that results meet them."""

from __future__ import annotations

import enum
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass

_ULPS = 4  # error bound of every elementary function here, in units of the last place


class AccuracyMode(enum.Enum):
    """The requested accuracy of an elementary function. Both members give the same, most accurate, result here."""

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
    """Raise TypeError or NotImplementedError unless results meet the request in any case."""
    if accuracy is None or isinstance(accuracy, AccuracyMode):
        return
    if not isinstance(accuracy, Tolerance):
        raise TypeError(f"lax.{name}: accuracy= takes an AccuracyMode or a Tolerance, got {accuracy!r}.")
    if 0 < accuracy.ulps < _ULPS:
        raise NotImplementedError(
            f"lax.{name} keeps {_ULPS} ulps, not {accuracy.ulps}. Compute in float64 (jax_enable_x64) for more."
        )
