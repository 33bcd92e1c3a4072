# Weak types: of collectives over a vmap's axis, of scans by doubling, of what cotangents become, and of functions that join constants.
w, f, s, m = jnp.full((3,), 2), jnp.full((3,), 2.5), jnp.arange(3.0), jnp.full((3, 3), 2.5)
over = lambda g, x: jax.vmap(g, axis_name="i")(x)
b = jnp.full((3,), True)
outcome = lambda w, f, s, m, b: [
    over(lambda r: lax.pmax(r, "i"), w), over(lambda r: lax.pmin(r, "i"), f), over(lambda r: lax.psum(r, "i"), w),
    over(lambda r: r - lax.pmax(r, "i"), f), over(lambda r: lax.pmean(r, "i"), f), over(lambda r: lax.psum(1, "i"), w),
    lax.associative_scan(jnp.add, f), lax.associative_scan(jnp.add, w[:1]), lax.associative_scan(jnp.multiply, w, reverse=True),
    jax.vjp(lambda x: x * 2, 1.0)[1](1.0), jax.vjp(lambda x: x * 2, 1.0)[1](jnp.float32(1)), jax.vjp(lambda x: x, f)[1](s),
    jax.vjp(lambda x: x.sum(), f)[1](1.0), jax.vjp(lambda x, y: x * y, f, s)[1](s), jax.grad(lambda x: jnp.sum(x * s))(1.0),
    jax.grad(lambda x: jnp.sum(jnp.exp(x)))(f), jax.grad(jnp.max)(f), jax.linear_transpose(jnp.cumsum, f)(s),
    jax.hessian(lambda x: jnp.sum(x**2))(f), jax.grad(lambda x: x**2)(1.0),
    (lambda h: (h.defvjp(lambda y: (y * y, y), lambda y, ct: (ct * jnp.sign(y),)), jax.grad(lambda y: jnp.sum(h(y)))(f))[1])(
        jax.custom_vjp(lambda y: y * y)
    ),
    jax.grad(lambda x: jnp.sum(jnp.sort(x)))(f), jax.grad(lambda x: x[w].sum())(f), jnp.angle(f), jnp.round(f, 1), jnp.convolve(f, f), jnp.correlate(f, w), jnp.cross(f, f), jnp.cross(f, s.astype("bfloat16")),
    jnp.deg2rad(f), jnp.deg2rad(1.0), jnp.diagonal(m), jnp.diag(f), jnp.diagflat(f), jnp.trace(m), jnp.gradient(f), jnp.iscomplex(f),
    jnp.gradient(f, s.astype("bfloat16") + 1), jnp.isreal(1.0), jnp.polydiv(f, f), jnp.trapezoid(f, f), jnp.trapezoid(f), jnp.unwrap(f),
    lax.top_k(f, 2), jnp.linalg.cholesky(jnp.full((1, 1), 2.5)), jnp.linalg.eigvalsh(m), jnp.linalg.slogdet(m + jnp.eye(3)),
    jax.scipy.special.logit(f / 5), jax.scipy.special.kl_div(f, f), jax.scipy.linalg.toeplitz(f), jax.scipy.signal.detrend(f) * 0,
    jax.scipy.stats.norm.logpdf(f), jax.scipy.stats.norm.logpdf(1.0), jnp.unique(w, size=3, fill_value=0), jnp.unique(w, size=3),
    jnp.stack([b]), jnp.select([b, b], [f, 1.0], 0), jnp.hypot(f, f), jnp.heaviside(f, 0.5), jnp.sinc(f), jnp.linalg.det(m),
]
result = jax.jit(outcome)(w, f, s, m, b)
