"""Section 'serving': plans of PaLM answering requests on TPU v4, beside the latencies of a paper (tables 2 and 3 of 2211.05102)."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

from planning.serving_model import Model, Serving, decode, planned, prefill

GIB = 2**30
# Heads of the larger model are padded from 48 to 64, as the paper says.
LARGE, SMALL = Model(118, 18432, 64, 73728), Model(64, 8192, 32, 32768)
PROMPT, ANSWER = 2048, 64


@dataclasses.dataclass(frozen=True)
class Published:
    """A column of the paper's tables: latency in seconds of a prompt of 2,048 tokens or of 64 tokens decoded after it."""

    name: str
    model: Model
    serving: Serving
    machine: str
    task: Callable[..., Any]
    seconds: float

    @property
    def steps(self) -> int:
        """Runs of the program within the published latency."""
        return ANSWER if self.task is decode else 1


def low(mesh: tuple[int, int, int]) -> Serving:
    """A prompt for low latency."""
    return Serving(mesh, 1, PROMPT, "int8", by_request=False)


def answers(mesh: tuple[int, int, int], batch: int, weights: str) -> Serving:
    """Decoding: attention is split by requests."""
    return Serving(mesh, batch, PROMPT + ANSWER, weights)


def many(mesh: tuple[int, int, int]) -> Serving:
    """Prompts for high throughput: weights are gathered."""
    return Serving(mesh, 512, PROMPT, "bfloat16", gathered=True)


ROWS = (
    Published("540B, 1 prompt", LARGE, low((4, 4, 4)), "v4-128", prefill, 0.29),
    Published("540B, 64 answers", LARGE, answers((4, 4, 4), 64, "int8"), "v4-128", decode, 1.82),
    Published("540B, 512 prompts", LARGE, many((4, 4, 4)), "v4-128", prefill, 85.2),
    Published("540B, 512 answers", LARGE, answers((4, 4, 4), 512, "bfloat16"), "v4-128", decode, 6.0),
    Published("62B, 1 prompt", SMALL, low((2, 2, 4)), "v4-32", prefill, 0.16),
    Published("62B, 32 answers", SMALL, answers((2, 2, 4), 32, "int8"), "v4-32", decode, 0.73),
    Published("62B, 512 prompts", SMALL, many((2, 4, 4)), "v4-64", prefill, 20.2),
    Published("62B, 512 answers", SMALL, answers((2, 2, 2), 512, "bfloat16"), "v4-16", decode, 5.1),
)


def error(row: Published) -> tuple[Any, float]:
    """The plan of a row, and by which part of the published latency it is off."""
    plan = planned(row.model, row.serving, row.machine, row.task)
    return plan, plan.seconds.likely * row.steps / row.seconds - 1


def page() -> str:
    """The section as Markdown."""
    lines: list[str] = []
    errors: list[float] = []
    for row in ROWS:
        plan, off = error(row)
        errors.append(abs(off))
        parts = sorted(plan.shares.items(), key=lambda item: -item[1])
        cells = (
            row.name,
            row.serving.weights,
            row.machine,
            f"{row.seconds:.2f}",
            f"{plan.seconds.likely * row.steps:.2f}",
            f"{off:+.0%}",
            ", ".join(f"{cause} {seconds / plan.seconds.likely:.0%}" for cause, seconds in parts[:2]),
            f"{plan.peak / GIB:.1f} of {plan.capacity / GIB:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return f"""## Serving

PaLM on TPU v4 as Pope et al. serve it (arxiv.org/abs/2211.05102, tables 2 and 3, read from a transcription): prompts of {PROMPT:,}
tokens, or {ANSWER} tokens decoded after them, with the paper's layouts of weights and of attention
(`benchmarks/planning/serving_model.py`, written from its text). No constant and no rule was made or changed for these rows: median
error **{statistics.median(errors):.0%}**, worst {max(errors):.0%}.

| what | weights | machine | published, s | planned, s | error | bound by | memory, GiB |
|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

The paper gives no layout of the mesh (ours is the slice's) and no memory. Decoding of few requests is planned too fast: half of such a step
is collectives of some KiB, of whose latency no public figure for a v4 is known, and sampling and the host are not in the plan. Where a plan
exceeds the memory the scores of attention are whole in ours; the paper does not say how its were cut.
"""
