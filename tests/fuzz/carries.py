"""What loops carry: values of several dtypes, buffers written in place, random keys; and functions with rules of their own within."""

from __future__ import annotations

from tests.fuzz.elementwise import merged
from tests.fuzz.flow import after_steps, carried, noisy, small
from tests.fuzz.grow import Draft, Grower, op
from tests.fuzz.program import Function, Quality, Value
from tests.fuzz.qualities import LARGEST_INT, Unsuitable, kind


def _parts(g: Grower, count: int) -> tuple[list[Value], list[Quality], list[Function], list[list[Value]]]:
    """Carries of different dtypes if there are such, what is known of them, and for each the function of all that is the next."""
    values = [small(g, "fib", most=512)]
    while len(values) < count:
        other = small(g, "fib", most=512)
        values.append(other if other.dtype != values[0].dtype or g.chance(0.3) else small(g, "fib", most=512))
    firsts = [v.quality if kind(v.dtype) == "b" else noisy(v) for v in values]
    functions, outs = [], []
    for v in values:

        def finish(new: Value, v: Value = v) -> tuple[str, Quality]:
            text, q = carried(new)
            return (f"({text}).astype({v.dtype!r})" if kind(v.dtype) != "b" else text), q

        f, out = g.function(firsts, like=lambda v=v: (v.shape, v.dtype), finish=finish, statements=g.integer(1, 3))
        functions.append(f)
        outs.append(out)
    return values, firsts, functions, outs


@op(2)
def mixed_loop(g: Grower) -> Draft:
    """Loops over tuples of values of several dtypes, each step using all of them."""
    values, firsts, functions, outs = _parts(g, g.integer(2, 3))
    n, steps = len(values), g.integer(1, 3)
    step = "(" + ", ".join(f"{f.name}(*c)" for f in functions) + ")"
    start = "(" + ", ".join(map(str, values)) + ")"
    which = g.choice(("scan", "scan ys", "fori", "while", "vmap", "dict"))
    i = g.integer(0, n - 1)
    if which == "scan":
        text = f"lax.scan(lambda c, _: ({step}, None), {start}, None, length={steps})[0][{i}]"
    elif which == "scan ys":
        text = f"lax.scan(lambda c, _: ({step}, c), {start}, None, length={steps})[1][{i}]"
    elif which == "fori":
        text = f"lax.fori_loop(0, {steps}, lambda k, c: {step}, {start})[{i}]"
    elif which == "while":
        text = f"lax.while_loop(lambda kc: kc[0] < {steps}, lambda kc: (kc[0] + 1, (lambda c: {step})(kc[1])), (0, {start}))[1][{i}]"
    elif which == "vmap":
        text = f"jax.vmap(lambda k: lax.fori_loop(0, k, lambda _, c: {step}, {start}), axis_size=3)(jnp.arange(3) % 2)[{i}]"
    else:
        names = [repr(name) for name in "qpr"[:n]]
        step = f"(lambda *c: dict(zip(({', '.join(names)},), {step})))(*map(c.get, ({', '.join(names)},)))"
        start = "{" + ", ".join(f"{name}: {v}" for name, v in zip(names, values, strict=True)) + "}"
        text = f"lax.scan(lambda c, _: ({step}, None), {start}, None, length={steps})[0][{names[i]}]"

    def quality(dtype: str) -> Quality:
        # A step mixes what is off in all of the carries.
        noise = max(q.noise for q in firsts)
        first = Quality(firsts[i].step, firsts[i].bound, noise if kind(values[i].dtype) == "f" else 0.0)
        return after_steps(outs[i][-1], first, 3 * n)

    return Draft(text, quality, functions)


@op(1.5)
def branches_of_pairs(g: Grower) -> Draft:
    """Branches that return several values of different dtypes, under predicates that are known, traced, or mapped."""
    values, _, functions, outs = _parts(g, 2)
    args = ", ".join(map(str, values))
    new = f"lambda *c: ({', '.join(f'{f.name}(*c)' for f in functions)},)"
    i = g.integer(0, 1)
    scalars = [v for v in g.visible() if v.ndim == 0 and kind(v.dtype) == "i"]
    k = f"{g.choice(scalars)} % 3" if scalars and g.chance(0.7) else str(g.integer(-1, 3))
    text = g.choice(
        (
            f"lax.cond({k} == 1, {new}, lambda *c: c, {args})[{i}]",
            f"lax.switch({k}, [lambda *c: c, {new}, lambda *c: c], {args})[{i}]",
            f"lax.cond({k} > 0, lambda c: (lambda *c: c)(*c), lambda c: ({new})(*c), ({args}))[{i}]",
            f"jax.vmap(lambda k: lax.switch(k, [{new}, lambda *c: c], {args}))(jnp.arange(2))[{i}]",
            f"lax.scan(lambda c, k: (lax.cond(k, {new}, lambda *c: c, *c), k), ({args}), jnp.array([True, False, True]))[0][{i}]",
        )
    )

    def quality(dtype: str) -> Quality:
        q = merged(values[i].quality, outs[i][-1].quality)
        return after_steps(Value("", (), dtype, q), q, 4) if "scan" in text else q

    return Draft(text, quality, functions)


