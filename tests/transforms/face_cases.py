"""Expressions over all that `jax.lax`, `jax.numpy`, `jax.nn` and `jax.scipy` have to differentiate and to map.

Each line is the body of a function of the operands before its colon; `OPERANDS` says what each letter is. Marks after
``##`` narrow what is compared: ``vmap`` (no derivatives), ``first`` (no second derivatives), ``reverse`` (no forward mode),
``f64`` and ``f32`` (only in double or in single precision).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_RNG = np.random.default_rng(11)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape)


def _distinct(*shape: int) -> np.ndarray:
    return _RNG.permutation(int(np.prod(shape))).reshape(shape) * 0.1 - 0.53


_SQUARE = _normal(3, 3)
# What the letters stand for. Floats and complex numbers are differentiated, the others are not.
OPERANDS: dict[str, np.ndarray] = {
    "r": _normal(3, 4), "q": _normal(3, 4), "p": _RNG.uniform(0.3, 2.0, (3, 4)), "g": _RNG.uniform(1.2, 3.0, (3, 4)),
    "u": _RNG.uniform(-0.85, 0.85, (3, 4)), "o": _RNG.uniform(0.1, 0.9, (3, 4)), "d": _distinct(3, 4), "v": _normal(4), "w": _normal(4),
    "z": _distinct(6), "s": _SQUARE + 3 * np.eye(3), "m": _normal(4, 2), "h": _SQUARE @ _SQUARE.T + np.eye(3),
    "t": _normal(2, 3, 4), "a": np.asarray(0.7), "c": _normal(3, 4) + 1j * _normal(3, 4),
    "e": (_normal(3, 3) + 1j * _normal(3, 3)) / 2 + 2 * np.eye(3), "i": _RNG.integers(-3, 4, (3, 4)).astype(np.int32),
    "k": np.array([2, 0, 1], np.int32), "n": np.array([1, 3, 0, 1], np.int32), "b": _RNG.uniform(size=(3, 4)) > 0.5,
    "f": np.array([1.5, 2.5, 0.5]),
}  # fmt: skip

# Mapping takes so many elements, each a small change of the operand.
MAPPED = 2


@dataclass(frozen=True)
class Line:
    """An expression, the letters of its operands, and marks."""

    text: str
    letters: tuple[str, ...]
    marks: frozenset[str]

    def __repr__(self) -> str:
        return self.text

    @property
    def key(self) -> str:
        """A name for its answers in a file."""
        data = b"".join(OPERANDS[x].tobytes() for x in self.letters)
        return f"{zlib.crc32(self.text.encode() + ' '.join(sorted(self.marks)).encode() + data):08x}"


def parsed(text: str) -> Iterator[Line]:
    """The lines of a table: ``operands: expression ## marks``."""
    for raw in text.strip().splitlines():
        line, _, marks = raw.partition("##")
        letters, _, expression = line.partition(":")
        if expression:
            yield Line(expression.strip(), tuple(letters.split()), frozenset(marks.split()))


