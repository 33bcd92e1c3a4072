"""Machine code for complex numbers: what the functions of few elements give, nearer to what is true, the odd cases included."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.ops.elementwise import complex_loops, complex_points


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name, operands", [("exp", 1), ("sqrt", 1), ("divide", 2)])
def test_values(monkeypatch, name, operands):
    monkeypatch.setattr(complex_loops, "_CHUNK", 64)
    monkeypatch.setattr(complex_loops, "_THREADS_FROM", 1)
    monkeypatch.setattr(complex_loops, "thread_count", lambda: 3)
    ufunc = getattr(complex_points, name)
    rng = np.random.default_rng(0)
    ends = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 88.9, -104.0, 3e38, 1e-40, 3.14159274, 1.5707964]
    odd = np.array([complex(a, b) for a in ends for b in ends], np.complex64)
    usual = (rng.normal(size=(30, 37)) * 9 + 9j * rng.normal(size=(30, 37))).astype(np.complex64)
    for x in (odd, usual, usual.T, usual[::2]):
        blocks = (x, x.ravel(order="K")[::-1].reshape(x.T.shape).T if x is usual.T else x[::-1].copy())[:operands]
        got, want = getattr(complex_loops, name)(*blocks), ufunc(*blocks)
        assert got.shape == want.shape and got.dtype == want.dtype
        true = ufunc(*[b.astype(np.complex128) for b in blocks])
        fits = np.isfinite(true) & (np.abs(true) < 3e38) & np.isfinite(want)
        error = np.abs(np.where(fits, got - true, 0)) / np.where(fits & (np.abs(true) > 1e-37), np.abs(true), 1)
        assert np.max(error) < 3e-7
        if name != "divide":
            np.testing.assert_array_equal(np.signbit(got.imag[fits]), np.signbit(want.imag[fits]))
        np.testing.assert_array_equal(got[~np.isfinite(got)].real, want[~np.isfinite(got)].real)
