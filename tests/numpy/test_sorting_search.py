"""Sorting and searching: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, P
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.sort(i)
jnp.sort(m, axis=0)
jnp.sort(m, axis=None)
jnp.sort(gap)
jnp.sort(t, axis=1, descending=True)
jnp.sort(c)
jnp.sort(bf)
jnp.sort(b)
jnp.sort(k, axis=None)
jnp.sort(i, stable=False)
jnp.argsort(i)
jnp.argsort(i, descending=True)
jnp.argsort(m, axis=0, descending=True)
jnp.argsort(v, stable=False, descending=True)
jnp.argsort(v, dtype="int16")
jnp.argsort(m, axis=None)
jnp.argsort(gap)
jnp.partition(i, 3)
jnp.partition(m, 1, axis=0)
jnp.partition(u, -2)
jnp.argpartition(i, 3)
jnp.argpartition(m, -1, axis=0)
jnp.lexsort((v, i))
jnp.lexsort((i, j))
jnp.lexsort(n)
jnp.lexsort(n[None], axis=0)
jnp.lexsort(jnp.array([1, 2]))
jnp.lexsort([1, 2])
jnp.sort_complex(i)
jnp.sort_complex(c)
jnp.sort_complex(m)
jnp.searchsorted(grid, v)
jnp.searchsorted(grid, m, side="right")
jnp.searchsorted(jnp.sort(i), i)
jnp.searchsorted(jnp.sort(i), i, side="right")
jnp.searchsorted(jnp.sort(i), f)
jnp.searchsorted(grid, gap)
jnp.searchsorted(jnp.sort(gap), gap, side="right")
jnp.searchsorted(i, w, sorter=jnp.argsort(i))
jnp.searchsorted(grid, v, method="sort")
jnp.searchsorted(grid[:0], v)
jnp.searchsorted(grid[:1], v)
jnp.searchsorted(jnp.sort(bf), h)
jnp.digitize(v, grid)
jnp.digitize(c, jnp.sort_complex(c))
jnp.digitize(m, grid, right=True)
jnp.digitize(m, grid[::-1])
jnp.digitize(m, grid[::-1], right=True)
jnp.digitize(v, z[:, 0])
jnp.digitize(k, jnp.array([1, 2]))
jnp.digitize(i, np.array([0.5, 2, 5]))
"""

ERRORS = """
jnp.sort([1, 2])
jnp.sort(m, axis=2)
jnp.sort(i, kind="mergesort")
jnp.sort(i, order="a")
jnp.argsort(i, kind="mergesort")
jnp.sort(k)
jnp.partition(i, 20)
jnp.partition(c, 2)
jnp.argpartition(c, 2)
jnp.partition(k, 0)
jnp.lexsort([])
jnp.lexsort((i, v[:2]))
jnp.lexsort(n, axis=2)
jnp.searchsorted(grid, v, side="middle")
jnp.searchsorted(m, v)
jnp.searchsorted([1], v)
jnp.searchsorted(grid, v, method="other")
jnp.digitize(v, m)
jnp.digitize(v, [1])
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_search_in_many_arrays():
    """Under vmap each row is searched on its own; the bisection agrees with NumPy's, NaNs included."""
    rng = np.random.default_rng(1)
    rows = np.sort(rng.integers(0, 9, (6, 13)).astype(np.float32), 1)
    rows[2:4, 11:] = np.nan
    wanted = rng.integers(-1, 11, (6, 4, 2)).astype(np.float32)
    wanted[:, 0, 0] = np.nan
    for side in ("left", "right"):
        f = lambda a, v, side=side: jnp.searchsorted(a, v, side=side)  # noqa: E731
        want = np.stack([np.searchsorted(a, v, side) for a, v in zip(rows, wanted, strict=True)])
        np.testing.assert_array_equal(shardwise.vmap(f)(rows, wanted), want)
        want = np.stack([np.searchsorted(a, wanted, side) for a in rows])
        np.testing.assert_array_equal(shardwise.vmap(f, (0, None))(rows, wanted), want)


def test_search_keeps_the_values_where_they_are():
    mesh = Mesh(np.array(shardwise.devices()[:8]), ("x",))
    v = shardwise.device_put(np.arange(16.0, dtype=np.float32), NamedSharding(mesh, P("x")))
    found = shardwise.jit(lambda v: jnp.searchsorted(jnp.arange(5.0), v))(v)
    assert isinstance(found.sharding, NamedSharding) and found.sharding.spec == P("x")
