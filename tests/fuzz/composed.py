"""Ops that libraries compose: convolutions, spectra, small linear algebra, statistics, named axes, trees in loops."""

from __future__ import annotations

import math

from tests.fuzz.flow import small
from tests.fuzz.grow import Draft, Grower, op
from tests.fuzz.program import Quality
from tests.fuzz.qualities import EPSILON, LARGEST_INT, Unsuitable
from tests.fuzz.shaping import axis_of


@op(0.8)
def convolution(g: Grower) -> Draft:
    x = g.tame("f", ndim=3, where=lambda v: v.ndim in (3, 4) and 0 < v.size <= 512)
    k = g.tame(
        "f", where=lambda v: v.ndim == x.ndim and v.dtype == x.dtype and 0 < v.size <= 512 and v.shape[1] == x.shape[1]
    )
    if any(m > n for m, n in zip(k.shape[2:], x.shape[2:], strict=True)):
        raise Unsuitable
    spatial = x.ndim - 2
    strides = tuple(g.integer(1, 2) for _ in range(spatial))
    padding = g.choice(("'SAME'", "'VALID'", str([(g.integer(0, 2), g.integer(0, 2)) for _ in range(spatial)])))
    more = g.choice(("", "", f", lhs_dilation={(2,) * spatial}", f", rhs_dilation={(2,) * spatial}"))
    p, q, n = x.quality, k.quality, math.prod(k.shape[1:])
    step = None if p.step is None or q.step is None else p.step * q.step
    e = EPSILON[x.dtype]
    noise = n * (p.noise * q.bound + q.noise * p.bound) + (0 if step else 4 * e * n * p.bound * q.bound)
    return Draft(
        f"lax.conv_general_dilated({x}, {k}, {strides}, {padding}{more})", Quality(step, n * p.bound * q.bound, noise)
    )


@op(0.7)
def spectrum(g: Grower) -> Draft:
    x = g.tame("f", ndim=1, where=lambda v: v.dtype == "float32" and 0 < v.shape[-1] <= 64)
    if g.special:
        raise Unsuitable
    n, q = x.shape[-1], x.quality
    text = g.choice(
        (
            "jnp.fft.fft({}).real",
            "jnp.abs(jnp.fft.rfft({}))",
            "jnp.fft.ifft({}).imag",
            "jnp.fft.irfft({})",
            "jnp.fft.fftshift({})",
        )
    )
    if "irfft" in text and n < 2:
        raise Unsuitable
    return Draft(text.format(x), Quality(None, 2 * n * q.bound, 2 * n * (q.noise + 16 * EPSILON["float32"] * q.bound)))


@op(0.7)
def linear_algebra(g: Grower) -> Draft:
    """Of matrices that are nearly the identity, so that results are well determined."""
    x = g.tame(
        "f", ndim=2, where=lambda v: v.dtype == "float32" and v.shape[-1] == v.shape[-2] and 0 < v.shape[-1] <= 8
    )
    if g.special:
        raise Unsuitable
    n, q = x.shape[-1], x.quality
    a = f"(jnp.eye({n}) + {x} / {4 * n * max(1, math.ceil(q.bound))})"
    text = g.choice(
        ("jnp.linalg.inv({})", "jnp.linalg.det({})", "jnp.linalg.solve({0}, {0}[..., :1])", "jnp.linalg.cholesky({0} @ {0}.mT)",
         "jnp.linalg.slogdet({})[1]", "jnp.linalg.matrix_power({}, 3)", "jnp.abs(jnp.linalg.qr({})[1])",
         "jnp.linalg.norm({})",
         "lax.linalg.triangular_solve(jnp.tril({0}), {0}, left_side=True, lower=True)",
         "jnp.linalg.eigvalsh({0} @ {0}.mT)",
         "jnp.linalg.svd({}, compute_uv=False)", "jax.scipy.linalg.expm({})")
    )  # fmt: skip
    return Draft(text.format(a), Quality(None, 2.0 * n * n, 4 * n * (q.noise + 2.0**-18)))


