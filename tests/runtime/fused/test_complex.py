"""complex64 in machine code: as NumPy and the ops' own kernels compute it, in large loops and in small programs."""

from __future__ import annotations

import itertools
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import NamedSharding, PartitionSpec

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for loops")
POINTS = [0.0, -0.0, 1.0, -2.5, 1e-42, -1e-30, 3e20, -3e38, np.inf, -np.inf, np.nan]
ONES = np.array([complex(a, b) for a, b in itertools.product(POINTS, POINTS)], np.complex64)
RNG = np.random.default_rng(0)
UNARY = (
    lax.neg,
    lax.conj,
    lax.real,
    lax.imag,
    lax.square,
    lambda x: lax.integer_pow(x, 3),
    lambda x: lax.integer_pow(x, -2),
    lambda x: lax.convert_element_type(x, np.float32),
)
BINARY = (lax.add, lax.sub, lax.mul, lax.div, lax.eq, lax.ne)


def values(size):
    return (RNG.normal(size=size) + 1j * RNG.normal(size=size)).astype(np.complex64)


def same(found: Any, wanted: Any) -> None:
    got: Any = np.asarray(found)
    want: Any = np.asarray(wanted)
    assert got.dtype == want.dtype
    for a, b in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_array_equal(a, b)
        known = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))


def ops_of(f, *args):
    return [e.op.name for e in sw.jit(f).lower(*args).compile().runtime_executable().plan.program.equations]


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("repeats", [1, 3])
def test_special_points(repeats):
    """All pairs of special points: 14641 elements are a small program's, or thrice as many a fused loop's."""
    x, y = (
        a.repeat(repeats) for a in np.broadcast_arrays(ONES[:, None].repeat(len(ONES), 1).ravel(), np.tile(ONES, 121))
    )
    f = lambda x, y: [op(x) for op in UNARY] + [op(x, y) for op in BINARY]  # noqa: E731
    with np.errstate(all="ignore"):
        for got, want in zip(sw.jit(f)(x, y), f(x, y), strict=True):
            same(got, want)


@pytest.mark.parametrize("size", [100, 20011])
def test_products_have_numpys_roundings(size):
    x, y = values(size), values(size)
    want = x * y - np.conj(y)
    same(sw.jit(lambda x, y: x * y - jnp.conj(y))(x, y), want)
    same(sw.jit(lambda x, y: lax.fori_loop(0, 1, lambda i, z: z * y - jnp.conj(y), x))(x, y), want)
    same(sw.jit(lambda x: (x + 1) ** 2)(x), np.square(x + np.complex64(1)))


def test_modulus():
    """Rounded from float64. NumPy's own, which small programs call, differs in the last places."""
    x = np.concatenate([values(20011), np.nan_to_num(ONES, nan=0.0)])
    with np.errstate(over="ignore"):
        exact = np.abs(x.astype(np.complex128)).astype(np.float32)
    same(sw.jit(lambda x: jnp.abs(x) + 0)(x), exact)
    np.testing.assert_array_max_ulp(np.asarray(sw.jit(jnp.abs)(x[-200:])), exact[-200:], 2)
    unknown = np.where(np.isnan(ONES.real) | np.isnan(ONES.imag), ONES, np.complex64(np.nan)).repeat(200)
    assert np.isnan(sw.jit(lambda x: jnp.abs(x) * 2)(unknown)).all()


@pytest.mark.filterwarnings("ignore:Casting from complex")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_from_parts_casts_and_choices():
    a, b = RNG.normal(size=(2, 20000)).astype(np.float32)
    i, mask = np.arange(20000, dtype=np.int32) - 10000, a > 0
    z = values(20000)
    f = lambda a, b, i, mask, z: (  # noqa: E731
        lax.complex(a, b) * 1j,
        i.astype(np.complex64) + z,
        a.astype(np.complex64) - z,
        mask.astype(np.complex64) + z,
        z.astype(np.int32) + i,
        z.astype(np.float16) + np.float16(1),
        z.astype(bool) & mask,
        jnp.where(mask, z, np.complex64(2 - 3j)),
        lax.conj(a) + z,
    )
    given = jnp.asarray(a), jnp.asarray(b), jnp.asarray(i), jnp.asarray(mask), jnp.asarray(z)
    got, want = sw.jit(f)(*given), f(*given)
    for one, other in zip(got, want, strict=True):
        same(one, other)


