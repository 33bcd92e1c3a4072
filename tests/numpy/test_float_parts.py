"""Signs, exponents and mantissas: values and dtypes as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from tests.differential.oracle import compare
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.signbit(v)
jnp.signbit(gap)
jnp.signbit(i)
jnp.signbit(k)
jnp.signbit(h)
jnp.frexp(v)
jnp.frexp(gap)
jnp.frexp(i)
jnp.frexp(k)
jnp.frexp(h)
jnp.modf(v)
jnp.modf(gap)
jnp.modf(i)
jnp.modf(k)
jnp.modf(h)
jnp.spacing(v)
jnp.spacing(gap)
jnp.spacing(i)
jnp.spacing(k)
jnp.signbit(b)
jnp.signbit(u)
jnp.signbit(bf)
jnp.copysign(v, w)
jnp.copysign(gap, v)
jnp.copysign(i, n)
jnp.copysign(m, -1.0)
jnp.ldexp(v, i)
jnp.ldexp(m, n)
jnp.ldexp(w, -140)
jnp.ldexp(w, 130)
jnp.ldexp(h, 3)
jnp.ldexp(k, 3)
jnp.ldexp(gap, 2)
jnp.frexp(w * 1e-30)
jnp.frexp(bf)
"""

ERRORS = """
jnp.signbit(c)
jnp.ldexp(v, w)
jnp.copysign(c, v)
jnp.spacing(c)
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_spacing_of_halves():
    """float16 alone counts towards greater numbers, as in NumPy."""
    compare("""
x = np.array([-6e-8, -3e-5, -1, -3, -1024, -0.0, 0, 1, 2, 4, -0.5, -6.1e-5, 6.1e-5, 65504, -65504, np.inf, np.nan], np.float32)
result = [jnp.spacing(x.astype(t)) for t in (jnp.float16, jnp.bfloat16, jnp.float32)]
""")


@pytest.mark.parametrize(
    "exponent", [np.int64(-(2**63)), np.int64(2**40), np.uint32(2**32 - 1), np.uint64(2**63), np.int8(-100)], ids=str
)
def test_exponents_beyond_32_bits(exponent):
    with sw.enable_x64(True):
        got = sw.numpy.ldexp(1.0, sw.numpy.asarray(exponent))
    assert float(got) == (2.0**-100 if exponent == -100 else 0.0 if exponent < 0 else np.inf)
