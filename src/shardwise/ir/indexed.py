"""`IndexedWindows`: the windows that an op reads or writes at starts given by operands."""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexedWindows:
    """Windows of operand 0 whose starts are operands.

    `first` is the first operand that holds starts: from there on one scalar per dim, or, if `vectors`, one array whose last dim has a
    start for each of `dims`. `sizes` are the windows' along `dims`; `wrap` says per dim whether negative starts count from the end.
    Windows that reach beyond the ends are moved inside, or left out if the op `drops` them.
    """

    first: int
    vectors: bool
    dims: Sequence[int]
    sizes: Sequence[int]
    wrap: Sequence[bool]
    drops: bool = False
