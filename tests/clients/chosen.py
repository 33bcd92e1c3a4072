"""A pytest plugin: run a fixed sample of the tests found, each for a limited time, and write what became of them.

Settings come by the environment: CLIENTS_SAMPLE (how many tests), CLIENTS_IDS (a file of ids to run, in place of a sample), CLIENTS_LIMIT
(seconds of the processor a test), CLIENTS_OUT (a file of one JSON line a test). The plugin imports neither JAX nor shardwise.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

_OUT = Path(os.environ["CLIENTS_OUT"])
_LIMIT = int(os.environ.get("CLIENTS_LIMIT", "60"))
_seconds: dict[str, float] = {}


class Overdue(BaseException):
    """A test took longer than it may."""


@pytest.hookimpl(trylast=True)  # after `-k`
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the list, or those whose hashed ids come first."""
    ids = os.environ.get("CLIENTS_IDS")
    if ids is not None:
        wanted = set(Path(ids).read_text().splitlines())
        kept = [item for item in items if item.nodeid in wanted]
    else:
        ranked = sorted(items, key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
        chosen = {item.nodeid for item in ranked[: int(os.environ.get("CLIENTS_SAMPLE", "80"))]}
        kept = [item for item in items if item.nodeid in chosen]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """End a test that takes too long: of the processor, so that other jobs do not matter, or ten times that in all."""

    def stop(*_: object) -> None:
        raise Overdue(f"longer than {_LIMIT} s")

    before = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, _LIMIT)
    signal.alarm(10 * _LIMIT)
    start = time.process_time()
    try:
        yield
    finally:
        _seconds[item.nodeid] = time.process_time() - start
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # a skip: file, line, why
        return report.longrepr[2][:300]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = (crash.message if crash is not None else str(report.longrepr)).strip()
    return text.partition("\n")[0][:300]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the outcome of a test: its call's, or that of the fixture that failed or skipped it."""
    if report.when != "call" and report.outcome == "passed":
        return
    row = {
        "id": report.nodeid,
        "outcome": "xfailed" if hasattr(report, "wasxfail") else report.outcome,
        "seconds": _seconds.get(report.nodeid, 0.0),
        "reason": "" if report.outcome == "passed" else _reason(report),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    with _OUT.open("a") as file:
        file.write(json.dumps(row) + "\n")