@op(1.5)
def statistic(g: Grower) -> Draft:
    x = g.tame("f", ndim=1, exact=True, where=lambda v: v.size > 0)
    if g.special:
        raise Unsuitable
    axis, q, e = axis_of(g, x), x.quality, EPSILON[x.dtype]
    text, bound = g.choice(
        [(f"jnp.percentile({x}, 30, axis={axis})", q.bound), (f"jnp.quantile({x}, 0.5, axis={axis}, keepdims=True)", q.bound),
         (f"jnp.ptp({x}, axis={axis})", 2 * q.bound), (f"jnp.average({x}, axis={axis})", q.bound),
         (f"jnp.nanmean({x}, axis={axis})", q.bound),
         (f"jnp.interp({x}, jnp.arange(-4., 5.), jnp.arange(9.) / 2)", 4.0),
         (f"jnp.nansum({x}, axis={axis})", q.bound * x.size),
         (f"jnp.trapezoid({x}, axis={axis})", q.bound * x.size),
         (f"jnp.cov({x}.reshape(-1, {x.shape[-1]}))", 2 * q.bound**2),
         (f"jnp.polyval(jnp.array([0.5, -1.0]), {x})", q.bound + 2),
         (f"lax.reduce({x}, jnp.zeros((), {x.dtype!r}), lax.add, ({axis % x.ndim},))", q.bound * x.size),
         (f"lax.reduce({x}, jnp.zeros((), {x.dtype!r}), lambda a, b: jnp.maximum(a, b), ({axis % x.ndim},))", q.bound),
         (f"jnp.nanmax({x}, axis={axis})", q.bound),
         (f"jnp.cross({x}.ravel()[:1].repeat(3), jnp.arange(3.))", 4 * q.bound),
         (f"jnp.kron({x}.ravel()[:3], jnp.ones(2))", q.bound), (f"jnp.gradient({x}.ravel().repeat(2))", 2 * q.bound),
         (f"jnp.apply_along_axis(lambda r: r - r.mean(), {axis}, {x})", 2 * q.bound),
         (f"jnp.ediff1d({x})", 2 * q.bound)]
    )  # fmt: skip
    if "cov" in text and x.shape[-1] < 2:
        raise Unsuitable
    return Draft(text, Quality(None, bound, 32 * e * (bound + 1)))


@op(1.2)
def placing(g: Grower) -> Draft:
    """Integers that say where: keys of several sorts, segments, histograms, digits."""
    x = g.tame("fi", ndim=1, exact=True, where=lambda v: 0 < v.size <= 1024)
    if g.special:
        raise Unsuitable
    n = x.size
    text = g.choice(
        (f"jnp.lexsort((jnp.arange({n}) % 3, {x}.ravel()))", f"jnp.digitize({x}, jnp.array([-1, 0, 2]))",
         f"jnp.histogram({x}, 4, (-4, 4))[0]",
         f"jnp.argsort({x}.ravel(), stable=True)", f"jnp.unique({x}, size=5, fill_value=0, return_counts=True)[1]",
         f"jnp.unique({x}, size=5, fill_value=0, return_inverse=True)[1]",
         f"jnp.count_nonzero({x}, axis={axis_of(g, x)})",
         f"jnp.searchsorted(jnp.array([-2, 0, 1]), {x}, side='right')",
         f"lax.sort(({x}.ravel() > 0, {x}.ravel(), jnp.arange({n})), num_keys=2)[2]",
         f"jax.ops.segment_max(jnp.arange({n}), jnp.arange({n}) % 3, num_segments=3)",
         f"jnp.flatnonzero({x}, size=3, fill_value=-1)",
         f"jnp.argwhere({x}, size=2).sum(1)", f"jnp.nanargmin({x}, axis={axis_of(g, x)})")
    )  # fmt: skip
    return Draft(text, lambda d: Quality(1.0, LARGEST_INT.get(d, float(n))))


