"""Run libraries' own tests under JAX and under shardwise, and write docs/clients.md of what passes.

    python -m tests.clients --checkouts DIR [--environment DIR] [--sample N] [--kept] [--write] [NAME ...]

DIR holds one checkout per library, in folders of the names in libraries.toml, at the version that pip installs. The
environment, with every library and JAX 0.10.2, is made at the first call. Libraries run one after the other: their tests once under
JAX, and those that passed there once more by `shardwise run --dialect latest -m pytest`. Seconds are the processor's, within the
tests; memory is the most that a process of tests held. What a run found is kept in the environment's folder, and with `--write` in
rows.json, from which the page is made, so that libraries can be tried at different times and places; with `--kept` only what runs here
is run again, beside what JAX gave before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_PAGE = _ROOT / "docs" / "clients.md"
_ROWS = _HERE / "rows.json"
_JAX = "0.10.2"
_SUITE_SECONDS = 1800


@dataclass(frozen=True)
class Library:
    """A row of libraries.toml."""

    name: str
    package: str
    tests: tuple[str, ...]
    module: str
    checkout: str | None
    environment: dict[str, str]
    keyword: str = ""


def libraries() -> dict[str, Library]:
    """The rows of libraries.toml by name."""
    rows = tomllib.loads((_HERE / "libraries.toml").read_text())
    return {
        name: Library(
            name,
            row["package"],
            tuple(row["tests"]),
            row.get("module", row["package"]),
            None if row.get("installed") else row.get("checkout", name),
            row.get("environment", {}),
            row.get("keyword", ""),
        )
        for name, row in rows.items()
    }


def make_environment(folder: Path) -> Path:
    """The Python of an environment that holds every library, JAX and this checkout's shardwise."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        packages = sorted({library.package for library in libraries().values() if library.package})
        subprocess.run([python, "-m", "pip", "install", "-q", f"jax=={_JAX}", *packages, "pytest<9", "pytest-cases",
                        "hypothesis", "absl-py",
                        "pytest-json-report", "ndindex", "cloudpickle", "scikit-learn", "tqdm", "mock", "pyro-api",
                        "typeguard==2.13.3", "array-api-compat", "beartype"], check=True)  # fmt: skip
        # Libraries ask for two packages that write the same folder; only the later one knows this JAX.
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", "tfp-nightly"], check=True
        )
        subprocess.run([python, "-m", "pip", "install", "-q", "-e", _ROOT], check=True)
    return python


def run_suite(
    library: Library, python: Path, checkout: Path, out: Path, ours: bool, settings: dict[str, str]
) -> list[dict[str, Any]]:
    """Run a library's tests and return what became of each."""
    out.unlink(missing_ok=True)
    command = [str(python), "-W", "ignore"]
    command += ["-m", "shardwise", "run", "--dialect", "latest", "-m", "pytest"] if ours else ["-m", "pytest"]
    command += [
        "-p",
        "chosen",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        "-o",
        "addopts=",
        "-o",
        "filterwarnings=",
        *(["-k", library.keyword] if library.keyword else []),
        *library.tests,
    ]
    environment = (
        os.environ
        | {"PYTHONPATH": str(_HERE), "CLIENTS_OUT": str(out), "JAX_PLATFORMS": "cpu"}
        | settings
        | library.environment
    )
    if ours:
        environment["PYTHONPATH"] += os.pathsep + str(_ROOT / "src")
    with out.with_suffix(".log").open("w") as log:
        try:
            subprocess.run(
                command, cwd=checkout, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=_SUITE_SECONDS
            )
        except subprocess.TimeoutExpired:
            log.write(f"\nended after {_SUITE_SECONDS} s\n")
    return read_results(out)


