"""Ops on places: reshapes, slices, joins, gathers, scatters, sorting and what runs along a dim."""

from __future__ import annotations

import math

from tests.fuzz.elementwise import merged
from tests.fuzz.grow import Draft, Grower, op
from tests.fuzz.program import Quality, Value
from tests.fuzz.qualities import EPSILON, LARGEST_INT, Unsuitable, kind


def axis_of(g: Grower, x: Value) -> int:
    """A dim of `x`, counted from either end."""
    return g.integer(-x.ndim, x.ndim - 1)


@op(3)
def rearrangement(g: Grower) -> Draft:
    x = g.value("fibc", ndim=1)
    axis, other = axis_of(g, x), axis_of(g, x)
    order = tuple(g.random.sample(range(x.ndim), x.ndim))
    text = g.choice(
        (f"{x}.T", f"{x}.transpose({order})", f"jnp.expand_dims({x}, {axis})", f"{x}[None]", f"{x}[..., None]", f"jnp.flip({x}, {axis})",
         f"jnp.roll({x}, {g.integer(-5, 5)}, {axis})", f"jnp.swapaxes({x}, {axis}, {other})", f"jnp.moveaxis({x}, {axis}, {other})",
         f"jnp.tile({x}, 2)", f"jnp.repeat({x}, 2, axis={axis})", f"jnp.broadcast_to({x}, (2, *{x}.shape))", f"lax.rev({x}, (0,))",
         f"jnp.rot90({x})" if x.ndim > 1 else f"{x}[::-1]", f"jnp.squeeze({x}[:, None], 1)", f"lax.expand_dims({x}, (0,))",
         f"jnp.tril({x})" if x.ndim > 1 else f"jnp.diag({x})", f"jnp.triu({x}, 1)" if x.ndim > 1 else f"{x}.ravel()")
    )  # fmt: skip
    return Draft(text, x.quality)


