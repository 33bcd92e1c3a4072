"""Section 'maxtext': plans of MaxText's own train script, unmodified, beside the step times that its README gives (`maxtext_plan`)."""

from __future__ import annotations

import json
from pathlib import Path

from planning.published_steps import STEPS

RECORD = Path(__file__).parent / "maxtext.json"
GIB = 2**30


def page() -> str:
    """The section as Markdown."""
    record = json.loads(RECORD.read_text())
    measured = {step.name: step.measured for step in STEPS}
    lines: list[str] = []
    for name, run in record["runs"].items():
        parts = sorted(run["shares"].items(), key=lambda item: -item[1])
        cells = (
            name,
            run["machine"],
            f"{measured[name]:.2f}",
            f"{run['seconds']:.2f}",
            f"{run['seconds'] / measured[name] - 1:+.0%}",
            ", ".join(f"{cause} {seconds / run['seconds']:.0%}" for cause, seconds in parts[:2]),
            f"{run['peak'] / GIB:.1f} of {run['capacity'] / GIB:.1f}",
            f"{run['took']:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return f"""## MaxText's own script

`maxtext.trainers.pre_train.train` of MaxText {record["commit"]}, unmodified, with the arguments of its `configs/tpu/*.sh` (flash attention,
remat, parallelism) and synthetic data, under `shardwise plan` on a machine without any of it ({record["date"]},
`benchmarks/planning/maxtext_plan.py`), beside the steps of its README. Those ran an earlier MaxText. Nothing was fitted to these
plans; what TPUs reach of their peaks was fitted to plans of our own models of some of these steps (above).

| step | machine | published, s | planned, s | error | bound by | memory, GiB | planning, s |
|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

*Planning* is the whole run of the script (imports, configuration, tracing, three steps), while other programs kept the machine busy. All of
the steps fitted the device's memory.
"""
