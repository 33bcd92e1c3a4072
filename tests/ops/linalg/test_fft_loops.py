"""Fourier transforms by our own loops: beside SciPy's in float64, for every size, layout and number of rows that they take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.ops.linalg import fft as fft_module
from shardwise.ops.linalg import fft_loops
from shardwise.runtime.machine import available
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")

RNG = np.random.default_rng(0)
ERRORS = {"complex64": 4e-7, "complex128": 2e-15}  # of the largest element: some roundings of each part


def drawn(shape, dtype):
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def check(got, x, dims, inverse):
    wanted: Any = (scipy.fft.ifftn if inverse else scipy.fft.fftn)(x.astype(np.complex128), axes=range(-dims, 0))
    assert got.dtype == x.dtype and got.shape == x.shape
    np.testing.assert_allclose(got, wanted, rtol=0, atol=ERRORS[x.dtype.name] * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("size", [8, 16, 32, 64, 128, 512, 1024, 2048])
@pytest.mark.parametrize("rows", [16, 37])
def test_rows(size, rows, inverse, dtype):
    x = drawn((rows, size), dtype)
    assert fft_loops.fits(x, (size,))
    before = x.copy()
    check(fft_loops.transform(x, (size,), inverse), x, 1, inverse)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "dims"), [((64, 32), 2), ((3, 32, 128), 2), ((2, 8, 16, 64), 3), ((1, 1, 256, 256), 2)]
)
def test_several_dims(shape, dims, inverse, dtype):
    x = drawn(shape, dtype)
    assert fft_loops.fits(x, shape[-dims:])
    check(fft_loops.transform(x, shape[-dims:], inverse), x, dims, inverse)


def test_what_is_left_to_scipy():
    """Lengths that are no powers of two, few rows, few columns beside them, long rows and real ones."""
    for shape, dims in [
        ((64, 96), 1),
        ((96, 64), 2),
        ((2, 1024), 1),
        ((64, 2), 1),
        ((1 << 10, 4), 2),
        ((32, 1 << 17), 1),
    ]:
        assert not fft_loops.fits(np.zeros(shape, np.complex64), shape[-dims:])
    assert not fft_loops.fits(np.zeros((64, 64), np.float32), (64,))
    assert not fft_loops.fits(np.zeros((64, 64), ">c8"), (64,))


def test_a_row_does_not_depend_on_the_others():
    """Neither its bits, nor where it lies; what is not finite stays in its row."""
    x = drawn((40, 256), np.complex64)
    whole = fft_loops.transform(x, (256,), False)
    np.testing.assert_array_equal(fft_loops.transform(x[5:29].copy(), (256,), False), whole[5:29])
    odd = x.copy()
    odd[7, 3], odd[20, 0], odd[39] = np.nan, np.inf, 0
    got = fft_loops.transform(odd, (256,), False)
    rest = np.delete(np.arange(40), [7, 20, 39])
    np.testing.assert_array_equal(got[rest], whole[rest])
    assert np.isnan(got[7]).all() and not np.isfinite(got[20]).any() and (got[39] == 0).all()


@pytest.fixture
def ours(monkeypatch):
    """How often the op runs here."""
    found = []
    before = fft_loops.transform
    monkeypatch.setattr(fft_module.fft_loops, "transform", lambda *a: (found.append(a), before(*a))[1])
    return found


@pytest.mark.parametrize("spec", [P(), P("x"), P(None, "x")])
def test_on_devices_and_under_vmap(spec, ours):
    x = drawn((512, 512), np.complex64)
    placed = jax.device_put(x, NamedSharding(Mesh(np.array(jax.devices()[:8]), ("x",)), spec))
    check(np.asarray(jax.jit(jnp.fft.fft)(placed)), x, 1, False)
    check(np.asarray(jax.jit(jnp.fft.ifft2)(placed)), x, 2, True)
    check(np.asarray(jax.jit(jax.vmap(jnp.fft.fft))(placed)), x, 1, False)
    check(np.asarray(jax.jit(lambda x: jnp.fft.fft(x, axis=0))(placed)).T, x.T, 1, False)
    assert ours


def test_derivatives(ours):
    x, ct = drawn((256, 1024), np.complex64), drawn((256, 1024), np.complex64)
    (got,) = jax.vjp(jnp.fft.fft, x)[1](ct)
    assert len(ours) == 2
    check(np.asarray(got), ct, 1, False)  # the transform is a symmetric matrix


def test_strided_operands_and_no_compiler(ours):
    x = drawn((1024, 256), np.complex64)
    params = dict(fft_type=fft_module.FftType.FFT, fft_lengths=(256,))
    env = fft_module.Env((), ())
    check(fft_module.fft_p.block_kernel(env, np.asarray(x, order="F"), **params), x, 1, False)
    check(fft_module.fft_p.block_kernel(env, x[:, ::-1], **params), x[:, ::-1], 1, False)
    assert len(ours) == 2
    with config.override("shardwise_fused", "off"):
        check(np.asarray(jnp.fft.fft(x)), x, 1, False)