ELEMENTWISE = """
r: jnp.negative(r)
r: jnp.abs(r)
c: jnp.abs(c)
r: jnp.fabs(r)
r: jnp.sign(r)
c: jnp.sign(c)
r: jnp.exp(r)
c: jnp.exp(c)
r: jnp.exp2(r)
r: jnp.expm1(r)
p: jnp.log(p)
c: jnp.log(c)
p: jnp.log2(p)
p: jnp.log10(p)
p: jnp.log1p(p)
p: jnp.sqrt(p)
c: jnp.sqrt(c)
r: jnp.cbrt(r)
r: jnp.square(r)
p: jnp.reciprocal(p)
r: jnp.sin(r)
r: jnp.cos(r)
u: jnp.tan(u)
u: jnp.arcsin(u)
u: jnp.arccos(u)
r: jnp.arctan(r)
r: jnp.sinh(r)
r: jnp.cosh(r)
r: jnp.tanh(r)
c: jnp.tanh(c)
r: jnp.arcsinh(r)
g: jnp.arccosh(g)
u: jnp.arctanh(u)
r: jnp.sinc(r)
r: jnp.sinc(jnp.zeros_like(r) * r)
r: jnp.deg2rad(r)
r: jnp.rad2deg(r)
r: jnp.floor(r)
r: jnp.ceil(r)
r: jnp.trunc(r)
r: jnp.rint(r)
r: jnp.round(r, 1)
r: jnp.nan_to_num(r)
c: jnp.conj(c)
c: jnp.real(c)
c: jnp.imag(c)
c: jnp.angle(c)
r: jnp.i0(r)
r: jnp.frexp(r)[0] ## vmap
r: jnp.modf(r)
r: jnp.positive(r)
r q: jnp.add(r, q)
r q: jnp.subtract(r, q)
r q: jnp.multiply(r, q)
r p: jnp.divide(r, p)
c e: jnp.divide(c[:, :3], e)
r p: jnp.power(r, 2)
p q: jnp.power(p, q)
p i: jnp.power(p, i)
p q: jnp.float_power(p, q)
r p: jnp.mod(r, p)
r p: jnp.fmod(r, p)
r p: jnp.remainder(r, p)
r p: jnp.floor_divide(r, p)
r p: jnp.divmod(r, p)
r q: jnp.maximum(r, q)
r q: jnp.minimum(r, q)
r q: jnp.fmax(r, q)
r q: jnp.fmin(r, q)
r: jnp.maximum(r, 0)
r: jnp.maximum(r, r)
r q: jnp.arctan2(r, q)
r q: jnp.hypot(r, q)
r q: jnp.logaddexp(r, q)
r q: jnp.logaddexp2(r, q)
r q: jnp.copysign(r, q)
r q: jnp.nextafter(r, q) ## vmap
r i: jnp.ldexp(r, i)
r q: jnp.heaviside(r, q)
r: jnp.clip(r, -0.5, 0.5)
r q p: jnp.clip(r, q, p)
r: jnp.where(r > 0, r, 0.1)
b r q: jnp.where(b, r, q)
r v: r * v + 1
r a: r**2 / (a + 2)
r v: r @ v
r: r.at[0, 1].set(3.0)
r: 2.0**r
r: r**3.0
r: r ** jnp.float32(2)
p: p**0.5
p: p**-2
r: abs(r) + -r
i r: i * r
r: r.astype(jnp.float16).astype(r.dtype) ## first f32
r: (r > 0) * r
r: jnp.fix(r) if hasattr(jnp, "fix") else jnp.trunc(r)
r: lax.stop_gradient(r) * r
r: lax.exp2(r)
r: lax.logistic(r)
p: lax.rsqrt(p)
c: lax.rsqrt(c)
r: lax.integer_pow(r, 5)
c: lax.integer_pow(c, -2)
r: lax.erf(r)
r: lax.erfc(r)
u: lax.erf_inv(u)
p: lax.lgamma(p)
p: lax.digamma(p)
p q: lax.pow(p, q)
r q: lax.complex(r, q)
r q: lax.atan2(r, q)
r q: lax.max(r, q)
r p: lax.rem(r, p)
r q p: lax.clamp(-p, r, p)
r: lax.reduce_precision(r, 8, 7) ## first
r: lax.convert_element_type(r, jnp.complex64) ## f32
r: lax.bitcast_convert_type(r, jnp.int64) ## vmap f64
r: lax.sign(r)
r: lax.is_finite(r) ## vmap
b r q: lax.select(b, r, q)
b r q: lax.select_n(b, r, q)
n v w: lax.select_n(n % 3, v, w, v * w)
r: jnp.isnan(r) ## vmap
r: jnp.signbit(r) ## vmap
r q: jnp.isclose(r, q) ## vmap
i: jnp.bitwise_count(i) ## vmap
i: lax.population_count(i) ## vmap
i: lax.clz(i) ## vmap
i: i << 2 ## vmap
i: ~i & 3 ## vmap
i: i // 2 + i % 3 ## vmap
i b: jnp.gcd(i, 6) ## vmap
i: jnp.lcm(i, 4) ## vmap
r: lax.tan(r)
r: lax.square(r)
c: lax.square(c)
"""

