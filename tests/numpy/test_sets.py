"""Arrays as sets: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.base.errors import ConcretizationTypeError
from shardwise.numpy import sets
from tests.differential.oracle import compare
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.unique(i)  # static
jnp.unique(n)  # static
jnp.unique(gap)  # static
jnp.unique(b, return_counts=True)  # static
jnp.unique(c)  # static
jnp.unique(bf)  # static
jnp.unique(k)
jnp.unique(n, return_index=True, return_inverse=True, return_counts=True)  # static
jnp.unique(n % 2, axis=0, return_index=True, return_inverse=True, return_counts=True)  # static
jnp.unique(n[:2] % 2, axis=1, return_index=True, return_inverse=True, return_counts=True)  # static
jnp.unique(t > 0.2, axis=-1, return_counts=True)  # static
jnp.unique(gap, return_counts=True)  # static
jnp.unique(gap, equal_nan=False, return_counts=True)  # static
jnp.unique(z, return_index=True, return_inverse=True, return_counts=True)  # static
jnp.unique(z, axis=0, return_index=True, return_inverse=True, return_counts=True)  # static
jnp.unique(z.T, axis=0, return_index=True, return_inverse=True, return_counts=True)  # static
jnp.unique(i, size=3)
jnp.unique(i, size=8)
jnp.unique(i, size=8, fill_value=-1)
jnp.unique(i, size=0)
jnp.unique(i, size=3, return_counts=True)
jnp.unique(i, size=8, return_index=True, return_inverse=True, return_counts=True)
jnp.unique(n % 3, size=5, return_inverse=True)
jnp.unique(n % 2, axis=0, size=3, return_index=True, return_inverse=True, return_counts=True)
jnp.unique(n[:2] % 2, axis=1, size=5, fill_value=7, return_counts=True)
jnp.unique(gap, size=10, fill_value=0.5)
jnp.unique(z, size=2, fill_value=3, return_index=True, return_inverse=True, return_counts=True)
jnp.unique(k, size=2)
jnp.unique_all(n)  # static
jnp.unique_all(gap, size=8)
jnp.unique_counts(i, size=6)
jnp.unique_inverse(n, size=6)
jnp.unique_values(n, size=6, fill_value=-9)
jnp.union1d(i, j)  # static
jnp.union1d(i, v)  # static
jnp.union1d(i, j, size=12)
jnp.union1d(i, j, size=12, fill_value=-1)
jnp.union1d(n, i, size=3)
jnp.union1d(k, 4)
jnp.intersect1d(i, j)  # static
jnp.intersect1d(n, i, return_indices=True)  # static
jnp.intersect1d(i, j, size=6)
jnp.intersect1d(i, j, size=6, fill_value=-1)
jnp.intersect1d(i, j, size=6, return_indices=True)
jnp.intersect1d(i, j, size=2, return_indices=True)
jnp.intersect1d(i, v, size=3)
jnp.intersect1d(gap, gap)  # static
jnp.intersect1d(jnp.array([1, 4, 2]), jnp.array([2, 7, 1]), assume_unique=True, return_indices=True)
jnp.intersect1d(k, 3)
jnp.setdiff1d(i, j)  # static
jnp.setdiff1d(j, i)  # static
jnp.setdiff1d(gap, grid)  # static
jnp.setdiff1d(j, i, size=6)
jnp.setdiff1d(j, i, size=6, fill_value=-1)
jnp.setdiff1d(j, i, size=2)
jnp.setdiff1d(j, i, assume_unique=True)  # static
jnp.setdiff1d(j, i, assume_unique=True, size=6)
jnp.setdiff1d(i, z)  # static
jnp.setdiff1d(z, i)  # static
jnp.setdiff1d(z, i, size=2, fill_value=4)
jnp.setdiff1d(k, 4)
jnp.setxor1d(i, j)  # static
jnp.setxor1d(n, v)  # static
jnp.setxor1d(gap, grid)  # static
jnp.setxor1d(gap, gap)  # static
jnp.setxor1d(i, j, size=6)
jnp.setxor1d(i, j, size=6, fill_value=-1)
jnp.setxor1d(i, j, size=2)
jnp.setxor1d(i, i, size=2)
jnp.setxor1d(z, z)  # static
jnp.setxor1d(z, z, size=2)
jnp.setxor1d(k, 4)
jnp.setxor1d(jnp.array([True, False]), jnp.array([True]), size=3, fill_value=5)
jnp.setxor1d(i, j, size=9, fill_value=0.5)
jnp.setxor1d(z, z, size=2, fill_value=0.5)
jnp.intersect1d(jnp.array([True, False]), jnp.array([True]), size=3, fill_value=5)
jnp.intersect1d(i, j, size=9, fill_value=0.5)
jnp.isin(i, j)
jnp.isin(n, j)
jnp.isin(n, j, invert=True)
jnp.isin(v, n, method="sort")
jnp.isin(i, z)
jnp.isin(gap, gap)
jnp.isin(i, k)
jnp.isin(k, i)
jnp.isin(c, c[:3])
jnp.isin(i, f)
"""

