"""What has to agree: ways of running one program that must give the same, beside each other and beside JAX."""

from __future__ import annotations

import math
import os
import pickle
import re
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.differential import oracle
from tests.fuzz.program import AXES, Program, edited

HERE = Path(__file__).parent
SAFETY = 8.0  # how far beyond the estimated noise floats may be apart
DEVICES = 16
Answer = dict[str, Any]


@dataclass
class Finding:
    """A law that a program breaks."""

    law: str
    what: str  # the kind of difference, which a shrunk program has to keep
    detail: str


class Together:
    """Two processes under mpiexec that run programs as one, each with half of the devices."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.folder: Path | None = None

    def run(self, source: str) -> Answer:
        answers = self.run_apart(source, source)
        if "died" in answers[0]:
            return answers[0]
        if ("error" in answers[0]) != ("error" in answers[1]):
            return {"died": f"one process raised: {answers}"}
        return answers[0]

    def run_apart(self, *sources: str) -> list[Answer]:
        """The answers of both processes to a program for each; if one dies, both have."""
        if self.process is None or self.process.poll() is not None:
            self._start()
        for pipe, source in zip(self.requests, sources, strict=True):
            request = pickle.dumps(source)
            pipe.write(len(request).to_bytes(8, "little") + request)
            pipe.flush()
        answers = [self._read(pipe) for pipe in self.answers]
        died = [answer for answer in answers if "died" in answer]
        if died:
            self.close()
        return died[:1] * 2 or answers

    def close(self) -> None:
        if self.process is not None:
            for pipe in (*self.requests, *self.answers):
                with suppress(OSError):
                    pipe.close()  # with which they end
            try:
                self.process.wait(60)  # what was compiled is freed, which takes its time on busy cores
            except subprocess.TimeoutExpired:
                self.process.terminate()
                self.process.wait()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.process = self.folder = None

    def _start(self) -> None:
        self.close()
        self.folder = Path(tempfile.mkdtemp())
        names = [self.folder / f"{kind}.{rank}" for kind in ("request", "answer") for rank in (0, 1)]
        for name in names:
            os.mkfifo(name)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "SHARDWISE_"))}
        environment |= {
            "JAX_NUM_CPU_DEVICES": str(DEVICES // 2),
            "SHARDWISE_DIALECT": "latest",
            "PYTHONPATH": str(HERE.parent.parent / "src"),
        }
        mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        assert mpiexec is not None
        self.process = subprocess.Popen(
            [mpiexec, "-n", "2", sys.executable, str(HERE / "rank.py"), str(self.folder)],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        self.requests = [open(name, "wb") for name in names[:2]]  # noqa: SIM115  closed by close
        self.answers = [open(name, "rb", buffering=0) for name in names[2:]]  # noqa: SIM115

    def _read(self, pipe: Any) -> Answer:
        size, data = 8, b""
        for _ in "hd":
            data = b""
            while len(data) < size:
                ready, _, _ = select.select([pipe], [], [], oracle.SECONDS)
                part = os.read(pipe.fileno(), size - len(data)) if ready else b""
                if not part:
                    return {"died": "a process ended" if ready else f"no answer in {oracle.SECONDS} s"}
                data += part
            size = int.from_bytes(data, "little") if size == 8 and len(data) == 8 else size
        return pickle.loads(data)


class Runners:
    """The processes that run programs, started as they are needed."""

    def __init__(self) -> None:
        # XLA's optimizations change no values beyond rounding, and are most of the time that JAX takes.
        fast = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._of: dict[str, oracle.Worker | Together] = {
            "ours": oracle.Worker("shardwise", DEVICES),
            "fallback": oracle.Worker("shardwise", DEVICES, SHARDWISE_LLVM="0", SHARDWISE_BLAS="numpy"),
            "jax": oracle.Worker("jax", 1, **fast),
            "jax_mesh": oracle.Worker("jax", DEVICES, **fast),
            "together": Together(),
        }
        self._runs = {name: 0 for name in self._of}
        self._known: dict[tuple[str, str], Answer] = {}

    def run(self, name: str, source: str) -> Answer:
        """The answer of a runner; an end of its process is one, too. Laws share the answers of the latest programs."""
        known = self._known.get((name, source))
        if known is None:
            if len(self._known) > 20:
                self._known.clear()
            known = self._known[name, source] = self._run(name, source)
        return known

    def _run(self, name: str, source: str) -> Answer:
        self._runs[name] += 1
        if name.startswith("jax") and self._runs[name] % 400 == 0:
            self._of[name].close()  # what XLA compiled is never given back
        try:
            return self._of[name].run(source)
        except oracle.OracleDied:
            return {"died": "JAX's process ended"}
        except (pytest.fail.Exception, OSError) as error:
            self._of[name].close()
            return {"died": str(error).split("; the program was")[0]}

    def run_apart(self, *sources: str) -> list[Answer]:
        """What each of two processes answers to a program of its own."""
        together = self._of["together"]
        assert isinstance(together, Together)
        return together.run_apart(*sources)

    def close(self) -> None:
        for runner in self._of.values():
            runner.close()


Law = Callable[[Runners, Program], tuple[Answer, Answer, bool]]
LAWS: dict[str, Law] = {}
BESIDE_JAX = ("jax", "types", "traced", "refusals")


def law(function: Law) -> Law:
    """Register a law: it returns two answers that have to agree, and whether types are compared as well."""
    LAWS[function.__name__] = function
    return function


STEPPED = "[jax.config.update('shardwise_stepped', True), jax.jit(f)(*args), jax.config.update('shardwise_stepped', False)][1]"


@law
def eager(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """Jit changes nothing."""
    return runners.run("ours", program.text("eager")), runners.run("ours", program.text("plain")), False


@law
def mesh(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """No mesh, spec, constraint or donation changes a value."""
    return runners.run("ours", program.text()), runners.run("ours", program.text("plain")), False


@law
def stepped(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """Devices one after the other compute what all compute at once."""
    return runners.run("ours", program.text(call=STEPPED)), runners.run("ours", program.text()), False


@law
def fallback(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """NumPy alone computes what compiled loops do."""
    return runners.run("fallback", program.text()), runners.run("ours", program.text()), True


@law
def processes(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """Two processes compute what one does."""
    return runners.run("together", program.text()), runners.run("ours", program.text()), False


# What comes of all results meets an array that lies on all devices.
READ_TOGETHER = """
guard = put(np.arange({size}, dtype=np.float32), P({axes},))
def read():
    {context}:
        parts = [jnp.sum(jnp.real(x).astype('float32')) for x in jax.jit(f)(*args)]
        return float(jnp.sum(guard * sum(parts)))
