"""Near memory: temporaries that live on the chip and take nothing of the device's main memory.

XLA for TPUs assigns values that are read soon after they are made to VMEM, as far as there is room beside what kernels use. Those
of the fewest groups come first, of as many the smallest: they earn most for the room that they take.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from shardwise.planner.span import Span
from shardwise.planner.target import Target
from shardwise.planner.work import Group


def far_from_chip(spans: Sequence[Span], groups: Sequence[Group], target: Target) -> list[Span]:
    """The spans that lie in main memory; the others have found room on the chip."""
    busy = [g for g, group in enumerate(groups) if group.kind == "loop"]
    bytes_in_use = [0] * len(groups)
    near: set[int] = set()
    candidates = [
        (span.last - span.first, span.nbytes, i)
        for i, span in enumerate(spans)
        if span.var is not None
        and 0 <= span.last - span.first <= target.near_groups
        and 2 * span.nbytes <= target.near_bytes
        and not _meets(span, busy)
    ]
    for _, nbytes, i in sorted(candidates):
        span = spans[i]
        if max(bytes_in_use[span.first : span.last + 1]) + nbytes <= target.near_bytes:
            for g in range(span.first, span.last + 1):
                bytes_in_use[g] += nbytes
            near.add(i)
    return [span for i, span in enumerate(spans) if i not in near]


def _meets(span: Span, busy: Sequence[int]) -> bool:
    """Whether one of these groups, which are in order, runs while a span is in use."""
    at = bisect_left(busy, span.first)
    return at < len(busy) and busy[at] <= span.last
