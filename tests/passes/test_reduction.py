"""How parts of sums become sums in the layouts that are wanted, with the fewest bytes."""

from __future__ import annotations

import pytest

from shardwise.passes.reduction import plan_reduction
from tests.passes.layouts import MESH, layout, text

SHAPE = (64, 64)
BYTES = 64 * 64 * 4


def planned(dims, placed, partial, shape=SHAPE, scatters=True):
    return plan_reduction(layout(dims), layout(placed), tuple(partial), shape, 4, MESH, scatters=scatters)


@pytest.mark.parametrize(
    "dims, placed, partial, scattered, rest, sent",
    [
        ("--", "--", "y", (), ("y",), 2 * BYTES * 3 // 4),
        ("--", "y-", "y", ((0, ("y",)),), (), BYTES * 3 // 4),
        ("x-", "(xy)-", "y", ((0, ("y",)),), (), BYTES // 2 * 3 // 4),
        ("--", "yx", "xy", ((0, ("y",)), (1, ("x",))), (), BYTES * 3 // 4 + BYTES // 4 // 2),
        ("--", "y-", "xy", ((0, ("y",)),), ("x",), BYTES * 3 // 4 + BYTES // 4),
        ("x-", "y-", "y", ((0, ("y",)),), (), BYTES // 2 * 3 // 4 + BYTES // 8 + BYTES // 8),
    ],
)
def test_scattered_where_that_is_fewer(dims, placed, partial, scattered, rest, sent):
    plan = planned(dims, placed, partial)
    assert (plan.scatters, plan.rest, plan.bytes_sent) == (scattered, rest, sent)


def test_what_cannot_be_scattered_is_reduced_whole():
    assert planned("--", "y-", "y", scatters=False).rest == ("y",)
    plan = planned("x-", "y-", "y", shape=(4, 64))  # 8 does not divide 4
    assert (plan.scatters, plan.rest, text(plan.dims)) == ((), ("y",), "x-")