try:
    result = np.float32(read()).tobytes().hex()
except jax.errors.JaxRuntimeError as error:
    result = type(error).__name__
"""


@law
def divergent(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """Where one of two processes runs something else, both are told before they read what came of both."""
    size = math.prod(program.mesh)
    other = edited(program)
    if size == 1 or other is None:
        return {}, {}, False
    end = READ_TOGETHER.format(size=size, axes=AXES[: len(program.mesh)], context=_context(program))
    answers = runners.run_apart(*(p.text(call="None") + end for p in (program, other)))
    if "died" in answers[0]:
        return answers[0], {"result": NOTICED}, False
    if all("error" in answer for answer in answers):  # on either alone, too
        return {}, {}, False
    told = [answer.get("result", "an error") for answer in answers]
    if told[0] == told[1] and told[0] != NOTICED[0]:  # what was edited has no part in the results
        return {}, {}, False
    return {"result": told}, {"result": NOTICED}, False


NOTICED = ["DivergenceError"] * 2


@law
def jax(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """JAX computes the same, on one device if the program needs no more."""
    where = "jax_mesh" if program.maps and program.mesh != (1,) else "jax"
    return runners.run("ours", program.text("plain")), runners.run(where, program.text("plain")), False


@law
def types(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """On explicit axes JAX's types have the same shardings."""
    if program.axis_type != "Explicit":
        return {}, {}, False
    return runners.run("ours", program.text()), runners.run("jax_mesh", program.text()), True


TRACED = "[str(t) for t in jax.make_jaxpr(f)(*args).out_avals]"


def _where(program: Program) -> tuple[str, str]:
    """How a program is written down for JAX to see its types, and the runner that can."""
    explicit = program.axis_type == "Explicit"
    return "mesh" if explicit else "plain", "jax_mesh" if explicit or program.maps else "jax"


