"""Control flow and transforms: statements that hand a local function to a loop, a branch or a derivative."""

from __future__ import annotations

from tests.fuzz.elementwise import merged
from tests.fuzz.grow import Draft, Grower, op
from tests.fuzz.program import Quality, Value
from tests.fuzz.qualities import EPSILON, Unsuitable, kind

SMALL = Quality(0.5, 4.0)


def small(g: Grower, kinds: str = "fi", *, ndim: int = 0, most: int = 2048) -> Value:
    """A value with few elements and small numbers; an exact one with coarse steps."""
    v = g.tame(kinds, ndim=ndim, where=lambda v: v.size <= most)
    q = v.quality
    if kind(v.dtype) == "f" and q.exact and (q.bound > 4 or q.step < 0.5):  # type: ignore[operator]
        return g.add(g.calmed(v))
    return v


def carried(v: Value) -> tuple[str, Quality]:
    """The text of a loop's next carry, with numbers no larger than the first's."""
    if kind(v.dtype) == "b":
        return v.name, v.quality
    if kind(v.dtype) == "i":
        return f"{v} % 5", Quality(1.0, 4.0)
    if v.quality.exact:
        return f"jnp.clip(jnp.round({v} * 2) / 2, -4, 4)", SMALL
    return f"0.5 * jnp.tanh({v})", Quality(None, 1.0, v.quality.noise / 2 + 4 * EPSILON[v.dtype])


def after_steps(v: Value, first: Quality, steps: int) -> Quality:
    """The quality of a carry that became `v` in one step of a loop."""
    q = v.quality
    if q.exact:
        return merged(first, q)
    start = max(first.noise, EPSILON.get(v.dtype, 0))
    gain = max(1.0, q.noise / start)
    return Quality(None, max(q.bound, first.bound), q.noise * gain ** (steps - 1))


def noisy(v: Value) -> Quality:
    """The quality of a float carry whose body may not keep it exact."""
    q = v.quality
    return q if kind(v.dtype) in "ib" else Quality(None, max(q.bound, 4.0), max(q.noise, EPSILON.get(v.dtype, 0)))


@op(2.5)
def loop(g: Grower) -> Draft:
    """scan, fori_loop and while_loop over a carry."""
    c = small(g)
    exact = c.quality.exact and g.chance(0.5)
    first = Quality(c.quality.step, max(c.quality.bound, 4.0)) if exact else noisy(c)
    if exact and kind(c.dtype) == "i" and c.quality.bound > 4:
        first = c.quality
    steps = g.integer(1, 4)
    like = lambda: (c.shape, c.dtype)  # noqa: E731

    def finish(v: Value) -> tuple[str, Quality]:
        if exact and not v.quality.exact:
            raise Unsuitable
        text, q = carried(v)
        if kind(v.dtype) == "f":
            text = f"({text}).astype({v.dtype!r})"
        return text, q

    which = g.choice(("scan", "scan", "scan_xs", "scan_ys", "fori", "while", "traced fori"))
    if which in ("scan_xs", "scan_ys"):
        x = small(g, ndim=1)
        if x.shape[0] == 0 or x.shape[0] > 32:
            raise Unsuitable
        f, out = g.function([first, x.quality], like=like, finish=finish)
        reverse = g.choice(("", "", ", reverse=True", ", unroll=2"))
        if which == "scan_ys":
            body = f"lambda c, x: ({f.name}(c, x), c)"
            return Draft(
                f"lax.scan({body}, {c}, {x}{reverse})[1]",
                lambda d: merged(first, after_steps(out[-1], first, x.shape[0])),
                [f],
            )
        body = f"lambda c, x: ({f.name}(c, x), None)"
        return Draft(f"lax.scan({body}, {c}, {x}{reverse})[0]", lambda d: after_steps(out[-1], first, x.shape[0]), [f])
    f, out = g.function([first], like=like, finish=finish)
    n: object = steps
    if which == "scan":
        text = f"lax.scan(lambda c, _: ({f.name}(c), jnp.sum(c)), {c}, None, length={n})[0]"
    elif which == "fori":
        text = f"lax.fori_loop(0, {n}, lambda i, c: {f.name}(c), {c})"
    elif which == "while":
        text = f"lax.while_loop(lambda ic: ic[0] < {n}, lambda ic: (ic[0] + 1, {f.name}(ic[1])), (0, {c}))[1]"
    else:
        if g.smooth:
            raise Unsuitable
        bound = g.tame("i", exact=True, where=lambda v: v.ndim == 0 and v.dtype == "int32")
        text, steps = f"lax.fori_loop(0, jnp.abs({bound}) % 4, lambda i, c: {f.name}(c), {c})", 3
        return Draft(text, lambda d: merged(first, after_steps(out[-1], first, steps)), [f])
    return Draft(text, lambda d: merged(first, after_steps(out[-1], first, steps)), [f])