def read_results(out: Path) -> list[dict[str, Any]]:
    """What became of each test of a run."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return list({row["id"]: row for row in rows}.values())


def compare(library: Library, python: Path, checkouts: Path, results: Path, sample: int, kept: bool) -> dict[str, Any]:
    """Run a library under both, or take what is known of JAX's run, and return the row of the page."""
    checkout = packages_of(python) if library.checkout is None else checkouts / library.checkout
    if not checkout.is_dir():
        raise SystemExit(f"there is no {checkout}; put the checkout of {library.name} there")
    known = results / f"{library.name}.jax"
    settings = {"CLIENTS_SAMPLE": str(sample)}
    theirs = read_results(known) if kept else run_suite(library, python, checkout, known, False, settings)
    passed = [row for row in theirs if row["outcome"] == "passed"]
    ids = results / f"{library.name}.ids"
    ids.write_text("\n".join(row["id"] for row in passed))
    here: list[dict[str, Any]] = []
    if passed:
        here = run_suite(library, python, checkout, results / f"{library.name}.here", True, {"CLIENTS_IDS": str(ids)})
    ours = {row["id"]: row for row in here if row["outcome"] == "passed"}
    both = [row for row in passed if row["id"] in ours]
    reasons = {row["id"]: row["reason"] for row in here}
    lost = [row["id"] for row in passed if row["id"] not in ours]
    row = {
        "version": _version(python, library.package),
        "tried": len(theirs),
        "passed": len(passed),
        "ours": len(both),
        "seconds": (sum(row["seconds"] for row in both), sum(ours[row["id"]]["seconds"] for row in both)),
        "memory": tuple(max((row["memory"] for row in rows), default=0) for rows in (theirs, here)),
        "lost": {name: reasons.get(name, "was not collected, or the run ended before it") for name in lost},
    }
    (results / f"{library.name}.json").write_text(json.dumps(row, indent=1))
    return row


