"""The fft op: types, rule, loop dims."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.linalg import fft as fft_module
from shardwise.ops.linalg.fft import FftType, fft, fft_p
from shardwise.runtime.env import SINGLE, Env
from shardwise.sharding.rule import Kind

RNG = np.random.default_rng(0)


def typed(shape, dtype, kind, lengths):
    return infer_types(
        fft_p, (ShapedArray(shape, np.dtype(dtype)),), dict(fft_type=FftType[kind], fft_lengths=lengths)
    )[0]


def test_types():
    assert typed((2, 8), "complex64", "FFT", (8,)).str_short() == "c64[2,8]"
    assert typed((2, 8), "float32", "RFFT", (8,)).str_short() == "c64[2,5]"
    assert typed((2, 8), "float64", "RFFT", (2, 8)).str_short() == "c128[2,5]"
    assert typed((2, 5), "complex64", "IRFFT", (9,)).str_short() == "f32[2,9]"


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "lengths"),
    [
        ((8,), "complex64", "FFT", (2, 8)),
        ((8,), "complex64", "FFT", (7,)),
        ((8,), "float32", "FFT", (8,)),
        ((8,), "float16", "RFFT", (8,)),
        ((8,), "float32", "RFFT", (6,)),
        ((8,), "float32", "IRFFT", (8,)),
        ((3, 8), "complex64", "IRFFT", (4, 14)),
        ((0,), "float32", "RFFT", (0,)),
        ((4,), "complex64", "IRFFT", (-2,)),
    ],
)
def test_what_does_not_fit(shape, dtype, kind, lengths):
    with pytest.raises(ValueError, match=kind):
        typed(shape, dtype, kind, lengths)


def test_names_of_transforms():
    x = np.ones(4, "f")
    assert fft(x, "rfft", (4,)).shape == (3,)
    assert fft(x, FftType.FFT, (4,)).dtype == "complex64"
    with pytest.raises(ValueError, match="Unknown"):
        fft(x, "dct", (4,))
    with pytest.raises(TypeError, match="Unknown"):
        fft(x, 0, (4,))
    with pytest.raises(ValueError, match="real"):
        fft(x + 1j, "rfft", (4,))


@pytest.mark.parametrize("lead", [(2,), (1, 3)])
@pytest.mark.parametrize("kind", list(FftType))
def test_loop_dims_are_independent(lead, kind):
    x = RNG.normal(size=(*lead, 3, 4, 5)).astype("f")
    if kind is not FftType.RFFT:
        x = x.astype("c8")
    lengths = (4, 8) if kind is FftType.IRFFT else (4, 5)
    got = fft_p.block_kernel(Env(("x", "y")[: len(lead)], lead), x, fft_type=kind, fft_lengths=lengths)
    want = np.empty(0)
    for at in np.ndindex(*lead):
        want = fft_p.block_kernel(SINGLE, x[at], fft_type=kind, fft_lengths=lengths)
        assert got.dtype == want.dtype and want.dtype.itemsize == (4 if kind is FftType.IRFFT else 8)
        np.testing.assert_allclose(got[at], want, rtol=1e-6, atol=1e-6)
    empty = fft_p.block_kernel(SINGLE, x[(0,) * len(lead)][:0], fft_type=kind, fft_lengths=lengths)
    assert empty.shape == (0, *want.shape[1:]) and empty.dtype == want.dtype


def test_rule():
    x = ShapedArray((2, 4, 6), np.dtype("f"))
    p = dict(fft_type=FftType.RFFT, fft_lengths=(4, 6))
    rule = fft_p.sharding_rule((x,), infer_types(fft_p, (x,), p), p)
    assert rule.kinds == (Kind.PASS, Kind.REPLICATE, Kind.REPLICATE, Kind.REPLICATE)
    assert rule.outputs == (((0,), (1,), (3,)),)


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0), (0, 0), (2, 0, 3)])
def test_transforms_of_nothing(shape):
    """As JAX 0.10.2 has it; NumPy refuses."""
    x = jnp.zeros(shape)
    last = shape[-1]
    for name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn"):
        if name[-1] == "2" and len(shape) < 2:
            continue
        for norm in ("backward", "ortho", "forward"):
            out = getattr(jnp.fft, name)(x, norm=norm)
            assert (out.shape, out.dtype) == (shape, np.complex64)
    for d in range(len(shape)):
        assert jnp.fft.fft(x, axis=d).shape == shape
    half = (*shape[:-1], last // 2 + 1)
    whole = (*shape[:-1], max(0, 2 * (last - 1)))
    if last:
        assert jnp.fft.rfftn(x).shape == half
    else:
        with pytest.raises(ValueError, match="no spectrum"):
            jnp.fft.rfftn(x)
    assert jnp.fft.irfftn(x).shape == whole
    grads = [
        jax.grad(lambda x: jnp.abs(jnp.fft.fft(x, axis=0)).sum())(x),
        jax.grad(lambda x: jnp.fft.irfftn(x).sum())(x),
    ]
    assert [g.shape for g in grads] == [shape, shape]
    assert jax.jit(jnp.fft.fftn)(x).shape == shape


@pytest.mark.parametrize("kind", list(FftType))
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_copy_is_transformed_in_place(kind, order, monkeypatch):
    """The operand stays as it is, and the result is the same."""
    x = RNG.normal(size=(1, 6, 8)) + 1j * RNG.normal(size=(1, 6, 8))
    x = np.asarray(x.real if kind is FftType.RFFT else x[..., :5] if kind is FftType.IRFFT else x, order=order)
    env, params, before = Env(("x",), (4,)), dict(fft_type=kind, fft_lengths=(6, 8)), x.copy()
    want = fft_p.block_kernel(env, x, **params)
    monkeypatch.setattr(fft_module, "_IN_PLACE", 1)
    np.testing.assert_array_equal(fft_p.block_kernel(env, x, **params), want)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    "shape, dims", [((3, 8), 1), ((2, 7), 1), ((5, 6), 2), ((6, 5), 2), ((2, 3, 4, 1), 3), ((0, 4), 1), ((2, 2), 1)]
)
def test_slopes_of_half_spectra(shape, dims):
    """They are sums over the spectrum, by the definition."""
    lengths = shape[len(shape) - dims :]
    half = (*shape[:-1], shape[-1] // 2 + 1)
    ct = (RNG.normal(size=half) + 1j * RNG.normal(size=half)).astype("c8")
    got = jax.vjp(lambda x: fft(x, "rfft", lengths), jnp.zeros(shape))[1](jnp.asarray(ct))[0]
    want = ct.astype("c16")
    for d, n in zip(range(len(shape) - dims, len(shape)), lengths, strict=True):
        places = np.arange(want.shape[d])
        waves = np.exp(-2j * np.pi * np.outer(places, np.arange(n)) / n)
        want = np.moveaxis(np.tensordot(want, waves, (d, 0)), -1, d)
    np.testing.assert_allclose(got, np.real(want), rtol=1e-5, atol=1e-5)
