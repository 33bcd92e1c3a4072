"""numpy.fft: values and types of NumPy's and the oracle's."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
from shardwise.numpy import fft
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(3, 6, 5)).astype("f")
COMPLEX = (REAL + 1j * RNG.normal(size=REAL.shape)).astype("c8")

CALLS = [
    (name, options)
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    for options in (
        {},
        dict(n=4),
        dict(n=9),
        dict(axis=1),
        dict(axis=0, n=8, norm="ortho"),
        dict(norm="forward"),
        dict(norm="backward"),
    )
] + [
    (name + suffix, options)
    for name in ("fft", "ifft", "rfft", "irfft")
    for suffix in ("2", "n")
    for options in (
        {},
        dict(s=(4, 7), axes=(0, 1)),
        dict(axes=(1, 0)),
        dict(norm="ortho"),
        dict(norm="forward"),
        dict(s=(3, 8), axes=(-2, -1)),
    )
]


@pytest.mark.parametrize(("name", "options"), CALLS)
def test_values_are_those_of_numpy(name, options):
    for x in (REAL,) if name.startswith(("r", "ihf")) else (REAL, COMPLEX):
        want = getattr(np.fft, name)(x.astype("c16" if x.dtype.kind == "c" else "d"), **options)
        got = getattr(fft, name)(x, **options)
        assert got.shape == want.shape
        assert got.dtype == ("complex64" if want.dtype.kind == "c" else "float32")
        assert_normwise(got, want, 5e-6)


def test_types_and_weakness_are_the_oracles():
    jax = pytest.importorskip("jax")
    for dtype in ("bool", "int8", "float16", "bfloat16", "float32", "complex64"):
        x = np.ones((4,), dtype=np.dtype(getattr(jax.numpy, dtype)))
        for name in ("fft", "ifft", "irfft", *(("rfft",) if dtype in ("bool", "int8", "float32") else ())):
            want = jax.eval_shape(getattr(jax.numpy.fft, name), x)
            got = getattr(fft, name)(x)
            assert (got.shape, got.dtype, got.weak_type) == (want.shape, want.dtype, want.weak_type)


def test_frequencies_and_shifts():
    jax = pytest.importorskip("jax")
    theirs = jax.numpy.fft
    for n in (1, 7, 8):
        for options in ({}, dict(d=0.1), dict(d=2.5, dtype="float16"), dict(dtype="float32"), dict(dtype="complex64")):
            for name in ("fftfreq", "rfftfreq"):
                want, got = getattr(theirs, name)(n, **options), getattr(fft, name)(n, **options)
                assert got.dtype == want.dtype
                np.testing.assert_allclose(
                    np.asarray(got).astype("c8"),
                    np.asarray(want).astype("c8"),
                    rtol=1e-3 if "float16" in options.values() else 1e-6,  # one unit of float16
                )
        x = np.arange(n * 3).reshape(n, 3)
        for axes in (None, 0, (0, 1), (-1,)):
            np.testing.assert_array_equal(np.asarray(fft.fftshift(x, axes)), np.fft.fftshift(x, axes))
            np.testing.assert_array_equal(np.asarray(fft.ifftshift(x, axes)), np.fft.ifftshift(x, axes))
    on = fft.fftfreq(8, device=sw.devices()[1])
    assert on.devices() == {sw.devices()[1]}


@pytest.mark.parametrize(
    "call",
    [
        lambda: fft.fft(REAL, n=0),
        lambda: fft.fftn(REAL, s=(4,), axes=(0, 1)),
        lambda: fft.fftn(REAL, axes=(0, 0)),
        lambda: fft.fft(REAL, axis=cast(Any, (0, 1))),
        lambda: fft.fft2(REAL, axes=(0,)),
        lambda: fft.fft(REAL, norm="best"),
        lambda: fft.rfft(COMPLEX),
        lambda: fft.fftfreq(cast(Any, [8])),
        lambda: fft.fftfreq(8, [1.0]),
        lambda: fft.fft(REAL, axis=3),
    ],
)
def test_errors(call):
    with pytest.raises(ValueError):
        call()


@pytest.mark.parametrize("spec", [("x",), (None, "y"), ("x", "y")])
def test_sharding_never_changes_values(spec):
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    x = RNG.normal(size=(8, 8)).astype("f")
    sharding = NamedSharding(mesh, PartitionSpec(*spec))
    split = sw.device_put(x, sharding)
    got = sw.jit(fft.fft)(split)
    assert_normwise(got, np.fft.fft(x), 5e-6)
    assert got.sharding.is_equivalent_to(sharding, 2)
    assert_normwise(sw.jit(fft.rfft2)(split), np.fft.rfft2(x), 5e-6)
