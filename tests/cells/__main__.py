"""Run the programs in JAX's documentation under JAX and under shardwise, and write docs/jax-documentation.md.

    python -m tests.cells --checkout DIR [--results DIR] [--python PYTHON] [--again WHAT] [--write] [PATTERN ...]

DIR is a checkout of github.com/jax-ml/jax at the version of the JAX that PYTHON has installed, beside what the pages import besides
(matplotlib, scikit-learn, optax). Each page runs in a process of its own, its code cells in order, on 8 devices: once under JAX, once
by `shardwise run --dialect latest`; so do the examples in docstrings, a process for each module. Compared is, cell by cell, whether it
raised, and the text that it printed. What a run found is kept in the folder of results: `--again here` runs only what is run here,
beside what JAX gave before, `--again nothing` what was not run yet; `--again known` runs nothing, and leaves documents out that were
not run. PATTERNs choose documents by a part of their names; `--glob` takes documents of another checkout than JAX's.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.cells.compare import Verdict, verdict
from tests.cells.pages import Page, docstrings, page

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_PAGE = _ROOT / "docs" / "jax-documentation.md"
_SECONDS = 240


@dataclass(frozen=True)
class Job:
    """Pages that run in one process."""

    name: str
    folder: Path
    pages: tuple[Page, ...]
    given: bool = False  # whether jax, jnp, np and lax are names there, as in JAX's own runs of docstrings


@dataclass(frozen=True)
class Outcome:
    """What became of one cell that runs under JAX, or not."""

    page: str
    number: int
    source: str
    verdict: Verdict
    theirs: dict[str, Any]
    ours: dict[str, Any]


def jobs(checkout: Path) -> Iterator[Job]:
    """All documents of a checkout of JAX with code in them."""
    documents = [
        path
        for folder in ("docs", "cloud_tpu_colabs")
        for path in sorted((checkout / folder).rglob("*"))
        if path.suffix in (".ipynb", ".md", ".rst")
    ]
    documents += [path for path in sorted((checkout / "examples").glob("*.py")) if path.name != "__init__.py"]
    documents.append(checkout / "docs" / "the-training-cookbook.py")
    yield from documents_of(checkout, documents)
    for path in sorted((checkout / "jax").rglob("*.py")):
        found = docstrings(checkout, path)
        if found:
            yield Job(str(path.relative_to(checkout)), checkout, tuple(found), given=True)


def documents_of(root: Path, paths: Sequence[Path]) -> Iterator[Job]:
    """A job for each document with code; of those that lie there in two forms, the notebook."""
    for path in paths:
        if path.suffix == ".md" and path.with_suffix(".ipynb").exists():
            continue
        found = page(root, path)
        if found.cells:
            yield Job(found.name, path.parent, (found,))


def run_job(job: Job, python: Path, results: Path, ours: bool) -> dict[str, list[dict[str, Any]]]:
    """The results of a job's pages by their names, cell by cell; of a process that died, those until then."""
    name = _stem(job)
    given, out = results / f"{name}.pages", results / f"{name}.{'here' if ours else 'jax'}"
    given.write_text(json.dumps([asdict(page) | {"folder": str(job.folder), "given": job.given} for page in job.pages]))
    out.unlink(missing_ok=True)
    command = [str(python), "-W", "ignore"]
    command += ["-m", "shardwise", "run", "--dialect", "latest", "--devices", "8"] if ours else []
    command += [str(_HERE / "run_cells.py"), str(given), str(out), str(_SECONDS)]
    environment = os.environ | {"MPLBACKEND": "agg", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "8"}
    environment["PYTHONPATH"] = str(_ROOT / "src")
    with out.with_suffix(out.suffix + ".log").open("w") as log:
        try:
            subprocess.run(
                command,
                cwd=job.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_SECONDS * (5 if len(job.pages) == 1 else 10),
            )
        except subprocess.TimeoutExpired:
            log.write("\nended: overdue\n")
    return read(out)


def _stem(job: Job) -> str:
    return re.sub(r"\W+", "_", job.name)


