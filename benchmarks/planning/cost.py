"""Section 'cost': what planning takes, by devices and layers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from separate import environment

MACHINES = {"v5e-16": 16, "4x-v5e-256": 1024, "256x-v5e-256": 65536}
LAYERS = (8, 32, 80)
PROGRAM = """
import dataclasses, time
from child import status
from planning.models import Recipe, planned
from planning.published_steps import LLAMA_70B
fsdp = min({devices}, 256)
model = dataclasses.replace(LLAMA_70B, layers={layers})
recipe = Recipe({{"data": {devices} // fsdp, "fsdp": fsdp, "tensor": 1}}, 1, 8192, unrolled={unrolled})
begin = time.process_time()
plan = planned(model, recipe, {machine!r})
print(time.process_time() - begin, status("VmHWM"))
"""


def cost(machine: str, layers: int, unrolled: bool) -> tuple[float, float]:
    """Seconds of the processor and MB of a process that plans a step of 70 billion weights at 80 layers; tracing included, start-up not."""
    program = PROGRAM.format(devices=MACHINES[machine], layers=layers, unrolled=unrolled, machine=machine)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        env=environment(1),
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def page() -> str:
    """The section as Markdown."""
    rows: list[str] = []
    for machine, devices in MACHINES.items():
        for layers in LAYERS:
            cells = [cost(machine, layers, unrolled) for unrolled in (False, True)]
            shown = " | ".join(f"{seconds:.2f} | {megabytes:.0f}" for seconds, megabytes in cells)
            rows.append(f"| {devices} | {layers} | {shown} |")
    return f"""## What planning takes

A training step of Llama's width, traced and planned in a fresh process: seconds of the processor, most of which tracing
and partitioning take where layers are unrolled, and the memory of the whole process.

| devices | layers | scanned, s | MB | unrolled, s | MB |
|---|---|---|---|---|---|
{chr(10).join(rows)}
"""