def test_layouts():
    """Transposed and strided operands, rows and scalars that repeat."""
    x, row, one = values((150, 200)), values(200), values(())
    want = x.T * row[:150] + one * x.T
    same(sw.jit(lambda x, row, one: x.T * row[:150] + one * x.T)(x, row, one), want)
    same(sw.jit(lambda x: x[::2] + x[1::2] * x[::2])(x), x[::2] + x[1::2] * x[::2])
    joined = np.concatenate([x[:, 1:], x[:, :1]], 1)
    same(sw.jit(lambda x: jnp.roll(x, -1, 1) * x)(x), joined * x)


def test_loops_are_compiled():
    """Mandelbrot's map: values that are carried, compared and chosen."""
    c = (RNG.uniform(-2, 1, (64, 300)) + 1j * RNG.uniform(-1, 1, (64, 300))).astype(np.complex64)

    def counts(c):
        def step(i, state):
            z, n = state
            inside = z.real * z.real + z.imag * z.imag <= 4
            return jnp.where(inside, z * z + c, z), n + inside

        return lax.fori_loop(0, 20, step, (jnp.zeros_like(c), jnp.zeros(c.shape, np.int32)))[1]

    z, want = np.zeros_like(c), np.zeros(c.shape, np.int32)
    for _ in range(20):
        inside = z.real * z.real + z.imag * z.imag <= 4
        z, want = cast(Any, np.where(inside, z * z + c, z)), want + inside
    for part in (c, c[:4, :5]):
        np.testing.assert_array_equal(sw.jit(counts)(part), want[: part.shape[0], : part.shape[1]])
    assert ops_of(counts, c[:4, :5]) == ["small"]


def test_on_a_mesh_under_vmap_and_derivatives():
    mesh = sw.make_mesh((2, 2), ("x", "y"))
    x = values((128, 200))
    put = sw.device_put(x, NamedSharding(mesh, PartitionSpec("x", "y")))
    f = lambda x: x * x + jnp.conj(x) * 2j  # noqa: E731
    same(sw.jit(f)(put), sw.jit(f)(x))
    same(sw.jit(sw.vmap(f))(x), sw.jit(f)(x))
    slope = sw.jit(sw.grad(lambda x: jnp.sum(jnp.real(x * x))))(x)
    np.testing.assert_array_equal(slope, 2 * x)


def test_what_has_no_vector_code_for_complex_values_stays():
    x = values(20000)
    want = np.exp(x) / (x + 2) + x.sum() + np.sort(x)
    # sums and functions of NumPy in another order
    np.testing.assert_allclose(sw.jit(lambda x: jnp.exp(x) / (x + 2) + x.sum() + jnp.sort(x))(x), want, rtol=2e-5)
    table = values((50, 4))
    i = RNG.integers(0, 50, 3000)
    for name, ufunc in (("multiply", np.multiply), ("add", np.add)):
        some = np.ones((50, 4), np.complex64)
        ufunc.at(some, i, table[i] / np.abs(table[i]))
        got = getattr(jnp.ones((50, 4), np.complex64).at[i], name)(table[i] / np.abs(table[i]))
        np.testing.assert_allclose(got, some, rtol=1e-4)  # of 60 factors


def test_complex128_is_as_before():
    from shardwise.experimental import enable_x64

    with enable_x64():
        x = values(20000).astype(np.complex128) + 1e-12
        same(sw.jit(lambda x: x * x + 1)(x), x * x + 1)
        same(sw.jit(lambda x: x.astype(np.complex64) + 1)(x), x.astype(np.complex64) + np.complex64(1))
        same(sw.jit(lambda x: lax.conj(x.real))(x), x.real.astype(np.complex128))