SHAPES = """
r: jnp.reshape(r, (2, 6))
r: jnp.reshape(r, (4, 3), order="F")
r: jnp.ravel(r)
r: r.T
t: jnp.transpose(t, (1, 2, 0))
t: jnp.moveaxis(t, 0, 2)
t: jnp.swapaxes(t, 0, 1)
t: jnp.rollaxis(t, 2)
t: jnp.matrix_transpose(t)
t: jnp.permute_dims(t, (2, 0, 1))
r: jnp.expand_dims(r, (0, 2))
r: jnp.squeeze(r[None, :, None], (0, 2))
v: jnp.broadcast_to(v, (3, 4))
v r: jnp.broadcast_arrays(v, r)
r q: jnp.concatenate([r, q], 1)
r q: jnp.stack([r, q], -1)
r q: jnp.vstack([r, q])
r q: jnp.hstack([r, q])
r q: jnp.dstack([r, q])
v w: jnp.column_stack([v, w])
r q: jnp.block([[r, q], [q, r]])
r: jnp.split(r, 2, axis=1)
r: jnp.array_split(r, 2)
r: jnp.tile(r, (2, 1))
r: jnp.repeat(r, 2, axis=0)
r: jnp.flip(r)
r: jnp.fliplr(r)
r: jnp.rot90(r)
r: jnp.roll(r, 1, 0)
r: jnp.pad(r, 1)
r: jnp.pad(r, ((1, 0), (0, 2)), mode="edge")
r: jnp.pad(r, 1, mode="reflect")
r: jnp.pad(r, 1, mode="wrap")
r: jnp.pad(r, 1, mode="mean")
r: jnp.pad(r, 1, mode="linear_ramp", end_values=0.5)
r: jnp.pad(r, 1, mode="maximum")
r: jnp.diff(r)
r: jnp.diff(r, 2, axis=1)
r: jnp.ediff1d(r)
r: jnp.gradient(r)
r: jnp.gradient(r, 0.5, axis=1)
v: jnp.diag(v)
s: jnp.diag(s)
s: jnp.diagonal(s, 1)
v: jnp.diagflat(v, 1)
s: jnp.tril(s)
s: jnp.triu(s, 1)
s: jnp.trace(s)
v: jnp.vander(v, 3)
v w: jnp.meshgrid(v, w)
v w: jnp.ix_(jnp.array([0, 1]), jnp.array([1, 0])) ## vmap
r: jnp.atleast_3d(r)
r: jnp.insert(r, 1, 2.0, axis=1)
r: jnp.delete(r, 1, axis=1)
r v: jnp.append(r, v)
r: jnp.resize(r, (5, 3))
z: jnp.trim_zeros(z) if False else z
r: lax.broadcast(r, (2,))
r: lax.broadcast_in_dim(r, (3, 2, 4), (0, 2))
r: lax.rev(r, (0, 1))
r: lax.pad(r, jnp.zeros((), r.dtype), ((1, -1, 0), (0, 1, 2)))
r a: lax.pad(r, a, ((1, 2, 1), (0, 0, 0)))
r: lax.slice(r, (0, 1), (3, 4), (2, 2))
r: lax.slice_in_dim(r, 1, 3, axis=1)
r: lax.expand_dims(r, (1,))
r: lax.collapse(r, 0)
r q: lax.concatenate([r, q], 0)
r: lax.squeeze(lax.expand_dims(r, (0,)), (0,))
r: lax.reshape(r, (12,), (1, 0))
t: lax.transpose(t, (2, 1, 0))
r: lax.full_like(r, 2.0) * r
r: jnp.unstack(r)
r q: jnp.select([r > 0, q > 0], [r * q, q], 0.5)
r: jnp.piecewise(r, [r < 0, r >= 0], [lambda x: -x, lambda x: x**2])
r: jnp.apply_along_axis(lambda x: x.cumsum() * x[0], 1, r)
r: jnp.apply_over_axes(jnp.sum, r, (0, 1))
r: jnp.vectorize(lambda x: (x**2).sum(), signature="(n)->()")(r)
v: jnp.fromfunction(lambda x, y: x * v[0] + y, (2, 3))
r: jnp.copy(r)
a: jnp.linspace(a, 3.0, 5)
a: jnp.logspace(0.0, a, 5)
a: jnp.geomspace(1.0, a + 2, 5)
a: jnp.full((2, 2), a)
v: jnp.array([v[0], 2.0, v[1]])
r: jnp.fft.fftshift(r)
r: jnp.astype(r, jnp.float32) ## first
r: jnp.nan_to_num(r / 0.0) ## vmap
r: jnp.argwhere(r > 0, size=3) ## vmap
z: jnp.extract(z > 0, z, size=3, fill_value=0)
z: jnp.compress(np.array([True, False, True]), z[:3], size=2, fill_value=0)
s: jnp.fill_diagonal(s, 2.0, inplace=False)
v: jnp.polyval(v, 0.3)
v w: jnp.polymul(v, w)
v w: jnp.polyadd(v, w)
v: jnp.polyder(v)
v: jnp.polyint(v)
v w: jnp.convolve(v, w, mode="full")
v w: jnp.convolve(v, w, mode="same")
v w: jnp.correlate(v, w, mode="valid")
v f: jnp.interp(v, jnp.array([-1.0, 0.0, 1.0]).astype(v.dtype), f)
z f: jnp.interp(jnp.array([-0.2, 0.31]), jnp.sort(z)[:3], f) ## first
"""

