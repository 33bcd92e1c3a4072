"""Covariances and correlations: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import pytest

from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.cov(m)
jnp.cov(v)
jnp.cov(i)
jnp.cov(k)
jnp.cov(h)
jnp.cov(v, w)
jnp.cov(m, n)
jnp.cov(v, c)
jnp.cov(m, rowvar=False)
jnp.cov(m, n, rowvar=False)
jnp.cov(m[:, :1], v[:4], rowvar=False)
jnp.cov(m, bias=True)
jnp.cov(m, ddof=3)
jnp.cov(m, fweights=i)
jnp.cov(m, aweights=w)
jnp.cov(m, fweights=i, aweights=w)
jnp.cov(m, fweights=i, aweights=w, ddof=0)
jnp.cov(m, aweights=i, bias=True)
jnp.cov(m, dtype="float16")
jnp.cov(m, aweights=w, dtype="complex64")
jnp.cov(z)
jnp.cov(z.T)
jnp.cov(z.T[:1])
jnp.corrcoef(m)
jnp.corrcoef(v)
jnp.corrcoef(v, w)
jnp.corrcoef(c, w)
jnp.corrcoef(m, rowvar=False)
jnp.corrcoef(n, dtype="float16")
"""

ERRORS = """
jnp.cov(t)
jnp.cov(m, t)
jnp.cov([1, 2])
jnp.cov(m, fweights=v)
jnp.cov(m, fweights=i[:3])
jnp.cov(m, fweights=n)
jnp.cov(m, aweights=i[:3])
jnp.cov(m, aweights=n)
jnp.cov(m, dtype=int)
jnp.corrcoef(m, dtype=int)
jnp.corrcoef([1, 2])
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)
