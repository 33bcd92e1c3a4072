"""No program sends more bytes than the one that XLA's partitioner makes of it.

`xla.json` holds what XLA sends; `python -m tests.traffic.xla` asks again.
"""

from __future__ import annotations

import json

import pytest

from shardwise.base.config import use_dialect
from tests.traffic import xla
from tests.traffic.programs import TABLE

RECORD = json.loads(xla.RECORD.read_text())

# Programs that send more, at most so many times as much, and why.
MORE = {
    "axes_exchanged": 1.2,  # XLA cuts an axis of 4 in two where it changes places with one of 2; our collectives run over whole axes
    "moving_statistics": 2,  # two windows of one value with different fills are two exchanges of 16 bytes, XLA's one
    "permuted_rows": 1.12,  # keys are sorted where they lie, as XLA sorts all of them on every device
}


def test_every_program_is_recorded():
    assert TABLE.keys() == RECORD.keys()
    assert MORE.keys() <= TABLE.keys()


@pytest.mark.parametrize("name", TABLE)
def test_no_program_sends_more_than_xla(name):
    with use_dialect("latest"):
        transfers = TABLE[name].compiled("shardwise").runtime_executable().transfers
    assert sum(t.total for t in transfers) <= sum(RECORD[name].values()) * MORE.get(name, 1)


@pytest.mark.record
@pytest.mark.parametrize("name", ["roll", "adam_with_split_parameters", "heat_in_a_loop"])
def test_the_record_is_what_xla_sends(name):
    assert xla.asked([name]) == {name: RECORD[name]}