@op(2)
def branch(g: Grower) -> Draft:
    """Cond and switch."""
    x = g.tame("fib")
    q = x.quality
    like = lambda: (x.shape, x.dtype)  # noqa: E731
    f, first = g.function([q], like=like)
    h, second = g.function([q], like=like)
    quality = lambda d: merged(first[-1].quality, second[-1].quality)  # noqa: E731
    if g.chance(0.5):
        p = g.choice(["True", "False"])
        scalars = [v for v in g.visible() if v.ndim == 0 and v.quality.exact and kind(v.dtype) in "bfi"]
        if scalars:
            v = g.choice(scalars)
            p = v.name if v.dtype == "bool" else f"{v} > 0"
        return Draft(f"lax.cond({p}, {f.name}, {h.name}, {x})", quality, [f, h])
    scalars = [v for v in g.visible() if v.ndim == 0 and kind(v.dtype) == "i"]
    i = g.choice(scalars) if scalars else g.integer(-1, 3)
    return Draft(f"lax.switch({i}, [{f.name}, {h.name}, lambda x: x], {x})", lambda d: merged(quality(d), q), [f, h])


@op(2)
def mapping(g: Grower) -> Draft:
    """Vmap and map, over one or two values."""
    x = g.tame("fib", ndim=1, where=lambda v: v.shape[0] > 0)
    if g.chance(0.35):
        if x.shape[0] > 32:
            raise Unsuitable
        f, out = g.function([x.quality])
        size = g.choice(("", "", ", batch_size=2"))
        return Draft(f"lax.map({f.name}, {x}{size})", lambda d: out[-1].quality, [f])
    axis = g.integer(-x.ndim, x.ndim - 1)
    n = x.shape[axis]
    if n == 0:
        raise Unsuitable
    ys = [v for v in g.visible() if v.ndim and kind(v.dtype) in "fi" and v.shape[0] == n and v.quality.bound <= 32]
    if ys and g.chance(0.6):
        y = g.choice(ys)
        f, out = g.function([x.quality, y.quality])
        text = f"jax.vmap({f.name}, in_axes=({axis}, 0){g.choice(('', '', ', out_axes=-1'))})({x}, {y})"
    elif g.chance(0.3):
        y = g.tame("fi")
        f, out = g.function([x.quality, y.quality])
        text = f"jax.vmap({f.name}, in_axes=({axis}, None))({x}, {y})"
    else:
        f, out = g.function([x.quality])
        text = f"jax.vmap({f.name}, in_axes={axis})({x})"
    return Draft(text, lambda d: out[-1].quality, [f])


@op(1.5)
def call(g: Grower) -> Draft:
    """Nested jit, checkpoint and functions with derivatives of their own."""
    x = g.tame("fib")
    how = g.choice(
        (
            "jax.jit({f})({x})",
            "jax.checkpoint({f})({x})",
            "{f}({x})",
            "jax.jit({f}, inline=True)({x})",
            "jax.jit(jax.vmap({f}))({x})",
            "jax.named_call({f})({x})",
        )
    )
    if "vmap" in how and (x.ndim == 0 or x.shape[0] == 0):
        raise Unsuitable
    f, out = g.function([x.quality])
    return Draft(how.format(f=f.name, x=x), lambda d: out[-1].quality, [f])