@op(2)
def buffer_in_loop(g: Grower) -> Draft:
    """Loops that write a part of what they carry in each step, some of them outside of its bounds."""
    x = small(g, "fi", ndim=1, most=512)
    n = x.shape[0]
    if n == 0 or not x.quality.exact or g.special or x.dtype.startswith("u"):
        raise Unsuitable
    steps = g.integer(1, min(n + 2, 6))
    two = x.ndim > 1
    body = g.choice(
        (
            "c.at[i].set(c[i - 1])",
            "c.at[i].add(1)",
            f"c.at[i % {n}].set(jnp.minimum(c[(i * 2) % {n}], 4))",
            "c.at[i].set(-c[i], mode='clip')",
            "c.at[-i].set(0, mode='drop')",
            f"lax.dynamic_update_slice_in_dim(c, c[:1], i + {g.integer(-1, 1)}, 0)",
            "lax.dynamic_update_index_in_dim(c, c[0] * 0 + 2, i, 0)",
            "c.at[i].max(c.sum(0) % 3)" if kind(x.dtype) == "i" else "c.at[i].min(c[0])",
            f"c.at[jnp.array([0, {n - 1}])].set(c[jnp.array([i, 0])])",
            "c.at[i].set(jnp.where(c[i] > 0, c[i] - 1, c[i]))",
            "jnp.where(i % 2 == 0, c.at[i].set(1), c)",
            "lax.cond(i % 2 == 0, lambda c: c.at[i].set(1), lambda c: c, c)",
            "c.at[:, 0].set(c[:, -1])" if two else "c.at[::2].set(i)",
            "c.at[..., i].add(1)" if two else "c.at[i].multiply(-1)",
        )
    )
    body = f"({body}).astype(c.dtype)"
    text = g.choice(
        (
            f"lax.fori_loop(0, {steps}, lambda i, c: {body}, {x})",
            f"lax.while_loop(lambda ic: ic[0] < {steps}, lambda ic: (ic[0] + 1, (lambda i, c: {body})(*ic)), (0, {x}))[1]",
            f"lax.scan(lambda c, i: ({body}, c[0]), {x}, jnp.arange({steps}))[0]",
            f"lax.scan(lambda c, i: ({body}, c[0]), {x}, jnp.arange({steps}), reverse=True)[1]",
            f"jax.vmap(lambda x, m: lax.fori_loop(0, m, lambda i, c: {body}, x))(jnp.stack([{x}, {x} * 2]), jnp.array([1, {steps}]))",
            f"jax.vmap(lambda x: lax.fori_loop(0, {steps}, lambda i, c: {body}, x))(jnp.stack([{x}, {x} * 2]))",
            f"lax.fori_loop(0, {steps}, lambda j, c: lax.fori_loop(0, 2, lambda i, c: {body}, c), {x})",
        )
    )
    q = x.quality
    return Draft(text, lambda d: Quality(min(q.step or 1.0, 1.0), LARGEST_INT.get(d, 2 * q.bound + 8 * steps)))


