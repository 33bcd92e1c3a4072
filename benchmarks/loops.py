"""Work on every element: elementwise, reductions, sorting, gathering, random numbers, transforms. Rows are split over the devices."""

from __future__ import annotations

import elementwise
from registry import MOST, case, normal, rows

ELEMENTWISE, REDUCTIONS, REARRANGING = (
    "Elementwise, 64 MB",
    "Reductions",
    "Sorting, gathering, random numbers, transforms",
)
SHAPE = (4096, 4096)
BYTES = 4.0 * 4096 * 4096


def _elementwise(name):
    def prepare(jax, jnp, np):
        x = rows(jax, np, normal(np, *SHAPE))
        f = jax.jit(elementwise.CASES[name](jax, jnp))
        return lambda: f(x)

    prepare.__name__ = f"elementwise_{name}"
    prepare.__doc__ = elementwise.CASES[name].__doc__
    case(ELEMENTWISE, devices=MOST, copies=BYTES * (4 if name == "adam" else 2))(prepare)


for _name in elementwise.CASES:
    _elementwise(_name)


@case(ELEMENTWISE, devices=MOST, copies=1.5 * BYTES)
def complex_square(jax, jnp, np):
    """The modulus of z * z + conj(z), complex64."""
    x = normal(np, 2048, 4096)
    z = rows(jax, np, (x + 1j * x[::-1]).astype(np.complex64))
    f = jax.jit(lambda z: jnp.abs(z * z + jnp.conj(z)))
    return lambda: f(z)


def _reduction(name, text, make, copies=BYTES):
    def prepare(jax, jnp, np):
        x = rows(jax, np, normal(np, *SHAPE))
        f = jax.jit(make(jax, jnp))
        return lambda: f(x)

    prepare.__name__ = name
    prepare.__doc__ = text
    case(REDUCTIONS, devices=MOST, copies=copies)(prepare)


def _layer_norm(jax, jnp):
    def f(x):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 1e-5)

    return f


_reduction("sum_all", "The sum of 64 MB", lambda jax, jnp: lambda x: x.sum())
_reduction("sum_columns", "The sum over the split rows of 64 MB", lambda jax, jnp: lambda x: x.sum(0))
_reduction("logsumexp", "logsumexp of the rows of 64 MB", lambda jax, jnp: lambda x: jax.nn.logsumexp(x, -1))
_reduction("softmax", "softmax of the rows of 64 MB", lambda jax, jnp: lambda x: jax.nn.softmax(x, -1), 2 * BYTES)
_reduction("layer_norm", "Layer norm of the rows of 64 MB", _layer_norm, 2 * BYTES)
_reduction("argmax", "argmax of the rows of 64 MB", lambda jax, jnp: lambda x: x.argmax(-1))
_reduction("cumsum", "cumsum along the rows of 64 MB", lambda jax, jnp: lambda x: jnp.cumsum(x, -1), 2 * BYTES)


@case(REARRANGING)
def sort(jax, jnp, np):
    """Rows of 4 MB sorted."""
    x = rows(jax, np, normal(np, 1024, 1024))
    f = jax.jit(lambda x: jnp.sort(x, -1))
    return lambda: f(x)


@case(REARRANGING)
def top_k(jax, jnp, np):
    """The 16 greatest elements of each of 2048 rows of 4096."""
    x = rows(jax, np, normal(np, 2048, 4096))
    f = jax.jit(lambda x: jax.lax.top_k(x, 16))
    return lambda: f(x)


@case(REARRANGING, devices=MOST)
def gather(jax, jnp, np):
    """16384 rows of 1 KB taken from a table of 16 MB."""
    table = jnp.asarray(normal(np, 16384, 256))
    indices = rows(jax, np, np.random.default_rng(0).integers(0, 16384, 16384).astype(np.int32))
    f = jax.jit(lambda table, i: jnp.take(table, i, axis=0))
    return lambda: f(table, indices)


@case(REARRANGING, devices=MOST)
def scatter_add(jax, jnp, np):
    """16384 rows of 1 KB added into a table of 16 MB."""
    table = jnp.asarray(normal(np, 16384, 256))
    indices = rows(jax, np, np.random.default_rng(0).integers(0, 16384, 16384).astype(np.int32))
    updates = rows(jax, np, normal(np, 16384, 256))
    f = jax.jit(lambda table, i, u: table.at[i].add(u))
    return lambda: f(table, indices, updates)


