"""Section 'gpu': plans of programs for one GPU beside what JAX took and its compiler said there (`gpu_measure`)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

RECORD = Path(__file__).parent / "gpu.json"
OTHER = Path(__file__).parent / "gpu_h200.json"
MIB = 2**20
_WAITS = 0.8  # a device waits for its host where giving it the calls takes that part of all seconds


class Planned(NamedTuple):
    """A program that was measured, with its plan.

    Attributes:
        name: what it does.
        seconds, nbytes: measured: of a call, and of arguments, results and temporaries.
        planned: the same, planned now.
        within: whether the seconds lie in the interval of the plan.
        foretold: the same, planned by the model as it was before the program was first run on a GPU; None of those that it was made with.
    """

    name: str
    seconds: float
    nbytes: int
    planned: tuple[float, int]
    within: bool
    foretold: tuple[float, int] | None


def page() -> str:
    """The section as Markdown."""
    record, other = json.loads(RECORD.read_text()), json.loads(OTHER.read_text())
    rows, others = _rows(record), _rows(other)
    known, new = [r for r in rows if r.foretold is None], [r for r in rows if r.foretold is not None]
    foretold, foretold_others = ([r._replace(planned=r.foretold) for r in of if r.foretold] for of in (new, others))
    lines = [_line(r) for r in rows]
    within = sum(r.within for r in rows)
    return f"""## One GPU

{len(rows)} programs (`planning/gpu_kernels.py`, `gpu_models.py`, `gpu_unseen.py`) were compiled and timed by JAX {record["jax"]} on one
{record["device"]} (driver {record["driver"]}, {record["date"]}); here they are planned for `{record["machine"]}`, on a machine without
a GPU. Seconds are those of a call while others wait in the device's queue; where giving the device its calls takes longer than the calls
themselves, the sum of its kernels' seconds. Bytes are arguments, results and temporaries as XLA's compiler for GPUs says them
(`memory_analysis`).

The {len(known)} of the first run were in sight when the rules of that compiler and the figures of the chip were written down. Then the
plans of {len(new)} others were kept, and these were run for the first time: the second row of the table. What they showed has been mended
since (loops that copy their carries, updates that meet at one place, uneven pads, lookups by cache): the third row is no test of the
model. After that the plans of {len(others)} of all these, those that compile fast, were kept for `{other["machine"]}`, whose figures are
those of `{record["machine"]}` but for its memory's, and run on a card of that kind: the last row.

| | programs | seconds: median error | within 20 % | bytes: median error | within 5 % |
|---|---|---|---|---|---|
| in sight when the model was made | {_summary(known)} |
| **foretold** | {_summary(foretold)} |
| the same, planned now | {_summary(new)} |
| **foretold** for {other["device"]} | {_summary(foretold_others)} |

The seconds of {within} of the {len(rows)} lie in the interval that the plan gives.

| program | measured, ms | planned, ms | error | measured, MiB | planned, MiB | error | foretold, ms |
|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

What the model does not know: which of several kernels a library chooses; convolutions of few channels; how long a host takes to give a
device its calls (JAX's took 20 to 60 us for a call, and 6 us a kernel in some loops); workspaces of sorts and factorizations; loops over
values that stay in the L2 cache.
"""


def _summary(rows: Sequence[Planned]) -> str:
    seconds = [abs(r.planned[0] / r.seconds - 1) for r in rows]
    nbytes = [abs(r.planned[1] / r.nbytes - 1) for r in rows]
    near, fitting = sum(e <= 0.2 for e in seconds), sum(e <= 0.05 for e in nbytes)
    return (
        f"{len(rows)} | **{statistics.median(seconds):.1%}** | {near} | **{statistics.median(nbytes):.1%}** | {fitting}"
    )


def _line(row: Planned) -> str:
    cells = [
        row.name,
        f"{1e3 * row.seconds:.4f}",
        f"{1e3 * row.planned[0]:.4f}",
        f"{row.planned[0] / row.seconds - 1:+.0%}",
    ]
    cells += [f"{n / MIB:,.1f}" for n in (row.nbytes, row.planned[1])] + [f"{row.planned[1] / row.nbytes - 1:+.0%}"]
    cells.append(f"{1e3 * row.foretold[0]:.4f}" if row.foretold else "")
    return f"| {' | '.join(cells)} |"


def _rows(record: dict[str, Any]) -> list[Planned]:
    return [_planned(name, facts, record["machine"]) for name, facts in record["programs"].items()]


def _planned(name: str, facts: dict[str, Any], machine: str) -> Planned:
    memory = facts["memory"]
    nbytes = memory["argument"] + memory["output"] - memory["alias"] + memory["temp"]
    foretold = facts.get("foretold")
    seconds, plan = device_seconds(facts), plan_of(name, machine)
    within = plan.seconds.low <= seconds <= plan.seconds.high
    planned = (plan.seconds.likely, plan.peak)
    return Planned(name, seconds, nbytes, planned, within, tuple(foretold) if foretold else None)


def device_seconds(facts: dict[str, Any]) -> float:
    """What a call takes on the device: where it waits for the host, its kernels alone."""
    seconds, kernels = facts["seconds"], facts["kernels"]["seconds"]
    waits = facts["host"] > _WAITS * seconds if "host" in facts else seconds < 8e-4
    return kernels if waits and 0 < kernels < 0.85 * seconds else seconds


def plan_of(name: str, machine: str) -> Any:
    """A program's plan."""
    from shardwise import alias

    alias.install()
    import jax

    from planning.gpu_kernels import is_operand, struct
    from planning.gpu_unseen import ALL

    with jax.enable_x64(name.startswith("float64")):
        f, args = ALL[name]()
        structs = jax.tree.map(struct, args, is_leaf=is_operand)
        return jax.plan.plan(f, *structs, on=machine)  # type: ignore[attr-defined]
