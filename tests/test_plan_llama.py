"""The example of planning: 70 billion weights on a slice, and a tiny one that trains."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "plan_llama.py"


def test_70b_is_planned_as_the_readme_shows(shell, tmp_path):
    done = shell("-m", "shardwise", "plan", EXAMPLE, "--on", "512x-v5p-256", "--html", "plan.html", cwd=tmp_path)
    assert done.stderr == "" and done.returncode == 0
    assert "70.55 billion weights on 65536 devices, {'fsdp': 8192, 'model': 8}, 65536 x 4096 words" in done.stdout
    assert "train_step on 512x-v5p-256 (65,536 x TPU v5p, mesh fsdp=8192 model=8)" in done.stdout
    assert "called 5 times" in done.stdout and re.search(r"all_gather over fsdp", done.stdout)
    assert 50_000 < (tmp_path / "plan.html").stat().st_size < 2_000_000
    text = (EXAMPLE.parent.parent / "README.md").read_text().partition("shardwise plan examples/plan_llama.py")[2]
    shown = text.partition("```text\n")[2].partition("```")[0].splitlines()
    printed = {*done.stdout.splitlines(), "..."}
    assert len(shown) > 15 and [line for line in shown if line not in printed] == []


def test_layers_in_a_loop_and_one_by_one_do_the_same_work(shell, tmp_path):
    work = []
    for words in ((), ("--unrolled",)):
        done = shell("-m", "shardwise", "plan", EXAMPLE, "--on", "v5e-16", "--", "--size", "tiny", *words, cwd=tmp_path)
        work.append(re.findall(r"[\d.]+ .FLOP per device", done.stdout)[0])
    assert work[0] == work[1]


@pytest.mark.parametrize("words", [("--remat", "dots"), ("--remat", "none", "--unrolled")])
def test_a_tiny_one_trains(shell, words):
    words = (EXAMPLE, "--devices", 4, "--", "--size", "tiny", "--steps", 2, "--batch", 4, *words)
    done = shell("-m", "shardwise", "run", *words)
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 2 and 5 < losses[0] < 7, done.stderr


@pytest.mark.slow  # JAX compiles for 10 s
def test_jax_trains_it_to_the_same_loss(shell):
    words = ("--size", "tiny", "--steps", "2", "--batch", "4")
    ours = shell("-m", "shardwise", "run", EXAMPLE, "--dialect", "latest", "--", *words).stdout
    theirs = shell(EXAMPLE, *words, JAX_PLATFORMS="cpu").stdout
    pair = [[float(x) for x in re.findall(r"loss ([\d.]+)", text)] for text in (ours, theirs)]
    # One unit in the last of four printed digits, and bfloat16 products that add up in another order.
    assert pair[0] == pytest.approx(pair[1], rel=5e-3) and len(pair[1]) == 2
