"""Section 'published': predicted beside published step times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from planning.models import planned
from planning.published_steps import LEFT_OUT, STEPS, Step
from shardwise.planner.result import Plan

GIB = 2**30


@dataclass(frozen=True)
class Outcome:
    """A published step and its plan."""

    step: Step
    plan: Plan

    @property
    def error(self) -> float:
        """How much longer the plan says it takes, relative to what was measured."""
        return self.plan.seconds.likely / self.step.measured - 1


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float:
    """How well two rankings agree: of all pairs those in the same order less those in the other, 1 at best."""
    agree = sum(
        math.copysign(1, (a - c) * (b - d)) if (a - c) * (b - d) else 0 for (a, b), (c, d) in combinations(pairs, 2)
    )
    return agree / math.comb(len(pairs), 2)


def page() -> str:
    """The section as Markdown."""
    outcomes = [Outcome(step, planned(step.model, step.recipe, step.machine)) for step in STEPS]
    rows = [_row(i, o) for i, o in enumerate(outcomes)]
    halves = [[abs(o.error) for o in outcomes[i::2]] for i in range(2)]
    errors = sorted(abs(o.error) for o in outcomes)
    tau = kendall_tau([(o.step.measured, o.plan.seconds.likely) for o in outcomes])
    within = sum(o.plan.seconds.low <= o.step.measured <= o.plan.seconds.high for o in outcomes)
    fitting = sum(o.plan.fits for o in outcomes)
    return f"""## Published training steps

{len(outcomes)} steps of public recipes, planned from models written for the purpose (`benchmarks/planning/models.py`): nothing of the
programs that were timed is run or read. Four constants are common to all TPUs: what products reach of the peak, what memory and links
reach of theirs, and how much transfers slow down the computations beside them. The first and the last were fitted on every other row
(`fit`), by the mean of the absolute logarithms of the ratios; the remaining rows are kept back. Rows of
one family stand in both halves, and the form of the model was chosen with all of them in sight: new architectures will do worse.

| | median error | worst |
|---|---|---|
| all {len(outcomes)} | **{statistics.median(errors):.1%}** | {errors[-1]:.0%} |
| fitted on ({len(halves[0])}) | {statistics.median(halves[0]):.1%} | {max(halves[0]):.0%} |
| kept back ({len(halves[1])}) | {statistics.median(halves[1]):.1%} | {max(halves[1]):.0%} |

Kendall's tau of the two rankings by seconds: **{tau:.3f}**. {within} of {len(outcomes)} lie within the interval that the plan gives.
By the plan {fitting} of {len(outcomes)} fit the device's memory; all of them did.

| step | machine | published, s | planned, s | error | bound by | memory, GiB | |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Seconds of rows from `readme` follow from published TFLOP/s by MaxText's count of operations. Left out: {LEFT_OUT}

What the model does not know of them: how far compiler flags of the recipes change the schedule (a few of them are worth 10 %);
fused attention kernels, which overlap the vector unit with the matrix unit where our loop over blocks runs one after the other (long
sequences come out too slow); how uneven experts are; clocks that go down under load; hosts that wait for each other, which costs more from
4,096 chips on; the bandwidth between a chip and its host ("host_bandwidth" of the machine files), of which only that of v4 is published.
"""


def _row(index: int, o: Outcome) -> str:
    parts = sorted(o.plan.shares.items(), key=lambda item: -item[1])
    bound = ", ".join(f"{cause} {seconds / o.plan.seconds.likely:.0%}" for cause, seconds in parts[:2])
    cells = (
        o.step.name,
        o.step.machine,
        f"{o.step.measured:.2f}",
        f"{o.plan.seconds.likely:.2f}",
        f"{o.error:+.0%}",
        bound,
        f"{o.plan.peak / GIB:.1f} of {o.plan.capacity / GIB:.1f}",
        "; ".join(filter(None, (o.step.source, "" if index % 2 else "fit", o.step.note))),
    )
    return f"| {' | '.join(cells)} |"
