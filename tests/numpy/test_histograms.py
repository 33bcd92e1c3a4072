"""bincount and histograms: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.base.errors import ConcretizationTypeError, ShardingTypeError
from shardwise.sharding import AxisType, Mesh, NamedSharding, P
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.bincount(i)  # static
jnp.bincount(b)  # static
jnp.bincount(u)  # static
jnp.bincount(i, minlength=20)  # static
jnp.bincount(i, w)  # static
jnp.bincount(-i)  # static
jnp.bincount(i[:0])  # static
jnp.bincount(i, length=4)
jnp.bincount(i - 2, v, length=10)
jnp.bincount(i, u, length=8)
jnp.bincount(i, c, length=8)
jnp.bincount(i[:0], length=3)
jnp.histogram(v)
jnp.histogram(n, 5)
jnp.histogram(i, jnp.array([0, 1, 3]))
jnp.histogram(v, bins=grid)
jnp.histogram(v, bins=4, range=(-1, 1))
jnp.histogram(v, bins=4, range=(-1, 1), density=True)
jnp.histogram(m, weights=n)
jnp.histogram(v, weights=w, density=True)
jnp.histogram(v, weights=c, bins=3)
jnp.histogram(jnp.ones(4), bins=3)
jnp.histogram(k)
jnp.histogram(h, 3)
jnp.histogram(v, bins=4, range=(w[0] - 3, w[1]))
jnp.histogram_bin_edges(v, bins=3)
jnp.histogram_bin_edges(i, bins=np.array([1, 2, 4]))
jnp.histogram_bin_edges(v, range=[2, 2], bins=2)
jnp.histogram_bin_edges(v, bins=3, weights=w)
jnp.histogram2d(v, w, bins=3)
jnp.histogram2d(v, i, bins=[2, 3])
jnp.histogram2d(v, w, bins=grid)
jnp.histogram2d(v, w, bins=[grid, 4])
jnp.histogram2d(v, w, bins=2, weights=i, density=True)
jnp.histogram2d(v, w, bins=3, density=True)
jnp.histogram2d(v, w, bins=3, range=[[0, 1], None])
jnp.histogramdd(m.T, bins=2)
jnp.histogramdd(m.T[:, :3], bins=[1, 2, 3])
jnp.histogramdd(m.T[:, :2], bins=[grid, 3], range=[None, (-1, 1)], density=True)
jnp.histogramdd(m[:, :2], bins=(2, 2), weights=v[:4])
jnp.histogramdd(n.T, bins=2, weights=i)
"""

ERRORS = """
jnp.bincount(v)
jnp.bincount(n)
jnp.bincount(i, v[:3])
jnp.bincount(i, 2)
jnp.bincount([1])
jax.jit(jnp.bincount)(i)
jnp.histogram(i, [0, 1, 2])
jnp.histogram(v, weights=w[:3])
jnp.histogram(v, range=(1, 2, 3))
jnp.histogram_bin_edges(v, bins=m)
jnp.histogram_bin_edges(v, bins="auto")
jnp.histogram2d(v, w[:2])
jnp.histogramdd(m, bins=[1, 2])
jnp.histogramdd(m, bins=2, range=[(0, 1)])
jnp.histogramdd(m, bins=2, weights=v)
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_integers_and_their_weights_meet_under_strict_promotion():
    i = np.arange(4, dtype=np.int16)
    with shardwise.numpy_dtype_promotion("strict"):
        assert jnp.histogram2d(i, i, bins=2, weights=i)[0].tolist() == [[1, 0], [0, 5]]


def test_the_way_out_is_named():
    with pytest.raises(ConcretizationTypeError, match="length="):
        shardwise.jit(jnp.bincount)(np.arange(3))


def test_out_sharding():
    mesh = Mesh(np.array(shardwise.devices()[:4]), ("x",), axis_types=(AxisType.Explicit,))
    x = shardwise.device_put(np.arange(8, dtype=np.int32) % 3, NamedSharding(mesh, P("x")))
    got = jnp.bincount(x, length=4, out_sharding=NamedSharding(mesh, P()))
    np.testing.assert_array_equal(got, [3, 3, 2, 0])
    with pytest.raises(ShardingTypeError):
        jnp.bincount(x, length=4, out_sharding=NamedSharding(mesh, P("x")))
