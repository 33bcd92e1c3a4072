"""How fast shardwise is beside JAX: `python benchmarks/run.py [--only CASE ...] [--devices 1 8 64 512] [--write]`.

Both run the same lines, each in processes of its own: one per family of cases, library and number of devices. A case that
takes too long is stopped and shown as such, and so are failures. `--write` makes docs/benchmarks.md, `--json FILE` keeps the
figures, `--from FILE ...` shows kept ones, of several runs together. Needs `pip install '.[test]'` for JAX; without it only
shardwise is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dispatch
import gathers
import in_place
import loops
import movement
import products_and_models
import programs
import small
import small_matrices
from registry import CASES, MOST, Case, families
from separate import environment

HERE = Path(__file__).parent
LIBRARIES = ("shardwise", "jax")
START_SECONDS = 30  # until a process is up
FAMILIES = (
    dispatch,
    small,
    small_matrices,
    movement,
    gathers,
    in_place,
    loops,
    products_and_models,
    programs,
)  # imported for the cases that they register
FIRST_RUNS = 3  # processes per first call


def run_cases(library: str, devices: int, names: Sequence[str], limit: float) -> dict[str, Any]:
    """The figures of each case; a process that dies or takes longer than `limit` for one is replaced for the others."""
    figures: dict[str, Any] = {}
    left = list(names)
    while left:
        done = _one_process(library, devices, left, limit)
        figures.update(done)
        left = [n for n in left if n not in figures]
    return figures


def _one_process(library: str, devices: int, names: Sequence[str], limit: float) -> dict[str, Any]:
    """The figures of one process, which finds no compiled code of earlier ones."""
    with tempfile.TemporaryDirectory() as folder:
        return _figures_of_child(
            [sys.executable, str(HERE / "child.py"), library, *names],
            {**environment(devices), "SHARDWISE_CACHE_DIR": folder},
            names,
            limit,
        )


def _figures_of_child(
    command: Sequence[str], variables: dict[str, str], names: Sequence[str], limit: float
) -> dict[str, Any]:
    child = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    figures: dict[str, Any] = {}
    wait = limit + START_SECONDS
    for name in names:
        try:
            line = lines.get(timeout=wait)
        except queue.Empty:
            figures[name] = {"error": f"over {limit:.0f} s"}
            break
        if line is None:
            figures[name] = {"error": "the process died"}
            break
        found = json.loads(line)
        figures[found.pop("case")] = found
        wait = limit
    child.kill()
    child.wait()
    return figures


def import_seconds(library: str) -> dict[str, float]:
    """How long `import` takes, interpreter included, and how long the interpreter alone."""
    times = []
    for _ in range(8):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {library}"], check=True, env=environment(1))
        times.append(time.perf_counter() - begin)
    del times[0]  # it may have made bytecode
    return {"median": statistics.median(times), "least": min(times)}


def measure(
    cases: Sequence[Case], devices: Sequence[int], libraries: Sequence[str], limit: float, note: Any
) -> dict[str, Any]:
    """All figures: by case, then number of devices, then library."""
    results: dict[str, Any] = {c.name: {} for c in cases}
    for count in devices:
        for family in dict.fromkeys(c.family for c in cases):
            chosen = [c for c in cases if c.family == family and count in c.devices]
            for library in libraries:
                if not chosen:
                    continue
                note(f"{family}, {count} devices, {library}")
                found = run_cases(library, count, [c.name for c in chosen if not c.first], limit)
                for c in chosen:
                    if c.first:
                        found[c.name] = _first_calls(library, count, c.name, limit)
                for name, figures in found.items():
                    results[name].setdefault(str(count), {})[library] = figures
    return results


def _first_calls(library: str, devices: int, name: str, limit: float) -> dict[str, Any]:
    """First calls in several processes."""
    found = [run_cases(library, devices, [name], limit)[name] for _ in range(FIRST_RUNS)]
    failed = next((f for f in found if "error" in f), None)
    if failed:
        return failed
    times = [f["first"] for f in found]
    return {"median": statistics.median(times), "least": min(times)}


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of several runs on one machine, for example one per number of devices; of the same figure the last."""
    whole = dict(parts[0])
    for part in parts[1:]:
        cases = {name: counts | part["cases"].get(name, {}) for name, counts in whole["cases"].items()}
        whole = {**whole, **part, "machine": whole["machine"], "rates": whole["rates"], "cases": part["cases"] | cases}
    return whole


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CASE", help="names of cases, or words of their families"
    )
    parser.add_argument("--devices", nargs="+", type=int, default=list(MOST), metavar="N")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=None)
    parser.add_argument(
        "--limit", type=float, default=8.0, metavar="SECONDS", help="for one case, at one number of devices"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--from", nargs="+", type=Path, metavar="FILE", dest="kept", help="kept figures; later files win"
    )
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--list", action="store_true", help="the names of the cases")
    options = parser.parse_args()
    import report  # knows the cases

    chosen = [c for c in CASES.values() if not options.only or _wanted(c, options.only)]
    if options.list:
        for family in families():
            print(f"{family}: {', '.join(c.name for c in chosen if c.family == family)}")
        return
    if not chosen and "import" not in options.only:
        parser.error(f"no such case: {', '.join(options.only)}; see --list")
    if options.kept:
        figures = merged([json.loads(file.read_text()) for file in options.kept])
    else:
        libraries = options.libraries or [n for n in LIBRARIES if n == "shardwise" or importlib.util.find_spec(n)]
        begin = time.perf_counter()
        note = report.Progress()
        figures = {"machine": report.describe_machine(), "limit": options.limit}
        figures["rates"] = json.loads(
            subprocess.run(
                [sys.executable, str(HERE / "child.py"), "numpy"],
                capture_output=True,
                text=True,
                check=True,
                env=environment(1),
            ).stdout
        )
        figures["cases"] = measure(chosen, options.devices, libraries, options.limit, note)
        if not options.only or "import" in options.only:
            figures["import"] = {library: import_seconds(library) for library in libraries}
        note.done()
        figures["seconds"] = time.perf_counter() - begin
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    report.show(figures)
    if options.write:
        report.write(figures, HERE.parent / "docs" / "benchmarks.md")


def _wanted(found: Case, words: Sequence[str]) -> bool:
    return any(w == found.name or w.lower() in found.family.lower() for w in words)


if __name__ == "__main__":
    main()
