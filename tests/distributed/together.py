"""One of the processes that run pytest together: `python together.py blocked|interleaved TOLD STEP FILES...`.

Each process runs the same tests, one of STEP, in the same order, arrays read as on one process, and writes to TOLD.<rank> per
test how it ended. Tests that compare with the real JAX are skipped: it would have other devices.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


class Together:
    """Meets the other processes before each test, and notes how it ended."""

    def __init__(self, world: Any, told: Path, step: int) -> None:
        self.world = world
        self.step = step
        self.told = told

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = items[:: self.step]

    def pytest_runtest_setup(self, item: Any) -> None:
        from shardwise.runtime.processes import number_of

        if "shell" in item.fixturenames:
            pytest.skip("starts processes of its own")
        self.world.meet(tuple(range(self.world.size)), number_of(item.nodeid), lambda: item.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.failed:
            with self.told.open("a") as out:
                why = str(report.longrepr)[-2000:] if report.failed else ""
                out.write(json.dumps([report.nodeid, report.outcome, why]) + "\n")


def main() -> None:
    """Run the tests of the given files."""
    order, told, step, *files = sys.argv[1:]
    sys.modules["jax"] = None  # type: ignore[assignment]
    import shardwise as sw
    from shardwise.runtime.processes.comm import the_world

    sw.distributed.initialize(heartbeat_timeout_seconds=60, shutdown_timeout_seconds=60)
    spec = importlib.util.spec_from_file_location("one_view", HERE / "one_view.py")
    assert spec is not None and spec.loader is not None
    viewing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viewing)
    viewing.number_devices(order == "interleaved")
    world = the_world()
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(HERE.parents[1]), "--tb", "short"]
    with viewing.one_view():
        done = pytest.main([*options, *files], plugins=[Together(world, Path(f"{told}.{world.rank}"), int(step))])
    sys.exit(int(done) if done not in (0, 1) else 0)  # failures are told; what ends with an error ends the job


if __name__ == "__main__":
    main()
