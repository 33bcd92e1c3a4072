"""Ops with algorithms of their own, and how they are differentiated, mapped and looped over: each kind in each way."""

from __future__ import annotations

from tests.fuzz.flow import small
from tests.fuzz.grow import Draft, Grower, op
from tests.fuzz.program import Quality
from tests.fuzz.qualities import LARGEST_INT, Unsuitable

# Functions of `y`, an array of numbers up to 1: of a matrix `a` far from singular with separate eigenvalues, of a row `r`,
# of images and kernels made of it.
MATRIX = "(jnp.diag(jnp.array([4.0, 6.0, 9.0])) + jnp.resize(y, (3, 3)) / 4)"
BATCH = "(jnp.diag(jnp.array([4.0, 6.0, 9.0])) + jnp.resize(y, (2, 3, 3)) / 4)"
ROW = "jnp.resize(y, (6,))"
OF_A_MATRIX = """
jnp.linalg.inv(a)
jnp.linalg.det(a)
jnp.linalg.slogdet(a)[1]
jnp.linalg.cholesky(a @ a.mT)
jnp.linalg.solve(a, a[..., :2] + 1)
jnp.linalg.qr(a)[1]
jnp.linalg.qr(a)[0]
jnp.linalg.eigvalsh(a + a.mT)
jnp.abs(jnp.linalg.eigh(a + a.mT)[1])
jnp.linalg.svd(a, compute_uv=False)
jax.scipy.linalg.expm(a / 9)
jnp.linalg.matrix_power(a / 9, 3)
jnp.linalg.pinv(a)
jnp.linalg.norm(a)
jnp.trace(a, axis1=-2, axis2=-1)
lax.linalg.triangular_solve(jnp.tril(a), a, left_side=True, lower=True, transpose_a=True)
lax.linalg.triangular_solve(jnp.triu(a), a, left_side=False, unit_diagonal=True)
jnp.einsum('...ij,...kj,...k->...i', a, a, a[..., 0])
jnp.tril(a, -1) @ jnp.triu(a, 1)
lax.linalg.lu(a)[0]
""".strip().splitlines()
OF_ONE_MATRIX = """
jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a @ a.T), a)
jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), a[0])
jax.scipy.linalg.solve_triangular(a, a[0], lower=True, trans=1)
jnp.linalg.lstsq(a, a[0])[0]
jnp.linalg.multi_dot([a, a, a[0]])
jnp.linalg.cond(a)
jnp.kron(a, a[:1, :2])
jnp.linalg.tensorsolve(a, a[0])
jnp.outer(a[0], a[1])
jnp.linalg.norm(a, 2)
""".strip().splitlines()
OF_A_ROW = """
jnp.fft.fft(r).real
jnp.fft.rfft(r, n=9).imag
jnp.abs(jnp.fft.fft(r) + 9)
jnp.fft.irfft(jnp.fft.rfft(r) ** 2)
jnp.fft.ifft(r, n=4).real
jnp.fft.fft2(r.reshape(2, 3)).imag
jnp.fft.rfftn(r.reshape(3, 2), norm='ortho').real
jnp.fft.hfft(r)
jax.scipy.fft.dct(r)
jnp.cumsum(r)[::2]
jnp.cumprod(r + 2)
lax.cumlogsumexp(r, reverse=True)
lax.associative_scan(lambda p, q: p * q + q, r, reverse=True)
jnp.convolve(r, r[:3], 'same')
jnp.interp(r, jnp.array([-2.0, 0.1, 2.0]), r[:3])
jnp.polyval(r[:3], r)
jax.nn.logsumexp(r, b=jnp.arange(6) + 1.0)
jax.nn.softmax(r, where=jnp.arange(6) % 2 == 0)
jnp.var(r, where=jnp.arange(6) > 1)
jax.ops.segment_sum(r, jnp.arange(6) % 4, 3)
jnp.zeros(4).at[jnp.array([0, 5, 0, -1, 2, 3])].add(r, mode='drop')
jnp.ones(4).at[jnp.array([0, 3, 1, 2])].multiply(r[:4] + 3, unique_indices=True)
r[jnp.array([[0, 9], [-1, 2]])]
lax.dynamic_slice(r, (4,), (3,))
lax.dynamic_update_slice(r, r[:2] * 2, (5,))
jnp.roll(r, 2) * jnp.flip(r)
jnp.tensordot(r.reshape(2, 3), r.reshape(3, 2), 1)
jnp.einsum('ij,kj->ik', r.reshape(2, 3), r.reshape(2, 3))
jnp.einsum('ii->i', jnp.resize(r, (3, 3)))
jax.image.resize(r.reshape(2, 3), (3, 5), 'linear')
jax.scipy.ndimage.map_coordinates(r.reshape(2, 3), [jnp.array([0.5, 1.7]), jnp.array([1.25, -0.5])], 1)
jnp.sinc(r)
jnp.hypot(r, 2 + r)
jnp.arctan2(r, r + 3)
jnp.logaddexp(r, -r)
jnp.power(r + 3, r)
lax.integer_pow(r + 2, -3)
jnp.cbrt(r + 2)
jax.scipy.special.gammaln(r + 3)
jax.scipy.special.digamma(r + 3)
jax.scipy.special.betainc(2.0, 3.0, r / 3 + 0.5)
jax.scipy.special.gammainc(2.0, r + 3)
jax.scipy.special.erfinv(r / 3)
jax.scipy.special.i0e(r)
jax.scipy.special.xlogy(r + 2, r + 2)
jax.scipy.special.ndtri(r / 3 + 0.5)
jax.nn.gelu(r, approximate=False)
jax.nn.celu(r)
jax.nn.glu(r)
jax.nn.standardize(r)
jax.scipy.stats.norm.logcdf(r)
jax.nn.logmeanexp(r)
lax.scan(lambda c, _: (jnp.sin(c * 2), c), r, None, length=3)[1]
lax.scan(lambda c, x: (c * x + 1, c), r[0], r, reverse=True, unroll=2)[1]
lax.fori_loop(0, 3, lambda i, c: c.at[i].set(c[i - 1] * 2), r)
lax.map(lambda e: e * jnp.sum(r), r, batch_size=4)
lax.custom_linear_solve(lambda v: 3 * v + r * v, r, lambda mv, b: b / (3 + r), symmetric=True)
jnp.vectorize(jnp.dot, signature='(n),(n)->()')(r, r)
lax.cond(jnp.sum(r) > 0, lambda r: lax.cond(r[0] > 0, jnp.sin, jnp.cos, r), lambda r: r * 3, r)
lax.custom_root(lambda v: v ** 3 + v - r, r, lambda f, v: lax.fori_loop(0, 20, lambda i, v: v - (v ** 3 + v - r) / (3 * v * v + 1), \
v), lambda g, t: t / g(jnp.ones_like(t)))
""".strip().splitlines()
# Where two elements are as large, what is chosen depends on which comes first: of exact numbers alone.
OF_AN_EXACT_ROW = """
lax.top_k(r, 3)[0]
lax.sort((jnp.round(r), r * 2), num_keys=1)[1]
jnp.sort(r)[::-1]
lax.cummax(r)
jnp.max(r.reshape(2, 3), 1)
lax.reduce_window(r, -jnp.inf, lax.max, (3,), (2,), 'SAME')
lax.reduce_window(r.reshape(2, 3), 0.0, lax.add, (2, 2), (1, 1), 'SAME')
jnp.median(r)
jnp.clip(r, -0.5, 0.5)
jax.ops.segment_max(r, jnp.arange(6) % 3, 3)
jnp.abs(r)
jnp.minimum(r, -r)
jnp.quantile(r, 0.3)
jnp.where(r > 0, r * 2, 1 / (2 - r))
jnp.nan_to_num(r)
jnp.unwrap(r * 4)
jax.nn.relu6(r * 9)
jnp.mod(r, 0.75)
""".strip().splitlines()
# Images, kernels, and the rest of the arguments.
CONVOLUTIONS = (
    ((2, 2, 7), (4, 2, 3), "(1,), 'SAME'"),
    ((2, 4, 7), (2, 2, 3), "(2,), [(1, 2)], feature_group_count=2"),
    ((4, 2, 6), (2, 2, 3), "(1,), 'VALID', batch_group_count=2"),
    ((2, 2, 5), (3, 2, 2), "(1,), [(0, -1)], lhs_dilation=(2,)"),
    ((1, 2, 9), (2, 2, 3), "(2,), 'SAME', rhs_dilation=(2,)"),
    ((1, 2, 4, 5), (2, 2, 2, 3), "(2, 1), 'SAME'"),
    ((2, 2, 4, 4), (2, 1, 3, 2), "(1, 2), 'VALID', feature_group_count=2"),
    ((1, 1, 3, 3, 4), (2, 1, 2, 2, 2), "(1, 1, 2), 'SAME'"),
)
WAYS = """
h({y})
h({y})
jax.grad(lambda y: jnp.sum(jnp.sin(h(y))))({y})
jax.grad(lambda y: jnp.sum(jnp.sin(h(y))))({y})
jax.jvp(h, ({y},), (jnp.cos({y}),))[1]
jax.vmap(h)(jnp.stack([{y}, {y} / 2]))
jax.vmap(jax.grad(lambda y: jnp.sum(h(y) ** 2)))(jnp.stack([{y}, -{y}]))
jax.linearize(h, {y})[1](jnp.sin({y}))
jax.grad(lambda y: jnp.sum(jax.vmap(h, out_axes=-1)(jnp.stack([y, y * 0.5]))))({y})
jax.grad(jax.checkpoint(lambda y: jnp.sum(jnp.cos(h(y)))))({y})
(lambda o: o[1](jnp.cos(o[0]))[0])(jax.vjp(jax.jit(h), {y}))
jax.grad(lambda y: lax.scan(lambda c, _: (c + jnp.sum(h(y + c / 9)), None), 0.0, None, length=2)[0])({y})
jax.jvp(jax.grad(lambda y: jnp.sum(h(y))), ({y},), ({y},))[1]
jax.vmap(lambda t: jax.jvp(h, ({y},), (t,))[1])(jnp.stack([{y}, {y} * 0 + 1]))
lax.cond(jnp.sum({y}) > 0, lambda y: jax.grad(lambda y: jnp.sum(h(y)))(y), lambda y: -y, {y})
lax.map(lambda s: h({y} * s), jnp.array([1.0, 0.5, 0.25]))
jax.linear_transpose(lambda t: jax.jvp(h, ({y},), (t,))[1], {y})(jnp.ones_like(h({y})))[0]
jax.vmap(h, in_axes=-1)(jnp.stack([{y}, -{y}], -1))
""".strip().splitlines()
# Of an array `x` of floats, with a dtype of eight bits.
NARROW = """
{x}.astype(jnp.{narrow}).astype({dtype!r})
lax.reduce_precision({x}, 5, 2)
lax.reduce_precision({x}, 4, 3)
jnp.frexp({x})[0]
jnp.ldexp({x}, 2)
jnp.modf({x})[0]
jnp.nextafter({x}, {x} + 1)
jnp.rint({x})
jnp.heaviside({x}, 0.5)
jnp.remainder({x}, 0.75)
jnp.fmod({x}, -0.75)
jnp.divmod({x}, 0.5)[0]
lax.rem({x}, jnp.full_like({x}, 2))
jnp.sort({x}.ravel().astype(jnp.{narrow})).astype('float32')
({x}.astype(jnp.{narrow}) > 0)
jnp.max({x}.astype(jnp.{narrow})).astype('float32')
jnp.where({x} > 0, {x}, 0).astype(jnp.{narrow}).astype('bfloat16')
""".strip().splitlines()
# Of a complex matrix `z` far from singular.
COMPLEX = """
z @ z.conj().T
jnp.linalg.inv(z)
jnp.linalg.solve(z, z[0])
jnp.linalg.det(z)
jnp.fft.fft2(z)
jnp.fft.irfft2(z)
jnp.cumsum(z, 0)
jnp.prod(z / 4, 1)
jnp.linalg.eigvalsh(z @ z.conj().T)
jnp.vdot(z, z)
jnp.exp(z / 4)
jnp.sqrt(z)
jnp.log(z + 9)
z ** 2
jnp.angle(z + 9)
jax.grad(lambda w: jnp.sum(jnp.abs(w) ** 2))(z)
jax.grad(lambda w: jnp.sum(w * w).real)(z)
jax.grad(lambda w: jnp.sum(w ** 3), holomorphic=True)(z)
jax.jvp(jnp.linalg.inv, (z,), (z * 1j,))[1]
jax.vjp(lambda w: jnp.fft.rfft(w.real), z)[1](jnp.ones((3, 2), 'complex64'))[0]
jnp.linalg.cholesky(z @ z.conj().T)
jnp.einsum('ij,kj->ik', z, z.conj())
lax.scan(lambda c, r: (c * 0.5 + r, c), z[0], z)[1]
jnp.tanh(z / 9)
jnp.linalg.norm(z)
jnp.mean(z, 0)
lax.conj(z).T.real
z / (z + 9)
jnp.where(z.real > 1, z, 0)
z.at[0].add(1j)
jnp.linalg.svd(z, compute_uv=False)
jnp.sinh(z / 4)
jnp.reciprocal(z + 9)
jnp.convolve(z[0], z[1])
jnp.linalg.matrix_power(z / 4, 2)
jnp.sort(jnp.round(z).ravel())
jnp.round(z)
lax.linalg.triangular_solve(z, z, left_side=True, lower=True, conjugate_a=True)
""".strip().splitlines()
# What is done to a Ref `r`, and where.
WRITES = """
r.__setitem__({i}, r[0] * 0 + 1)
r.__setitem__(..., r[...] * -1)
r.__setitem__(slice({i}, None), r[{i}:] * 0)
r.__setitem__(jnp.sum(r[...] > 0) % len(r), r[0])
jax.ref.addupdate(r, {i}, r[0] * 0 + 2)
jax.ref.swap(r, {i}, r[-1])
lax.fori_loop(0, 2, lambda i, _: r.__setitem__(i % len(r), r[-1]), None)
lax.cond(jnp.any(r[0] > 0), lambda: r.__setitem__(0, r[0] - 1), lambda: None)
lax.scan(lambda _, i: (None, r.__setitem__(i % len(r), r[i % len(r)] * -1)), None, jnp.arange(3))
jax.jit(lambda r, v: r.__setitem__(0, v))(r, r[-1])
""".strip().splitlines()
PLACES = """
(lambda r: ({write}, {other}, jax.freeze(r))[-1])(jax.new_ref({x}.astype({dtype!r})))
(lambda r: ({write}, r[...])[-1])(jax.new_ref({x}.astype({dtype!r})))
jax.jit(lambda x: (lambda r: ({write}, {write}, r[...] + 0)[-1])(jax.new_ref(x.astype(x.dtype))))({x})
jax.vmap(lambda x: (lambda r: ({write}, {other}, r[...])[-1])(jax.new_ref(x.astype(x.dtype))))(jnp.stack([{x}, {x} * 2]))
lax.scan(lambda c, _: ((lambda r: ({write}, {other}, jnp.clip(r[...], -4, 4))[-1])(jax.new_ref(c.astype(c.dtype))), None), {x}, \
None, length=2)[0]
lax.cond({i} > 0, lambda x: (lambda r: ({write}, r[...])[-1])(jax.new_ref(x.astype(x.dtype))), lambda x: x, {x})
""".strip().splitlines()


