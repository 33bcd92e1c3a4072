"""What JAX answered once, kept in files because asking takes minutes, is what the installed JAX answers.

CI asks about one entry in `SHARE`, always the same ones; ``SHARE=1 pytest -m record`` asks about all, for an hour.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tests import oracles
from tests.calls import beside
from tests.calls import record as answers
from tests.differential import oracle
from tests.differential.answers import entries
from tests.numpy import core_record, face
from tests.random import record as samples
from tests.special_points import record_matrices as matrices
from tests.special_points import test_matrices
from tests.transforms import faces
from tests.transforms import record as derivatives
from tests.transforms.derivatives.test_derivatives import CASES
from tests.transforms.face_cases import LINES

SHARE = int(os.environ.get("SHARE", "60"))


def share(keys: Iterable[str]) -> list[str]:
    """One key in SHARE: chosen by the text, so that a new entry moves no other in or out."""
    chosen = [key for key in keys if zlib.crc32(key.encode()) % SHARE == 0]
    assert chosen
    return chosen


def alike(kept: Any, live: Any) -> bool:
    """Whether answers are the same, but for the rounding of another processor."""
    if isinstance(kept, (list, tuple)) and isinstance(live, (list, tuple)):
        return len(kept) == len(live) and all(map(alike, kept, live))
    if isinstance(kept, float) and isinstance(live, float) and math.isfinite(kept):
        return math.isclose(kept, live, rel_tol=1e-6, abs_tol=1e-7)
    return repr(kept) == repr(live)  # NaN equals NaN


def test_every_expression_is_recorded():
    assert set(face.all_expressions()) <= face.recorded().keys()


def test_every_derivative_is_recorded():
    assert {derivatives.record_key(case) for case in CASES if case.oracle} <= derivatives.recorded().keys()


@pytest.mark.record
def test_expressions():
    core_record.use()
    for expression in share(face.recorded()):
        assert alike(face.recorded()[expression], face.live_answer(expression)), expression


@pytest.mark.record
def test_samples():
    import jax

    known = json.loads(samples.RECORD.read_text())
    cases = {samples.case_id(case): case for case in samples.CASES}
    assert cases.keys() == known.keys()
    for key in share(cases):
        assert samples.drawn(jax, cases[key]) == known[key], key


@pytest.mark.record
def test_derivatives():
    import jax

    cases = {derivatives.record_key(case): case for case in CASES if case.oracle}
    for key in share(cases):
        with jax.enable_x64(True):
            live = derivatives.both_modes(jax, jax.lax, cases[key])
        for ours, theirs in zip(derivatives.recorded()[key], live, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=key)


@pytest.mark.record
def test_faces():
    import jax

    names: dict[str, Any] = faces.namespace(jax)
    asked = {
        faces.record_key(line, single, question): (line, single, question)
        for lines in LINES.values()
        for line in lines
        for single in (False, True)
        for question in faces.questions(line, single)
    }
    for key in share(asked):
        line, single, question = asked[key]
        with jax.enable_x64(not single):
            (live,) = faces.Asked(jax, names, line, single, jax.jit).answers([question]).values()
        kept = faces.recorded()[key]
        if isinstance(live, str):
            assert kept == live.partition(":")[0], key
            continue
        for answer, (dtype, shape, values) in zip(live, kept, strict=True):
            assert (answer.dtype, answer.shape) == (dtype, tuple(shape)), key
            if values is not None:
                np.testing.assert_allclose(values, answer, rtol=1e-9, atol=1e-9, err_msg=key)


@pytest.mark.record
def test_special_matrices():
    import jax
    import jax.lax.linalg
    import jax.scipy.linalg

    asked = {key: (case, dtype, kind, f) for key, case, dtype, kind, f in matrices.entries()}
    for key in share(asked):
        case, dtype, kind, f = asked[key]
        names, xs = matrices.stack(matrices.FAMILIES[kind][f], dtype)
        live, kept = matrices.answered(matrices.library(jax), case, xs), test_matrices.recorded()[key]
        assert (live is None) == (kept is None), key
        if live is not None:
            assert live.keys() == kept.keys() and not test_matrices.unlike(key, names, live), key


def test_every_call_is_recorded():
    pytest.importorskip("jax")
    asked = [(call, "arrays") for call in answers.every_call()] + answers.in_other_forms()
    assert {answers.key(*each) for each in asked} == answers.recorded().keys()


@pytest.mark.record
def test_calls():
    library = beside.Library("jax")
    asked = {repr(call): call for call in answers.every_call()}
    for key in share(asked):
        assert not answers.differs(answers.answer(library, asked[key]), answers.recorded()[key]), key


@pytest.mark.record
def test_programs():
    fields = ["dtype", "weak_type", "type", "spec", "committed", "indices"]
    asked = {repr(question): (question, answer) for question, answer in entries()}
    for key in share(asked):
        (dialect, devices, source), kept = asked[key]
        oracles.require(dialect)
        live: dict[str, Any]
        try:
            live = oracle.worker("jax", devices, dialect).ask(source)
        except oracle.OracleDied:
            live = {"died": True}
        assert live.keys() == kept.keys(), key
        oracle.check(live.get("result"), kept.get("result"), key, fields, 4)
        assert live.get("error", {}).get("classes") == kept.get("error", {}).get("classes"), key
        assert live.get("printed") == kept.get("printed"), key
