"""Programs made at random: what they send beside what XLA's partitioner sends, and their results beside JAX's.

`xla_random.json` holds the bytes by seed; `python -m tests.traffic.xla --random` asks again.
"""

from __future__ import annotations

import json

import pytest

from shardwise.base.config import use_dialect
from tests.rounding import assert_normwise
from tests.traffic import xla
from tests.traffic.random_programs import random_entry

RECORD = {int(seed): sent for seed, sent in json.loads(xla.RANDOM.read_text()).items()}
SOME = sorted(RECORD)[:40]

# Dims that the axes do not divide are kept whole, with a warning.
UNEVEN = pytest.mark.filterwarnings("ignore:with_sharding_constraint")


@UNEVEN
def test_random_programs_send_less_than_xla():
    with use_dialect("latest"):
        sent = {s: random_entry(s).compiled("shardwise").runtime_executable().transfers for s in SOME}
    ours = {s: sum(t.total for t in transfers) for s, transfers in sent.items()}
    no_more = [s for s in SOME if ours[s] <= RECORD[s]]
    assert len(no_more) >= 0.95 * len(SOME)
    assert sum(ours.values()) <= 0.7 * sum(RECORD[s] for s in SOME)


@UNEVEN
@pytest.mark.parametrize("seed", SOME[:4])
def test_results_are_those_of_jax(seed):
    want = random_entry(seed).results("jax")
    with use_dialect("latest"):
        got = random_entry(seed).results("shardwise")
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
    for g, w in zip(got, want, strict=True):
        assert_normwise(g, w, 1e-5)