@op(3)
def algorithm(g: Grower) -> Draft:
    """One of them, in one way, squashed into numbers that are compared with what its rounding may be."""
    x = g.tame("f", exact=True, where=lambda v: 0 < v.size <= 128 and v.dtype == "float32")
    if g.special:
        raise Unsuitable
    among = g.random.random()
    if among < 0.3:
        a, of = g.choice(((MATRIX, OF_A_MATRIX + OF_ONE_MATRIX), (BATCH, OF_A_MATRIX)))
        h = f"lambda y: (lambda a: {g.choice(of)})({a})"
    elif among < 0.45:
        lhs, kernel, how = g.choice(CONVOLUTIONS)
        h = f"lambda y: lax.conv_general_dilated(jnp.resize(y, {lhs}), jnp.resize(y * 2 + 1, {kernel}), {how})"
    else:
        rows = OF_A_ROW + OF_AN_EXACT_ROW if among < 0.9 else OF_AN_EXACT_ROW
        h = f"lambda y: (lambda r: {g.choice(rows)})({ROW})"
    bound = 2.0 ** max(0, int(x.quality.bound).bit_length())
    way = g.choice(WAYS).format(y=f"({x} / {bound})")
    text = f"(lambda t: (t / (1 + jnp.abs(t))).astype('float32'))((lambda h: {way})({h}))"
    return Draft(text, Quality(None, 1.0, 2e-4))


