"""Transforms by pocketfft itself: the bits of `scipy.fft`, whatever the operand lies like."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

from shardwise.ops.rules import pocketfft

RNG = np.random.default_rng(0)


def operands(dtype):
    x = RNG.normal(size=(6, 5, 8)).astype(dtype)
    if x.dtype.kind == "c":
        x += (1j * RNG.normal(size=x.shape)).astype(dtype)
    raw = np.empty(x.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(dtype).reshape(x.shape)
    unaligned[...] = x
    strided = np.repeat(x, 2, 1)[:, ::2]
    return [x, unaligned, strided, x.astype(x.dtype.newbyteorder()), x.swapaxes(0, 1), x[::-1]]


@pytest.fixture(params=["library", "public"])
def library(request, monkeypatch):
    if request.param == "public":
        monkeypatch.setattr(pocketfft, "_library", lambda: pocketfft._Public)


@pytest.mark.parametrize("dims", [(2,), (0,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.usefixtures("library")
def test_bits_of_scipy(dims, wide):
    for x in operands("complex128" if wide else "complex64"):
        for inverse, whole in ((False, scipy.fft.fftn), (True, scipy.fft.ifftn)):
            np.testing.assert_array_equal(pocketfft.transform(x, dims, inverse, workers=2), whole(x, axes=dims))
        for last in (2 * x.shape[dims[-1]] - 2, 2 * x.shape[dims[-1]] - 1):
            want = scipy.fft.irfftn(x, s=[*(x.shape[d] for d in dims[:-1]), last], axes=dims)
            np.testing.assert_array_equal(pocketfft.inverse_to_real(x, dims, last), want)
    for x in operands("float64" if wide else "float32"):
        np.testing.assert_array_equal(pocketfft.transform_of_real(x, dims), scipy.fft.rfftn(x, axes=dims))


@pytest.mark.usefixtures("library")
def test_in_place():
    x = operands("complex64")[0]
    want = scipy.fft.fft(x)
    assert np.shares_memory(pocketfft.transform(x, (2,), in_place=True), x)
    np.testing.assert_array_equal(x, want)
