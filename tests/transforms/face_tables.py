"""Lines (see `face_cases`) over functions of elements, shapes, reductions and order."""

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
c: lax.cumlogsumexp(c, 1)
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