@case(REARRANGING)
def scatter_max(jax, jnp, np):
    """The same, by maximum into a table whose rows are split, too."""
    table = rows(jax, np, normal(np, 16384, 256))
    indices = rows(jax, np, np.random.default_rng(0).integers(0, 16384, 16384).astype(np.int32))
    updates = rows(jax, np, normal(np, 16384, 256))
    f = jax.jit(lambda table, i, u: table.at[i].max(u))
    return lambda: f(table, indices, updates)


@case(REARRANGING, devices=MOST)
def segment_sum(jax, jnp, np):
    """200,000 rows of 8 added up in 1000 segments (`segment_sum`)."""
    data = rows(jax, np, normal(np, 200_000, 8))
    numbers = rows(jax, np, np.random.default_rng(0).integers(0, 1000, 200_000).astype(np.int32))
    f = jax.jit(lambda data, numbers: jax.ops.segment_sum(data, numbers, 1000))
    return lambda: f(data, numbers)


@case(REARRANGING)
def histogram(jax, jnp, np):
    """A histogram of 4 MB in 50 bins."""
    x = rows(jax, np, normal(np, 1024, 1024))
    f = jax.jit(lambda x: jnp.histogram(x, bins=50, range=(-3.0, 3.0))[0])
    return lambda: f(x)


@case(REARRANGING)
def take_along_axis(jax, jnp, np):
    """As many elements taken along the rows of 16 MB."""
    x = rows(jax, np, normal(np, 4096, 1024))
    indices = rows(jax, np, np.random.default_rng(0).integers(0, 1024, (4096, 1024)).astype(np.int32))
    f = jax.jit(lambda x, i: jnp.take_along_axis(x, i, 1))
    return lambda: f(x, indices)


def _places(jax, np):
    """500,000 places in a table of 1024 x 1024, their two numbers apart."""
    return [rows(jax, np, i) for i in np.random.default_rng(0).integers(0, 1024, (2, 500_000)).astype(np.int32)]


@case(REARRANGING, devices=(1, 8))
def gather_pairs(jax, jnp, np):
    """500,000 elements `x[i, j]` of a table of 4 MB."""
    x, f = jnp.asarray(normal(np, 1024, 1024)), jax.jit(lambda x, i, j: x[i, j])
    i, j = _places(jax, np)
    return lambda: f(x, i, j)


@case(REARRANGING, devices=(1, 8))
def scatter_pairs(jax, jnp, np):
    """As many added by `x.at[i, j].add(v)`."""
    x, f = jnp.asarray(normal(np, 1024, 1024)), jax.jit(lambda x, i, j, v: x.at[i, j].add(v))
    i, j = _places(jax, np)
    v = rows(jax, np, normal(np, 500_000))
    return lambda: f(x, i, j, v)


@case(REARRANGING, devices=(1, 8))
def mapped_windows(jax, jnp, np):
    """A window of 8 of each of 20,000 rows of 100, `dynamic_slice` under `vmap`."""
    x, starts = rows(jax, np, normal(np, 20_000, 100)), np.random.default_rng(0).integers(0, 92, 20_000)
    f = jax.jit(jax.vmap(lambda row, i: jax.lax.dynamic_slice(row, (i,), (8,))))
    i = rows(jax, np, starts.astype(np.int32))
    return lambda: f(x, i)


@case(REARRANGING)
def transpose(jax, jnp, np):
    """A transposed 64 MB, plus 1."""
    x = rows(jax, np, normal(np, *SHAPE))
    f = jax.jit(lambda x: x.T + 1)
    return lambda: f(x)


@case(REARRANGING)
def random_normal(jax, jnp, np):
    """4 million normal deviates."""
    key = jax.random.key(0)
    f = jax.jit(lambda key: jax.random.normal(key, (1 << 22,)))
    return lambda: f(key)


@case(REARRANGING)
def fft(jax, jnp, np):
    """FFT of 1024 rows of 1024 complex64."""
    x = rows(jax, np, normal(np, 1024, 1024).astype(np.complex64))
    f = jax.jit(jnp.fft.fft)
    return lambda: f(x)


@case(REARRANGING, devices=(1, 8))
def fft_2d(jax, jnp, np):
    """2-D FFT of 2048 x 2048 complex64."""
    x = rows(jax, np, normal(np, 2048, 2048).astype(np.complex64))
    f = jax.jit(jnp.fft.fft2)
    return lambda: f(x)
