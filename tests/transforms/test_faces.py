"""Every function of lax, numpy, nn and scipy that differentiates or maps: as JAX's answers, kept in ``faces.npz``, say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise.experimental import enable_x64
from tests.transforms.face_cases import LINES
from tests.transforms.faces import Asked, namespace, questions, record_key, recorded

CHUNK = 40  # lines a test
PARTS = [(name, at) for name, lines in LINES.items() for at in range(0, len(lines), CHUNK)]


@pytest.mark.parametrize("name, at", PARTS)
def test_as_jax(name: str, at: int) -> None:
    names, wrong = namespace(sw), []
    for line in LINES[name][at : at + CHUNK]:
        doubles: dict[str, Any] = {}
        for single in (False, True):
            asked = questions(line, single)
            with enable_x64(not single):
                answers = Asked(sw, names, line, single, lambda f: f).answers(asked) if asked else {}
            for question in asked:
                expected = recorded().get(record_key(line, single, question))
                where = f"{' '.join(line.letters)}: {line.text} ({question}, {'single' if single else 'double'})"
                assert expected is not None, f"{where} is not recorded: run python -m tests.transforms.faces"
                if not single:
                    doubles[question] = expected
                problem = _compared(answers[question], expected, doubles.get(question) if single else None)
                if problem:
                    wrong.append(f"{where}: {problem}")
    assert not wrong, "\n".join(wrong)


# Held to JAX elsewhere: collectives and layouts in tests of shard_map and of explicit types, the others in tests of theirs;
# `ragged_dot_general` too, which JAX maps in part;
# `add_any` is `add` in programs that are shown, and so are `stack` and its like made of other ops.
ELSEWHERE = {
    "add_any", "all_gather", "all_reduce", "all_slice", "all_to_all", "pcast", "ppermute", "pvary", "reduce_scatter", "first_replica",
    "reshard", "enter_auto", "sharding_constraint", "layout_constraint", "device_put", "callback", "linear_call", "name", "offload",
    "remat", "vmapped", "expm_frechet", "custom_vjp_ruled", "mul_add", "erf_inv_giles", "random_gamma",
    "stack", "unstack", "tile", "dce_sink", "swap", "addupdate",
    "guarded", "sinc_at_zero", "recalled", "ragged_dot_general",
}  # fmt: skip


def test_every_op_with_a_derivative_is_in_a_line(shell) -> None:
    done = shell(
        "-m", "tests.transforms.faces", "missed", cwd=Path(__file__).parents[2]
    )  # other tests define ops of theirs
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) - ELSEWHERE == set()


def _compared(ours: Any, theirs: Any, doubles: Any) -> str:
    """What differs; in single precision values are compared with JAX's in double precision."""
    if isinstance(theirs, str) or isinstance(ours, str):
        if isinstance(ours, str) and isinstance(theirs, str):
            kind = ours.partition(":")[0]
            return "" if kind == theirs else f"raises {ours}, JAX {theirs}"
        return f"raises {ours}" if isinstance(ours, str) else f"JAX raises {theirs}"
    if len(ours) != len(theirs):
        return f"{len(ours)} results, JAX has {len(theirs)}"
    for i, (a, (dtype, shape, value)) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype != dtype or a.shape != shape:
            return f"[{i}] is {a.dtype}{a.shape}, JAX's is {dtype}{shape}"
        if value is None and doubles is not None and not isinstance(doubles, str):
            value = doubles[i][2]
        if value is not None and not _close(
            a, value, a.dtype.itemsize if a.dtype.kind == "f" else a.dtype.itemsize // 2
        ):
            return f"[{i}] is\n{a}\nJAX has\n{value}"
    return ""


def _close(a: np.ndarray, b: np.ndarray, itemsize: int) -> bool:
    if a.dtype.kind not in "fc":
        return bool((a.astype(np.float64) == b).all())
    tolerance = {4: 1e-4, 8: 2e-11}[
        itemsize
    ]  # slopes of matrix functions magnify roundings a hundredfold, and JAX's differ
    x, y = a.astype(np.complex128), b.astype(np.complex128)
    with np.errstate(invalid="ignore", over="ignore"):
        scale = max(np.abs(np.where(np.isfinite(y), y, 0)).max(initial=0), 1e-3)
        same = (np.isnan(x) & np.isnan(y)) | (x == y) | (np.abs(x - y) <= tolerance * (scale + np.abs(y)))
    return bool(same.all())