REDUCTIONS = """
r: jnp.sum(r)
r: jnp.sum(r, 0, keepdims=True)
r b: jnp.sum(r, where=b)
c: jnp.sum(c, 1)
r: jnp.mean(r, 1)
r b: jnp.mean(r, where=b)
r: jnp.var(r)
r: jnp.var(r, 0, ddof=1)
c: jnp.var(c, 0)
r: jnp.std(r, 1)
r: jnp.prod(r)
r: jnp.prod(r, 1)
d: jnp.max(d)
d: jnp.max(d, 1, initial=0.2)
d b: jnp.max(d, where=b, initial=-3.0)
d: jnp.min(d, 0)
r: jnp.max(jnp.zeros_like(r) * r, 1) ## first
d: jnp.ptp(d, 1)
d: jnp.nansum(d, 1)
d: jnp.nanmean(d, 1)
d: jnp.nanvar(d, 1)
d: jnp.nanstd(d, 1)
d: jnp.nanmax(d, 1)
d: jnp.nanmin(d, 1)
d: jnp.nanprod(d, 1)
d: jnp.nancumsum(d, 1)
d: jnp.median(d, 1)
d: jnp.nanmedian(d, 1)
d: jnp.quantile(d, 0.3, axis=1)
d: jnp.quantile(d, jnp.array([0.1, 0.9]), axis=1)
d: jnp.percentile(d, 40.0, method="midpoint")
d a: jnp.quantile(d, a)
d: jnp.nanquantile(d, 0.3)
r v: jnp.average(r, 1, weights=jnp.exp(v))
r: jnp.cumsum(r, 1)
r: jnp.cumsum(r)
p: jnp.cumprod(p, 1)
r: jnp.cumulative_sum(r, axis=1, include_initial=True)
p: jnp.cumulative_prod(p, axis=0)
r: lax.cumsum(r, 1, reverse=True)
p: lax.cumprod(p, 0, reverse=True)
d: lax.cummax(d, 1)
d: lax.cummin(d, 1, reverse=True)
r: lax.cumlogsumexp(r, 1)
r: lax.cumlogsumexp(r, 0, reverse=True)
r: lax.associative_scan(jnp.multiply, r, axis=1)
r: lax.associative_scan(jnp.add, r, reverse=True)
r q: lax.associative_scan(lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (r, q))
r: lax.reduce(r, jnp.zeros((), r.dtype), lax.add, (1,))
r: lax.reduce(r, jnp.ones((), r.dtype), lax.mul, (0,))
d: lax.reduce(d, -jnp.inf, lax.max, (0, 1)) ## first
r q: lax.reduce((r, q), (0.0, 0.0), lambda x, y: (x[0] + y[0], x[1] + y[1]), (1,))
r: lax.reduce_window(r, 0.0, lax.add, (2, 2), (1, 2), "SAME")
d: lax.reduce_window(d, -jnp.inf, lax.max, (2, 2), (1, 1), "VALID")
d: lax.reduce_window(d, jnp.inf, lax.min, (2, 2), (2, 2), "SAME")
p: lax.reduce_window(p, 1.0, lax.mul, (2, 2), (1, 1), "VALID") ## vmap
d: lax.argmax(d, 1, jnp.int32) ## vmap
d: jnp.argmin(d) ## vmap
d: jnp.nanargmax(d, 1) ## vmap
b: jnp.all(b, 1) ## vmap
b: jnp.any(b, 0) ## vmap
b: jnp.count_nonzero(b, 1) ## vmap
i: lax.reduce_xor(i, (1,)) ## vmap
i: lax.reduce_and(i, (1,)) ## vmap
r: jnp.cov(r)
r q: jnp.cov(r, q)
r: jnp.corrcoef(r)
d: jnp.histogram(d, 4) ## vmap
z: jnp.digitize(z, jnp.array([-0.3, 0.0, 0.3])) ## vmap
r: jnp.trapezoid(r, axis=1)
r q: jnp.trapezoid(r, jnp.cumsum(jnp.abs(q), 1), axis=1)
r: nn.logsumexp(r)
r: nn.logsumexp(r, 1, keepdims=True)
r p: nn.logsumexp(r, 1, b=p)
r: nn.logmeanexp(r, 1)
r: jnp.linalg.norm(r)
r: jnp.linalg.norm(r, axis=1)
r: jnp.linalg.norm(r, 1, axis=1)
d: jnp.linalg.norm(d, jnp.inf, axis=1)
p: jnp.linalg.norm(p, 3, axis=1)
s: jnp.linalg.norm(s, "nuc") ## f64
s: jnp.linalg.norm(s, 2) ## f64
r: jnp.linalg.vector_norm(r, axis=0)
s: jnp.linalg.matrix_norm(s)
"""

