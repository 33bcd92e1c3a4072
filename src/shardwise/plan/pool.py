"""Layouts planned by several processes that share the traced step: they are forked from this one.

In: a `Step` and layouts. Out: a `Point` for each, in order. Where processes cannot be forked, this one plans all.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType

from shardwise.plan.points import Point, point_of
from shardwise.plan.step import Step, StepLayout

_step: Step | None = None  # of a forked process
_FEW = 2  # layouts that this process plans itself


class Pool:
    """A pool of processes that share one step."""

    def __init__(self, step: Step, processes: int) -> None:
        if processes < 1:
            raise ValueError(f"processes={processes}: there has to be one.")
        self._step = step
        self._executor: ProcessPoolExecutor | None = None
        if processes > 1 and "fork" in multiprocessing.get_all_start_methods():
            context = multiprocessing.get_context("fork")
            self._executor = ProcessPoolExecutor(processes, context, _take_step, (step,))

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def plan(self, layouts: Sequence[StepLayout]) -> list[Point]:
        """A point for each layout."""
        if self._executor is None or len(layouts) < _FEW:
            return [point_of(self._step, k) for k in layouts]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            return list(self._executor.map(_point, layouts))


def _take_step(step: Step) -> None:
    global _step
    _step = step


def _point(layout: StepLayout) -> Point:
    assert _step is not None
    return point_of(_step, layout)