@op(1.2)
def keys_in_flow(g: Grower) -> Draft:
    """Random keys carried, mapped, chosen, stacked, indexed; bits tell whether they are the right ones."""
    key = f"jax.random.key({g.integer(0, 9)})"
    made = g.choice(("jax.random.split(k)[0]", "jax.random.fold_in(k, i)", "jax.random.split(k, 3)[i % 3]", "k"))
    body = f"lambda k, i: {made}"
    n = g.integer(1, 4)
    text = g.choice(
        (
            f"lax.fori_loop(0, {n}, lambda i, k: ({body})(k, i), {key})",
            f"lax.scan(lambda k, i: (({body})(k, i), k), {key}, jnp.arange({n}))[1]",
            f"jax.vmap({body}, in_axes=(None, 0))({key}, jnp.arange({n}))",
            f"jax.vmap({body})(jax.random.split({key}, {n}), jnp.arange({n}))",
            f"lax.cond({n} > 2, lambda k: ({body})(k, 1), lambda k: k, {key})",
            f"jnp.where(jnp.arange({n}) % 2 == 0, {key}, ({body})({key}, 1))",
            f"jnp.stack([{key}, ({body})({key}, 2)])",
            f"jax.random.split({key}, ({n}, 2)).T.reshape(-1)[::-1]",
            f"jax.random.split({key}, {n + 1}).at[0].set({key})",
            f"jnp.concatenate([jax.random.split({key}, {n}), {key}[None]])",
            f"jax.jit(jax.checkpoint({body}))({key}, 1)",
        )
    )
    tail = g.choice(
        (
            "jax.vmap(lambda k: jax.random.bits(k, (3,)))",
            "jax.random.key_data",
            "jax.vmap(lambda k: jax.random.randint(k, (2,), 0, 9))",
            "jax.vmap(lambda k: jax.random.permutation(k, 5))",
            "jax.vmap(lambda k: jax.random.choice(k, 6, (3,)))",
        )
    )
    return Draft(f"{tail}(jnp.atleast_1d({text}))", Quality(1.0, 2.0**32))


RULES = (
    # How a function called `h`, with a derivative of its own, is made; the derivative is not what it would be without.
    "(lambda h: (h.defjvp(lambda p, t: (h(*p), 3 * t[0])), h)[1])(jax.custom_jvp(lambda y: y * y))",
    "(lambda h: (h.defjvps(lambda t, out, y: t * 2 + 0 * out), h)[1])(jax.custom_jvp(lambda y: jnp.maximum(y, 0)))",
    "(lambda h: (h.defvjp(lambda y: (y * y, y), lambda y, ct: (ct * jnp.sign(y),)), h)[1])(jax.custom_vjp(lambda y: y * y))",
    "(lambda h: (h.defvjp(lambda y: (y * 2, None), lambda _, ct: (ct * 5,)), h)[1])(jax.custom_vjp(lambda y: y * 2))",
    "(lambda h: lambda y: h(2, y))((lambda h: (h.defvjp(lambda n, y: (y * n, None), lambda n, _, ct: (ct * (n + 1),)), h)[1])"
    "(jax.custom_vjp(lambda n, y: y * n, nondiff_argnums=(0,))))",
    "(lambda h: lambda y: h(y, 3))((lambda h: (h.defjvp(lambda n, p, t: (h(p[0], n), t[0] * n)), h)[1])"
    "(jax.custom_jvp(lambda y, n: y - n, nondiff_argnums=(1,))))",
    "jax.checkpoint(lambda y: y * y, policy=jax.checkpoint_policies.nothing_saveable)",
    "jax.checkpoint(lambda y: y * y - y, prevent_cse=False)",
    "jax.checkpoint(lambda y: jnp.dot(y.ravel(), y.ravel()) * y, policy=jax.checkpoint_policies.everything_saveable)",
    "(lambda h: lambda y: h(y, True))(jax.checkpoint(lambda y, up: y * 2 if up else y, static_argnums=(1,)))",
)


@op(2)
def own_rules(g: Grower) -> Draft:
    """Functions with custom derivatives or a checkpoint, in loops, branches, maps, nested calls and derivatives."""
    x = small(g, "f", most=64)
    if not x.quality.exact or g.special or x.dtype != "float32" or x.size == 0:
        raise Unsuitable
    h = g.choice(RULES)
    inner = g.choice(
        (
            "h(y)",
            "lax.scan(lambda c, _: (jnp.clip(h(c), -2, 2), c), y, None, length=2)[0]",
            "lax.cond(jnp.sum(y) > 0, h, lambda y: -y, y)",
            "jax.vmap(h)(jnp.stack([y, y * 2]))",
            "jax.jit(h)(y)",
            "lax.map(h, jnp.atleast_1d(y))",
            "lax.fori_loop(0, 2, lambda i, c: jnp.clip(h(c), -2, 2), y)",
            "jax.checkpoint(h)(y)",
            "jax.vmap(jax.jit(h), in_axes=0, out_axes=-1)(jnp.stack([y, -y]))",
        )
    )
    outer = g.choice(
        (
            f"(lambda y: {inner})({x})",
            f"jax.grad(lambda y: jnp.sum({inner}))({x})",
            f"jax.vjp(lambda y: {inner}, {x})[0]",
            f"jax.vmap(jax.grad(lambda y: jnp.sum({inner})))(jnp.stack([{x}, {x} / 2]))",
            f"jax.value_and_grad(lambda y: jnp.sum({inner}))({x})[1]",
            f"jax.jit(jax.grad(lambda y: jnp.sum({inner})))({x})",
            f"jax.linearize(lambda y: {inner}, {x})[0]"
            if "vjp" in h
            else f"jax.jvp(lambda y: {inner}, ({x},), ({x},))[1]",
        )
    )
    b = max(x.quality.bound, 1.0)
    return Draft(f"(lambda h: {outer})({h})", Quality(None, 64 * b**4 * 16, 1e-5 * 64 * b**4))


