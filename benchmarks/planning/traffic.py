"""Section 'traffic': the collectives of our device programs beside those of XLA's partitioner."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planning.ask_xla import RECORD
from planning.programs import compiled

KINDS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "permute": "collective-permute",
}
MIB = 2**20
ROOT = Path(__file__).parents[2]
Traffic = Mapping[tuple[str, str], tuple[float, float]]  # by kind and axes: times, bytes


def page(folder: Path) -> str:
    """The section as Markdown: of the programs of a folder, and of those of tests/traffic."""
    theirs = json.loads(RECORD.read_text())
    rows: list[str] = []
    fewer = compared = 0
    sums = [0.0, 0.0]
    for program in compiled(folder):
        ours = _ours(program.executable)
        said = theirs.get(program.name)
        xla = None if said is None else _theirs(said["collectives"])
        sent, limit = _total(ours), None if xla is None else _total(xla)
        rows += _rows(program.name, ours, xla)
        if limit is not None:
            compared += 1
            fewer += sent <= limit
            sums = [sums[0] + sent, sums[1] + limit]
    return f"""## Collectives

The transfers of our device programs beside the collectives that XLA's partitioner makes of the same programs, read from the text that its
compiler for CPUs gives for as many virtual devices (`benchmarks/planning/ask_xla.py`). Bytes are those that one device sends in a run, by
rings, loops times their trips; bfloat16 counts as bfloat16, which that compiler widens. *Times* are runs of collectives, of which
compilers join several.

In **{fewer} of {compared}** programs we send no more; all together {_mib(sums[0])} MiB where XLA's send {_mib(sums[1])} MiB.

| program | collective | axes | times: ours | XLA's | MiB: ours | XLA's |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

{_of_tests()}
"""


def _ours(executable: Any) -> Traffic:
    found: dict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for t in executable.transfers:
        key = KINDS.get(str(t.kind), str(t.kind)), ", ".join(sorted(t.axes))
        times, sent = found[key]
        found[key] = times + t.known_trips, sent + t.total
    return found


def _theirs(collectives: Sequence[Any]) -> Traffic:
    found: dict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for kind, axes, _, nbytes, trips in collectives:
        times, sent = found[kind, ", ".join(axes)]
        found[kind, ", ".join(axes)] = times + trips, sent + nbytes * trips
    return found


def _rows(name: str, ours: Traffic, theirs: Traffic | None) -> list[str]:
    """One row with the totals, then one per kind and axes."""
    limit = "" if theirs is None else _mib(_total(theirs))
    rows = [f"| **`{name}`** | all | | {_times(ours)} | {_times(theirs)} | {_mib(_total(ours))} | {limit} |"]
    for kind, axes in sorted({*ours, *(theirs or ())}):
        cells = [ours.get((kind, axes)), None if theirs is None else theirs.get((kind, axes))]
        times = ["" if cell is None else f"{cell[0]:.0f}" for cell in cells]
        sent = ["" if cell is None else _mib(cell[1]) for cell in cells]
        rows.append(f"| | {kind} | {axes} | {' | '.join((*times, *sent))} |")
    return rows


def _times(traffic: Traffic | None) -> str:
    return "" if traffic is None else f"{sum(times for times, _ in traffic.values()):.0f}"


def _total(traffic: Traffic) -> float:
    return sum(sent for _, sent in traffic.values())


def _mib(nbytes: float) -> str:
    return f"{nbytes / MIB:,.1f}" if nbytes >= 0.05 * MIB or not nbytes else f"{nbytes / MIB:.1g}"


def _of_tests() -> str:
    """What of the programs of tests/traffic, written ones and random ones, sends no more than XLA's."""
    command = [sys.executable, "-m", "planning.traffic"]
    where = {**os.environ, "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=ROOT / "benchmarks", env=where, capture_output=True, text=True, check=True)
    written, drawn = json.loads(done.stdout.splitlines()[-1])
    more = [f"seed {seed}, {_mib(ours)} for {_mib(theirs)} MiB" for seed, ours, theirs in drawn["more"]]
    return f"""Besides, {written["programs"]} smaller programs of all kinds over 8 devices (`tests/traffic`), written with the partitioner:
{_sentence(written)}.

And {drawn["programs"]} programs made at random (`tests/traffic/random_programs.py`): one to three of 25 blocks of networks and solvers,
forward, gradient or step, weights and data in random layouts over meshes of 8 devices: {_sentence(drawn)}.
Two rules of the partitioner were made after a look at a few of them, and at some of an earlier generator.
Those that send more: {", ".join(more) or "none"}."""


def _sentence(sums: Mapping[str, Any]) -> str:
    return (
        f"in **{sums['no_more']} of {sums['programs']}** we send no more, in {sums['less']} of them less; all together "
        f"{_mib(sums['ours'])} MiB where XLA's send {_mib(sums['theirs'])} MiB"
    )


def main() -> None:
    """In the child: sums over the programs of tests/traffic, and over the random ones."""
    import warnings

    from shardwise.base.config import use_dialect

    tests: Any = importlib.import_module("tests.traffic.programs")
    drawn: Any = importlib.import_module("tests.traffic.random_programs")
    folder = ROOT / "tests" / "traffic"
    said = {n: sum(sent.values()) for n, sent in json.loads((folder / "xla.json").read_text()).items()}
    said_of_seeds = json.loads((folder / "xla_random.json").read_text())

    def summed(entries: Mapping[str, Any], theirs: Mapping[str, int]) -> dict[str, Any]:
        sent: dict[str, tuple[int, int]] = {}
        for name, entry in entries.items():
            with use_dialect("latest"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # dims that axes do not divide are kept whole
                transfers = entry.compiled("shardwise").runtime_executable().transfers
            sent[name] = sum(t.total for t in transfers), theirs[name]
        pairs = list(sent.values())
        return {
            "programs": len(pairs),
            "no_more": sum(a <= b for a, b in pairs),
            "less": sum(a < b for a, b in pairs),
            "ours": sum(a for a, _ in pairs),
            "theirs": sum(b for _, b in pairs),
            "more": [(name, a, b) for name, (a, b) in sent.items() if a > b],
        }

    random_ones = {seed: drawn.random_entry(int(seed)) for seed in said_of_seeds}
    print(json.dumps([summed(tests.TABLE, said), summed(random_ones, said_of_seeds)]))


if __name__ == "__main__":
    main()
