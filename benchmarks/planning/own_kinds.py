"""Programs of the kinds that have algorithms of their own: sorts, transforms, factorizations, random bits, scatters, convolutions."""

from __future__ import annotations

import shardwise as jax
import shardwise.numpy as jnp
from planning.own_programs import case, values
from shardwise import lax


@case
def sort_of_1M():
    return jnp.sort, (values(1 << 20),)


@case
def sort_of_rows_4096_x_100():
    return lambda x: jnp.sort(2 * x, axis=-1), (values(4096, 100),)


@case
def argsort_of_300k():
    return jnp.argsort, (values(300_000),)


@case
def top_k_of_rows():
    return lambda x: lax.top_k(x, 8), (values(256, 8192),)


@case
def searchsorted_100k_in_100k():
    return jnp.searchsorted, (jnp.arange(100_000) / 1e5, values(100_000, scale=1.0))


@case
def FFT_of_rows():
    return jnp.fft.fft, (values(256, 4096) + 1j * values(256, 4096),)


@case
def real_FFT_in_2_dims():
    return lambda x: jnp.fft.irfft2(jnp.fft.rfft2(x) * 0.5), (values(512, 512),)


@case
def complex_arithmetic():
    z = values(1 << 20) + 1j * values(1, 1 << 20)[0]
    return lambda z, w: z * w + jnp.conj(z) * 2.0, (z, z + 1)


@case
def complex_exp():
    return lambda z: jnp.exp(z) * z, (values(1 << 20) + 1j * values(1, 1 << 20)[0],)


@case
def complex_division():
    z = values(1 << 20) + 1j * values(1, 1 << 20)[0]
    return lambda z, w: z / w, (z, z + 1)


@case
def running_sum():
    return lambda x: jnp.cumsum(x, axis=-1), (values(1024, 2048),)


@case
def lgamma_and_digamma():
    return lambda x: jax.scipy.special.gammaln(x) + jax.scipy.special.digamma(x), (values(1 << 18) + 3,)


@case
def normal_numbers():
    return lambda key: jax.random.normal(key, (1 << 20,)), (jax.random.key(0),)


@case
def random_bits():
    return lambda key: jax.random.bits(key, (1 << 20,)), (jax.random.key(0),)


@case
def permutation():
    return lambda key: jax.random.permutation(key, 200_000), (jax.random.key(0),)


@case
def gather_of_elements():
    places = jax.random.randint(jax.random.key(1), (500_000,), 0, 1 << 20)
    return lambda x, i: x[i], (values(1 << 20), places)


@case
def scatter_of_rows():
    places = jax.random.randint(jax.random.key(1), (20_000,), 0, 4096)
    return lambda x, i, y: x.at[i].add(y), (values(4096, 64), places, values(20_000, 64))


@case
def scatter_of_elements():
    places = jax.random.randint(jax.random.key(1), (500_000,), 0, 1 << 20)
    return lambda x, i, y: x.at[i].add(y), (values(1 << 20), places, values(500_000))


@case
def segment_sum():
    places = jax.random.randint(jax.random.key(1), (100_000,), 0, 1000)
    return lambda y, i: jax.ops.segment_sum(y, i, 1000), (values(100_000, 16), places)


@case
def convolution_3_x_3():
    return lambda x, k: lax.conv(x, k, (1, 1), "SAME"), (values(4, 32, 64, 64), values(64, 32, 3, 3))


@case
def gradient_of_a_convolution():
    def loss(k, x):
        return (lax.conv(x, k, (1, 1), "SAME") ** 2).mean()

    return jax.grad(loss), (values(64, 32, 3, 3), values(4, 32, 64, 64))


@case
def convolution_of_a_line():
    return lambda x, k: jnp.convolve(x, k, mode="same"), (values(200_000), values(65))


@case
def max_pool():
    pool = lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")  # noqa: E731
    return pool, (values(16, 64, 64, 64),)


def _positive(n: int):
    x = values(n, n)
    return x @ x.T + jnp.eye(n) * n


@case
def cholesky_and_solve_512():
    return lambda a, b: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b), (_positive(512), values(512, 64))


@case
def cholesky_of_64_matrices():
    return jnp.linalg.cholesky, (jnp.broadcast_to(_positive(48), (64, 48, 48)) + 0.0,)


@case
def solve_600():
    return jnp.linalg.solve, (values(600, 600) + 3 * jnp.eye(600), values(600, 32))


@case
def inverse_400():
    return jnp.linalg.inv, (values(400, 400) + 3 * jnp.eye(400),)


@case
def QR_of_1000_x_200():
    return jnp.linalg.qr, (values(1000, 200),)


@case
def symmetric_eigenvalues_200():
    return jnp.linalg.eigh, (_positive(200),)


@case
def eigenvalues_120():
    return jnp.linalg.eigvals, (values(120, 120),)


@case
def SVD_of_300_x_150():
    return lambda x: jnp.linalg.svd(x, full_matrices=False), (values(300, 150),)


@case
def Kalman_filter():
    """Small matrices in a loop."""
    f, q = jnp.eye(4) + 0.01 * values(4, 4), 0.1 * jnp.eye(4)

    def step(state, y):
        x, p = state
        x, p = f @ x, f @ p @ f.T + q
        gain = jnp.linalg.solve(p + q, p).T
        return (x + gain @ (y - x), p - gain @ p), x

    return lambda ys: lax.scan(step, (jnp.zeros(4), jnp.eye(4)), ys), (values(1000, 4),)
