"""`Collective`: the properties of an op that communicates over mesh axes.

In: a declaration beside the op's other rules, in its file under `ops/devices`. Out: the field `Op.collective`, which the
partitioner, the planner of reshards, costs, `explain` and the stepped executor read; none of them knows a collective by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir.boxes import Box

if TYPE_CHECKING:
    from shardwise.ir.op import Op, Types

Params = Mapping[str, Any]
Values = Sequence[Any]  # one device's operands


@dataclass(frozen=True, slots=True)
class AbsorbedReduction:
    """A collective as a reduction over its axes that the op which produced its operand may run in its own kernel.

    `kind` names the monoid. `rest`, if any, is the op (with params) that turns the reduction's result into the collective's, without
    communication.
    """

    kind: str
    rest: tuple[Op, Params] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """The fields of a collective. Its op has a param `axes`, mesh axes with the first one major, and `sizes` if its types need them.

    label       its name in lists of transfers.
    sent        ``(bytes of the operand, number of devices) -> bytes`` that a device sends to others; None: none are counted.
    sent_of     ``(in_types, params, sizes of mesh axes) -> bytes`` if that does not follow from the operands' bytes alone.
    moves       it only changes a value's layout; if the partitioner inserts it, `on_reshard` may refuse it.
    computes    it combines values: as many operations as its result has elements.
    absorbed    ``(params) -> AbsorbedReduction | None``: the reduction that the producer of its operand may run.
    exchange    ``(operands of each device, params) -> result of each device``, for a group of devices in row-major order; without it the
                block kernel says what the op means. It is the op's meaning written down a second time, which checks the first.
    alone       ``(position, operands, params) -> result`` on the device at that row-major position: the op needs nothing of others.
    called      ``(params) -> str``: the name that users know.
    told        params that messages show.
    boxes       ``(eqn) -> (shape, boxes) | None``: the result as a whole along the axes, of this shape, is put together from these boxes
                of the operands as wholes. In one process fused loops read them where they lie.
    pattern     who sends to whom, by which the time on a network follows from the bytes: "gather" (each device gets all parts), "scatter"
                (each gets a part of a combination of all), "reduce" (each gets the combination), "transpose" (each sends a part to each
                other one), "shift" (each sends to one other device).
    """

    label: str
    sent: Callable[[int, int], int] | None = None
    sent_of: Callable[[Types, Params, Mapping[str, int]], int] | None = None
    moves: bool = False
    computes: bool = False
    absorbed: Callable[[Params], AbsorbedReduction | None] | None = None
    exchange: Callable[[Sequence[Values], Params], list[Any]] | None = None
    alone: Callable[[int, Values, Params], Any] | None = None
    called: Callable[[Params], str] | None = None
    told: tuple[str, ...] = ()
    boxes: Callable[..., tuple[tuple[int, ...], Sequence[Box]] | None] | None = None
    pattern: str = "shift"

    @property
    def counted(self) -> bool:
        """Whether lists of transfers include it."""
        return self.sent is not None or self.sent_of is not None

    def block_bytes_sent(self, nbytes: int, n: int) -> int:
        """The bytes that each of `n` devices sends to others for an operand of `nbytes`."""
        return 0 if n <= 1 or self.sent is None else self.sent(nbytes, n)

    def bytes_sent(self, in_types: Types, params: Params, sizes: Mapping[str, int]) -> int:
        """The bytes that a device sends to others in one call; axes missing from `sizes` count as one device."""
        if self.sent_of is not None:
            return self.sent_of(in_types, params, sizes)
        n = math.prod(sizes.get(a, 1) for a in params["axes"])
        return sum(self.block_bytes_sent(t.nbytes, n) for t in in_types)
