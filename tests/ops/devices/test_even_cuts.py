"""Cuts of sorted runs: pieces of equal size that hold what a stable sort of everything puts there."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.ops.devices.even_cuts import FIRST, even_cuts


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 6),
    st.integers(1, 3),
    st.sampled_from([1, 7, FIRST, 5 * FIRST + 3, 40 * FIRST]),
    st.sampled_from(["different", "ties", "equal", "reversed", "nan"]),
    st.integers(0, 1 << 20),
)
def test_pieces_are_parts_of_the_whole(count, rows, size, kind, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, rows, size)) if kind != "ties" else rng.integers(0, 3, (count, rows, size)) * 1.0
    if kind == "equal":
        x[...] = 1
    elif kind == "reversed":
        x = -np.arange(count * size).reshape(count, 1, size) * np.ones((1, rows, 1))
    elif kind == "nan":
        x[rng.random(x.shape) < 0.7] = np.nan
    runs = np.sort(x, -1)
    rounds = []
    cuts = even_cuts([runs], count, range(count), lambda shown: rounds.append(shown.shape) or shown)
    assert len(rounds) <= 4 and (not rounds or max(r[-1] for r in rounds) <= max(FIRST, 32 * (count - 1)))
    order = np.moveaxis(runs, 0, 1).reshape(rows, -1).argsort(-1, kind="stable").reshape(rows, count, size)
    for part in range(count):
        owners = order[:, part] // size
        for run in range(count):
            wanted = (owners == run).sum(-1)
            np.testing.assert_array_equal(cuts[run, :, part + 1] - cuts[run, :, part], wanted)


def test_later_keys_decide_between_equal_ones():
    first, second = np.zeros((2, 1, 4)), np.array([[[0, 2, 4, 6]], [[1, 3, 5, 7]]])
    cuts = even_cuts([first, second], 2, range(2), lambda shown: shown)
    assert cuts.tolist() == [[[0, 2, 4]], [[0, 2, 4]]]
    cuts = even_cuts([first], 2, range(2), lambda shown: shown)
    assert cuts.tolist() == [[[0, 4, 4]], [[0, 0, 4]]]