@op(2)
def scattering(g: Grower) -> Draft:
    """Indexed updates and reads in all modes, with promises that hold, in one dim or several."""
    x = g.tame("fib", ndim=1, exact=True, where=lambda v: 0 < v.size <= 1024)
    n, m = x.shape[0], x.shape[-1]
    if g.special:
        raise Unsuitable
    inside = sorted(g.random.sample(range(n), g.integer(1, min(n, 4))))
    anywhere = [g.integer(-n - 2, n + 2) for _ in inside]
    mode = g.choice(("", ", mode='drop'", ", mode='clip'", ", mode='fill'"))
    at = f"{x}.at[jnp.array({anywhere})]"
    sure = f"{x}.at[jnp.array({inside})]"
    by = (
        "True" if x.dtype == "bool" else g.choice(("2", "1", f"jnp.ones(({len(inside)}, *{x}.shape[1:]), {x.dtype!r})"))
    )
    promises = g.choice(
        (", unique_indices=True", ", indices_are_sorted=True, unique_indices=True", ", mode='promise_in_bounds'")
    )
    number = x.dtype != "bool"
    text = g.choice(
        (
            f"{at}.set({by}{mode})" if len(set(i % n for i in anywhere)) == len(anywhere) and "clip" not in mode else f"{sure}.set({by})",
            f"{sure}.set({by}{promises})",
            f"{at}.add({by}{mode})" if number else f"{at}.max({by}{mode})",
            f"{at}.min({by}{mode})",
            f"{at}.max({by}{mode})",
            f"{at}.multiply({by}{mode})" if number else f"{at}.min(False{mode})",
            f"{sure}.apply(lambda v: -v)" if number else f"{sure}.apply(lambda v: ~v)",
            f"{at}.get(mode='fill', fill_value={'True' if not number else '7'})",
            f"{at}.get(mode='clip')",
            f"{sure}.get(indices_are_sorted=True, unique_indices=True, mode='promise_in_bounds')",
            f"{x}.at[..., {g.integer(-m, m - 1)}].set({'True' if not number else '1'})",
            f"{x}.at[-1, ..., {g.integer(0, m - 1)}:].set(0)" if x.ndim > 1 else f"{x}.at[{n // 2}:].set(0)",
            f"{x}.at[jnp.array({inside}), ..., {g.integer(0, m - 1)}].set(0)" if x.ndim > 1 else f"{sure}.set(0)",
            f"jnp.take({x}, jnp.array({anywhere}), axis=0, mode='fill', fill_value={'True' if not number else '3'})",
            f"jnp.take({x}, jnp.array({anywhere}), axis=-1, mode='wrap')",
            f"jnp.put_along_axis({x}, jnp.zeros((1,) * {x.ndim}, 'int32'), 1, axis={g.integer(0, x.ndim - 1)}, inplace=False)",
            f"{x}[jnp.array({inside})[:, None], jnp.array([0, {m - 1}])]" if x.ndim > 1 else f"{x}[jnp.array({inside})[:, None]]",
            f"{x}[:, None, jnp.array([0, -1])]" if x.ndim > 1 else f"{x}[None, jnp.array([0, -1])]",
            f"jnp.where(({x} > 0).any(), {x}.at[0].set(0), {x})" if number else f"{x}.at[{x}].set(False)",
        )
    )  # fmt: skip
    q = x.quality
    return Draft(text, lambda d: Quality(min(q.step or 1.0, 1.0), LARGEST_INT.get(d, 40 * max(q.bound, 7.0))))
