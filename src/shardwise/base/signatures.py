"""Type variables of functions that give functions back with the same parameters, so that editors keep showing these."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

if TYPE_CHECKING:
    from typing import Protocol

    class KeepsSignature(Protocol):
        """A decorator whose results are called as the functions that it decorates."""

        def __call__(self, f: Callable[P, R], /) -> Callable[P, R]: ...