@op(1.5)
def named_axis(g: Grower) -> Draft:
    """Collectives over the axis of a vmap, nested or under a scan."""
    x = g.tame("fi", ndim=1, where=lambda v: 0 < v.shape[0] <= 16)
    q, n = x.quality, x.shape[0]
    if g.smooth and not q.exact:
        raise Unsuitable
    call = g.choice(
        ("lax.psum(r, 'i')", "r - lax.pmax(r, 'i')", "lax.all_gather(r, 'i').sum(0)", "r * lax.axis_index('i').astype(r.dtype)",
         f"lax.ppermute(r, 'i', {[(k, (k + 1) % n) for k in range(n)]})", "lax.psum(1, 'i') + r", "lax.pmin(r, 'i')",
         "lax.scan(lambda c, _: (lax.pmax(c, 'i'), None), r, None, length=2)[0]",
         "lax.cond(lax.axis_index('i') > 0, lambda r: -r, lambda r: r, r)")
    )  # fmt: skip
    if g.special and "pm" in call:
        raise Unsuitable
    wraps = x.dtype.startswith("u")

    def quality(dtype: str) -> Quality:
        bound = LARGEST_INT.get(dtype, 1) if wraps else 2 * n * q.bound
        return Quality(q.step, bound, 2 * n * q.noise + (0 if q.exact else n * EPSILON.get(dtype, 0) * q.bound))

    return Draft(f"jax.vmap(lambda r: {call}, axis_name='i')({x})", quality)


@op(1.5)
def batched_control(g: Grower) -> Draft:
    """Branches and loops whose predicates differ from row to row."""
    x = small(g, ndim=1, most=512)
    if x.shape[0] == 0 or not x.quality.exact or g.special:
        raise Unsuitable
    q = x.quality
    bound = LARGEST_INT.get(x.dtype, 64.0)
    body = g.choice(
        ("lax.cond(r.sum() > 0, lambda r: r * 2, lambda r: -r, r)",
         "lax.while_loop(lambda c: (c.sum() < 4) & (c.max() < 4), lambda c: c + 1, jnp.abs(r))",
         "lax.switch(r.sum().astype('int32') % 3, [lambda r: r, lambda r: r * 2, lambda r: r - r], r)",
         "lax.fori_loop(0, jnp.abs(r.sum()).astype('int32') % 3, lambda i, c: c + i.astype(c.dtype), r)",
         "lax.dynamic_slice_in_dim(jnp.arange(5), r.sum().astype('int32') % 5, 2)",
         "jnp.arange(6).at[r.sum().astype('int32') % 6].add(3)",
         "jnp.roll(jnp.arange(4), r.sum().astype('int32') % 4)", "lax.map(lambda e: e * 2, jnp.atleast_1d(r))",
         "jnp.sort(jnp.atleast_1d(r))[::-1]",
         "jnp.where(r.sum() > 0, r, 0)", "jnp.arange(5)[jnp.abs(r.sum()).astype('int32') % 5]")
    )  # fmt: skip
    return Draft(
        f"jax.vmap(lambda r: {body})({x})", lambda d: Quality(min(q.step or 1, 1.0), LARGEST_INT.get(d, bound))
    )


