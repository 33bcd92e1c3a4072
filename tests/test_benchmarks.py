"""The benchmarks run, and their figures become tables."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from shardwise.runtime import costs

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def _run(*words: str) -> str:
    command = [sys.executable, str(BENCHMARKS / "run.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_cases_run_and_are_shown(tmp_path):
    kept = tmp_path / "figures.json"
    shown = _run(
        "--only",
        "op_add",
        "first_elementwise",
        "jit_static",
        "--devices",
        "2",
        "1",
        "--libraries",
        "shardwise",
        "--limit",
        "60",
        "--json",
        str(kept),
    )
    figures = json.loads(kept.read_text())
    assert set(figures["cases"]) == {"op_add", "first_elementwise", "jit_static"}
    assert figures["cases"]["op_add"]["1"]["shardwise"]["median"] > 0
    assert "error" not in figures["cases"]["first_elementwise"]["1"]["shardwise"]
    assert "Dispatch" in shown and "outside of jit" in shown


def test_the_page_says_what_failed(tmp_path):
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import report
        import run  # noqa: F401  # registers the cases
    finally:
        sys.path.remove(str(BENCHMARKS))
    fast, slow = {"median": 2e-6, "least": 1e-6, "peak": 1.0}, {"median": 3.0, "least": 2.0, "peak": 200.0}
    results = {
        "machine": {"processor": "some"},
        "limit": 8.0,
        "rates": {"copy": 1e10, "flops": 1e11},
        "cases": {
            "jit_one": {"1": {"shardwise": fast, "jax": {"error": "over 8 s"}}},
            "replicate": {
                "1": {"shardwise": slow, "jax": {"error": "ValueError: no"}},
                "8": {"shardwise": fast, "jax": slow},
            },
        },
        "import": {"shardwise": {"median": 0.1}, "jax": {"median": 0.35}},
    }
    page = tmp_path / "page.md"
    report.write(results, page)
    text = page.read_text()
    assert "2.0 us / over 8 s" in text and "3.00 s / failed" in text and "(1500000x)" in text
    assert "- replicate, 1 devices, jax: ValueError: no" in text and "100.0 ms / 350.0 ms (3.50x)" in text
    report.show(results)


def test_thresholds_are_measured():
    """Each measurement that the table of costs names can be taken, and one of them is."""
    table = Path(costs.__file__).read_text()
    named = set(re.findall(r"\(([a-z]+_[a-z]+)\)\.$", table, re.MULTILINE))
    command = [sys.executable, str(BENCHMARKS / "thresholds.py")]
    shown = subprocess.run([*command, "small_ops"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("small_ops: ") and len(shown.splitlines()) == 7
    refused = subprocess.run([*command, "nothing"], capture_output=True, text=True)
    assert refused.returncode and named and named <= set(re.findall(r"[a-z]+_[a-z]+", refused.stderr))


def test_plans_for_a_gpu_stand_beside_what_was_measured_there():
    script = (
        "from planning import gpu; from shardwise import alias; alias.install(); from planning.gpu_unseen import ALL; import json; "
        "record = json.loads(gpu.RECORD.read_text())['programs']; assert set(record) <= set(ALL), set(record) - set(ALL); "
        "plan = gpu.plan_of('Adam of 100M', 'h100-1'); print(gpu.device_seconds(record['Adam of 100M']), plan.seconds.likely, plan.peak)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    seconds, planned, nbytes = map(float, done.stdout.split())
    assert 0.9 < planned / seconds < 1.1
    assert nbytes == 7 * 400_000_000 + 24
