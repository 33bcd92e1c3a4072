"""Medians, quantiles and percentiles: values and dtypes as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise.numpy as jnp
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


@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile"])
@pytest.mark.parametrize(("shape", "axis"), [((0,), None), ((2, 0), 1), ((2, 0), None)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_no_quantile_of_no_elements(name, shape, axis, keepdims):
    """None is asked for: there is nothing to compute. One that is asked for needs elements."""
    jax_numpy = pytest.importorskip("jax.numpy")
    none = np.zeros(0, np.float32)
    ours = getattr(jnp, name)(np.zeros(shape, np.float32), none, axis=axis, keepdims=keepdims)
    theirs = getattr(jax_numpy, name)(np.zeros(shape, np.float32), none, axis=axis, keepdims=keepdims)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    with pytest.raises(ValueError, match="no elements lie over"):
        getattr(jnp, name)(np.zeros(shape, np.float32), np.array([0.5], np.float32), axis=axis, keepdims=keepdims)
