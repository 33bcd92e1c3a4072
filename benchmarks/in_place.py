"""Updates that need not copy, and stencils: what is to be written is a row, or each element once per step."""

from __future__ import annotations

from registry import MOST, case, normal, placed, row_mesh, rows

UPDATES, STENCILS = "Updates in place", "Stencils and loops over devices"
SHAPE = (4096, 4096)


def _donated(jax, jnp, np, update):
    """A call that gives its array away each time."""
    state = [rows(jax, np, np.ones(SHAPE, np.float32))]
    f = jax.jit(update, donate_argnums=0)

    def call():
        state[0] = f(state[0])
        return state[0]

    return call


@case(UPDATES)
def donated_row(jax, jnp, np):
    """`x.at[5].set(v)` into a donated array of 64 MB, its rows split."""
    return _donated(jax, jnp, np, lambda x: x.at[5].set(1.0))


@case(UPDATES)
def donated_rows_added(jax, jnp, np):
    """64 rows added into a donated array of 64 MB, its rows split."""
    at = np.random.default_rng(0).integers(0, SHAPE[0], 64).astype(np.int32)
    return _donated(jax, jnp, np, lambda x: x.at[at].add(1.0))


@case(UPDATES, devices=(1,))
def scan_cache(jax, jnp, np):
    """A scan of 128 steps that writes a row of a cache of 16 MB at each (`dynamic_update_slice`)."""
    cache, row = jnp.zeros((1024, 4096), jnp.float32), jnp.ones((1, 4096), jnp.float32)

    def step(cache, i):
        return jax.lax.dynamic_update_slice(cache, row * i, (i, 0)), None

    f = jax.jit(lambda cache: jax.lax.scan(step, cache, jnp.arange(128))[0], donate_argnums=0)
    state = [cache]

    def call():
        state[0] = f(state[0])
        return state[0]

    return call


@case(UPDATES, devices=(1,))
def scan_rows_kept(jax, jnp, np):
    """A scan that replaces rows of a cache of 8 MB and keeps the old ones, beside a product of 2048 x 2048."""
    w, cache = jnp.asarray(1e-3 * normal(np, 2048, 2048)), jnp.ones((1024, 2048), jnp.float32)

    def step(cache, i):
        old = cache[i + 1]
        return cache.at[i + 1].set(jnp.tanh(cache[i] @ w) + old), old

    f = jax.jit(lambda cache: jax.lax.scan(step, cache, jnp.arange(64)), donate_argnums=0)
    state = [cache]

    def call():
        state[0], rows = f(state[0])
        return rows

    return call


@case(UPDATES, devices=(1,))
def decoding(jax, jnp, np):
    """64 tokens decoded greedily by 2 layers of width 192, with keys and values in caches (`cache.at[layer, :, i].set(k)`)."""
    width, heads, length, layers = 192, 6, 64, 2
    shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {name: jnp.asarray(0.05 * normal(np, layers, *shape)) for name, shape in shapes.items()}
    embed = jnp.asarray(normal(np, 256, width))
    split = lambda x: x.reshape(*x.shape[:-1], heads, width // heads)  # noqa: E731

    def layer(h, keys, values, w, j, i):
        q, k, v = jnp.split(h @ w["qkv"][j], 3, -1)
        keys, values = keys.at[j, :, i].set(k), values.at[j, :, i].set(v)
        scores = jnp.einsum("bhd,bthd->bht", split(q), split(keys[j]))
        scores = jax.nn.softmax(jnp.where(jnp.arange(length) <= i, scores, -1e9))
        h = h + jnp.einsum("bht,bthd->bhd", scores, split(values[j])).reshape(h.shape) @ w["out"][j]
        return h + jax.nn.gelu(h @ w["up"][j]) @ w["down"][j], keys, values

    @jax.jit
    def decoded(embed, w, tokens):
        def step(carry, i):
            tokens, keys, values = carry
            h = embed[tokens]
            for j in range(layers):
                h, keys, values = layer(h, keys, values, w, j, i)
            tokens = jnp.argmax(h @ embed.T, -1).astype(jnp.int32)
            return (tokens, keys, values), tokens

        caches = [jnp.zeros((layers, 4, length, width), jnp.float32) for _ in range(2)]
        return jax.lax.scan(step, (tokens, *caches), jnp.arange(length))[1]

    tokens = jnp.zeros(4, jnp.int32)
    return lambda: decoded(embed, weights, tokens)


@case(UPDATES, devices=(1,))
def mapped_caches(jax, jnp, np):
    """64 rows written into each of 4 caches of 2 MB, at places of their own (`vmap` of a `fori_loop`)."""
    row, places = jnp.ones((1, 2048), jnp.float32), jnp.array([0, 3, 7, 9])

    def filled(cache, at):
        write = lambda i, cache: jax.lax.dynamic_update_slice(cache, row * i, (i + at, 0))  # noqa: E731
        return jax.lax.fori_loop(0, 64, write, cache)

    f = jax.jit(jax.vmap(filled), donate_argnums=0)
    state = [jnp.zeros((4, 256, 2048), jnp.float32)]

    def call():
        state[0] = f(state[0], places)
        return state[0]

    return call


@case(STENCILS, devices=(1, 8))
def heat_rolled(jax, jnp, np):
    """20 steps of the heat equation on 1024 x 1024 by `jnp.roll`, the rows split."""
    x = rows(jax, np, normal(np, 1024, 1024))

    def step(_, u):
        around = sum(jnp.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1))
        return u + 0.1 * (around - 4 * u)

    f = jax.jit(lambda u: jax.lax.fori_loop(0, 20, step, u))
    return lambda: f(x)


