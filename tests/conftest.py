"""What all tests share: 8 virtual CPU devices, for shardwise and for JAX, and a way to run programs."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")  # a failing test shows where
# JAX runs most answers once: fusing them by MLIR and optimizing them by LLVM took a third of the whole time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a process that finds bytecode starts in a third of the time

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # threads of BLAS in other processes: how long they wait busily

import pytest

SOURCE = Path(__file__).parent.parent / "src"


def _load_linear_algebra() -> None:
    """Load NumPy's and SciPy's BLAS with one thread each: several wait busily for the next product and take the cores from other tests.

    Both libraries read the variable as they are loaded; shardwise's own threads, and other processes, go by what it was before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        import scipy.linalg  # type: ignore[import-untyped]  # noqa: F401


_load_linear_algebra()


# What `-m quick` runs: a part of every floor, in less than a minute.
QUICK = [Path(__file__).parent / place for place in (
    "debug/test_visualize.py", "ir", "nn/test_activations.py", "numpy/test_creation.py", "passes/test_propagate.py",
    "passes/test_reshard.py", "sharding", "test_arrays.py", "test_device_put.py", "test_tree_util.py",
    "transforms/interpreters/test_vmap.py",
)]  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """`-m quick` without paths collects only what it runs."""
    if config.option.markexpr == "quick" and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(place) for place in QUICK]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is quick."""
    quick = {path for path in {item.path for item in items} if any(map(path.is_relative_to, QUICK))}
    for item in items:
        if item.path in quick and not (any(item.iter_markers("slow")) or any(item.iter_markers("record"))):
            item.add_marker("quick")


def pytest_collection_finish() -> None:
    """Leave modules and tests, which stay, out of the rounds of the garbage collector."""
    _keep_all()
    gc.set_threshold(5000, 10, 10)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out what the caches keep of a module's tests, too: late in a run, a round over all of it took a second."""
    if nextitem is not None and nextitem.path != item.path:
        _keep_all()


_seen = 0  # objects that the last round over everything left


def _keep_all() -> None:
    """Rounds of the garbage collector pass over what is there now, until as much has come again: then one looks at it all."""
    global _seen
    whole = gc.get_freeze_count() >= 2 * _seen
    if whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    if whole:
        _seen = gc.get_freeze_count()


@pytest.fixture(scope="session", autouse=True)
def checks():
    """Programs are verified after each pass."""
    from shardwise.base import config

    config.update("jax_enable_checks", True)


@pytest.fixture
def latest() -> Iterator[None]:
    """The test runs in the dialect `0.10`."""
    from shardwise.base.config import use_dialect

    with use_dialect("latest"):
        yield


@pytest.fixture(params=["seed", "latest"])
def dialect(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs in each dialect in turn."""
    from shardwise.base.config import use_dialect

    with use_dialect(request.param):
        yield request.param


# Tests of what devices exchange and compute with their parts: there whole values, which are faster, do not take their place.
APART = [Path(__file__).parent / place for place in ("differential", "ops", "passes", "runtime")]


@pytest.fixture(autouse=True)
def apart(request: pytest.FixtureRequest) -> Iterator[None]:
    """Devices of one process compute as separate ones do in the tests of that."""
    from shardwise.base import config

    with config.override("shardwise_whole_values", "off" if any(map(request.path.is_relative_to, APART)) else "auto"):
        yield


@pytest.fixture(autouse=True)
def own_data(request: pytest.FixtureRequest) -> None:
    """What a test draws from its module's `RNG` depends on its name alone, not on the tests that ran before it in this process."""
    rng = getattr(request.module, "RNG", None)
    if rng is not None:
        rng.bit_generator.state = type(rng.bit_generator)(zlib.crc32(request.node.name.encode())).state


@pytest.fixture(scope="session")
def shell():
    """`shell(*arguments, **environment)`: run Python on them in a process of its own, without inherited settings.

    `python` names another interpreter, `cwd` the folder to run in, `stdin` the text on standard input.
    """

    def run(
        *arguments: object,
        python: Path | str = sys.executable,
        cwd: Path | None = None,
        stdin: str | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_", "XLA_"))
        }
        return subprocess.run(
            [str(python), *map(str, arguments)],
            env=kept | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu", "PYTHONIOENCODING": "utf-8"} | environment,
            cwd=cwd,
            input=stdin or "",
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )

    return run


@pytest.fixture
def run_command(shell: Any, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_command(name, source, *words)`: `shardwise NAME` on a program of that text, with `words` behind its name."""

    def run(name: str, source: str, *words: object) -> subprocess.CompletedProcess[str]:
        (tmp_path / "prog.py").write_text(source, encoding="utf-8")
        return shell("-m", "shardwise", name, "prog.py", *words, cwd=tmp_path)

    return run


# Reasons that name what the test extra, MPI or llvmlite bring: where CI is set these are there, or the tests have not been run.
_LACKS = re.compile(
    r"could not import '(jax|mpi4py|optax|hatchling)|JAX is not installed|needs (mpi4py|optax)|no compiler|nothing can be compiled here"
)


def _fail_if_lacking(report: Any) -> None:
    """In CI, a skip for want of an oracle or a tool is a failure; skips for want of an instruction or a right stay what they are."""
    if os.environ.get("CI") and report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if _LACKS.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: nothing that a test needs may be missing in CI: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _fail_if_lacking(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _fail_if_lacking(report)
    return report
