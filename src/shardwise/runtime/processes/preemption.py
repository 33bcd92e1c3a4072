"""SIGTERM as a notice that the machine will soon be taken away, which all processes come to know at the same step.

Comes in: the signal, on any process. Goes out: on every process the same step, the first that they all begin after it. Nobody
listens until the program asks for the first time; until then SIGTERM ends a process as ever.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import numpy as np

from shardwise.base.errors import JaxRuntimeError
from shardwise.runtime.processes.comm import world
from shardwise.runtime.processes.meeting import Meeting
from shardwise.runtime.processes.origin import number_of


class Notice:
    """Whether SIGTERM has come to this process since it was last asked."""

    def __init__(self) -> None:
        self._came = False
        self._listens = False

    def take_notice(self) -> bool:
        """Whether it came; asking takes it."""
        self._listen()
        came, self._came = self._came, False
        return came

    def _listen(self) -> None:
        if self._listens:
            return
        if threading.current_thread() is not threading.main_thread():
            raise JaxRuntimeError(
                "reached_preemption_sync_point listens to SIGTERM from its first call on, and only the main thread may begin to. "
                "Call it there first."
            )
        before = signal.getsignal(signal.SIGTERM)

        def hear(number: int, frame: Any) -> None:
            self._came = True
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, hear)
        self._listens = True


_notice = Notice()


def reached_end(step: int) -> bool:
    """Whether one of the processes, all of which ask at this step, was told to end since the step before."""
    came = _notice.take_notice()
    processes = world()
    if processes is None:
        return came
    everyone = tuple(range(processes.size))
    what = f"reached_preemption_sync_point({step})"
    link = processes.link(everyone)
    meeting = Meeting(processes, everyone, number_of(what), lambda: what, early=True)
    told = meeting.exchange(lambda x: link.all_reduce(x, "max", 0), [np.array([came], np.int64)])
    return bool(told[0])
