"""`shard_map` and the collectives within."""

from __future__ import annotations

import math

from tests.fuzz.grow import EPSILON, LARGEST_INT, Draft, Grower, Unsuitable, kind, op
from tests.fuzz.program import Quality


@op(1.6)
def mapped(g: Grower) -> Draft:
    """A body over one or two values, on all axes of the mesh; what each device returns is stacked and compared."""
    if g.manual or g.depth > 1:
        raise Unsuitable
    x = g.tame("fi", ndim=1, where=lambda v: v.size > 0)
    y = g.tame("fi", where=lambda v: v.size > 0)
    typed = g.chance(0.6)
    specs = f"({g.spec(x.shape)}, {g.spec(y.shape)})"
    if g.axis_type == "Explicit":
        raise Unsuitable
    f, out = g.function(
        [x.quality, y.quality], statements=g.integer(2, 8), closed=True, finish=lambda v: (f"{v}[None]", v.quality)
    )
    inner = g.namespace[f.name]

    def body(*arguments: object) -> object:
        g.manual, g.typed = g.manual + 1, typed
        try:
            return inner(*arguments)
        finally:
            g.manual -= 1

    g.namespace[f.name] = body
    g.maps = True
    text = f"jax.shard_map({f.name}, mesh=mesh, in_specs={specs}, out_specs=P({g.names}), check_vma={typed})(whole({x}), whole({y}))"
    if g.chance(0.3):
        text = text.replace("jax.shard_map(", "jax.jit(jax.shard_map(", 1).replace(")(whole(", "))(whole(", 1)
    return Draft(f"whole({text})", lambda d: out[-1].quality, [f])


@op(4)
def collective(g: Grower) -> Draft:
    """One collective, inside of a body."""
    if not g.manual:
        raise Unsuitable
    x = g.tame("fi")
    q = x.quality
    axes = tuple(g.random.sample(g.names, g.integer(1, len(g.names))))
    axis = repr(axes[0] if len(axes) == 1 else axes)
    sizes = dict(zip(g.names, g.mesh, strict=True))
    n, one = math.prod(sizes[a] for a in axes), axes[0]
    size = sizes[one]
    e = EPSILON.get(x.dtype, 0.0)

    def total(d):
        return Quality(q.step, LARGEST_INT.get(d, n * q.bound), n * q.noise + (0 if q.exact else n * e * q.bound))

    order = g.random.sample(range(size), size)
    pairs = list(enumerate(order))[: g.integer(1, size)]
    options = [(f"lax.psum({x}, {axis})", total), (f"lax.psum({x}, {axis})", total),
               (f"lax.ppermute({x}, {one!r}, {pairs})", q), (f"lax.all_gather({x}, {axis})", q),
               (f"{x} + lax.axis_index({axis})", lambda d: Quality(q.step, LARGEST_INT.get(d, q.bound + n), q.noise)),
               (f"{x} * lax.axis_size({axis})", lambda d: Quality(q.step, LARGEST_INT.get(d, q.bound * n), q.noise * n)),
               (f"lax.pcast({x}, {axis}, to='varying')", q),
               (f"jnp.where(lax.axis_index({one!r}) == 0, {x}, 0)", q)]  # fmt: skip
    if not g.typed:
        groups = [order[: size // 2], order[size // 2 :]] if size % 2 == 0 else [order]
        options.append((f"lax.psum({x}, {one!r}, axis_index_groups={groups})", total))
    if kind(x.dtype) == "f":
        options.append((f"lax.pmean({x}, {axis})", lambda d: Quality(None, q.bound, q.noise + 4 * e * q.bound)))
    if (not g.smooth or q.exact) and not g.special:  # XLA's processors do not agree on the greatest of NaN and a number
        options += [(f"lax.pmax({x}, {axis})", q), (f"lax.pmin({x}, {axis})", q)]
    if x.ndim:
        dim = g.integer(0, x.ndim - 1)
        options.append((f"lax.all_gather({x}, {axis}, axis={dim}, tiled=True)", q))
        fits = [d for d, m in enumerate(x.shape) if m % size == 0 and m]
        if fits:
            dim = g.choice(fits)
            options.append((f"lax.psum_scatter({x}, {one!r}, scatter_dimension={dim}, tiled=True)", total))
            options.append((f"lax.all_to_all({x}, {one!r}, {dim}, {g.integer(0, x.ndim - 1)}, tiled=True)", q))
        here = [d for d, m in enumerate(x.shape) if m == size]
        if here:
            options.append((f"lax.psum_scatter({x}, {one!r}, scatter_dimension={g.choice(here)})", total))
            options.append((f"lax.all_to_all({x}, {one!r}, {g.choice(here)}, {g.integer(0, x.ndim - 1)})", q))
    text, quality = g.choice(options)
    return Draft(text, quality)


@op(0.7)
def spread_loop(g: Grower) -> Draft:
    """A loop with a collective in it, inside of a body."""
    if not g.manual:
        raise Unsuitable
    x = g.tame("f", exact=True, where=lambda v: v.size <= 512)
    one = g.choice(g.names)
    size = dict(zip(g.names, g.mesh, strict=True))[one]
    ring = [(i, (i + 1) % size) for i in range(size)]
    step = g.choice(
        (
            f"lax.ppermute(c, {one!r}, {ring})",
            f"jnp.clip(lax.psum(c, {one!r}), -4, 4)",
            f"jnp.clip(c + lax.axis_index({one!r}), -4, 4).astype(c.dtype)",
        )
    )
    vary = f"lax.pcast({x}, {one!r}, to='varying')" if "psum" not in step and g.chance(0.6) else f"{x}"
    return Draft(
        f"lax.fori_loop(0, {g.integer(1, 3)}, lambda i, c: {step}, {vary})",
        Quality(x.quality.step, max(4.0, x.quality.bound)),
    )
