"""Medians, quantiles and percentiles: values and dtypes as JAX has them."""

from __future__ import annotations

import pytest

from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.quantile(v, 0.3)
jnp.quantile(m, grid[3:6], axis=1)
jnp.quantile(m, 0.3, axis=(0, 1), keepdims=True)
jnp.quantile(i, 0.4)
jnp.quantile(v, 1.5)
jnp.quantile(m, 0.4, axis=0, method="lower")
jnp.quantile(m, 0.4, axis=0, method="higher")
jnp.quantile(m, 0.4, axis=0, method="midpoint")
jnp.quantile(m, 0.4, axis=0, method="nearest")
jnp.quantile(m, 0.4, axis=0, method="inverted_cdf")
jnp.quantile(m, 0.4, axis=1, method="lower")
jnp.quantile(m, 0.4, axis=1, method="higher")
jnp.quantile(m, 0.4, axis=1, method="midpoint")
jnp.quantile(m, 0.4, axis=1, method="nearest")
jnp.quantile(m, 0.4, axis=1, method="inverted_cdf")
jnp.quantile(m, 0.4, method="inverted_cdf", weights=m * m)
jnp.quantile(m, 0.4, method="inverted_cdf", weights=i, axis=1)
jnp.percentile(v, 30)
jnp.percentile(t, 75, axis=1)
jnp.median(v)
jnp.median(m, axis=1)
jnp.median(t, axis=(0, 2), keepdims=True)
jnp.median(n)
jnp.median(b)
jnp.median(gap)
jnp.nanmedian(gap)
jnp.nanquantile(gap, 0.5)
jnp.nanpercentile(gap[:4], 25)
jnp.nanquantile(m, 0.25, axis=1)
jnp.nanmedian(gap[1:2])
jnp.quantile(h, 0.3)
jnp.quantile(k, 0.5)
"""

ERRORS = """
jnp.quantile(v, 0.4, method="foo")
jnp.quantile(v, 0.4, weights=v)
jnp.quantile(c, 0.5)
jnp.quantile(v, m)
jnp.median(v, out=1)
jnp.median(v, overwrite_input=True)
jnp.quantile([1], 0.5)
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)
