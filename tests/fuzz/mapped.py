"""`shard_map` and the collectives within."""

from __future__ import annotations

import math

from tests.fuzz.grow import Draft, Grower, op
from tests.fuzz.program import Quality
from tests.fuzz.qualities import EPSILON, LARGEST_INT, Unsuitable, kind


@op(1.6, mapped=True)
def mapped(g: Grower) -> Draft:
    """A body over one or two values, on all axes of the mesh or on some; what each device returns is stacked and compared.

    A body on some axes may hold one on others.
    """
    around, free = g.manual, tuple(name for name in g.names if name not in g.manual)
    if g.axis_type == "Explicit" or g.depth > 1 or not free or (around and not g.chance(0.3)):
        raise Unsuitable
    axes = free if g.chance(0.6) else tuple(sorted(g.random.sample(free, g.integer(1, len(free)))))
    x = g.tame("fi", ndim=1, where=lambda v: v.size > 0)
    y = g.tame("fi", where=lambda v: v.size > 0)
    typed, typed_around = g.chance(0.6), g.typed
    specs = f"({g.spec(x.shape, axes)}, {g.spec(y.shape, axes)})"
    f, out = g.function(
        [x.quality, y.quality], statements=g.integer(2, 8), closed=True, finish=lambda v: (f"{v}[None]", v.quality)
    )
    inner = g.namespace[f.name]

    def body(*arguments: object) -> object:
        g.manual, g.typed = (*around, *axes), typed
        try:
            return inner(*arguments)
        finally:
            g.manual, g.typed = around, typed_around

    g.namespace[f.name] = body
    g.maps = True
    where = f"in_specs={specs}, out_specs=P({axes}), check_vma={typed}"
    if axes != g.names:
        where += f", axis_names=set({axes})"
    if around:  # the mesh is that of the body around
        return Draft(f"jax.shard_map({f.name}, {where})({x}, {y})", lambda d: out[-1].quality, [f])
    text = f"jax.shard_map({f.name}, mesh=mesh, {where})(whole({x}), whole({y}))"
    if g.chance(0.3):
        text = text.replace("jax.shard_map(", "jax.jit(jax.shard_map(", 1).replace(")(whole(", "))(whole(", 1)
    return Draft(f"whole({text})", lambda d: out[-1].quality, [f])


@op(4, mapped=True)
def collective(g: Grower) -> Draft:
    """One collective, inside of a body."""
    if not g.manual:
        raise Unsuitable
    x = g.tame("fi")
    q = x.quality
    axes = tuple(g.random.sample(g.manual, g.integer(1, len(g.manual))))
    axis = repr(axes[0] if len(axes) == 1 else axes)
    sizes: dict[str, int] = dict(zip(g.names, g.mesh, strict=True))
    n, one = math.prod(sizes[a] for a in axes), axes[0]
    size = sizes[one]
    e = EPSILON.get(x.dtype, 0.0)

    def total(d):
        return Quality(q.step, LARGEST_INT.get(d, n * q.bound), n * q.noise + (0 if q.exact else n * e * q.bound))

    order = g.random.sample(range(size), size)
    pairs = list(enumerate(order))[: g.integer(1, size)]
    in_order = tuple(name for name in g.names if name in axes)  # JAX takes pairs over several axes in the mesh's order
    far = list(zip(*(g.random.sample(range(n), g.integer(1, n)) for _ in "ab"), strict=False))
    options = [(f"lax.psum({x}, {axis})", total), (f"lax.psum({x}, {axis})", total),
               (f"lax.ppermute({x}, {one!r}, {pairs})", q), (f"lax.all_gather({x}, {axis})", q),
               (f"lax.ppermute({x}, {in_order}, {far})", q),
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
        for named, parts in ((repr(one), size), (axis, n)):
            fits = [d for d, m in enumerate(x.shape) if m % parts == 0 and m]
            if fits:
                dim = g.choice(fits)
                options.append((f"lax.psum_scatter({x}, {named}, scatter_dimension={dim}, tiled=True)", total))
                options.append((f"lax.all_to_all({x}, {named}, {dim}, {g.integer(0, x.ndim - 1)}, tiled=True)", q))
            here = [d for d, m in enumerate(x.shape) if m == parts]
            if here:
                options.append((f"lax.psum_scatter({x}, {named}, scatter_dimension={g.choice(here)})", total))
                options.append((f"lax.all_to_all({x}, {named}, {g.choice(here)}, {g.integer(0, x.ndim - 1)})", q))
    text, quality = g.choice(options)
    return Draft(text, quality)


@op(0.7, mapped=True)
def spread_loop(g: Grower) -> Draft:
    """A loop with a collective in it, inside of a body."""
    if not g.manual:
        raise Unsuitable
    x = g.tame("f", exact=True, where=lambda v: v.size <= 512)
    one = g.choice(g.manual)
    sizes: dict[str, int] = dict(zip(g.names, g.mesh, strict=True))
    size = sizes[one]
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
