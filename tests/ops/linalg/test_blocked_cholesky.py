"""Cholesky's factor of large matrices by blocks, beside LAPACK's."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.ops.linalg import blocked_cholesky, lapack
from shardwise.runtime.machine import llvm
from shardwise.runtime.products import blas
from tests.rounding import assert_normwise

pytestmark = pytest.mark.skipif(
    not llvm.available() or blas.library() is None, reason="needs compiled code and our own BLAS"
)
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-14}


def definite(dtype, n, count=1):
    a = np.random.default_rng(n).normal(size=(count, n, n))
    return (a @ a.swapaxes(-1, -2) + n * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [256, 257, 300, 384, 511])
def test_factors(dtype, n):
    a = definite(dtype, n)
    hidden = np.tril(a) + np.triu(np.full_like(a, np.nan), 1)  # the upper triangle is not read
    got = blocked_cholesky.cholesky(hidden)
    assert got is not None and got.dtype == dtype and not np.triu(got, 1).any()
    assert_normwise(got, np.linalg.cholesky(a.astype(np.float64)), TOLERANCE[dtype])
    assert_normwise(got @ got.swapaxes(-1, -2), a, TOLERANCE[dtype])


def test_a_matrix_that_is_not_definite_leaves_the_others_alone():
    a = definite(np.float32, 300, 4)
    a[1, 280, 280] = -1
    a[2, 5, 5] = np.nan
    got = lapack.cholesky(a)
    below = np.tril_indices(300)
    for i in (1, 2):
        assert np.isnan(got[i][below]).all() and not np.triu(got[i], 1).any()
    np.testing.assert_array_equal(got[[0, 3]], lapack.cholesky(a[[0, 3]]))
    assert np.isnan(lapack.cholesky(np.zeros((256, 256), np.float32))[np.tril_indices(256)]).all()


def test_threads_change_nothing(monkeypatch):
    a = definite(np.float32, 600)
    monkeypatch.setattr(blocked_cholesky, "_THREADS_FROM", 0)
    results = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(blocked_cholesky, "product_threads", lambda threads=threads: threads)
        results.append(blocked_cholesky.cholesky(a))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_what_is_left_to_lapack():
    assert blocked_cholesky.cholesky(definite(np.float32, 255)) is None
    assert blocked_cholesky.cholesky(np.ones((256, 256), np.complex64)) is None
    assert blocked_cholesky.cholesky(np.ones((0, 256, 256), np.float32)) is None


def test_under_jit():
    a = definite(np.float32, 320)[0]
    got = jax.jit(jnp.linalg.cholesky)(a)
    np.testing.assert_array_equal(got, blocked_cholesky.cholesky((a + a.T) * np.float32(0.5)))