@law
def traced(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """Every value has the type that JAX's tracer gives it: a law that costs little, as nothing is compiled."""
    how, where = _where(program)
    text = replace(program, results=[s.name for s in program.statements]).text(how, call=TRACED)
    return runners.run("ours", text), runners.run(where, text), False


@law
def refusals(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """What was refused while the program grew JAX refuses as well."""
    if program.refused is None:
        return {}, {}, False
    how, where = _where(program)
    text = program.refused.text(how, call=TRACED)
    return runners.run("ours", text), runners.run(where, text), False


# A donated argument is written over or deleted only by a call that ends well.
ATOMIC = """
def failing(*args):
    out = f(*args)
    {end}
before = [np.array(a) for a in args]
def attempt():
    try:
        jax.block_until_ready(jax.jit(failing, donate_argnums=tuple(range(len(args))))(*args))
    except Exception as error:
        return 'raised'
    return 'no error'
{context}:
    result = [attempt(), [a.is_deleted() for a in args], [0 if a.is_deleted() else np.array(a) for a in args]]
expected = ['raised', [False] * len(args), before]
"""
ENDS = (
    "raise ValueError('on purpose')",
    "return out, jnp.ones(3) + jnp.ones(4)",
    "def refuse(*_): raise ValueError('on purpose')\n"
    "    return out, jax.pure_callback(refuse, jax.ShapeDtypeStruct((), 'float32'), *[jnp.sum(a) for a in args])",
)


@law
def atomic(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """A call that raises has deleted, donated and written over nothing."""
    end = ENDS[len(program.statements) % len(ENDS)]
    text = program.text(call="None") + ATOMIC.format(end=end, context=_context(program))
    expected = text + "result = expected"
    return runners.run("ours", text), runners.run("ours", expected), False


REPEATED = """
def attempt():
    g = jax.jit(f)
    return [[np.array(leaf) for leaf in g(*args)] for _ in 'ab'] + [[np.array(a) for a in args]]
before = [np.array(a) for a in args]
{context}:
    first, second, after = attempt()
"""


@law
def repeated(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """A second call, which finds everything compiled, gives bit for bit what the first gave; operands are as they were."""
    text = program.text(call="None") + REPEATED.format(context=_context(program))
    both = runners.run("ours", text + "result = [[leaf.tobytes() for leaf in second], [a.tobytes() for a in after]]")
    if "result" not in both:
        return {}, {}, False
    first = runners.run("ours", text + "result = [[leaf.tobytes() for leaf in first], [a.tobytes() for a in before]]")
    return both, first, False


# What shares memory with an argument, or once may have, and is an array of its own.
DONATED = """
def others(a):
    made = [lambda: a.reshape(-1), lambda: a.T, lambda: a[None], lambda: jnp.copy(a), lambda: a[:1] if a.ndim else a[None],
            lambda: jax.device_put(a, NamedSharding(mesh, P())), lambda: np.asarray(a), lambda: jnp.asarray(np.asarray(a))]
    for make in made:
        try:
            other = make()
        except (ValueError, TypeError):  # which explicit axes refuse
            continue
        if other is not a and getattr(other, 'sharding', None) != getattr(a, 'sharding', other):
            yield other
def attempt(donate):
    fresh = tuple(a + 0 if a.dtype != bool else a ^ False for a in args)
    held = [list(others(a)) for a in fresh]
    before = [[np.array(h) for h in hs] for hs in held]
    out = jax.jit(f, donate_argnums=donate)(*fresh)
    after = [[np.array(h) for h in hs] for hs in held]
    return [[np.array(o).tobytes() for o in out], [[h.tobytes() for h in hs] for hs in after],
            [[h.tobytes() for h in hs] for hs in before]]
{context}:
    result = attempt(tuple(range(len(args))))
"""


@law
def donated(runners: Runners, program: Program) -> tuple[Answer, Answer, bool]:
    """Donation of all arguments changes no result and no other array."""
    text = program.text(call="None") + DONATED.format(context=_context(program))
    kept = runners.run("ours", text.replace("attempt(tuple(range(len(args))))", "attempt(())"))
    if "result" not in kept:
        return {}, {}, False
    out, _, before = kept["result"]
    return runners.run("ours", text), {**kept, "result": [out, before, before]}, False


def _context(program: Program) -> str:
    return "with jax.set_mesh(mesh)" if program.axis_type == "Explicit" else "if True"


def check(name: str, runners: Runners, program: Program) -> Finding | None:
    """What `program` shows against the law called `name`, if anything."""
    ours, theirs, typed = LAWS[name](runners, program)
    if "died" in theirs and name in BESIDE_JAX:
        return None
    for answer, side in ((ours, "left"), (theirs, "right")):
        if "died" in answer:
            return Finding(name, f"{side} died", answer["died"])
    if "error" in ours or "error" in theirs:
        return _compare_errors(name, ours, theirs)
    if "result" not in ours:
        return None
    special = "special(" in program.text()
    scale = None if name in ("atomic", "repeated", "divergent", "donated") else program.noise
    if name == "refusals":
        return None
    if name == "traced":
        return _compare_types(ours["result"], theirs["result"])
    try:
        _compare(ours["result"], theirs["result"], "result", ["dtype", "weak_type"] + ["type"] * typed, scale, special)
    except AssertionError as difference:
        text = str(difference)
        return Finding(name, text.split(":")[1].split()[0] if ":" in text else text.split()[0], text)
    return None


def _compare_types(ours: list[str], theirs: list[str]) -> Finding | None:
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a != b:
            return Finding(
                "traced", f"{_rankless(a)} beside {_rankless(b)}", f"value {i} of {len(ours)} is {a}, JAX's {b}"
            )
    return None


def _rankless(shown: str) -> str:
    """A shown type without sizes, as those change when programs shrink."""
    return re.sub(r"\d+(?=[],@])", "n", shown)


def _compare_errors(name: str, ours: Answer, theirs: Answer) -> Finding | None:
    def said(answer: Answer) -> str:
        return oracle._error_text(answer["error"]) if "error" in answer else "no error"

    if "error" in ours and "error" in theirs:
        if name in BESIDE_JAX or ours["error"]["builtin"] == theirs["error"]["builtin"]:
            return None
        return Finding(name, "other error", f"{said(ours)}\nbeside\n{said(theirs)}")
    if name in BESIDE_JAX and "error" in theirs:
        if theirs["error"]["builtin"] not in ("TypeError", "ValueError"):  # a gap in JAX or a slip within
            return None
        return (
            Finding(name, "only JAX raised " + theirs["error"]["classes"][0], said(theirs)) if name == "jax" else None
        )
    side = ours if "error" in ours else theirs
    which = "left" if side is ours else "right"
    return Finding(name, f"{which} raised {side['error']['classes'][0]}", said(side))


def _compare(ours: Any, theirs: Any, where: str, fields: list[str], noise: list[float] | None, special: bool) -> None:
    if isinstance(theirs, list) and noise is not None and len(noise) == len(theirs):
        assert len(ours) == len(theirs), f"{where}: length"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            compare_leaf(a, b, f"{where}[{i}]", fields, noise[i])
    else:
        oracle.check(ours, theirs, where, ["dtype"], 4)


def compare_leaf(ours: Any, theirs: Any, where: str, fields: list[str], noise: float) -> None:
    """Assert that two described arrays agree: in the named fields, and in floats up to `SAFETY` times `noise`."""
    for name in fields:
        if name in ours and name in theirs:
            assert ours[name] == theirs[name], f"{where}: {name} {ours[name]!r} is not {theirs[name]!r}"
    a, b = np.asarray(ours["value"]), np.asarray(theirs["value"])
    assert a.shape == b.shape, f"{where}: shape {a.shape} is not {b.shape}"
    assert a.dtype == b.dtype, f"{where}: dtype {a.dtype} is not {b.dtype}"
    if a.dtype.kind in "iub":
        agree = a == b
    else:
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        with np.errstate(all="ignore"):
            agree = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= SAFETY * noise)
    if not np.all(agree):
        at = np.argwhere(~np.asarray(agree))[:3].tolist()
        some = [(a[tuple(i)], b[tuple(i)]) for i in at]
        raise AssertionError(
            f"{where}: values differ in {a.size - np.count_nonzero(agree)} of {a.size} places, at {at}: {some}; "
            f"noise {noise:.2g}\n{a}\nbeside\n{b}"
        )
