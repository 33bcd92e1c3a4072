"""Convolutions over operands with holes, put together from convolutions without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.ops.products import dilated_conv
from tests.rounding import assert_normwise


def case(seed):
    """Operands, and how they are convolved."""
    rng = np.random.default_rng(seed)
    space = int(rng.integers(1, 3))
    groups = int(rng.choice([1, 1, 2]))
    by = str(rng.choice(["feature_group_count", "batch_group_count"]))
    x = rng.normal(size=(4, 6, *rng.integers(4, 8, space))).astype(np.float32)
    channels = 6 // groups if by == "feature_group_count" else 6
    w = rng.normal(size=(4, channels, *rng.integers(1, 6, space))).astype(np.float32)
    order = rng.permutation(space + 2)
    letters = "NC" + "HW"[:space], "OI" + "HW"[:space], "NC" + "HW"[:space]
    if rng.random() < 0.5:
        letters = tuple("".join(s[i] for i in order) for s in letters)
        x, w = (a.transpose(order) for a in (x, w))
    gaps = [int(g) for g in rng.integers(1, 4, space)]
    gaps[-1] = max(gaps[-1], 2)
    how: dict[str, Any] = {
        "window_strides": [1 if g > 1 else int(rng.integers(1, 3)) for g in gaps],
        "padding": [tuple(int(n) for n in rng.integers(-2, 6, 2)) for _ in range(space)],
        "lhs_dilation": gaps,
        "rhs_dilation": [1 if g > 1 else int(rng.integers(1, 3)) for g in gaps],
        "dimension_numbers": letters,
        by: groups,
    }
    return x, w, how


@pytest.mark.parametrize("seed", range(60))
def test_results(monkeypatch, seed):
    x, w, how = case(seed)
    found = []
    for least in (0, 1 << 40):
        monkeypatch.setattr(dilated_conv, "_LEAST_SAVING", least)
        found.append(np.asarray(lax.conv_general_dilated(x, w, **how)))
    got, want = found
    assert got.shape == want.shape
    assert_normwise(got, want, 1e-6)


def test_what_is_multiplied(monkeypatch):
    """Each element by the taps that reach it, and no hole; also where there are fewer taps than remainders."""
    monkeypatch.setattr(dilated_conv, "_LEAST_SAVING", 0)
    convolve, seen = dilated_conv.convolve, []
    record = lambda *args: (seen.append(args[1].shape), convolve(*args))[1]  # noqa: E731
    monkeypatch.setattr(dilated_conv, "convolve", record)
    x, w = np.ones((1, 2, 5), np.float32), np.ones((3, 2, 3), np.float32)
    how: dict[str, Any] = {"window_strides": (1,), "padding": [(2, 2)]}
    sw.jit(lambda x, w: lax.conv_general_dilated(x, w, lhs_dilation=(2,), **how))(x, w)
    assert sorted(seen) == [(3, 2, 1), (3, 2, 2)]
    seen.clear()
    out = sw.jit(lambda x, w: lax.conv_general_dilated(x, w, lhs_dilation=(4,), **how))(x, w)
    assert sorted(seen) == [(3, 2, 1)] * 3
    assert (np.asarray(out)[..., 3::4] == 0).all()


@pytest.mark.parametrize("split", [("x",), (None, None, "x"), (None, "x")])
def test_slopes_on_a_mesh(monkeypatch, split):
    x = np.random.default_rng(0).normal(size=(8, 16, 64)).astype(np.float32)
    w = np.random.default_rng(1).normal(size=(8, 16, 5)).astype(np.float32)
    slopes = lambda x, w: sw.jit(sw.grad(lambda x, w: (lax.conv(x, w, (2,), "SAME") ** 2).sum(), (0, 1)))(x, w)  # noqa: E731
    monkeypatch.setattr(dilated_conv, "_LEAST_SAVING", 1 << 40)
    want = slopes(x, w)
    monkeypatch.setattr(dilated_conv, "_LEAST_SAVING", 1)
    sharding = sw.NamedSharding(sw.make_mesh((4,), ("x",)), sw.P(*split))
    for a, b in zip(slopes(sw.device_put(x, sharding), w), want, strict=True):
        assert_normwise(np.asarray(a), np.asarray(b), 1e-5)