ORDER = """
d: jnp.sort(d, 1)
d: jnp.sort(d, 0, descending=True)
d: jnp.sort(d, None)
d: jnp.argsort(d, 1) ## vmap
d: jnp.partition(d, 2, axis=1) ## vmap
z k: z[k]
r k: r[:, k]
r k: r[k, k]
r k: r[k[:, None], k]
r: r[1]
r: r[:, 1:3]
r: r[::2, ::-1]
r: r[..., None]
r: r[-1, jnp.array([0, 0, 3])]
r k: jnp.take(r, k, axis=1)
r k: jnp.take(r, k, axis=0, mode="clip")
r k: jnp.take(r, k + 2, axis=0, mode="fill", fill_value=0.5)
d: jnp.take_along_axis(d, jnp.argsort(d, 1), 1)
r n: jnp.choose(n % 3, r, mode="clip") if hasattr(jnp, "choose") else r
z k: z.at[k].set(z[:3] * 2)
z k f: z.at[k].set(f)
z k f: z.at[k].add(f)
z k f: z.at[k].multiply(f)
z k f: z.at[k].mul(f, unique_indices=True)
z k f: z.at[k].divide(f, unique_indices=True)
z k f: z.at[k].max(f)
z k f: z.at[k].min(f)
z k f: z.at[k].subtract(f)
z k: z.at[k].get(mode="fill", fill_value=0)
z k: z.at[k].apply(jnp.sin) ## vmap
z k: z.at[k].power(2.0) ## vmap
r k: r.at[k, 1].add(1.0)
r k f: r.at[k, 1:3].add(f[:, None])
r k v: r.at[k[0]].set(v)
r n: r[jnp.clip(n, 0, 2), 1]
r k: lax.dynamic_slice(r, (k[0], k[1]), (2, 2))
r k: lax.dynamic_slice_in_dim(r, k[0], 2, 1)
r k: lax.dynamic_index_in_dim(r, k[0], 0)
r q k: lax.dynamic_update_slice(r, q[:2, :2], (k[0], k[2]))
r v k: lax.dynamic_update_index_in_dim(r, v, k[1], 0)
r q k: lax.dynamic_update_slice_in_dim(r, q[:1], k[0], 0)
r k: lax.index_in_dim(r, 1, 1)
r k: lax.index_take(r, (k, k), (0, 1))
d: lax.sort(d)
d r: lax.sort((d, r), num_keys=1)
i r: lax.sort((i, r), dimension=1, num_keys=1)
i: lax.sort_key_val(i, -i) ## vmap
d: lax.top_k(d, 2)
d: lax.top_k(d, 2)[0] ** 2
z: jnp.searchsorted(jnp.sort(z), 0.1) ## vmap
n: jnp.bincount(n, length=5) ## vmap
v n: jnp.bincount(n, weights=v, length=5)
r k: jax.ops.segment_sum(r, k, 3)
d k: jax.ops.segment_max(d, k, 3) ## first
p k: jax.ops.segment_prod(p, k, 3) ## first
i: jnp.unique(i, size=4) ## vmap
z: jnp.lexsort((z, -z)) ## vmap
n: nn.one_hot(n, 4) ## vmap
r q k: lax.gather(r, k[:, None], lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4))
r k q: lax.scatter_add(r, k[:, None], q, lax.ScatterDimensionNumbers((1,), (0,), (0,)))
r k q: lax.scatter(r, k[:, None], q, lax.ScatterDimensionNumbers((1,), (0,), (0,)))
r k q: lax.scatter_mul(r, k[:, None], q, lax.ScatterDimensionNumbers((1,), (0,), (0,)), unique_indices=True)
r k q: lax.scatter_max(r, k[:, None], q, lax.ScatterDimensionNumbers((1,), (0,), (0,)))
r k q: lax.scatter_sub(r, k[:, None], q, lax.ScatterDimensionNumbers((1,), (0,), (0,)))
r k q: lax.scatter_apply(r, k[:, None], jnp.sin, lax.ScatterDimensionNumbers((1,), (0,), (0,)), update_shape=(3, 4)) ## vmap
"""

PRODUCTS = """
v w: jnp.dot(v, w)
r m: jnp.dot(r, m)
r m: jnp.matmul(r, m)
t m: t @ m
v r: r @ v
v w: jnp.vdot(v, w)
c: jnp.vdot(c, c)
r q: jnp.vecdot(r, q)
c: jnp.vecdot(c, c * 2)
r v: jnp.matvec(r, v)
v m: jnp.vecmat(v, m)
v w: jnp.inner(v, w)
r q: jnp.inner(r, q)
v w: jnp.outer(v, w)
v w: jnp.kron(v, w)
s: jnp.kron(s, s[:2])
f r: jnp.cross(f, r[:, 0])
r t: jnp.tensordot(r, t, ([0, 1], [1, 2]))
r q: jnp.tensordot(r, q.T, 1)
r q: jnp.einsum("ij,ij->i", r, q)
r m t: jnp.einsum("ij,jk,bij->bk", r, m, t)
r: jnp.einsum("ij->ji", r)
s: jnp.einsum("ii->i", s)
s: jnp.einsum("ii", s)
c e: jnp.einsum("ij,jk->ik", e, c)
s r: jnp.linalg.multi_dot([s, r, r.T])
s: jnp.linalg.matrix_power(s, 3)
s: jnp.linalg.matrix_power(s, -1)
r m: lax.dot(r, m)
r m: lax.dot(r, m, preferred_element_type=jnp.float32) ## first f32
r m: lax.dot(r.astype(jnp.bfloat16), m.astype(jnp.bfloat16), preferred_element_type=jnp.float32) ## first f32
t q: lax.dot_general(t, q, (((1, 2), (0, 1)), ((), ())))
t: lax.dot_general(t, t, (((2,), (2,)), ((0,), (0,))))
t r: lax.batch_matmul(t, jnp.broadcast_to(r.T, (2, 4, 3)))
t v: lax.conv(t, jnp.ones((1, 3, 2), t.dtype) * v[0], (1,), "SAME")
t m: lax.conv_general_dilated(t, m.reshape(2, 1, 4)[:, :, :2].repeat(3, 1), (2,), "VALID")
t m: lax.conv_general_dilated(t, m.T.reshape(2, 1, 4)[:, :, :3].repeat(3, 1), (1,), [(1, 2)], (2,), (1,))
r m: lax.conv_general_dilated(r.reshape(1, 3, 4), m[:3].reshape(3, 1, 2), (1,), "SAME", feature_group_count=3)
t: lax.conv_transpose(t.transpose(0, 2, 1), jnp.ones((2, 3, 2), t.dtype), (2,), "SAME")
t: lax.conv_general_dilated_patches(t, (2,), (1,), "VALID")
s h: jnp.matmul(s, h)
r q: jnp.linalg.vecdot(r, q)
v w: jnp.linalg.outer(v, w)
r f: jnp.linalg.cross(r.T, f)
r m: jnp.linalg.tensordot(r, m, 1)
r m: (r @ m).sum(0)
"""

