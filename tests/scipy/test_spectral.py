"""Spectra of windows, spherical harmonics and functions of matrices, beside SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.signal
import scipy.special

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import enable_x64
from shardwise.scipy import fft, linalg, signal, special

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((2, 3, 61))


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


def same(ours, theirs) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"nperseg": 8},
        {"nperseg": 9, "noverlap": 6, "nfft": 12, "fs": 4.0, "window": "hamming"},
        {"nperseg": 8, "boundary": "odd", "detrend": "constant", "return_onesided": False},
        {"nperseg": 8, "boundary": None, "padded": False, "window": ("kaiser", 3.0)},
        {"nperseg": 16, "boundary": "even", "detrend": "linear"},
    ],
)
def test_stft(options) -> None:
    ours, theirs = signal.stft(X, **options), scipy.signal.stft(X, **options)
    same(ours, theirs)
    back = {k: v for k, v in options.items() if k not in ("boundary", "detrend", "padded", "return_onesided")}
    back |= {
        "boundary": options.get("boundary", "zeros") is not None,
        "input_onesided": options.get("return_onesided", True),
    }
    same(signal.istft(theirs[2], **back), scipy.signal.istft(theirs[2], **back))


@pytest.mark.parametrize("average", ["mean", "median"])
@pytest.mark.parametrize("scaling", ["density", "spectrum"])
def test_powers(average: str, scaling: str) -> None:
    options: dict[str, Any] = {"nperseg": 9, "average": average, "scaling": scaling, "fs": 3.0}
    same(signal.welch(X, **options), scipy.signal.welch(X, **options))
    same(signal.csd(X, Y[:, :50], **options), scipy.signal.csd(X, Y[:, :50], **options))
    same(signal.csd(X.T, Y.T, axis=0, **options), scipy.signal.csd(X.T, Y.T, axis=0, **options))


def test_spectra_have_derivatives_and_refuse() -> None:
    power = lambda x: jnp.sum(jnp.abs(signal.stft(x, nperseg=8, boundary=None, padded=False)[2]) ** 2)  # noqa: E731
    step = 1e-6 * RNG.standard_normal(24)
    slope = np.vdot(np.asarray(sw.jit(sw.grad(power))(X[0, :24])), step)
    np.testing.assert_allclose(slope, float(power(X[0, :24] + step) - power(X[0, :24] - step)) / 2, rtol=2e-9)
    wrongs: Any = ({"noverlap": 8}, {"nfft": 4}, {"boundary": "round"}, {"window": np.ones(5)})
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"noverlap|nfft|boundary|nperseg"):
            signal.stft(X, nperseg=8, **wrong)


def test_spherical_harmonics() -> None:
    n, m = np.array([0, 1, 2, 5, 5, 4]), np.array([0, -1, 2, -3, 4, 0])
    theta, phi = RNG.uniform(0, 3, 6), RNG.uniform(0, 6, 6)
    theirs: Any = scipy.special
    older = not hasattr(theirs, "sph_harm_y")
    expected = theirs.sph_harm(m, n, phi, theta) if older else theirs.sph_harm_y(n, m, theta, phi)
    np.testing.assert_allclose(np.asarray(special.sph_harm_y(n, m, theta, phi)), expected, rtol=1e-12)
    traced = sw.jit(lambda n, t: special.sph_harm(m, n, phi, t, n_max=6))(n, theta)
    np.testing.assert_allclose(np.asarray(traced), expected, rtol=1e-12)
    negative = theirs.sph_harm(m, n, phi, -theta) if older else theirs.sph_harm_y(n, m, -theta, phi)
    np.testing.assert_allclose(np.asarray(special.sph_harm_y(n, m, -theta, phi)), negative, rtol=1e-12)


def test_legendre_functions() -> None:
    with pytest.warns(DeprecationWarning, match="lpmn"):
        lpmn, lpmn_values = special.lpmn, special.lpmn_values
    z = np.linspace(-0.9, 0.9, 7)
    values, slopes = lpmn(4, 4, z)
    for m in range(5):
        for n in range(5):
            np.testing.assert_allclose(
                np.asarray(values[m, n]), scipy.special.lpmv(m, n, z) if m <= n else 0, rtol=1e-12, atol=1e-14
            )
            polar = np.arccos(z)
            harmonic = np.real(special.sph_harm_y(np.full(7, n), np.full(7, m), polar, np.zeros(7), n_max=4))
            if m <= n:
                normalized = lpmn_values(4, 4, z, True)[m, n]
                np.testing.assert_allclose(np.asarray(normalized), harmonic, rtol=1e-12, atol=1e-14)
    tangents = sw.jvp(lambda z: lpmn_values(4, 4, z, False), (jnp.asarray(z),), (jnp.ones(7),))[1]
    np.testing.assert_allclose(np.asarray(slopes), tangents, rtol=1e-11, atol=1e-12)
    ends = np.asarray(lpmn(3, 3, jnp.array([-1.0, 1.0]))[1])
    np.testing.assert_allclose(ends[:, 3], [[6, 6], [-np.inf, np.inf], [-30, -30], [0, 0]], atol=1e-12)
    assert lpmn_values(2, 2, np.ones(3, np.float32), True).dtype == np.float32 and lpmn(0, 0, z)[1].shape == (1, 1, 7)
    with pytest.raises(NotImplementedError, match="m = 1, n = 2"):
        lpmn(1, 2, z)
    with pytest.raises(ValueError, match="one dim"):
        lpmn(2, 2, np.ones((2, 2)))
    with pytest.raises(TypeError, match="int"):
        lpmn(2, 2, np.arange(3))


def test_functions_of_matrices() -> None:
    matrix = RNG.standard_normal((5, 5))
    np.testing.assert_allclose(
        np.asarray(linalg.funm(matrix, jnp.exp)), scipy.linalg.expm(matrix), rtol=1e-12, atol=1e-12
    )
    with pytest.raises(ValueError, match="square"):
        linalg.funm(matrix[:3], jnp.exp)
    for size in (1, 2, 5, 6):
        a = RNG.standard_normal(size) + 3
        expected = scipy.linalg.fiedler_companion(a) if size > 1 else np.zeros((0, 0))
        np.testing.assert_allclose(np.asarray(linalg.fiedler_companion(a)), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["dct", "idct", "dctn", "idctn"])
@pytest.mark.parametrize("norm", [None, "ortho"])
def test_cosine_transforms_of_complex_numbers(name: str, norm: str | None) -> None:
    """Real and imaginary parts are transformed each by itself."""
    x = np.cos(np.arange(24.0)).reshape(2, 3, 4) + 1j * np.sin(np.arange(24.0) ** 2).reshape(2, 3, 4)
    sizes: list[dict[str, Any]] = (
        [{}, {"n": 3, "axis": 0}] if name[-1] == "t" else [{}, {"s": (5, 2)}, {"axes": (-1, 0)}]
    )
    for kwargs in sizes:
        ours = getattr(fft, name)(x.astype(np.complex64), norm=norm, **kwargs)
        np.testing.assert_allclose(ours, getattr(scipy.fft, name)(x, norm=norm, **kwargs), rtol=2e-5, atol=2e-5)


def test_axes_of_cosine_transforms() -> None:
    x = jnp.ones((2, 3, 4))
    with pytest.raises(ValueError, match="duplicate"):
        fft.dctn(x, axes=(0, 0))
    refused: list[dict[str, Any]] = [{"s": (2,), "axes": (0, 1)}, {"s": (2, 3), "axes": (1,)}, {"s": (1, 2, 3, 4)}]
    for kwargs in refused:
        with pytest.raises(ValueError, match="s "):
            fft.idctn(x, **kwargs)


def test_convolution_matrices_of_batches() -> None:
    rows = np.arange(1.0, 13, dtype=np.float32).reshape(2, 2, 3)
    for mode in ("full", "same", "valid"):
        ours = linalg.convolution_matrix(rows, 5, mode)
        theirs = [[scipy.linalg.convolution_matrix(r, 5, mode) for r in pair] for pair in rows]
        np.testing.assert_array_equal(ours, theirs)


def test_strict_promotion_lets_spectra_of_integers_and_inverses_through():
    x = np.arange(64, dtype=np.int32) % 7
    with sw.numpy_dtype_promotion("strict"):
        found = [signal.welch(x, nperseg=16)[1], signal.csd(x, x, nperseg=16)[1]]
        transformed = signal.stft(x, nperseg=16)[2]
        back = signal.istft(transformed, nperseg=16)[1]
        two_sided = signal.istft(
            signal.stft(x + 0j, nperseg=16, return_onesided=False)[2], nperseg=16, input_onesided=False
        )[1]
    np.testing.assert_allclose(found[0], np.real(found[1]), rtol=1e-5)
    np.testing.assert_allclose(back, x, atol=1e-5)
    np.testing.assert_allclose(two_sided, x, atol=1e-5)
