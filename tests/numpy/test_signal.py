"""Convolution, correlation and bits: values and dtypes as JAX has them."""

from __future__ import annotations

import pytest

from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.convolve(v, a5, "full")
jnp.convolve(v, a5, "same")
jnp.convolve(v, a5, "valid")
jnp.convolve(a5, v, "full")
jnp.convolve(a5, v, "same")
jnp.convolve(a5, v, "valid")
jnp.convolve(v, w[:4], "full")
jnp.convolve(v, w[:4], "same")
jnp.convolve(v, w[:4], "valid")
jnp.convolve(i, j[:3], "full")
jnp.convolve(i, j[:3], "same")
jnp.convolve(i, j[:3], "valid")
jnp.convolve(c, v, "full")
jnp.convolve(c, v, "same")
jnp.convolve(c, v, "valid")
jnp.correlate(v, a5, "full")
jnp.correlate(v, a5, "same")
jnp.correlate(v, a5, "valid")
jnp.correlate(a5, v, "full")
jnp.correlate(a5, v, "same")
jnp.correlate(a5, v, "valid")
jnp.correlate(v, w[:4], "full")
jnp.correlate(v, w[:4], "same")
jnp.correlate(v, w[:4], "valid")
jnp.correlate(i, j[:3], "full")
jnp.correlate(i, j[:3], "same")
jnp.correlate(i, j[:3], "valid")
jnp.correlate(c, v, "full")
jnp.correlate(c, v, "same")
jnp.correlate(c, v, "valid")
jnp.convolve(u, u, preferred_element_type="int32")
jnp.convolve(b, b)
jnp.packbits(b)
jnp.packbits(bm, axis=1)
jnp.packbits(n, axis=0)
jnp.packbits(i[:5], bitorder="little")
jnp.unpackbits(u)
jnp.unpackbits(u[None], axis=0)
jnp.unpackbits(u, count=11)
jnp.unpackbits(u, count=-5, bitorder="little")
jnp.unpackbits(u[:1], count=10)
"""

ERRORS = """
jnp.convolve(m, m)
jnp.convolve(z[:, 0], v)
jnp.convolve([1], [2])
jnp.convolve(v, w, "foo")
jnp.packbits(v)
jnp.unpackbits(i)
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)
