"""Ops that small programs compute by functions of NumPy's and SciPy's: the same bits as by the ops' kernels."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.ir import trace_program
from shardwise.passes.inline import inline_calls
from shardwise.passes.small import runs_small
from shardwise.runtime.env import SINGLE
from shardwise.runtime.machine.outside import loop_symbol

FFT = jnp.fft
LINALG = lax.linalg
RNG = np.random.default_rng(0)

TRANSFORMS = {
    "fft": lambda x: FFT.fft(x),
    "ifft": lambda x: FFT.ifft(x),
    "irfft": lambda x: FFT.irfft(x, 2 * x.shape[-1] - 1),
    "rfft": lambda x: FFT.rfft(x.real),
    "several": lambda x: FFT.ifftn(FFT.fftn(x)),
    "rfftn": lambda x: FFT.rfftn(x.imag),
    "irfftn": lambda x: FFT.irfftn(x),
    "in a dim before": lambda x: FFT.fft(x, axis=0),
}
DECOMPOSITIONS = {
    "qr": lambda x: jnp.linalg.qr(x),
    "whole qr": lambda x: jnp.linalg.qr(x, mode="complete"),
    "svd": lambda x: jnp.linalg.svd(x),
    "narrow svd": lambda x: jnp.linalg.svd(x, full_matrices=False),
    "singular values": lambda x: jnp.linalg.svdvals(x),
}
OF_SQUARES = {
    "eigh": lambda x: LINALG.eigh(jnp.nan_to_num(x)),
    "upper eigh": lambda x: LINALG.eigh(jnp.nan_to_num(x), lower=False, symmetrize_input=False),
    "hessenberg": lambda x: LINALG.hessenberg(jnp.nan_to_num(x)),
    "tridiagonal": lambda x: LINALG.tridiagonal(jnp.nan_to_num(x)),
    "upper tridiagonal": lambda x: LINALG.tridiagonal(jnp.nan_to_num(x), lower=False),
}
OF_COMPLEX = {
    "cholesky": lambda x: jnp.linalg.cholesky(x @ jnp.conj(jnp.swapaxes(x, -1, -2))),
    "no cholesky": lambda x: jnp.linalg.cholesky(x),
}
OF_FLOATS = {
    "eig": lambda x: jnp.linalg.eig(x),
    "eigenvalues": lambda x: jnp.linalg.eigvals(x),
}
ELEMENTWISE = {
    "arithmetic": lambda x: [
        x + x.T,
        x * x.T,
        x / x.T,
        jnp.square(x),
        lax.integer_pow(x, -3),
        jnp.abs(x),
        jnp.sign(x),
        x == x.T,
    ],
    "functions": lambda x: [
        lax.exp(x),
        lax.log(x),
        lax.sqrt(x),
        lax.log1p(x),
        lax.acosh(x),
        lax.tanh(x),
        lax.pow(x, x.T),
    ],
    "casts": lambda x: [
        x.astype("complex64"),
        x.real.astype(x.dtype),
        lax.conj(x),
        jnp.where(x.real > 0, x, x.imag),
        x != 0,
    ],
    "running": lambda x: [
        jnp.cumsum(x, 1),
        jnp.sort(x.real),
        x[jnp.array([2, 0])],
        x.at[1].multiply(2j),
    ],
}


def agree(functions, x, axis=-1):
    """All `functions` run small, and give in one loop what kernels give."""
    x = jnp.asarray(x)
    for name, f in functions.items():
        program = inline_calls(trace_program(lambda x, f=f: sw.tree.leaves(f(x)), [x.aval])[0])
        assert all(runs_small(e, SINGLE) for e in program.equations), name

    def every(x):
        return [sw.tree.leaves(f(x)) for f in functions.values()]

    def looped(x):
        return lax.fori_loop(0, 2, lambda i, found: every(jnp.roll(x, i, axis)), every(x))

    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append(sw.jit(lambda x: looped(x))(x))
    for name, *each in zip(functions, *found, strict=True):
        for a, b in zip(*each, strict=True):
            # Op by op NumPy's OpenBLAS factors, in loops SciPy's: with some processors' kernels they round otherwise.
            tolerance = 2e-6 if name == "cholesky" else 0
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), tolerance, tolerance, err_msg=name)


def drawn(shape, dtype):
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if dtype.startswith("complex") else x).astype(dtype)


@pytest.mark.parametrize("shape", [(8,), (2, 1), (3, 4, 7)])
def test_transforms(shape):
    x = drawn(shape, "complex64")
    x.ravel()[-1] = np.inf
    agree({name: f for name, f in TRANSFORMS.items() if shape[-1] > 1 or name != "irfftn"}, x)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 3, 3), "float32"), ((2, 3, 3), "complex64"), ((5, 3), "complex64"), ((2, 2, 4), "float32")],
)
def test_decompositions(shape, dtype):
    x = drawn(shape, dtype)
    if len(shape) > 2:
        x[0, 0, 0] = np.nan
    square = OF_SQUARES | (OF_FLOATS if dtype == "float32" else OF_COMPLEX) if shape[-1] == shape[-2] else {}
    agree(DECOMPOSITIONS | square, x)


def test_systems_of_complex_numbers():
    a, b = drawn((3, 3, 3), "complex64"), drawn((3, 3, 2), "complex64")
    a[1] = 1  # singular
    found = sw.jit(lambda a, b: lax.fori_loop(0, 1, lambda i, x: jnp.linalg.solve(a, b), b))(a, b)
    np.testing.assert_allclose(found, jnp.linalg.solve(a, b), rtol=1e-5, atol=1e-5)


def test_double_precision():
    """Complex values of 128 bits among them, at special points, too."""
    with sw.enable_x64(True):
        x = drawn((3, 3), "complex128")
        x.ravel()[:2] = complex(-np.inf, -0.0), np.nan
        agree({**{n: f for n, f in TRANSFORMS.items() if n in ("fft", "irfft", "rfftn")}, **ELEMENTWISE}, x)
        agree({n: (OF_SQUARES | OF_FLOATS | DECOMPOSITIONS)[n] for n in ("qr", "svd", "eigh", "eig")}, x)


@pytest.mark.parametrize("devices", [1, 2])
def test_exponentials_of_matrices(devices):
    from shardwise.scipy.linalg import expm, expm_frechet

    x = drawn((4, 3, 3), "float32") * np.array([1e-3, 1, 30, np.nan], np.float32)[:, None, None]
    x[2] -= x[2].T
    given = jnp.asarray(x)
    if devices > 1:
        given = sw.device_put(given, sw.NamedSharding(sw.make_mesh((devices,), ("x",)), sw.P("x")))
    found = sw.jit(lambda x: lax.fori_loop(0, 1, lambda i, y: expm(x), x))(given)
    np.testing.assert_allclose(found, expm(x), rtol=2e-5, atol=2e-5)
    found = sw.jit(lambda x: lax.fori_loop(0, 1, lambda i, y: expm_frechet(x, x)[1], x))(jnp.asarray(x[1]))
    np.testing.assert_allclose(found, expm_frechet(x[1], x[1])[1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "ufunc", ["numpy.no_such_function", "numpy.linalg._umath_linalg.none", "numpy.no_module.none", "numpy.log"]
)
def test_versions_that_have_no_such_loop_keep_the_op_outside(ufunc):
    with pytest.raises(OSError, match=r"no ufunc|no loop"):
        loop_symbol(ufunc, "UU->U")