@op(3)
def reshape(g: Grower) -> Draft:
    x = g.value("fibc", ndim=1)
    size = max(x.size, 1)
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    first = g.choice(divisors)
    second = g.choice([n for n in divisors if (size // first) % n == 0])
    pair = [n for n in (x.shape[0], x.shape[-1]) if n and size % n == 0] or [1]
    n = g.choice(pair)
    target = g.choice(
        [(size,), (first, size // first), (first, second, size // first // second), (n, -1), (-1, n), (1, -1)]
    )
    if x.size == 0:
        target = (0,)
    return Draft(f"{x}.reshape({target})", x.quality)


@op(4)
def slicing(g: Grower) -> Draft:
    x = g.value("fibc", ndim=1)
    parts = []
    for size in x.shape[: g.integer(1, x.ndim)]:
        if size == 0:
            parts.append(":")
        elif g.chance(0.35):
            parts.append(str(g.integer(-size, size - 1)))
        elif g.chance(0.3):
            parts.append(":")
        else:
            first, last = sorted((g.integer(0, size - 1), g.integer(0, size - 1)))
            step = g.choice((1, 1, 1, 2, -1, 3))
            start, stop = (first, last + 1) if step > 0 else (last, first - size - 1)
            parts.append(f"{start}:{stop}:{step}")
        if g.chance(0.15):
            parts.append("None")
    if g.chance(0.1):
        parts.insert(0, "...") if len(parts) == x.ndim else parts.append("...")
    return Draft(f"{x}[{', '.join(parts)}]", x.quality)


@op(2.5)
def joining(g: Grower) -> Draft:
    x = g.value("fib", ndim=1)
    axis = axis_of(g, x)
    k = axis % x.ndim
    y = g.value(
        "fib", where=lambda v: v.ndim == x.ndim and v.shape[:k] == x.shape[:k] and v.shape[k + 1 :] == x.shape[k + 1 :]
    )
    same = g.value("fib", where=lambda v: v.shape == x.shape)
    text, second = g.choice(
        [(f"jnp.concatenate([{x}, {y}], axis={axis})", y), (f"jnp.concatenate([{x}, {y}, {x}], axis={axis})", y),
         (f"jnp.stack([{x}, {same}], axis={axis})", same), (f"jnp.append({x}, {y}, axis={axis})", y),
         (f"jnp.concatenate([{x}[:1], {x}])", x), (f"jnp.stack([{x}, {x}], -1)", x)]
    )  # fmt: skip
    return Draft(text, lambda d: _fits(d, merged(x.quality, second.quality)))


def _fits(dtype: str, q: Quality) -> Quality:
    return Quality(q.step, LARGEST_INT[dtype], 0) if dtype.startswith("u") else q


@op(2)
def padding(g: Grower) -> Draft:
    x = g.tame("fi", ndim=1)
    q = x.quality
    if g.chance(0.6):
        text = (
            f"jnp.pad({x}, {g.integer(0, 2)}, mode={g.choice(('constant', 'edge', 'wrap', 'reflect', 'symmetric'))!r})"
        )
        return Draft(text, q)
    config = [(*(g.integer(-1 if n > 2 else 0, 2) for _ in "lh"), g.integer(0, 1)) for n in x.shape]
    return Draft(f"lax.pad({x}, jnp.asarray(1, {x.dtype!r}), {config})", Quality(q.step, max(q.bound, 1), q.noise))


@op(1)
def splitting(g: Grower) -> Draft:
    x = g.value("fib", ndim=1)
    axis = axis_of(g, x)
    n = x.shape[axis]
    parts = g.choice([k for k in range(1, n + 1) if n % k == 0] or [1])
    text = g.choice((f"jnp.split({x}, {parts}, axis={axis})[-1]", f"jnp.array_split({x}, 2, axis={axis})[0]"))
    return Draft(text, x.quality)


def _indices(g: Grower, size: int) -> str:
    """The text of indices, some of them out of bounds: literal, or of a value in sight."""
    if g.chance(0.5):
        i = g.tame("i", where=lambda v: v.ndim <= 2 and v.size <= 64)
        return g.choice((f"{i}", f"({i} % {max(size, 1)})", f"({i} - 1)"))
    low, high = (-size, size - 1) if g.chance(0.7) and size else (-size - 2, size + 2)
    return f"jnp.array({[g.integer(low, high) for _ in range(g.integer(1, 5))]})"


@op(3)
def gathering(g: Grower) -> Draft:
    x = g.tame("fib", ndim=1)
    axis = g.integer(0, x.ndim - 1)
    n = x.shape[axis]
    if n == 0:
        raise Unsuitable
    i = _indices(g, n)
    colons = ":, " * axis
    mode = g.choice(("clip", "fill", "wrap"))
    text = g.choice(
        (f"{x}[{colons}{i}]", f"jnp.take({x}, {i}, axis={axis}, mode={mode!r})", f"jnp.take({x}, {i}, axis={axis}, mode='clip')",
         f"{x}.at[{colons}{i}].get(mode='fill', fill_value=0)", 
         f"{x}.at[{colons}{i}].get(mode='promise_in_bounds')" if "%" in i else f"{x}[{colons}{i}]",
         f"lax.dynamic_index_in_dim({x}, {g.integer(-1, n)}, {axis})")
    )  # fmt: skip
    q = x.quality
    if "fill'" in text or f"{x}[" in text:  # NaN, or the largest integer, where the index lies outside
        q = Quality(q.step, LARGEST_INT.get(x.dtype, q.bound), q.noise)
    return Draft(text, q)


@op(1)
def along(g: Grower) -> Draft:
    x = g.tame("fi", ndim=1)
    axis = g.integer(0, x.ndim - 1)
    i = g.tame(
        "i",
        where=lambda v: (
            v.ndim == x.ndim and all(m == n or k == axis for k, (m, n) in enumerate(zip(v.shape, x.shape, strict=True)))
        ),
    )
    if x.shape[axis] == 0:
        raise Unsuitable
    return Draft(f"jnp.take_along_axis({x}, {i} % {x.shape[axis]}, axis={axis})", x.quality)


@op(2)
def dynamic_slice(g: Grower) -> Draft:
    x = g.tame("fib", ndim=1)
    axis = g.integer(0, x.ndim - 1)
    n = x.shape[axis]
    if n == 0:
        raise Unsuitable
    size = g.integer(1, n)
    start: object = g.integer(-2, n + 1)
    if g.chance(0.5):
        start = g.tame("i", where=lambda v: v.ndim == 0)
    if g.chance(0.5) or kind(x.dtype) == "b":
        return Draft(f"lax.dynamic_slice_in_dim({x}, {start}, {size}, {axis})", x.quality)
    y = g.tame(
        "fi",
        where=lambda v: (
            v.dtype == x.dtype
            and v.shape[:axis] == x.shape[:axis]
            and v.ndim == x.ndim
            and v.shape[axis + 1 :] == x.shape[axis + 1 :]
            and v.shape[axis] <= n
        ),
    )
    return Draft(f"lax.dynamic_update_slice_in_dim({x}, {y}, {start}, {axis})", merged(x.quality, y.quality))


@op(3)
def update(g: Grower) -> Draft:
    x = g.tame("fi", ndim=1)
    n = x.shape[0]
    if n == 0:
        raise Unsuitable
    q = x.quality
    i = _indices(g, n)
    verb, grow = g.choice([("add", 8), ("max", 1), ("min", 1), ("add", 8), ("subtract", 8)])
    if verb in ("max", "min") and g.smooth and not q.exact:
        raise Unsuitable
    by, b = g.choice((("1", 1), ("2.0", 2), ("-1", 1)))
    if kind(x.dtype) == "i":
        by, b = "1", 1
    mode = g.choice(("", ", mode='drop'", ", mode='clip'"))
    bound = LARGEST_INT[x.dtype] if x.dtype.startswith("u") else q.bound + grow * b * 64
    options = [
        (f"{x}.at[{i}].{verb}({by}{mode})", Quality(q.step, bound, q.noise)),
        (f"{x}.at[{g.integer(-n, n - 1)}].set({by})", Quality(q.step, max(q.bound, 2), q.noise)),
        (f"{x}.at[::2].multiply(2)", Quality(q.step, 2 * q.bound, 2 * q.noise)),
        (
            f"{x}.at[jnp.array({g.random.sample(range(n), min(n, 2))})].set({by}, unique_indices=True)",
            Quality(q.step, max(q.bound, 2), q.noise),
        ),
    ]
    ys = [v for v in g.visible() if v.shape == x.shape[1:] and v.dtype == x.dtype]
    if ys:
        y = g.choice(ys)
        m = merged(q, y.quality)
        options.append((f"{x}.at[{g.integer(-n, n - 1)}].set({y})", m))
        options.append(
            (
                f"{x}.at[{i}].add({y}{mode})",
                Quality(
                    m.step,
                    LARGEST_INT[x.dtype] if x.dtype.startswith("u") else q.bound + 64 * y.quality.bound,
                    q.noise + 64 * y.quality.noise,
                ),
            )
        )
    if x.ndim == 1 and g.chance(0.3):
        c = [v for v in g.visible() if v.shape == x.shape and kind(v.dtype) == "b"]
        if c:
            options.append((f"{x}.at[{g.choice(c)}].set({by})", Quality(q.step, max(q.bound, 2), q.noise)))
    text, quality = g.choice(options)
    return Draft(text, quality)


@op(2)
def sorting(g: Grower) -> Draft:
    x = g.tame("fi", ndim=1, exact=True)
    axis = axis_of(g, x)
    n = x.shape[axis]
    last = x.shape[-1]
    index = Quality(1.0, float(max(n, last, 1)))
    negated = Quality(1.0, LARGEST_INT[x.dtype]) if x.dtype.startswith("u") else x.quality
    text, q = g.choice(
        [
            (f"jnp.sort({x}, axis={axis})", x.quality),
            (f"jnp.argsort({x}, axis={axis})", index),
            (f"lax.top_k({x}, {g.integer(1, max(last, 1))})[0]", x.quality),
            (f"lax.top_k({x}, {g.integer(1, max(last, 1))})[1]", index),
            (f"jnp.sort({x}, axis={axis}, descending=True)", x.quality),
            (f"jnp.argsort({x}, axis={axis}, descending=True)", index),
            (f"lax.sort(({x}, -{x}), dimension={axis % x.ndim}, num_keys=1)[1]", negated),
            (f"jnp.searchsorted(jnp.sort({x}.ravel()), {x}.ravel())", Quality(1.0, float(max(x.size, 1)))),
            (f"jnp.median({x}, axis={axis})", Quality(x.quality.step / 2 if x.quality.step else None, x.quality.bound)),
            (f"jnp.partition({x}, {g.integer(0, max(n - 1, 0))}, axis={axis})[..., :0]", x.quality),
        ]
    )  # fmt: skip
    return Draft(text, q)


@op(2)
def running(g: Grower) -> Draft:
    x = g.tame("fi", ndim=1)
    axis = g.integer(0, x.ndim - 1)
    n = max(x.shape[axis], 1)
    q = x.quality
    name = g.choice(
        (
            "jnp.cumsum",
            "lax.cumsum",
            "lax.cummax",
            "lax.cummin",
            "jnp.cumsum",
            "lax.cumlogsumexp",
            "lax.associative_scan",
            "jnp.diff",
            "lax.cumprod",
        )
    )
    if name in ("lax.cummax", "lax.cummin"):
        if g.smooth and not q.exact:
            raise Unsuitable
        reverse = g.choice(("", ", reverse=True"))
        return Draft(f"{name}({x}, axis={axis}{reverse})", q)
    if name == "lax.associative_scan":
        return Draft(
            f"lax.associative_scan(jnp.add, {x}, axis={axis})",
            Quality(q.step, q.bound * n, n * q.noise + (EPSILON.get(x.dtype, 0) * n * q.bound if not q.exact else 0)),
        )
    if name == "jnp.diff":
        return Draft(
            f"jnp.diff({x}, axis={axis})",
            Quality(q.step, LARGEST_INT[x.dtype] if x.dtype.startswith("u") else 2 * q.bound, 2 * q.noise),
        )
    if name == "lax.cumprod":
        if kind(x.dtype) != "i":
            raise Unsuitable
        return Draft(f"lax.cumprod({x}, axis={axis})", lambda d: Quality(1.0, LARGEST_INT[d]))
    if name == "lax.cumlogsumexp":
        if kind(x.dtype) != "f":
            raise Unsuitable
        return Draft(
            f"lax.cumlogsumexp({x}, axis={axis})",
            Quality(None, q.bound + 8, q.noise + 16 * EPSILON[x.dtype] * (q.bound + 8)),
        )
    reverse = g.choice((", reverse=True", "")) if name == "lax.cumsum" else g.choice(("", ", dtype='float32'"))
    return Draft(
        f"{name}({x}, axis={axis}{reverse})",
        Quality(q.step, q.bound * n, n * q.noise + (0 if q.exact else EPSILON[x.dtype] * q.bound * n)),
    )


@op(0.8)
def window(g: Grower) -> Draft:
    x = g.tame("f", ndim=1, where=lambda v: v.size > 0)
    q = x.quality
    if g.chance(0.5):
        if g.smooth and not q.exact:
            raise Unsuitable
        dims = tuple(g.integer(1, min(3, n)) for n in x.shape)
        strides = tuple(g.integer(1, 2) for _ in x.shape)
        padding = g.choice(("'SAME'", "'VALID'"))
        return Draft(
            f"lax.reduce_window({x}, jnp.dtype({x.dtype!r}).type(0), lax.add, {dims}, {strides}, {padding})",
            Quality(q.step, q.bound * math.prod(dims), q.noise * math.prod(dims)),
        )
    k = g.value("f", ndim=1, where=lambda v: v.ndim == 1 and v.size > 0 and v.dtype == x.dtype)
    if x.ndim != 1:
        raise Unsuitable
    p, n = k.quality, min(x.size, k.size)
    step = None if q.step is None or p.step is None else q.step * p.step
    noise = n * (q.noise * p.bound + p.noise * q.bound) + (0 if step else 4 * EPSILON[x.dtype] * n * q.bound * p.bound)
    return Draft(
        f"jnp.convolve({x}, {k}, {g.choice(('full', 'same', 'valid'))!r})", Quality(step, n * q.bound * p.bound, noise)
    )


@op(0.5)
def one_hot(g: Grower) -> Draft:
    i = g.tame("i", where=lambda v: v.size <= 64)
    n = g.choice(g.sizes) or 1
    text = g.choice((f"jax.nn.one_hot({i}, {n})", f"jnp.bincount(jnp.abs({i}.ravel().astype('int32')), length={n})",
                     f"jax.ops.segment_sum(jnp.ones({i}.size), {i}.ravel(), num_segments={n})", f"jnp.nonzero({i}, size=3)[0]",
                     f"jnp.unique({i}, size=4, fill_value=0)", f"jnp.isin({i}, jnp.arange(3))"))  # fmt: skip
    return Draft(text, lambda d: Quality(1.0, LARGEST_INT.get(d, float(max(i.size, i.quality.bound)))))


@op(2)
def layout(g: Grower) -> Draft:
    if g.manual or (g.axis_type == "Explicit" and g.depth):
        raise Unsuitable
    x = g.value("fibc", ndim=1)
    return Draft(f"constrain({x}, {g.spec(x.shape)})", x.quality)
