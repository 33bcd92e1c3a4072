"""`Box`: a part of the result of an op that only moves elements; passes put results together from boxes of other values."""

from __future__ import annotations

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ints


@dataclass(frozen=True, slots=True)
class Box:
    """`size` elements of an operand, from its position `first` on, stand at position `at` of the result.

    A box of a scalar holds that value everywhere; its `first` is ().
    """

    operand: int
    first: Ints
    at: Ints
    size: Ints
