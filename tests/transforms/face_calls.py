"""Lines (see `face_cases`) over products, layers, special functions, matrices, control flow and rules given by hand."""

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
r: jsp.special.dawsn(r)
r: jsp.special.erfcx(r)
c: jsp.special.gamma(c) ## first
c: jsp.special.loggamma(c) ## vmap
p: jsp.special.fresnel(p)
p: jsp.special.sici(p)
r q: jsp.special.owens_t(r, q)
c: jsp.special.wofz(c)
o: jsp.special.hyp2f1(0.5, 1.5, 2.5, o) ## first
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
r: jax.grad(lambda x: jsp.special.log_ndtr(x).sum())(r)
r: jax.hessian(jsp.special.log_ndtr)(r[0, 0])
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
