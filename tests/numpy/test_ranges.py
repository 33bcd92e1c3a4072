"""Ranges, grids and windows: values, dtypes and weak types as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from tests.numpy.core_record import use
from tests.numpy.face import cases, check_case, check_error

CASES = """
jnp.arange(3)
jnp.arange(3.0)
jnp.arange(1, 3)
jnp.arange(0, 1, 0.1)
jnp.arange(5, 0, -1)
jnp.arange(3, dtype=float)
jnp.arange(3, dtype="int8")
jnp.arange(0)
jnp.arange(-2)
jnp.arange(jnp.array(3))
jnp.arange(np.int8(3))
jnp.arange(3, step=2)
jnp.arange(0, 10, jnp.array(3))
jnp.arange(2.5)
jnp.arange(1, 10, 2.5)
jnp.arange(-3, 3, dtype=complex)
jnp.linspace(0, 1, 5)
jnp.linspace(0, 10, 5, dtype=int)
jnp.linspace(0, 10, 3, endpoint=False, retstep=True)
jnp.linspace(v, 5, 3)
jnp.linspace(v, w, 3, axis=1)
jnp.linspace(i, m, 3, axis=-1)
jnp.linspace(0, 1, 1)
jnp.linspace(0, 1, 0)
jnp.linspace(1j, 2, 3)
jnp.linspace(-5.0, 5, 50)
jnp.linspace(2, 3, 1, endpoint=False, retstep=True)
jnp.logspace(0, 2, 3)
jnp.logspace(0, 2, 3, base=2, dtype=int)
jnp.logspace(0, 1, 3, endpoint=False)
jnp.geomspace(1, 1000, 4)
jnp.geomspace(1, 256, 9, dtype=int)
jnp.geomspace(-1, -1000, 4)
jnp.geomspace(1, 16, 4, endpoint=False)
jnp.geomspace(w, 16, 3, axis=1)
jnp.geomspace(0.0, 8, 3)
jnp.geomspace(2, 0, 3)
jnp.geomspace(-2, 0, 3, endpoint=False)
jnp.geomspace(-2, 8, 3)
jnp.geomspace(jnp.inf, 8, 3)
jnp.geomspace(2, jnp.inf, 3)
jnp.geomspace(jnp.nan, 8, 3)
jnp.indices((2, 2))
jnp.indices((2, 2), sparse=True)
jnp.indices((2, 3), dtype=float)
jnp.meshgrid(v, i)
jnp.meshgrid(v, i, indexing="ij", sparse=True)
jnp.meshgrid(v, i, a5)
jnp.mgrid[0:2, 0:3]
jnp.mgrid[0:1:3j]
jnp.mgrid[0:1:3j, 0:2]
jnp.ogrid[0:2, 0:3]
jnp.mgrid[:3]
jnp.r_[1:3, 5]
jnp.r_[1:3, 5.0]
jnp.r_[v, 1, 2]
jnp.c_[v, w]
jnp.c_[i]
jnp.r_["0,2", [1, 2], [3, 4]]
jnp.r_["-1", [[1, 2]], [[3, 4]]]
jnp.r_["0,2,0", [1, 2], [3, 4]]
jnp.r_["1,3", [1, 2], [3, 4]]
jnp.r_[0:1:3j]
jnp.fromfunction(lambda i, j: i + j, (2, 2))
jnp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int)
jnp.ix_(i, v)
jnp.bartlett(4)
jnp.hanning(5)
jnp.bartlett(3.7)
jnp.kaiser(4, 2.0)
jnp.blackman(7)
jnp.hamming(6)
jnp.blackman(1)
jnp.hamming(0)
"""

ERRORS = """
jnp.arange(True)
jnp.arange(None)
jnp.arange([1])
jnp.arange(0, 3, 0)
jnp.arange(1j)
jnp.linspace(0, 1, -1)
jnp.meshgrid(1, 2)
jnp.meshgrid(v, indexing="a")
jnp.ix_([1, 2], [3, 4, 5])
"""

use()


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        ((-5, 5, 0.01), 1000),  # 0.01 in 32 bits is less, and would make one more
        ((-1.0, 5.0, 0.01), 600),
        ((0, 1, 1 / 3), 3),
        ((np.float64(-5), 5, np.float64(0.01)), 1000),
        ((np.float32(-5), 5, np.float32(0.01)), 1000),
        ((jnp.float32(-5), 5, np.float32(0.01)), 1000),
        ((jnp.float32(1.5), 5, np.float64(0.7)), 5),
        ((5, -5, -0.01), 1000),
        ((0, 0.7), 1),
        ((0.5, 3), 3),
        ((3, 0.5), 0),
    ],
)
def test_arange_counts_in_the_bounds_own_types(bounds, count):
    assert jnp.arange(*bounds).shape == (count,)


def test_arange_of_small_floats_computes_in_32_bits():
    for dtype in (jnp.float16, jnp.bfloat16):
        found = jnp.arange(0.1, 40, 0.3, dtype=dtype)
        wide = jnp.arange(0.1, 40, 0.3, dtype=jnp.float32)
        assert found.dtype == dtype
        assert found.tolist() == wide.astype(dtype).tolist()


def test_grids_join_dtypes_under_strict_promotion():
    with sw.numpy_dtype_promotion("strict"):
        assert jnp.mgrid[0:2, 0:2.0].dtype == jnp.float32
