"""`psum` and its kin over positions of dims, alone and beside names."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import shardwise as sw

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("name", ["psum", "pmax", "pmin"])
@pytest.mark.parametrize("axes", [0, (0, 2), (1,), ("i", 0), (1, "i"), ["i", 1]])
def test_as_jax(name, axes):
    names = "i" in axes if isinstance(axes, tuple | list) else False

    def run(lib):
        def f(v):
            return getattr(lib.lax, name)({"a": v, "b": v * 2}, axes)

        return lib.vmap(f, axis_name="i")(X) if names else lib.jit(f)(X)

    found, expected = run(sw), run(jax)
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5)
        assert found[key].dtype == expected[key].dtype


def test_means_are_over_both():
    assert sw.lax.pmean(np.arange(6).reshape(2, 3), 0).tolist() == [1.5, 2.5, 3.5]
    both = sw.vmap(lambda v: sw.lax.pmean(v, ("i", 1)), axis_name="i")(X)
    np.testing.assert_allclose(both, np.broadcast_to(X.mean((0, 2)), (2, 3)), rtol=1e-5)


def test_positions_count_from_the_end():
    np.testing.assert_allclose(sw.jit(lambda v: sw.lax.psum(v, -1))(X), X.sum(-1), rtol=1e-5)


def test_slopes_and_bools():
    slope = sw.grad(lambda v: sw.lax.psum(v, (0, 1, 2)) ** 2)(X)
    np.testing.assert_allclose(slope, np.full_like(X, 2 * X.sum()), rtol=1e-5)
    assert sw.lax.psum(np.ones(3, bool), 0).dtype == np.int32


def test_mistakes():
    for axes, message in ((5, "axis 5 is out of bounds"), ((0, 0), "not unique"), ((1, -2), "not unique")):
        with pytest.raises(ValueError, match=message):
            sw.lax.psum(X, axes)
    with pytest.raises(ValueError, match="axis 0 is out of bounds"):
        sw.lax.psum(3, (0,))
    with pytest.raises(ValueError, match="axis_index_groups"):
        sw.lax.psum(X, (0,), axis_index_groups=[[0, 1]])
    with pytest.raises(NameError, match="unbound axis name: 0"):
        sw.lax.all_gather(X, 0)