@op(1.5)
def contraction_of_letters(g: Grower) -> Draft:
    """An einsum over any letters of two or three values, some repeated, some summed, some of size one."""
    count = g.integer(2, 3)
    values = [
        g.tame("fi", ndim=1, where=lambda v: 0 < v.size <= 512 and v.dtype in ("float32", "int32"))
        for _ in range(count)
    ]
    if g.special:
        raise Unsuitable
    letters: dict[str, int] = {}
    terms = []
    for v in values:
        term = ""
        for n in v.shape:
            fitting = [c for c, m in letters.items() if m == n and (c not in term or g.chance(0.2))]
            if fitting and g.chance(0.75):
                term += g.choice(fitting)
            else:
                letters["abcdefghijklm"[len(letters)]] = n
                term += "abcdefghijklm"[len(letters) - 1]
        terms.append(term)
    kept = [c for c in letters if g.chance(0.5)]
    g.random.shuffle(kept)
    summed, size = 1, 1
    for c, n in letters.items():
        size *= n if c in kept else 1
        summed *= n if c not in kept else 1
    if size > g.most or size * summed > 1 << 18:
        raise Unsuitable
    spec = ",".join(terms) + "->" + "".join(kept)
    step, bound, relative = 1.0, float(summed), 0.0
    for v in values:
        q = v.quality
        step = 0.0 if q.step is None else step * q.step
        relative += q.noise / max(q.bound, 1e-6)
        bound *= max(q.bound, 1e-6)
    more = g.choice(("", "", ", optimize=False", ", preferred_element_type='float32'"))
    noise = bound * (relative + (0 if step else 8 * 2.0**-23))
    return Draft(
        f"jnp.einsum({spec!r}, {', '.join(map(str, values))}{more})",
        lambda d: Quality(step or None, LARGEST_INT.get(d, bound), noise),
    )