@case(STENCILS, devices=(1, 8))
def heat_exchanged(jax, jnp, np):
    """The same in `shard_map`, with `ppermute` of the edges."""
    n, P = jax.device_count(), jax.sharding.PartitionSpec
    up, down = [(i, (i + 1) % n) for i in range(n)], [(i, (i - 1) % n) for i in range(n)]

    def step(_, u):
        above, below = jax.lax.ppermute(u[-1:], "x", up), jax.lax.ppermute(u[:1], "x", down)
        tall = jnp.concatenate([above, u, below])
        around = tall[:-2] + tall[2:] + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u)

    body = lambda u: jax.lax.fori_loop(0, 20, step, u)  # noqa: E731
    f = jax.jit(jax.shard_map(body, mesh=row_mesh(jax, np), in_specs=P("x"), out_specs=P("x"), check_vma=False))
    x = rows(jax, np, normal(np, 1024, 1024))
    return lambda: f(x)


@case(STENCILS, devices=(1, 8))
def heat_small(jax, jnp, np):
    """100 steps of a heat equation of 64 x 64 by padding, in a `fori_loop`."""
    x = rows(jax, np, normal(np, 64, 64))

    def step(_, u):
        tall = jnp.pad(u, 1)
        return u + 0.2 * (tall[:-2, 1:-1] + tall[2:, 1:-1] + tall[1:-1, :-2] + tall[1:-1, 2:] - 4 * u)

    f = jax.jit(lambda u: jax.lax.fori_loop(0, 100, step, u))
    return lambda: f(x)


@case(STENCILS, devices=(1, 8, 64))
def ring_steps(jax, jnp, np):
    """100 steps that pass 64 floats per device on to the next one, in a `fori_loop` in `shard_map`."""
    n, P = jax.device_count(), jax.sharding.PartitionSpec
    ring = [(i, (i + 1) % n) for i in range(n)]
    body = lambda x: jax.lax.fori_loop(0, 100, lambda i, c: jax.lax.ppermute(c, "x", ring) * 0.9, x)  # noqa: E731
    f = jax.jit(jax.shard_map(body, mesh=row_mesh(jax, np), in_specs=P("x"), out_specs=P("x"), check_vma=False))
    x = rows(jax, np, normal(np, n, 64))
    return lambda: f(x)


@case(STENCILS, devices=MOST)
def psum_steps(jax, jnp, np):
    """100 steps with a `psum` of 8 floats each, in a `fori_loop` in `shard_map`."""
    P = jax.sharding.PartitionSpec

    def body(x):
        return jax.lax.fori_loop(0, 100, lambda i, c: jax.lax.psum(c, "x") * 0.1, x)

    f = jax.jit(jax.shard_map(body, mesh=row_mesh(jax, np), in_specs=P("x"), out_specs=P("x"), check_vma=False))
    x = rows(jax, np, np.ones((jax.device_count(), 8), np.float32))
    return lambda: f(x)


@case(STENCILS, devices=(1, 8))
def rnn_scan(jax, jnp, np):
    """A recurrent network of width 256 on 64 rows, split over the devices: a scan of 50 steps."""
    w, x = placed(jax, np, 0.05 * normal(np, 256, 256)), normal(np, 50, 64, 256)
    h = rows(jax, np, np.zeros((64, 256), np.float32))
    x = placed(jax, np, x, None, "x")
    f = jax.jit(lambda w, h, x: jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, x)[0])
    return lambda: f(w, h, x)
