"""Reductions by segment, beside JAX's."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw

jax = pytest.importorskip("jax")

DATA = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
IDS = np.array([0, 2, 0, 1, 5, -1], np.int32)


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_values_are_those_of_jax(name):
    ours, theirs = getattr(sw.ops, name), getattr(jax.ops, name)
    np.testing.assert_allclose(np.asarray(ours(DATA, IDS, 4)), np.asarray(theirs(DATA, IDS, 4)), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(ours(DATA[:4], IDS[:4])), np.asarray(theirs(DATA[:4], IDS[:4])), rtol=1e-6)
    jitted = sw.jit(lambda d, i: ours(d, i, 4))(DATA, IDS)
    np.testing.assert_allclose(np.asarray(jitted), np.asarray(theirs(DATA, IDS, 4)), rtol=1e-6)


def test_traced_ids_need_a_number_of_segments():
    with pytest.raises(sw.errors.ConcretizationTypeError, match="num_segments"):
        sw.jit(sw.ops.segment_sum)(DATA, IDS)