def read(out: Path) -> dict[str, list[dict[str, Any]]]:
    """What a run has written."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return {row["name"]: row["cells"] for row in rows}


def compared(job: Job, python: Path, results: Path, again: str) -> list[Outcome]:
    """Run a job under both, or take what earlier runs left, and compare it cell by cell."""
    known = results / f"{_stem(job)}.jax"
    theirs = read(known) if again != "both" and known.exists() else run_job(job, python, results, ours=False)
    ran = results / f"{_stem(job)}.here"
    here = read(ran) if again in ("nothing", "known") and ran.exists() else run_job(job, python, results, ours=True)
    lost = {"raised": "Ended", "message": "the process ended before it", "printed": "", "at": ""}
    outcomes: list[Outcome] = []
    for found in job.pages:
        a, b = theirs.get(found.name, []), here.get(found.name, [])
        for i, source in enumerate(found.cells):
            left, right = (a[i] if i < len(a) else lost), (b[i] if i < len(b) else lost)
            outcomes.append(Outcome(found.name, i + 1, source, verdict(left, right), left, right))
    return outcomes


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, print what differs, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.cells")
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("cells"))
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--again", choices=("both", "here", "nothing", "known"), default="both")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--glob", action="append", default=[], help="documents of another checkout than JAX's")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args(arguments)
    checkout, results = options.checkout.resolve(), options.results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    if options.glob:
        paths = sorted(path for pattern in options.glob for path in checkout.glob(pattern))
        chosen = list(documents_of(checkout, paths))
    else:
        chosen = list(jobs(checkout))
    if options.again == "known":
        chosen = [job for job in chosen if all((results / f"{_stem(job)}.{by}").exists() for by in ("jax", "here"))]
    if options.patterns:
        chosen = [job for job in chosen if any(fnmatch.fnmatch(job.name, f"*{p}*") for p in options.patterns)]

    def one(job: Job) -> list[Outcome]:
        outcomes = compared(job, options.python, results, options.again)
        counts = {kind: sum(o.verdict.kind == kind for o in outcomes) for kind in Verdict.KINDS}
        print(job.name, " ".join(f"{kind}={n}" for kind, n in counts.items() if n), flush=True)
        return outcomes

    with ThreadPoolExecutor(options.workers) as pool:
        found = [outcome for outcomes in pool.map(one, chosen) for outcome in outcomes]
    (results / "differences.txt").write_text(differences(found))
    if options.write:
        if options.glob:
            parser.error("--write makes the page of JAX's documents: leave --glob out.")
        _PAGE.write_text(written(found, _version(checkout)), encoding="utf-8")


def differences(found: Sequence[Outcome]) -> str:
    """The cells that do not run here or print otherwise, with what both gave."""
    texts: list[str] = []
    for o in found:
        if o.verdict.kind not in ("raises", "differs"):
            continue
        texts.append(f"=== {o.page}, cell {o.number}: {o.verdict.kind}: {o.verdict.reason}\n{o.source}")
        if o.verdict.kind == "raises":
            texts.append(f"--- at\n{o.ours.get('at', '')}")
        else:
            texts.append(f"--- JAX\n{o.theirs['printed'][:3000]}\n--- here\n{o.ours['printed'][:3000]}")
    return "\n".join(texts) + "\n"


def _version(checkout: Path) -> str:
    found = re.search(r'_version = "([\d.]+)"', (checkout / "jax" / "version.py").read_text(encoding="utf-8"))
    return found[1] if found else "?"


_GROUPS = (
    ("pages and notebooks of `docs`", "docs/"),
    ("notebooks of `cloud_tpu_colabs`", "cloud_tpu_colabs/"),
    ("programs of `examples`", "examples/"),
    ("docstrings", "jax/"),
)
_WHY = """
## Why

- Programs have no StableHLO or HLO form: `autodidax`, `ffi`, parts of `export`, `aot`, `jax-primitives` and `xla_metadata`
  write or print it.
- Kernels of `pallas` are interpreted, so that many cells of `docs/pallas` run here that raise in JAX without a TPU; what asks for the
  machine's properties is refused.
- A new `Primitive` that has an `impl` alone is called back from compiled functions, where JAX refuses it (`jax-primitives`);
  `jax._src.test_util` is the machinery of JAX's own tests (`gradient-checkpointing`).
- Profiles are written, not served; no topology of GPUs is mocked.
- Messages of errors are our own. Equations of some functions are in another order, and places have no columns.
- Finite differences in float32, and cells that draw numbers without a seed, give others at each run.
- The parts of an unreduced value may lie on other devices than JAX's; their sum is the same.
"""
_HEAD = """# JAX's documentation here

The code in JAX {version}'s repository, run cell by cell on 8 devices: under that JAX, and unmodified under
`shardwise run --dialect latest`. Cells count that run under JAX on a CPU, without a network, and those that raise there
what raises here, too. *Same* are those that print the same text here, white space, times, addresses and columns of
places aside; *rounding* those whose numbers differ by less than a thousandth; the others are listed. Made by
`python -m tests.cells --checkout DIR --write`.

| what | pages with such cells | cells | same | rounding | other text | do not run |
|---|---|---|---|---|---|---|
"""


def written(found: Sequence[Outcome], version: str) -> str:
    """The page: a row for each group of documents, and the cells that are not the same."""
    lines = [_HEAD.format(version=version).rstrip("\n")]
    counted = [o for o in found if o.verdict.kind in ("same", "digits", "differs", "raises")]
    for title, prefix in _GROUPS:
        group = [o for o in counted if o.page.startswith(prefix)]
        count = [sum(o.verdict.kind == kind for o in group) for kind in ("same", "digits", "differs", "raises")]
        modules = len({o.page.partition("::")[0] for o in group})
        title = f"{title} in {modules} modules" if prefix == "jax/" else title
        lines.append(f"| {title} | {len({o.page for o in group})} | {len(group)} | {' | '.join(map(str, count))} |")
    for title, kind in (("Cells that do not run", "raises"), ("Cells that print another text", "differs")):
        lines += ["", f"## {title}", ""]
        by_page: dict[str, list[Outcome]] = {}
        for o in counted:
            if o.verdict.kind == kind:
                by_page.setdefault(o.page, []).append(o)
        for page_name, outcomes in by_page.items():
            numbers = ", ".join(str(o.number) for o in outcomes)
            reasons = dict.fromkeys(_short(o.verdict.reason) for o in outcomes)
            said = "" if list(reasons) == ["text"] else f": {'; '.join(reasons)}"
            lines.append(f"- `{page_name}`, cell {numbers}{said}")
    return "\n".join(lines) + f"\n{_WHY}"


def _short(reason: str) -> str:
    """A message on one line, without what a page cannot hold."""
    text = re.sub(r" \(/\S+\)", "", " ".join(reason.split())).replace("`", "'").replace("<", "&lt;")
    return text if len(text) <= 140 else f"{text[:140]}..."


if __name__ == "__main__":
    main()
