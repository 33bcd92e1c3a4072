"""`Point`: a layout of a step, and what the planner says of it in three figures."""

from __future__ import annotations

import math

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.plan.step import Step, StepLayout, reason


@dataclass(frozen=True, slots=True)
class Point:
    """A layout that was planned.

    Attributes:
        layout: it.
        seconds: of a step.
        peak: bytes that a device holds at most.
        fits: whether it has them.
        error: why there is no plan, '' if there is one.
        loses_batch: whether values inside carry all of a batch that is split.
    """

    layout: StepLayout
    seconds: float = math.inf
    peak: int = 0
    fits: bool = False
    error: str = ""
    loses_batch: bool = False

    @property
    def per_batch(self) -> float:
        """Seconds for as many examples as the program's own step takes."""
        return self.seconds / float(self.layout.batch)


def point_of(step: Step, layout: StepLayout) -> Point:
    """The plan of a layout, in figures; with the reason if it cannot be planned."""
    try:
        return planned_point(step, layout)
    except Exception as error:  # the user's function is traced anew, and may raise anything
        return Point(layout, error=reason(error))


def planned_point(step: Step, layout: StepLayout) -> Point:
    """The plan of a layout, in figures. Raises what planning it does."""
    executable = step.compile_layout(layout)
    plan = step.plan_compiled(layout, executable)
    loses_batch = not layout.keep_batch and bool(step.pins_of(layout, executable))
    return Point(layout, plan.seconds.likely, plan.peak, plan.fits, loses_batch=loses_batch)