NEURAL = """
r: nn.relu(r)
r: nn.relu6(3 * r)
r: nn.elu(r)
r: nn.celu(r, 0.7)
r: nn.selu(r)
r: nn.gelu(r)
r: nn.gelu(r, approximate=False)
r: nn.glu(r)
r: nn.sigmoid(r)
r: nn.log_sigmoid(r)
r: nn.softplus(r)
r: nn.sparse_plus(r)
r: nn.sparse_sigmoid(r)
r: nn.silu(r)
r: nn.swish(r)
r: nn.mish(r)
r: nn.squareplus(r)
r: nn.soft_sign(r)
r: nn.tanh(r)
r: nn.hard_sigmoid(2 * r)
r: nn.hard_silu(2 * r)
r: nn.hard_tanh(r)
r: nn.leaky_relu(r, 0.1)
r: nn.identity(r)
p: nn.log1mexp(p)
r: nn.softmax(r)
r: nn.softmax(r, 0)
r b: nn.softmax(r, where=b | (r > 0))
r: nn.log_softmax(r)
r b: nn.log_softmax(r, where=b)
r: nn.standardize(r)
r b: nn.standardize(r, where=b)
t: nn.dot_product_attention(t[None, :, :2], t[None, :, 1:], t[None, :, :2]) ## f32
t: nn.dot_product_attention(t[None], t[None], t[None], is_causal=True) ## f32
r: nn.relu(jnp.zeros_like(r) * r) ## first
"""

SPECIAL = """
p q: jsp.special.betaln(p, jnp.abs(q) + 0.5)
p g: jsp.special.beta(p, g)
p g o: jsp.special.betainc(jnp.full_like(p, 1.5), jnp.full_like(g, 2.5), o) ## first
p: jsp.special.digamma(p)
o: jsp.special.entr(o)
r: jsp.special.erf(r)
r: jsp.special.erfc(r)
u: jsp.special.erfinv(u)
o: jsp.special.logit(o)
r: jsp.special.expit(r)
p: jsp.special.exp1(p) ## first
p: jsp.special.expi(p) ## first
p: jsp.special.expn(2, p) ## first
p: jsp.special.gamma(p)
p: jsp.special.gammaln(p)
p: jsp.special.gammainc(1.5, p) ## first
p: jsp.special.gammaincc(1.5, p) ## first
p: jsp.special.gammainc(p, 1.5) ## first
p: jsp.special.factorial(p)
p g: jsp.special.poch(p, g) ## first
r: jsp.special.i0(r)
r: jsp.special.i0e(r)
r: jsp.special.i1(r)
r: jsp.special.i1e(r)
o p: jsp.special.kl_div(o, p)
o p: jsp.special.rel_entr(o, p)
r: jsp.special.log_ndtr(r)
r: jsp.special.ndtr(r)
o: jsp.special.ndtri(o)
r: jsp.special.log_softmax(r, 1)
r: jsp.special.logsumexp(r, 1)
g: jsp.special.multigammaln(g, 2)
p: jsp.special.polygamma(1, p)
r: jsp.special.softmax(r, 1)
p: jsp.special.spence(p) ## vmap
r p: jsp.special.xlog1py(r, p)
r p: jsp.special.xlogy(r, p)
g: jsp.special.zeta(g, 1.5) ## vmap
p: jsp.special.zeta(2.5, p) ## first
r: jsp.special.bernoulli(4) * r
r: jsp.special.bessel_jn(r, v=2)[1] ## vmap f64
p: jsp.special.hyp1f1(1.5, 2.5, p) ## first f64
"""

