"""The cost of a compiled program, as the planner counts it: arithmetic, bytes touched, bytes sent.

In: a Program, global or per-device. Out: numbers that depend on shapes alone, by XLA's conventions where it has one: a transcendental is
not a flop, a multiply-add is two.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.ir import Program
from shardwise.passes import Transfer
from shardwise.planner import work_of


def cost_of(program: Program, transfers: Sequence[Transfer] | None = None) -> dict[str, float]:
    """'flops', 'transcendentals', 'bytes accessed' and, given the record of communication, 'collective bytes' sent per device.

    A loop of unknown length counts once, of branches the most of each amount.
    """
    work = work_of(program.equations)
    cost = {
        "flops": float(work.product_flops + work.arithmetic),
        "transcendentals": float(work.functions),
        "bytes accessed": float(work.bytes),
    }
    if transfers is not None:
        cost["collective bytes"] = float(sum(t.total for t in transfers))
    return cost
