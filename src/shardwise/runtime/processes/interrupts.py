"""Ctrl-C while Python cannot react to it: the main thread waits inside of MPI for a process that may never come."""

from __future__ import annotations

import os
import signal
import threading
import time


class Interrupts:
    """Sees SIGINT from another thread than the main one. Made in the main thread; elsewhere it sees nothing."""

    def __init__(self) -> None:
        self._pipe: int | None = None
        self._at: float | None = None
        if threading.current_thread() is not threading.main_thread():
            return
        reads, writes = os.pipe()
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)
        before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        if before == -1:
            self._pipe = reads
        else:  # somebody else listens
            signal.set_wakeup_fd(before)
            os.close(reads)
            os.close(writes)

    def unheard(self, since: float | None, patience: float = 1.5) -> bool:
        """Whether SIGINT came `patience` seconds ago and the main thread still waits, as it has done `since` before it."""
        if self._pipe is None:
            return False
        try:
            if signal.SIGINT in os.read(self._pipe, 512):
                self._at = time.monotonic()
        except BlockingIOError:
            pass
        at = self._at
        if at is None:
            return False
        if since is None or since > at:
            self._at = None if since is not None else at
            return False
        return time.monotonic() - at > patience