MATRICES = """
s: jnp.linalg.inv(s)
e: jnp.linalg.inv(e)
s: jnp.linalg.det(s)
e: jnp.linalg.det(e)
s: jnp.linalg.slogdet(s)
e: jnp.linalg.slogdet(e)
h: jnp.linalg.cholesky(h)
h: jnp.linalg.cholesky(h, upper=True)
s f: jnp.linalg.solve(s, f)
s r: jnp.linalg.solve(s, r)
e: jnp.linalg.solve(e, e @ e)
h: jnp.linalg.eigh(h) ## f64
h: jnp.linalg.eigvalsh(h)
s: jnp.linalg.eigvals(s) ## vmap
s: jnp.linalg.eigvals(s).real.sum() ## first
s: jnp.linalg.svd(s) ## f64
r: jnp.linalg.svd(r, full_matrices=False) ## f64
r: jnp.linalg.svd(r, compute_uv=False)
r: jnp.linalg.svdvals(r)
s: jnp.linalg.qr(s)
m: jnp.linalg.qr(m)
m: jnp.linalg.qr(m, mode="r")
r: jnp.linalg.pinv(r) ## f64
m: jnp.linalg.pinv(m)
m v: jnp.linalg.lstsq(m, v)[0] ## f64
s: jnp.linalg.cond(s) ## f64
r: jnp.linalg.matrix_rank(r) ## vmap
s: jnp.linalg.tensorinv(jnp.tile(s, (1, 1)), 1)
s f: jnp.linalg.tensorsolve(s, f)
s: jsp.linalg.expm(s * 0.2)
h f: jsp.linalg.cho_solve(jsp.linalg.cho_factor(h), f)
s f: jsp.linalg.lu_solve(jsp.linalg.lu_factor(s), f)
s: jsp.linalg.lu(s)
s: jsp.linalg.lu(s, permute_l=True)
s f: jsp.linalg.solve(s, f)
h f: jsp.linalg.solve(h, f, assume_a="pos")
s f: jsp.linalg.solve_triangular(s, f, lower=True)
s f: jsp.linalg.solve_triangular(s, f, trans=1)
s r: jsp.linalg.solve_triangular(s, r, unit_diagonal=True)
e: jsp.linalg.solve_triangular(e, e, trans=2)
h: jsp.linalg.cholesky(h, lower=True)
s: jsp.linalg.inv(s)
s: jsp.linalg.det(s)
s: jsp.linalg.qr(s)
h: jsp.linalg.eigh(h) ## f64
s: jsp.linalg.svd(s) ## f64
s: jsp.linalg.block_diag(s, s)
v w: jsp.linalg.toeplitz(v, w)
v: jsp.linalg.hankel(v) if hasattr(jsp.linalg, "hankel") else v
h: jsp.linalg.sqrtm(h) ## vmap
s: jsp.linalg.schur(s) ## vmap f64
h: jsp.linalg.polar(h) ## vmap f64
s h: jsp.linalg.solve_sylvester(s, h, s) if hasattr(jsp.linalg, "solve_sylvester") else s ## vmap
h: lax.linalg.cholesky(h)
h: lax.linalg.eigh(h) ## f64
s: lax.linalg.lu(s)[0] ## vmap
s: lax.linalg.qr(s)
m: lax.linalg.householder_product(m, m[0] * 0.1)
s r: lax.linalg.triangular_solve(s, r, left_side=True)
s r: lax.linalg.triangular_solve(s, r.T, lower=True, transpose_a=True)
v w r: lax.linalg.tridiagonal_solve(v[:3], w[:3] + 4, v[1:], r)
h: lax.linalg.tridiagonal(h)[1] ## vmap
s: lax.linalg.hessenberg(s)[0] ## vmap
c: jnp.fft.fft(c)
c: jnp.fft.ifft(c, axis=0)
r: jnp.fft.fft(r)
r: jnp.fft.rfft(r)
c: jnp.fft.irfft(c)
r: jnp.fft.fft2(r)
c: jnp.fft.ifft2(c)
r: jnp.fft.rfft2(r)
c: jnp.fft.irfft2(c)
t: jnp.fft.fftn(t)
t: jnp.fft.rfftn(t, axes=(0, 1))
c: jnp.fft.hfft(c)
r: jnp.fft.ihfft(r)
r: jnp.fft.fft(r, n=6, norm="ortho")
"""

