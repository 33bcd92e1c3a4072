"""No program sends more bytes than the one that XLA's partitioner makes of it.

`xla.json` holds what XLA sends; `python -m tests.traffic.xla` asks again.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from shardwise.base.config import use_dialect
from tests.rounding import assert_normwise
from tests.traffic import xla
from tests.traffic.programs import TABLE

RECORD = json.loads(xla.RECORD.read_text())

# We keep dims whole that the axes do not divide, and say so; JAX pads them.
UNEVEN = pytest.mark.filterwarnings("ignore:with_sharding_constraint")

# Programs whose results mean nothing for the numbers that `Entry.results` draws.
MEANINGLESS = {
    "conjugate_gradients": "the matrix is not positive definite",
    "experts_in_8_bits": "sums of 8-bit products, rounded in another order, differ in their digits",
    "resampled_particles": "weights are negative",
    "search_in_split": "the table is not sorted",
    "vorticity_by_transforms": "JAX's transforms refuse, when they run, how XLA has laid out their operand",
    "windows_with_three_fills": "JAX's extrema are wrong at the borders between devices, where it fills windows with 0",
}


def test_every_program_is_recorded():
    assert TABLE.keys() == RECORD.keys()


@UNEVEN
@pytest.mark.parametrize("name", TABLE)
def test_no_program_sends_more_than_xla(name):
    with use_dialect("latest"):
        transfers = TABLE[name].compiled("shardwise").runtime_executable().transfers
    assert sum(t.total for t in transfers) <= sum(RECORD[name].values())


@pytest.mark.slow
@UNEVEN
@pytest.mark.parametrize("name", sorted(TABLE.keys() - MEANINGLESS.keys()))
def test_results_are_those_of_jax(name):
    want = TABLE[name].results("jax")
    with use_dialect("latest"):
        got = TABLE[name].results("shardwise")
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
    for g, w in zip(got, want, strict=True):
        bad = ~np.isfinite(w) if w.dtype.kind in "fc" else np.zeros(w.shape, bool)
        np.testing.assert_array_equal(g[bad], w[bad])
        assert_normwise(np.where(bad, 0, g), np.where(bad, 0, w), 1e-5)


@pytest.mark.record
@pytest.mark.parametrize("name", ["roll", "adam_with_split_parameters", "heat_in_a_loop"])
def test_the_record_is_what_xla_sends(name):
    assert xla.asked([name]) == {name: RECORD[name]}