@op(1)
def narrow_floats(g: Grower) -> Draft:
    """Values by way of eight-bit floats, and parts of floats."""
    x = g.tame("f", exact=True)
    if g.special:
        raise Unsuitable
    narrow = g.choice(("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz"))
    text = g.choice(NARROW).format(x=x, dtype=x.dtype, narrow=narrow)
    if "next" in text:
        return Draft(text, Quality(None, 2 * x.quality.bound + 1, 0.0))
    return Draft(text, lambda d: Quality(2.0**-10, LARGEST_INT.get(d, 4 * x.quality.bound + 4)))


@op(1.2)
def complex_algorithm(g: Grower) -> Draft:
    """Of complex numbers: products, spectra, systems, derivatives."""
    x = g.tame("f", exact=True, where=lambda v: 0 < v.size <= 128 and v.dtype == "float32")
    if g.special:
        raise Unsuitable
    bound = 2.0 ** max(0, int(x.quality.bound).bit_length())
    z = f"(jnp.resize({x}, (3, 3)) / {bound} + 1j * jnp.resize({x}, (3, 3)).T / {2 * bound} + 4 * jnp.eye(3))"
    text = g.choice(COMPLEX)
    part = g.choice(("jnp.real", "jnp.imag", ""))
    return Draft(f"{part}((lambda w: w / (1 + jnp.abs(w)))((lambda z: {text})({z})))", Quality(None, 1.0, 1e-4))


@op(1.2)
def references(g: Grower) -> Draft:
    """Refs that are made, written and read in loops, branches, maps and derivatives."""
    x = small(g, "fi", ndim=1, most=256)
    n = x.shape[0]
    if n == 0 or not x.quality.exact or g.special or g.smooth or x.dtype.startswith("u") or g.axis_type == "Explicit":
        raise Unsuitable
    i = g.integer(0, n - 1)
    write = g.choice(WRITES).format(i=i)
    other = "(r.__setitem__(0, jnp.minimum(r[0], 4)))"
    text = g.choice(PLACES).format(x=x, dtype=x.dtype, i=i, write=write, other=other)
    b = max(x.quality.bound, 4.0)
    return Draft(text, lambda d: Quality(min(x.quality.step or 1.0, 1.0), LARGEST_INT.get(d, 8 * b)))