@op(1.5)
def tree_loop(g: Grower) -> Draft:
    """A scan whose carry is a tree, with something stacked and something constant in it."""
    x = small(g, "f", ndim=1, most=256)
    if not x.quality.exact or g.special or x.shape[0] == 0 or x.shape[0] > 16:
        raise Unsuitable
    c = "{'n': 0, 'm': jnp.zeros_like(x[0]), 'k': jax.random.key(1)}"
    step = g.choice(
        (
            "{'n': c['n'] + 1, 'm': jnp.maximum(c['m'], r), 'k': jax.random.split(c['k'])[0]}",
            "{'n': c['n'] + 2, 'm': jnp.clip(c['m'] + r, -4, 4), 'k': c['k']}",
            "{'n': c['n'], 'm': jnp.where(c['n'] > 0, r, c['m']), 'k': jax.random.fold_in(c['k'], c['n'])}",
            "{'n': lax.cond(r.sum() > 0, lambda: c['n'] + 1, lambda: c['n']), 'm': r, 'k': c['k']}",
        )
    )
    out = g.choice(("m", "n"))
    made = g.choice(("o[0][{o!r}]", "o[1][0]", "o[1][1] % 5", "jax.random.bits(o[0]['k'], (3,))"))
    stacked = f"(c['{out}'], jnp.argmax(jnp.atleast_1d(r)))"
    text = f"(lambda o: {made.format(o=out)})((lambda x: lax.scan(lambda c, r: ({step}, {stacked}), {c}, x))({x}))"
    return Draft(text, lambda d: Quality(0.5, LARGEST_INT.get(d, 8.0)))


@op(1)
def transposition(g: Grower) -> Draft:
    """Linear transposes, forms of derivatives with auxiliary results, checkpoints with policies."""
    x = g.tame("f", where=lambda v: 0 < v.size <= 256 and v.dtype == "float32")
    if g.special or not x.quality.exact:
        raise Unsuitable
    q = x.quality
    text, bound = g.choice(
        [(f"jax.linear_transpose(lambda y: jnp.cumsum(y.ravel()) * 2, {x})(jnp.ones({x.size}))[0]", 2.0 * x.size),
         (f"jax.linear_transpose(lambda y: jnp.pad(y, 1)[..., ::2], {x})(jnp.pad({x}, 1)[..., ::2])[0]", q.bound),
         (f"jax.grad(lambda y: (jnp.sum(y * y), y), has_aux=True)({x})[0]", 2 * q.bound),
         (f"jax.grad(lambda y: jnp.sum(jnp.sort(y.ravel())[::2] * 2))({x})", 2.0),
         (f"jax.grad(lambda y: jnp.sum(jnp.maximum(y, 0) * y))({x})", 2 * q.bound),
         (f"jax.grad(lambda y: jnp.max(y))({x})", 1.0), (f"jax.grad(lambda y: jnp.sum(jnp.abs(y)))({x})", 1.0),
         (f"jax.grad(lambda y: jnp.sum(y.ravel()[jnp.array([0, 0, -1])] ** 2))({x})", 6 * q.bound),
         (f"jax.grad(jax.checkpoint(lambda y: jnp.sum(y * y * y), policy=jax.checkpoint_policies.dots_saveable))({x})", 3 * q.bound**2),
         (f"jax.jvp(lambda y: lax.while_loop(lambda c: c.max() < 3, lambda c: c + 1, y), ({x},), (jnp.ones_like({x}),))[1]", 1.0),
         (f"jax.grad(lambda y: lax.top_k(y.ravel(), 1)[0][0] * 3)({x})", 3.0),
         (f"jax.grad(lambda y: jnp.prod(jnp.clip(y.ravel()[:3], -2, 2)))({x})", 8.0),
         (f"jax.grad(lambda y: jnp.sum(jnp.cumsum(y.ravel()) ** 2))({x})", 4 * q.bound * x.size**2),
         (f"jax.grad(lambda y: jnp.where(y > 0, y * 2, y / 2).sum())({x})", 2.0),
         (f"jax.grad(lambda y: jnp.sum(lax.cummax(y.ravel(), axis=0)))({x})", float(x.size)),
         (f"jax.grad(lambda y: (y.at[..., 0].set(1.) ** 2).sum())({x})" if x.ndim else f"jax.grad(lambda y: y * 2)({x})", 2 * q.bound + 2)]
    )  # fmt: skip
    return Draft(text, Quality(q.step**3 / 8 if q.step else None, bound))