def _version(python: Path, package: str) -> str:
    if not package:
        return ""
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def packages_of(python: Path) -> Path:
    """The folder of an environment's packages."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip())


def rows_with(known: dict[str, Any], results: Path) -> dict[str, Any]:
    """The rows `known`, with those of the results kept in place of older ones, in the order of libraries.toml."""
    found = {name: json.loads(p.read_text()) for name in libraries() if (p := results / f"{name}.json").exists()}
    for row in found.values():
        theirs, ours = row.pop("seconds")
        row["time"] = round(theirs / ours, 1) if ours else None
    rows = known | {
        name: row for name, row in found.items() if row["passed"]
    }  # others say nothing: JAX fails there, too
    return {name: rows[name] for name in libraries() if name in rows}


def page(rows: dict[str, Any]) -> str:
    """The text of docs/clients.md, of the rows of rows.json."""
    lines = [
        "# JAX's libraries here",
        "",
        "Libraries' own tests, unmodified, under JAX "
        + _JAX
        + " and under `shardwise run --dialect latest`: a fixed sample of each suite.",
        "*passing* counts tests that pass under JAX, and those of them that pass here; *time* is JAX's processor time over ours in tests",
        "that pass in both, *memory* the most that the process of tests held. Made by `python -m tests.clients --checkouts DIR --write`.",
        "Times are those of one run each, most of them of tracing and compiling; other jobs on the machine change them by a third.",
        "Each row is of the last run of that library; they were made at different times, and a limit of time cut some samples.",
        "Functions of NumPy find arrays as JAX's: they have `__array__` and no `__array_function__`, so that `np.sum(x)`,",
        "which calls `x.sum`, gives an array of JAX's type, and `np.concatenate([x, x])` an ndarray.",
        "SciPy 1.17.1's own tests of its array API with `jax.numpy` (`SCIPY_ARRAY_API='[\"jax.numpy\"]'`), 589 of them from 26 files, were",
        "run once by hand: 390 pass under JAX, and all of these here.",
        "JAX's examples of language models ([jax-llm-examples](https://github.com/jax-ml/jax-llm-examples), 8b4b246) test themselves on",
        "4 devices; run once by hand: 94 tests of deepseek_r1_jax, gpt_oss, kimi_k2, llama4 and qwen3 pass under JAX and here. Under JAX",
        "those of gemma4 and nemotron3 took too long on our machine; 39 pass here.",
        "Samples of further suites were run by hand: jaxDecomp and vmoe on 8 devices, learned_optimization, kfac-jax, flashbax,",
        "praxis's base layer, scenic's layers, fedjax's `for_each_client` and flax's example of Gemma. JAX was asked for a part of",
        "these tests; all of these that pass there pass here.",
        "",
        "| library | version | tests tried | passing under JAX | of these here | time | memory JAX / here, MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        ratio = f"{row['time']:.1f}x" if row["time"] else ""
        memory = " / ".join(str(m) for m in row["memory"])
        lines.append(
            f"| {name} | {row['version']} | {row['tried']} | {row['passed']} | {row['ours']} | {ratio} | {memory} |"
        )
    lost = [(name, test, reason) for name, row in rows.items() for test, reason in row["lost"].items()]
    if lost:
        lines += ["", "## What does not pass", ""]
        lines += [
            f"- {name}: `{test}`: {' '.join(reason.split())[:160].replace('`', '')}" for name, test, reason in lost
        ]
    why = [f"- {name}: {_WHY[name]}" for name in dict.fromkeys(name for name, _, _ in lost) if name in _WHY]
    lines += ["", "Why:", "", *why] if why else []
    lines += ["", "## Not tried", "", *_NOT_TRIED]
    return "\n".join(lines) + "\n"


_WHY = {
    "equinox": "a rule of `custom_jvp` that is called with Python numbers gives arrays, where JAX hands the numbers through; "
    "the other test takes time.",
    "quax": "its arrays have rules for JAX's primitives. `searchsorted` is one here, and a loop of others in JAX.",
    "haliax": "its tests count the results of a forward scan before it is compiled. One that carries a name stands there twice; "
    "compiled, it is kept once.",
}
_NOT_TRIED = (
    "- tunix: 148 modules of its tests do not load under JAX 0.10.2 in this environment either: packages are missing, and some are",
    "  written for Python 3.12.",
    "- haliax 1.3 does not import under JAX 0.10.2; the row is of 1.4.dev453.",
    "- brainpy does not load here: saiunit, which it needs, imports primitives of sparse formats (`sparse.coo_todense_p`).",
    "- s2fft 1.5 and tensorflow-probability 0.25 do not import under JAX 0.10.2 either (`jax.lib.xla_client`,",
    "  `interpreters.xla.pytype_aval_mappings`).",
    "- gpjax 1.0 fails in most tests under JAX 0.10.2 with flax 0.12.8, too. pennylane's tests are written for Python 3.12.",
    "- scikit-learn's array API tests know no JAX. jax-md and unxt need packages for their tests which were not installed.",
    "- tensorflow-probability: its tests are written for TensorFlow and rewritten for JAX when it is built; distrax and rlax use it.",
    "- bayeux and evojax import here; JAX was not measured beside them.",
    "- Tests that need data from the network or packages which are not installed fail or are skipped under JAX, and so are not counted.",
)


def main() -> None:
    """Carry out the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", help="libraries of libraries.toml; all that have a checkout if none is named"
    )
    parser.add_argument("--checkouts", type=Path, required=True, help="a folder of checkouts")
    parser.add_argument(
        "--environment",
        type=Path,
        default=Path.home() / ".cache" / "shardwise-clients",
        help="where the environment is made",
    )
    parser.add_argument("--sample", type=int, default=80, help="tests of each library; 0 means all")
    parser.add_argument("--kept", action="store_true", help="take what earlier runs under JAX gave")
    parser.add_argument("--write", action="store_true", help="write docs/clients.md of what is known")
    options = parser.parse_args()
    known = libraries()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"{unknown[0]} is not in libraries.toml; known are {', '.join(known)}")
    python = make_environment(options.environment)
    results = options.environment / "results"
    results.mkdir(exist_ok=True)
    names = options.names or [
        n for n, library in known.items() if library.checkout is None or (options.checkouts / library.checkout).is_dir()
    ]
    for name in names:
        row = compare(
            known[name], python, options.checkouts.resolve(), results.resolve(), options.sample or 10**9, options.kept
        )
        print(
            f"{name}: {row['ours']} of {row['passed']} (of {row['tried']} tried), {row['seconds'][0]:.1f} / {row['seconds'][1]:.1f} s",
            flush=True,
        )
        for test, reason in row["lost"].items():
            print(f"    {test}: {reason}", flush=True)
    if options.write:
        rows = rows_with(json.loads(_ROWS.read_text()), results)
        _ROWS.write_text(json.dumps(rows, indent=1) + "\n")
        _PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
