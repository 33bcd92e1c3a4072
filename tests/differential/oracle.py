"""One program text, run by shardwise and by the real JAX of either era, and compared.

`compare(source)` sends the text to two long-lived worker processes (see `worker.py`) and asserts that what the program
left in `result` agrees: values within some units in the last place, dtypes and weak types exactly, and on request
types, shardings and committedness. Where JAX raises, shardwise has to raise an error of the same family.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import oracles
from tests.differential import answers

HERE = Path(__file__).parent
SECONDS = 120

# JAX's own error classes that programs catch by name; shardwise has them under the same names.
NAMED_ERRORS = {
    "ConcretizationTypeError",
    "DuplicateSpecError",
    "IndivisibleError",
    "NonConcreteBooleanIndexError",
    "ShardingTypeError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TypePromotionError",
    "UnexpectedTracerError",
}
# Two ways of saying that a result would have no legal layout; which of them depends on how an op is built.
LAYOUT_ERRORS = {"DuplicateSpecError", "ShardingTypeError"}
# Nearest builtin classes of errors that say no, unlike a KeyError, which says that something went wrong inside.
REFUSALS = {"Exception", "NotImplementedError", "TypeError", "ValueError"}


class OracleDied(Exception):
    """JAX's process ended while it ran a program; XLA aborts rather than raise where its partitioner fails."""


class Worker:
    """A process that runs programs with one library, number of devices and dialect; started at the first program.

    `environment` adds to what the process is started with.
    """

    def __init__(self, library: str, devices: int, dialect: str = "latest", **environment: str):
        self.library = library
        self.devices = devices
        self.dialect = dialect
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, source: str) -> dict[str, Any]:
        """What `worker.run` answers, or for JAX what it answered once, if that is kept."""
        if self.library != "jax" or self.environment:
            return self.ask(source)
        question = (self.dialect, self.devices, source)
        answer = answers.kept(question)
        if answer is None:
            try:
                answer = self.ask(source)
            except OracleDied:
                answer = {"died": True}
            answers.keep(question, answer)
        if "died" in answer:
            raise OracleDied
        return answer

    def ask(self, source: str) -> dict[str, Any]:
        """What the process answers; one that does not answer in time is ended, and so is the test."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        assert self.process is not None and self.process.stdin is not None
        request = pickle.dumps(source)
        self.process.stdin.write(len(request).to_bytes(8, "little") + request)
        self.process.stdin.flush()
        return pickle.loads(self._read(int.from_bytes(self._read(8, source), "little"), source))

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.process = None

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_"))}
        environment |= {
            "JAX_NUM_CPU_DEVICES": str(self.devices),
            "JAX_PLATFORMS": "cpu",
            "SHARDWISE_DIALECT": self.dialect,
            "PYTHONPATH": str(HERE.parent.parent / "src"),
            **self.environment,
        }
        python = oracles.interpreter("latest" if self.library == "shardwise" else self.dialect)
        self.process = subprocess.Popen(
            [str(python), str(HERE / "worker.py"), self.library],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def _read(self, size: int, source: str) -> bytes:
        assert self.process is not None and self.process.stdout is not None
        data = b""
        while len(data) < size:
            ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
            part = os.read(self.process.stdout.fileno(), size - len(data)) if ready else b""
            if not part:
                what = f"ended with status {self.process.poll()}" if ready else f"gave no answer in {SECONDS} s"
                self.close()
                if self.library == "jax" and ready:
                    raise OracleDied
                pytest.fail(f"the {self.library} worker {what}; the program was:\n{source}")
            data += part
        return data


_workers: dict[tuple[str, int, str], Worker] = {}


def worker(library: str, devices: int, dialect: str = "latest") -> Worker:
    """The worker of this test process for `library` ('shardwise' or 'jax') with so many devices, in a dialect."""
    key = (library, devices, dialect)
    if key not in _workers:
        _workers[key] = Worker(library, devices, dialect)
        atexit.register(_workers[key].close)
    return _workers[key]


def compare(
    source: str,
    *,
    reference: str | None = None,
    if_not_implemented: str | None = None,
    devices: int = 8,
    dialect: str = "latest",
    ulps: float = 4,
    types: bool = False,
    indices: bool = False,
    spec: bool = False,
    committed: bool = False,
    printed: bool = False,
) -> dict[str, Any]:
    """Assert that shardwise and JAX agree on a program; returns shardwise's answer.

    Args:
        source: runs after `worker.PREAMBLE` and leaves what is compared in `result`.
        reference: what JAX runs instead, on one device: the same computation without shardings, which cannot change
            values. (XLA's own partitioner sometimes aborts the process or computes something else.)
        if_not_implemented: what JAX runs, on one device, where it raises an error that tells of a gap in JAX rather
            than in the program; then only values are compared.
        devices: the number of CPU devices both have.
        dialect: 'latest' or 'seed'; JAX is the one of that era.
        ulps: how many units in the last place floats may differ by, counted at no less than 1/1000 of the largest
            value of the array.
        types: compare `str(jax.typeof(...))` too, which in explicit mode has the shardings.
        indices: compare which device holds which part.
        spec: compare the text of the specs.
        committed: compare whether arrays are committed.
        printed: compare what the program printed.
    """
    oracles.require(dialect)
    ours = worker("shardwise", devices, dialect).run(source)
    try:
        program, count = (source, devices) if reference is None else (reference, 1)
        theirs = worker("jax", count, dialect).run(program)
        gap = if_not_implemented is not None and _is_gap(theirs.get("error"))
    except OracleDied:
        theirs, gap = {}, True
        if if_not_implemented is None:
            pytest.skip("JAX's process died")
    if gap and "error" in ours:  # refused on both sides, if for different reasons
        assert ours["error"]["builtin"] in REFUSALS, f"{_error_text(ours['error'])}\nthe program was:\n{source}"
        return ours
    if gap and if_not_implemented is not None:
        theirs = worker("jax", 1, dialect).run(if_not_implemented)
        types = indices = spec = committed = printed = False
    try:
        if "error" in theirs:
            _check_error(ours, theirs["error"])
        else:
            assert "error" not in ours, f"only shardwise raised: {_error_text(ours['error'])}"
            fields = ["dtype", "weak_type"]
            fields += ["type"] * types + ["indices"] * indices + ["spec"] * spec + ["committed"] * committed
            check(ours["result"], theirs["result"], "result", fields, ulps)
        if printed:
            assert ours["printed"] == theirs["printed"], f"printed\n{ours['printed']}JAX printed\n{theirs['printed']}"
    except AssertionError as failure:
        failure.add_note(f"the program was:\n{source}")
        raise
    return ours


def _is_gap(error: dict[str, Any] | None) -> bool:
    """Whether an error of JAX's is about what it cannot do, not about what the program does wrong."""
    if error is None:
        return False
    said = any(words in error["message"] for words in ("not implemented", "reshape is not supported"))
    return said or not NAMED_ERRORS & set(error["classes"])


def _check_error(ours: dict[str, Any], error: dict[str, Any]) -> None:
    assert "error" in ours, f"only JAX raised: {_error_text(error)}"
    classes = set(ours["error"]["classes"])
    text = f"shardwise: {_error_text(ours['error'])}\nJAX: {_error_text(error)}"
    assert error["builtin"] in classes, f"errors of different families\n{text}"
    both_refuse = LAYOUT_ERRORS & classes and LAYOUT_ERRORS & set(error["classes"])
    assert both_refuse or NAMED_ERRORS & set(error["classes"]) <= classes, f"errors of different classes\n{text}"


def _error_text(error: dict[str, Any]) -> str:
    return f"{error['classes'][0]}: {error['message'][:500]}"


def check(ours: Any, theirs: Any, where: str, fields: list[str], ulps: float) -> None:
    """Assert that two described results agree: containers, the named `fields` of arrays, and values within `ulps`."""
    assert type(ours) is type(theirs), f"{where}: {ours!r} is not {theirs!r}"
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), f"{where}: {len(ours)} leaves, not {len(theirs)}"
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            check(*pair, f"{where}[{i}]", fields, ulps)
    elif isinstance(theirs, dict) and "kind" not in theirs:
        assert ours.keys() == theirs.keys(), f"{where}: keys {list(ours)}, not {list(theirs)}"
        for key in theirs:
            check(ours[key], theirs[key], f"{where}[{key!r}]", fields, ulps)
    elif isinstance(theirs, dict):
        assert ours["kind"] == theirs["kind"], f"{where}: {ours} is not {theirs}"
        for field in fields:
            assert ours.get(field) == theirs.get(field), (
                f"{where}: {field} is {ours.get(field)!r}, JAX has {theirs.get(field)!r}"
            )
        if "value" in theirs:
            check_values(ours["value"], theirs["value"], where, ulps)
        else:
            assert ours["text"] == theirs["text"], where
    else:
        assert ours == theirs, f"{where}: {ours!r} is not {theirs!r}"


