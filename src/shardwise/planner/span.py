"""Spans: how long buffers are needed."""

from __future__ import annotations

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Var


@dataclass(slots=True)
class Span:
    """A buffer from the first group that needs it to the last.

    Attributes:
        var: the value; None for what a group needs while it runs.
        room: the size class of the buffer, where a pool keeps buffers for others of their class; 0 if there is none.
    """

    first: int
    last: int
    nbytes: int
    var: Var | None
    kind: str = "temporary"
    room: int = 0