@op(1)
def custom_rule(g: Grower) -> Draft:
    """A function with a custom derivative, called or differentiated."""
    x = g.tame("f")
    if g.chance(0.5):
        f, out = g.function(
            [x.quality],
            closed=True,
            after="{name}_ = jax.custom_jvp({name}); {name}_.defjvp(lambda p, t: ({name}_(p[0]), jax.jvp({name}, p, t)[1] * 2))",
        )
    else:
        f, out = g.function(
            [x.quality],
            closed=True,
            after="{name}_ = jax.custom_vjp({name}); "
            "{name}_.defvjp(lambda x: ({name}_(x), x), lambda x, ct: (jax.vjp({name}, x)[1](ct)[0] * 2,))",
        )
    exec(f.after, g.namespace)
    return Draft(f"{f.name}_({x})", lambda d: out[-1].quality, [f])


def _slope(x: Value) -> Quality:
    """The quality of a derivative that was divided by one and its size."""
    e = max(EPSILON[x.dtype], 2.0**-23)
    return Quality(None, 1.0, min(1000 * e, 0.015))


@op(3)
def derivative(g: Grower) -> Draft:
    """Gradients, forward derivatives, linearizations: of small functions, made small."""
    if g.special:
        raise Unsuitable
    x = g.tame("f", where=lambda v: v.size <= 256 and v.dtype == "float32")
    total = lambda v: (f"jnp.sum({v}.astype('float32'))", v.quality)  # noqa: E731
    how = g.choice(
        (
            "grad",
            "grad",
            "value_and_grad",
            "vjp",
            "jvp",
            "linearize",
            "jacfwd",
            "jacrev",
            "checkpoint",
            "hessian",
            "vmap grad",
            "hvp",
        )
    )
    fits = lambda v: (f"{v}.astype('float32')", v.quality)  # noqa: E731
    if how in ("jacfwd", "jacrev", "hessian", "hvp") and x.size > 16:
        raise Unsuitable
    scalar = how in ("grad", "value_and_grad", "checkpoint", "hessian", "vmap grad", "hvp")
    if how == "vmap grad" and (x.ndim == 0 or x.shape[0] == 0):
        raise Unsuitable
    f, _ = g.function([x.quality], finish=total if scalar else fits, smooth=True)
    y = {
        "grad": f"jax.grad({f.name})({x})",
        "value_and_grad": f"jax.value_and_grad({f.name})({x})[1]",
        "vjp": f"(lambda o: o[1](jnp.ones_like(o[0]))[0])(jax.vjp({f.name}, {x}))",
        "jvp": f"jax.jvp({f.name}, ({x},), (jnp.cos({x}),))[1]",
        "linearize": f"jax.linearize({f.name}, {x})[1](jnp.cos({x}))",
        "jacfwd": f"jax.jacfwd({f.name})({x})",
        "jacrev": f"jax.jacrev({f.name})({x})",
        "checkpoint": f"jax.grad(jax.checkpoint({f.name}))({x})",
        "hessian": f"jax.hessian({f.name})({x})",
        "vmap grad": f"jax.vmap(jax.grad({f.name}))({x})",
        "hvp": f"jax.jvp(jax.grad({f.name}), ({x},), (jnp.cos({x}),))[1]",
    }[how]
    return Draft(f"(lambda t: (t / (1 + jnp.abs(t))).astype('float32'))({y})", _slope(x), [f])


@op(0.6)
def derivative_of_loop(g: Grower) -> Draft:
    """A gradient through a loop whose body uses what stands outside."""
    if g.special:
        raise Unsuitable
    x = g.tame("f", where=lambda v: 0 < v.size <= 256 and v.dtype == "float32")
    f, _ = g.function(
        [noisy(x)], like=lambda: (x.shape, x.dtype), finish=lambda v: (f"jnp.tanh({v})", v.quality), smooth=True
    )
    loop = g.choice(
        (
            f"lax.scan(lambda c, _: ({f.name}(c), jnp.sum(c)), x, None, length=3)",
            f"lax.fori_loop(0, 2, lambda i, c: {f.name}(c), x)",
            f"lax.scan(lambda c, _: (jax.checkpoint({f.name})(c), c), x, None, length=2)",
            f"lax.cond(True, {f.name}, lambda x: x * 2, x)",
            f"lax.map({f.name}, jnp.stack([x, x]))",
        )
    )
    total = f"lambda x: sum(jnp.sum(y.astype('float32')) for y in jax.tree.leaves({loop}))"
    return Draft(f"(lambda t: (t / (1 + jnp.abs(t))).astype('float32'))(jax.grad({total})({x}))", _slope(x), [f])