def check_values(ours: NDArray[Any], theirs: NDArray[Any], where: str, ulps: float) -> None:
    """Assert equal shapes, dtypes and, within `ulps`, values; NaNs agree with NaNs."""
    assert ours.shape == theirs.shape, f"{where}: shape {ours.shape}, JAX has {theirs.shape}"
    assert ours.dtype == theirs.dtype, f"{where}: dtype {ours.dtype}, JAX has {theirs.dtype}"
    if ours.dtype.kind in "iubSU" or (ours.dtype.kind == "V" and "int" in ours.dtype.name) or not ours.size:
        assert np.array_equal(ours, theirs), f"{where}: values\n{ours}\nJAX has\n{theirs}"
        return
    if ours.dtype.kind == "c":
        check_values(np.real(ours), np.real(theirs), where + ".real", ulps)
        check_values(np.imag(ours), np.imag(theirs), where + ".imag", ulps)
        return
    unit = _unit_in_the_last_place(theirs)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        agree = (np.isnan(a) & np.isnan(b)) | (a == b) | (np.abs(a - b) <= ulps * unit)
    assert agree.all(), f"{where}: values\n{ours}\nJAX has\n{theirs}"


def _unit_in_the_last_place(x: np.ndarray) -> np.ndarray:
    """The spacing of floats at each element, taken at no less than 1/1000 of the largest finite one."""
    import ml_dtypes

    magnitude = np.nan_to_num(np.abs(x.astype(np.float64)), nan=0, posinf=0)
    floor = magnitude.max(initial=0) / 1000
    info = ml_dtypes.finfo(x.dtype)
    return float(info.eps) * np.maximum(np.maximum(magnitude, floor), float(info.smallest_normal))