ERRORS = """
jnp.unique([1])
jnp.unique(n, axis=2)
jnp.unique(z, size=2)
jax.jit(jnp.unique)(i)
jax.jit(jnp.union1d)(i, j)
jax.jit(jnp.intersect1d)(i, j)
jax.jit(jnp.setdiff1d)(i, j)
jax.jit(jnp.setxor1d)(i, j)
jnp.isin(i, [3])
jnp.isin(i, j, method="other")
jnp.union1d(i, [3])
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_names_of_the_results():
    assert jnp.unique_all(jnp.arange(3))._fields == ("values", "indices", "inverse_indices", "counts")
    assert jnp.unique_counts(jnp.arange(3))._fields == ("values", "counts")
    assert jnp.unique_inverse(jnp.arange(3))._fields == ("values", "inverse_indices")


def test_the_way_out_is_named():
    functions: list[Callable[..., Any]] = [jnp.unique, lambda x: jnp.union1d(x, x), lambda x: jnp.setdiff1d(x, x)]
    for f in functions:
        with pytest.raises(ConcretizationTypeError, match="size="):
            shardwise.jit(f)(np.ones(3))


def test_agrees_with_numpy_on_random_sets():
    rng = np.random.default_rng(2)
    for _ in range(10):
        x, y = rng.integers(-5, 6, rng.integers(0, 12)), rng.integers(-5, 6, rng.integers(0, 12))
        for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d", "isin"):
            want = getattr(np, name)(x, y)
            np.testing.assert_array_equal(getattr(jnp, name)(x, y), want, err_msg=name)
            if name != "isin":
                sized = shardwise.jit(lambda x, y, name=name: getattr(jnp, name)(x, y, size=25, fill_value=99))
                if x.size or y.size:
                    np.testing.assert_array_equal(sized(x, y)[: len(want)], want, err_msg=name)


def test_empty_sets_are_filled():
    """Where no array has an element, the result is made of `fill_value`."""
    compare("""
e, a = jnp.zeros(0), jnp.array([1., 2., 2., 3.])
sizes = [dict(size=n, fill_value=f) for n, f in ((1, None), (2, 99), (5, 2.5))]
result = [f(p, q, **kw) for f in (jnp.intersect1d, jnp.setxor1d) for p, q in ((e, e), (e, a), (a, a)) for kw in sizes]
result += [jnp.union1d(e, e, size=3, fill_value=7), jnp.setdiff1d(e, a, size=2, fill_value=7)]
""")


def test_rows_fill_missing_rows():
    """`fill_value` may be a row."""
    compare("""
x = jnp.array([[1, 2], [1, 2], [3, 4]])
result = [jnp.unique(x, axis=0, size=4, fill_value=f) for f in (7, jnp.array([7, 8]), np.array([9]))]
with jax.numpy_rank_promotion('raise'):
    result += [jnp.unique(x, axis=0, size=4, fill_value=jnp.array([7])), jnp.unique(x, size=6, fill_value=jnp.array(7))]
""")


@pytest.mark.parametrize(("size", "expected"), [(None, [1, 4]), (3, [1, 4, 9])])
def test_what_is_said_to_be_unique_and_is_not_is_left_out_as_in_numpy(size, expected):
    import numpy as np

    import shardwise.numpy as jnp

    a, b = np.array([3, 3, 1, 2]), np.array([2, 4, 5, 5])
    assert np.setxor1d(a, b, assume_unique=True).tolist() == [1, 4]
    assert (
        jnp.setxor1d(a, b, assume_unique=True, size=size, fill_value=None if size is None else 9).tolist() == expected
    )
    assert jnp.setxor1d(a, b).tolist() == [1, 3, 4, 5]


def test_rows_of_many_columns_are_sorted_column_by_column(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (40, 3, 2)).astype(np.float32)
    rows[::5], rows[1::7], rows[2::9, 1] = np.nan, -0.0, np.inf
    results = []
    for most in (1000, 2):
        monkeypatch.setattr(sets, "_MOST_KEYS", most)
        options: tuple[dict[str, Any], ...] = {}, {"size": 9}, {"equal_nan": False}
        results.append([x for kw in options for x in jnp.unique(rows, True, True, True, axis=0, **kw)])
    for x, y in zip(*results, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    assert jnp.unique(rng.integers(0, 5, (2000, 1)), axis=1).shape == (2000, 1)
