"""The programs that an equation runs: `Loop` and `Branches`, which ops declare in `Op.region`.

In: an equation. Out: its programs, how often they run, and the operands of each, whatever the names of the params.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from shardwise.base.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from shardwise.ir.program import Equation, Program


def _none() -> slice:
    return slice(0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """`body` runs `length` times; if that is None, while `test` is true.

    `body` gets the operands at `consts`, then the carry, which begins with the operands at `carry`, then an entry along the first
    dim of each operand at `rows`; it gives the next carry, then entries of the stacked results. `test` gets the operands at
    `test_consts`, then the carry. The equation's results are the last carry and the stacked results. If `reverse`, the last
    entries come first. `counted` is the param of the equation that says how many constants `body` has.
    """

    body: Program
    consts: slice
    carry: slice
    rows: slice = field(default_factory=_none)
    length: int | None = None
    reverse: bool = False
    test: Program | None = None
    test_consts: slice = field(default_factory=_none)
    counted: str = ""

    @property
    def programs(self) -> tuple[Program, ...]:
        """All programs of the loop."""
        return (self.body,) if self.test is None else (self.body, self.test)

    @property
    def num_consts(self) -> int:
        """The number of inputs of `body` that are constant over the iterations; the carry comes next."""
        return self.consts.stop - self.consts.start

    @property
    def num_carry(self) -> int:
        """The number of values in the carry."""
        return self.carry.stop - self.carry.start


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """Operand 0 selects the one of `programs` that runs, on the other operands."""

    programs: tuple[Program, ...]


Region = Loop | Branches

ANY_GOES_ON = (
    "any element goes on"  # the name of a test of many elements; a round keeps the values of those that have stopped
)


def region_of(eqn: Equation) -> Region | None:
    """The `Loop` or `Branches` of an equation; None if its op declares none."""
    return None if eqn.op.region is None else eqn.op.region(eqn)


def rounds_of(eqn: Equation) -> int | None:
    """The number of times that an equation runs its programs; None if only the run decides, as for branches."""
    region = region_of(eqn)
    return region.length if isinstance(region, Loop) else None
