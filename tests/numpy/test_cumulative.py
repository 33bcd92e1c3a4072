"""Running sums and differences: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.cumsum(v)
jnp.cumsum(m)
jnp.cumsum(i)
jnp.cumsum(b)
jnp.cumsum(u)
jnp.cumsum(gap[:4])
jnp.cumsum(k)
jnp.cumsum(h)
jnp.cumsum(m, axis=1)
jnp.cumsum(n, axis=0)
jnp.cumsum(t, 1)
jnp.cumsum(i, dtype="float32")
jnp.cumsum(b, dtype=bool)
jnp.cumprod(v)
jnp.cumprod(m)
jnp.cumprod(i)
jnp.cumprod(b)
jnp.cumprod(u)
jnp.cumprod(gap[:4])
jnp.cumprod(k)
jnp.cumprod(h)
jnp.cumprod(m, axis=1)
jnp.cumprod(n, axis=0)
jnp.cumprod(t, 1)
jnp.cumprod(i, dtype="float32")
jnp.cumprod(b, dtype=bool)
jnp.nancumsum(v)
jnp.nancumsum(m)
jnp.nancumsum(i)
jnp.nancumsum(b)
jnp.nancumsum(u)
jnp.nancumsum(gap[:4])
jnp.nancumsum(k)
jnp.nancumsum(h)
jnp.nancumsum(m, axis=1)
jnp.nancumsum(n, axis=0)
jnp.nancumsum(t, 1)
jnp.nancumsum(i, dtype="float32")
jnp.nancumsum(b, dtype=bool)
jnp.nancumprod(v)
jnp.nancumprod(m)
jnp.nancumprod(i)
jnp.nancumprod(b)
jnp.nancumprod(u)
jnp.nancumprod(gap[:4])
jnp.nancumprod(k)
jnp.nancumprod(h)
jnp.nancumprod(m, axis=1)
jnp.nancumprod(n, axis=0)
jnp.nancumprod(t, 1)
jnp.nancumprod(i, dtype="float32")
jnp.nancumprod(b, dtype=bool)
jnp.cumulative_sum(v)
jnp.cumulative_sum(m, axis=1)
jnp.cumulative_sum(u, include_initial=True)
jnp.cumulative_prod(n, axis=0, include_initial=True)
jnp.diff(v)
jnp.diff(m, axis=0)
jnp.diff(m, n=2)
jnp.diff(b)
jnp.diff(v, prepend=0)
jnp.diff(m, append=m[:, :1])
jnp.diff(m, prepend=1, append=2.0, axis=0)
jnp.diff(i, n=0)
jnp.diff(a5, n=7)
jnp.ediff1d(m)
jnp.ediff1d(i, to_begin=9, to_end=v[:2])
jnp.gradient(v)
jnp.gradient(m)
jnp.gradient(m, axis=1)
jnp.gradient(m, 2.0)
jnp.gradient(m, 2.0, 3.0)
jnp.gradient(v, w)
jnp.gradient(m, 1.0, w)
jnp.gradient(i)
jnp.trapezoid(v)
jnp.trapezoid(m, dx=0.5)
jnp.trapezoid(v, w)
jnp.trapezoid(m, v, axis=1)
jnp.trapezoid(m, m, axis=0)
jnp.trapezoid(n, axis=0)
jnp.unwrap(v * 5)
jnp.unwrap(m * 5, axis=0)
jnp.unwrap(i, period=4)
jnp.unwrap(v * 5, discont=4.0)
"""

ERRORS = """
jnp.cumsum([1, 2])
jnp.cumsum(m, axis=3)
jnp.cumulative_sum(m)
jnp.cumulative_sum(k)
jnp.diff(v, n=-1)
jnp.diff(k)
jnp.gradient(k, axis=0)
jnp.gradient(v[:1])
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_unwrapped_integers():
    """A jump by 3 of a period of 5 is one by -2, as NumPy has it; JAX makes it one by 2. Unsigned integers wrap around."""
    assert jnp.unwrap(jnp.array([5, 0, 3, 1, 100, 7]), period=5).tolist() == [5, 5, 3, 1, 0, 2]
    assert jnp.unwrap(jnp.array([5, 0, 3], jnp.uint8), period=5).tolist() == [5, 6, 4]
    assert jnp.unwrap(jnp.array([0, 1, 2, 3, 4, 5], jnp.uint8), period=1).tolist() == [0] * 6


def test_distances_of_trapezoids_may_have_fewer_dims():
    with sw.numpy_rank_promotion("raise"):
        areas = jnp.trapezoid(jnp.ones((3, 4, 5)), dx=jnp.full((3, 5), 2.0), axis=1)
    assert areas.tolist() == [[6.0] * 5] * 3
