"""`Spread`: how many parts the devices of a grid hold of a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir.types import ShapedArray


@dataclass(frozen=True, slots=True)
class Spread:
    """The grid that a per-device program runs on, as passes see it that ask how much work an equation is.

    A value that does not vary along an axis is stored and computed once for all devices along it: a replicated value costs as much on
    many devices as on one.

    Attributes:
        sizes: the number of devices along each axis.
        entries: how often each value occurs besides, as in `vmap`.
    """

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    entries: int = 1

    def parts(self, *avals: ShapedArray) -> int:
        """How often an equation is computed whose operands or results have these types."""
        n = self.entries
        for axis in frozenset[str]().union(*[a.vma for a in avals]):
            n *= self.sizes.get(axis, 1)
        return n

    def elements(self, aval: ShapedArray) -> int:
        """The elements of a value in all its parts."""
        return aval.size * self.parts(aval) if aval.vma else aval.size * self.entries


ALONE = Spread()