CONTROL = """
r: lax.cond(r[0, 0] > 0, jnp.sin, jnp.cos, r)
r a: lax.cond(a > 0, lambda x: x * a, lambda x: x - a, r)
r k: lax.switch(k[1], [jnp.sin, jnp.cos, lambda x: x**2], r)
r k: lax.switch(k[0] + 5, [jnp.sin, jnp.cos, lambda x: x**2], r)
v: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) * (i + 1), v)
v: lax.while_loop(lambda x: x[0] < 3, lambda x: (x[0] + 1, x[1] * 1.5), (0, v))[1] ## vmap
v a: lax.while_loop(lambda x: jnp.sum(x) < 10 + a, lambda x: x * x + 1, v) ## vmap
r a: lax.scan(lambda x, y: (jnp.sin(x) * y.sum(), x * y), a, r)
r a: lax.scan(lambda x, y: (jnp.sin(x) * y.sum(), x * y), a, r, reverse=True)
r a: lax.scan(lambda x, y: (jnp.sin(x) * y.sum(), x * y), a, r, unroll=2)
a: lax.scan(lambda x, _: (jnp.sin(x), x), a, None, length=3)
r v: lax.scan(lambda x, y: ({"k": x["k"] * y}, (y, None)), {"k": v}, r)
r: lax.map(lambda x: (x**2).sum() * x, r)
r: lax.map(lambda x: (x**2).sum() * x, r, batch_size=2)
r: jax.checkpoint(lambda x: jnp.sin(jnp.cos(x)) * x)(r)
r a: lax.scan(jax.checkpoint(lambda x, y: (jnp.sin(x) * y.sum(), x * y)), a, r)
r a: jax.jit(lambda r, a: jnp.sin(r) * a)(r, a)
r: jax.vmap(lambda x: jnp.sin(x) * x.sum())(r)
r v: jax.vmap(jnp.dot, (1, None), 0)(r, v[:3])
r: jax.vmap(lambda x: x / jnp.sqrt(lax.psum(x**2, "n")), axis_name="n")(r)
r: jax.vmap(lambda x: x - lax.pmean(x, "n"), axis_name="n")(r)
d: jax.vmap(lambda x: x * lax.axis_index("n") + lax.pmax(lax.stop_gradient(x), "n"), axis_name="n")(d)
r: jax.vmap(lambda x: lax.all_gather(x, "n")[::-1].sum(0) * x, axis_name="n")(r)
r: jax.vmap(lambda x: lax.ppermute(x, "n", [(0, 1), (1, 2), (2, 0)]) * x, axis_name="n")(r)
s: jax.vmap(lambda x: lax.all_to_all(x, "n", 0, 0) * x, axis_name="n")(s)
s: jax.vmap(lambda x: lax.psum_scatter(x, "n"), axis_name="n")(s)
v: jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(v)
v: jax.jacfwd(jnp.sin)(v)
v: jax.jacrev(lambda x: jnp.sin(x) * x[0])(v)
v: jax.hessian(lambda x: jnp.prod(jnp.sin(x)))(v)
v w: jax.jvp(jnp.sin, (v,), (w,))
v w: jax.linearize(jnp.sin, v)[1](w)
v w: jax.vjp(lambda x: x * x[0], v)[1](w)
v w: jax.linear_transpose(lambda x: 3 * x[::-1], v)(w)
c: jax.grad(lambda x: jnp.sum(x**3), holomorphic=True)(c)
r: jax.jit(jax.grad(lambda x: jax.vmap(jnp.sin)(x).sum()))(r)
r: jax.vmap(jax.grad(lambda x: jnp.sin(x).sum()))(r)
r: jax.jit(jax.vmap(jax.grad(lambda x: lax.scan(lambda c, y: (c * y, c), 1.0, x)[1].sum())))(r)
s f: lax.custom_linear_solve(lambda x: s @ x, f, lambda mv, b: jnp.linalg.solve(s, b), lambda mv, b: jnp.linalg.solve(s.T, b))
a: lax.custom_root(lambda x: x**2 - a - 1, 1.0, lambda f, x: jnp.sqrt(a + 1) + 0 * x, lambda g, y: y / g(1.0))
v: jax.numpy.vectorize(jnp.sin)(v)
r: lax.fori_loop(0, 3, lambda i, x: x.at[i].multiply(2.0), r)
v n: lax.fori_loop(0, n[0], lambda i, x: x * 1.1, v) ## vmap
r: jax.named_call(jnp.sin, name="s")(r)
v: jax.nn.softmax(lax.optimization_barrier(v))
r v: jax.custom_jvp(lambda x: x * 2)(r) if False else r * v
"""

# Functions with derivatives given by hand, as lines see them.
PREAMBLE = """
@jax.custom_jvp
def halved(x):
    return jnp.sin(x)
halved.defjvp(lambda ps, ts: (halved(ps[0]), 0.5 * jnp.cos(ps[0]) * ts[0]))

@jax.custom_jvp
def product(x, y):
    return x * y
product.defjvps(lambda t, ans, x, y: t * y * 2, None)

@jax.custom_vjp
def clipped(x, low):
    return jnp.maximum(x, low)
clipped.defvjp(lambda x, low: (jnp.maximum(x, low), (x, low)), lambda res, ct: (jnp.clip(ct, -1, 1) * res[0], jnp.zeros_like(res[1])))

@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 2))
def applied(f, x, n):
    return f(x) * n
applied.defvjp(lambda f, x, n: (f(x) * n, x), lambda f, n, x, ct: (ct * n * f(x),))

@jax.custom_gradient
def tripled(x):
    return x**2, lambda ct: ct * 3
"""

CUSTOM = """
r: halved(r) * r
r q: product(r, q)
r a: clipped(r, a) ## reverse
r: applied(jnp.sin, r, 3) ## reverse
r: tripled(r) ## reverse
r: jax.vmap(halved)(r)
r: jax.jit(halved)(r)
r: jax.vmap(jax.grad(lambda x: applied(jnp.cos, x, 2).sum()))(r) ## reverse
r: lax.scan(lambda x, y: (halved(x) + y.sum(), halved(y)), 0.1, r) ## first
r: jax.checkpoint(halved)(r)
r a: lax.scan(lambda x, y: (clipped(x, y.sum()), x), a, r) ## reverse
"""

TABLES = {
    "elementwise": ELEMENTWISE, "shapes": SHAPES, "reductions": REDUCTIONS, "order": ORDER, "products": PRODUCTS, "neural": NEURAL,
    "special": SPECIAL, "matrices": MATRICES, "control": CONTROL, "custom": CUSTOM,
}  # fmt: skip
LINES = {name: tuple(parsed(table)) for name, table in TABLES.items()}
