"""Small programs as users write them, of kinds that the other families leave out. Rows are split over the devices where it says so."""

from __future__ import annotations

from registry import case, normal, placed, row_mesh, rows

FAMILY = "Programs of users"


@case(FAMILY, devices=(1, 8))
def power_iteration(jax, jnp, np):
    """The first principal component of 2048 rows of 32 by 30 rounds of `x.T @ (x @ v)`."""
    x = rows(jax, np, normal(np, 2048, 32))

    def step(_, v):
        u = x.T @ (x @ v)
        return u / jnp.linalg.norm(u)

    f = jax.jit(lambda x: jax.lax.fori_loop(0, 30, step, jnp.ones(32)))
    return lambda: f(x)


@case(FAMILY, devices=(1,))
def page_rank(jax, jnp, np):
    """20 rounds of PageRank, `0.15 / n + 0.85 * m @ p`, with a matrix of 1024 x 1024."""
    m = np.abs(normal(np, 1024, 1024))
    m = jnp.asarray(m / m.sum(0))
    f = jax.jit(lambda m: jax.lax.fori_loop(0, 20, lambda _, p: 0.15 / 1024 + 0.85 * m @ p, jnp.full(1024, 1 / 1024)))
    return lambda: f(m)


@case(FAMILY, devices=(1,))
def beam_search(jax, jnp, np):
    """20 steps of a beam search: 8 beams over 128 words, `top_k` in a `scan`."""

    def f(table):
        scores = jax.nn.log_softmax(table)

        def step(carry, _):
            score, word = carry
            best, at = jax.lax.top_k((score[:, None] + scores[word]).ravel(), 8)
            return (best, at % 128), (at // 128, at % 128)

        return jax.lax.scan(step, (jnp.zeros(8), jnp.arange(8)), None, 20)

    f, table = jax.jit(f), jnp.asarray(normal(np, 128, 128))
    return lambda: f(table)


@case(FAMILY)
def metropolis(jax, jnp, np):
    """50 steps of Metropolis's algorithm for 1024 walkers, each with a key of its own."""
    key, x = jax.random.key(0), rows(jax, np, normal(np, 1024))

    def step(x, key):
        moved, taken = jax.random.split(key)
        y = x + 0.5 * jax.random.normal(moved, x.shape)
        return jnp.where(jnp.log(jax.random.uniform(taken, x.shape)) < 0.5 * (x * x - y * y), y, x), None

    f = jax.jit(lambda x, key: jax.lax.scan(step, x, jax.random.split(key, 50))[0])
    return lambda: f(x, key)


@case(FAMILY, devices=(1, 8))
def sobel(jax, jnp, np):
    """Edges of an image of 512 x 512 by Sobel's filter, its border reflected."""

    def f(x):
        p = jnp.pad(x, 1, mode="reflect")
        shifted = {(i, j): p[i : i + 512, j : j + 512] for i in range(3) for j in range(3)}
        along = [sum(w * (shifted[i, 2] - shifted[i, 0]) for i, w in enumerate((1, 2, 1)))]
        along += [sum(w * (shifted[2, j] - shifted[0, j]) for j, w in enumerate((1, 2, 1)))]
        return jnp.sqrt(along[0] ** 2 + along[1] ** 2)

    f, x = jax.jit(f), rows(jax, np, normal(np, 512, 512))
    return lambda: f(x)


@case(FAMILY, devices=(1, 8))
def max_pool(jax, jnp, np):
    """The greatest of each 2 x 2 elements of 8 images of 64 x 64 with 32 channels."""
    x = rows(jax, np, normal(np, 8, 64, 64, 32))
    f = jax.jit(lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))
    return lambda: f(x)


@case(FAMILY)
def few_rows_added(jax, jnp, np):
    """64 rows of 32 added into a table of 256 rows."""
    table, updates = jnp.asarray(normal(np, 256, 32)), rows(jax, np, normal(np, 64, 32))
    indices = rows(jax, np, np.random.default_rng(0).integers(0, 256, 64).astype(np.int32))
    f = jax.jit(lambda table, i, u: table.at[i].add(u))
    return lambda: f(table, indices, updates)


@case(FAMILY, devices=(1, 8))
def rows_of_8_taken(jax, jnp, np):
    """8000 rows of 8 taken from a table of 1024 rows."""
    table = jnp.asarray(normal(np, 1024, 8))
    indices = rows(jax, np, np.random.default_rng(0).integers(0, 1024, 8000).astype(np.int32))
    f = jax.jit(lambda table, i: table[i])
    return lambda: f(table, indices)


@case(FAMILY, devices=(1, 8))
def hashed_words(jax, jnp, np):
    """FNV hashes of each four neighbours in 64 texts of 1024 characters, modulo 4096."""
    x = rows(jax, np, np.random.default_rng(0).integers(0, 256, (64, 1024)).astype(np.uint32))

    def f(x):
        found = jnp.full((64, 1021), 2166136261, jnp.uint32)
        for i in range(4):
            found = (found ^ x[:, i : i + 1021]) * jnp.uint32(16777619)
        return found % jnp.uint32(4096)

    f = jax.jit(f)
    return lambda: f(x)


@case(FAMILY)
def page_rank_split(jax, jnp, np):
    """20 rounds of PageRank with a matrix of 512 x 512, its rows split: each round needs all ranks."""
    m = np.abs(normal(np, 512, 512))
    m = rows(jax, np, m / m.sum(0))
    f = jax.jit(lambda m: jax.lax.fori_loop(0, 20, lambda _, p: 0.15 / 512 + 0.85 * m @ p, jnp.full(512, 1 / 512)))
    return lambda: f(m)


@case(FAMILY)
def page_rank_of_edges(jax, jnp, np):
    """10 rounds of PageRank over 8192 edges, which are split, between 1024 pages, by `segment_sum`."""
    drawn = np.random.default_rng(0)
    source, target = (rows(jax, np, drawn.integers(0, 1024, 8192).astype(np.int32)) for _ in range(2))

    def f(source, target):
        def step(_, p):
            return 0.15 / 1024 + 0.85 * jax.ops.segment_sum(p[source] / 8, target, 1024)

        return jax.lax.fori_loop(0, 10, step, jnp.full(1024, 1 / 1024))

    f = jax.jit(f)
    return lambda: f(source, target)


@case(FAMILY)
def lstm_gradient(jax, jnp, np):
    """The derivatives of 20 steps of an LSTM of width 64 on 64 rows of 32, which are split."""
    x = placed(jax, np, normal(np, 20, 64, 32), None, "x")

    def loss(w, x):
        def step(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(jnp.concatenate([x, h], 1) @ w, 4, 1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), h

        return (jax.lax.scan(step, (jnp.zeros((64, 64)),) * 2, x)[1] ** 2).mean()

    f, w = jax.jit(jax.grad(loss)), placed(jax, np, normal(np, 96, 256) * 0.1)
    return lambda: f(w, x)


@case(FAMILY)
def small_adam_step(jax, jnp, np):
    """Adam on four layers of 64 with 64 rows, which are split over all devices."""
    x = rows(jax, np, normal(np, 64, 64))
    weights = [placed(jax, np, normal(np, 64, 64) * 0.1) for _ in range(4)]
    zeros = [w * 0 for w in weights]

    def loss(weights, x):
        for w in weights:
            x = jax.nn.gelu(x @ w)
        return (x * x).mean()

    def f(weights, means, squares, x):
        found = jax.grad(loss)(weights, x)
        means = [0.9 * m + 0.1 * g for m, g in zip(means, found, strict=True)]
        squares = [0.99 * s + 0.01 * g * g for s, g in zip(squares, found, strict=True)]
        moved = [w - 0.01 * m / (jnp.sqrt(s) + 1e-8) for w, m, s in zip(weights, means, squares, strict=True)]
        return moved, means, squares

    f = jax.jit(f)
    return lambda: f(weights, zeros, zeros, x)


@case(FAMILY)
def floyd_warshall(jax, jnp, np):
    """Shortest paths between 64 places by Floyd and Warshall, the rows split: each step reads a row and a column."""
    x = rows(jax, np, np.abs(normal(np, 64, 64)))

    def step(k, x):
        return jnp.minimum(x, x[:, k, None] + x[k, None, :])

    f = jax.jit(lambda x: jax.lax.fori_loop(0, 64, step, x))
    return lambda: f(x)


@case(FAMILY)
def differences(jax, jnp, np):
    """Differences of neighbouring rows of 512 x 512, which are split."""
    x = rows(jax, np, normal(np, 512, 512))
    f = jax.jit(lambda x: x[1:] - x[:-1])
    return lambda: f(x)


@case(FAMILY)
def wave_equation(jax, jnp, np):
    """20 steps of the wave equation on 512 x 256 with a border of zeros, the rows split."""
    x = rows(jax, np, normal(np, 512, 256))

    def step(carry, _):
        u, v = carry
        p = jnp.pad(u, 1)
        v = v + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)
        return (u + 0.1 * v, v), None

    f = jax.jit(lambda x: jax.lax.scan(step, (x, x), None, 20)[0])
    return lambda: f(x)


@case(FAMILY, devices=(1, 8))
def staggered_waves(jax, jnp, np):
    """20 steps of waves on a staggered grid of 512 x 256, the rows split: pressures and velocities by `x.at[1:-1, 1:-1].add`."""
    fields = [rows(jax, np, scale * normal(np, 512, 256)) for scale in (1, 0.5, -0.5)]

    def step(_, c):
        p, u, v = c
        u = u.at[:-1].add(-0.4 * (p[1:] - p[:-1]))
        v = v.at[:, :-1].add(-0.4 * (p[:, 1:] - p[:, :-1]))
        slopes = u[1:-1, 1:-1] - u[:-2, 1:-1] + v[1:-1, 1:-1] - v[1:-1, :-2]
        return p.at[1:-1, 1:-1].add(-0.4 * slopes), u, v

    f = jax.jit(lambda *fields: jax.lax.fori_loop(0, 20, step, fields))
    return lambda: f(*fields)


@case(FAMILY)
def top_k_of_split_words(jax, jnp, np):
    """The 16 greatest of 32,768 scores of each of 16 texts, the scores split."""
    x = placed(jax, np, normal(np, 16, 32768), None, "x")
    f = jax.jit(lambda x: jax.lax.top_k(x, 16))
    return lambda: f(x)


@case(FAMILY)
def greedy_words(jax, jnp, np):
    """32 words for each of 8 texts, one after the other: the table of 512 words is split."""
    table, w = rows(jax, np, normal(np, 512, 64)), placed(jax, np, normal(np, 64, 64) * 0.2)

    def f(table, w):
        def step(carry, _):
            h, word = carry
            h = jnp.tanh(h @ w + table[word])
            word = (h @ table.T).argmax(-1)
            return (h, word), word

        return jax.lax.scan(step, (jnp.zeros((8, 64)), jnp.zeros(8, int)), None, 32)[1]

    f = jax.jit(f)
    return lambda: f(table, w)


@case(FAMILY)
def pipeline(jax, jnp, np):
    """8 batches of 16 rows of 64 through a layer on each device, by `ppermute` in a `scan` in `shard_map`."""
    n, P = jax.device_count(), jax.sharding.PartitionSpec
    ring = [(i, (i + 1) % n) for i in range(n)]

    def body(w, x):
        device = jax.lax.axis_index("x")

        def step(carry, t):
            held, out = carry
            y = jax.nn.relu(jnp.where(device == 0, x[jnp.minimum(t, 7)], held) @ w[0])
            done = (device == n - 1) & (t >= n - 1)
            out = jnp.where(done, out.at[jnp.clip(t - n + 1, 0, 7)].set(y), out)
            return (jax.lax.ppermute(y, "x", ring), out), None

        carry = jnp.zeros((16, 64)), jnp.zeros((8, 16, 64))
        return jax.lax.psum(jax.lax.scan(step, carry, jnp.arange(n + 7))[0][1], "x")

    f = jax.jit(jax.shard_map(body, mesh=row_mesh(jax, np), in_specs=(P("x"), P()), out_specs=P(), check_vma=False))
    w, x = rows(jax, np, normal(np, n, 64, 64) * 0.1), placed(jax, np, normal(np, 8, 16, 64))
    return lambda: f(w, x)


@case(FAMILY)
def pipeline_of_branches(jax, jnp, np):
    """The same with a `cond` on the device's number, so that a device computes when it has a batch."""
    n, lax, P = jax.device_count(), jax.lax, jax.sharding.PartitionSpec
    ring = [(i, (i + 1) % n) for i in range(n)]

    def body(w, x):
        device = lax.axis_index("x")

        def step(carry, t):
            held, out = carry
            held = jnp.where(device == 0, x[jnp.minimum(t, 7)], held)
            busy = (device <= t) & (t < device + 8)
            y = lax.cond(busy, lambda h: jax.nn.relu(h @ w[0]), lambda h: h, held)
            last = jnp.clip(t - n + 1, 0, 7)
            out = lax.cond(busy & (device == n - 1), lambda o: o.at[last].set(y), lambda o: o, out)
            return (lax.ppermute(y, "x", ring), out), None

        carry = jnp.zeros((16, 64)), jnp.zeros((8, 16, 64))
        return lax.psum(lax.scan(step, carry, jnp.arange(n + 7))[0][1], "x")

    f = jax.jit(jax.shard_map(body, mesh=row_mesh(jax, np), in_specs=(P("x"), P()), out_specs=P(), check_vma=False))
    w, x = rows(jax, np, normal(np, n, 64, 64) * 0.1), placed(jax, np, normal(np, 8, 16, 64))
    return lambda: f(w, x)


@case(FAMILY)
def split_embedding(jax, jnp, np):
    """2048 rows of 64 by `psum` of what each device has of them in `shard_map`: the table of 8192 rows is split."""
    P = jax.sharding.PartitionSpec

    def body(table, words):
        at = words - jax.lax.axis_index("x") * table.shape[0]
        own = (at >= 0) & (at < table.shape[0])
        return jax.lax.psum(jnp.where(own[:, None], table[jnp.clip(at, 0, table.shape[0] - 1)], 0), "x")

    f = jax.jit(jax.shard_map(body, mesh=row_mesh(jax, np), in_specs=(P("x"), P()), out_specs=P(), check_vma=False))
    words = placed(jax, np, np.random.default_rng(0).integers(0, 8192, 2048, np.int32))
    table = rows(jax, np, normal(np, 8192, 64))
    return lambda: f(table, words)


@case(FAMILY)
def ways_of_devices(jax, jnp, np):
    """`sin` of 4096 numbers on even devices and `exp` on odd ones by a `cond`, then 10 to 16 rounds of a `while_loop`."""
    P = jax.sharding.PartitionSpec

    def body(x):
        device = jax.lax.axis_index("x")
        y = jax.lax.cond(device % 2 == 0, jnp.sin, jnp.exp, x)
        step = lambda c: (c[0] + 1, 0.5 * c[1] + x)  # noqa: E731
        return jax.lax.while_loop(lambda c: c[0] < 10 + device % 7, step, (0 * device, y))[1]

    f = jax.jit(jax.shard_map(body, mesh=row_mesh(jax, np), in_specs=P("x"), out_specs=P("x"), check_vma=False))
    x = rows(jax, np, normal(np, 4096))
    return lambda: f(x)


@case(FAMILY, devices=(1, 8))
def scanned_states_gradient(jax, jnp, np):
    """The gradient through an `associative_scan` of linear recurrences, as state space models have them."""
    rng = np.random.default_rng(0)
    decay, given = rng.random((8, 256, 32, 8), np.float32), rng.normal(size=(8, 256, 32, 8)).astype(np.float32)

    def loss(decay, given):
        join = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])  # noqa: E731
        return (jax.lax.associative_scan(join, (decay, given), axis=1)[1] ** 2).sum()

    f = jax.jit(jax.grad(loss, (0, 1)))
    decay, given = rows(jax, np, decay), rows(jax, np, given)
    return lambda: f(decay, given)


@case(FAMILY, devices=(1, 8))
def denoiser_step(jax, jnp, np):
    """The gradient of a block of a U-Net for signals: normalized groups, 1x1 convolutions, strides and their transposes."""
    rng = np.random.default_rng(0)
    shapes = {"in": (1, 4, 32), "mix": (1, 32, 32), "down": (4, 32, 64), "up": (4, 64, 32), "out": (1, 32, 4)}
    weights = {k: rng.normal(size=s).astype(np.float32) / (s[0] * s[1]) ** 0.5 for k, s in shapes.items()}
    x = rows(jax, np, rng.normal(size=(16, 256, 4)).astype(np.float32))
    dims = ("NWC", "WIO", "NWC")

    def normal(x):
        groups = x.reshape(*x.shape[:2], 4, -1)
        mean, variance = groups.mean((1, 3), keepdims=True), groups.var((1, 3), keepdims=True)
        return ((groups - mean) / jnp.sqrt(variance + 1e-5)).reshape(x.shape)

    def loss(w, x):
        same = lambda x, w, strides=1: jax.lax.conv_general_dilated(x, w, (strides,), "SAME", dimension_numbers=dims)  # noqa: E731
        h = same(x, w["in"])
        h = h + same(jax.nn.silu(normal(h)), w["mix"])
        low = jax.nn.silu(normal(same(h, w["down"], 2)))
        up = jax.lax.conv_transpose(low, w["up"], (2,), "SAME", dimension_numbers=dims)
        return ((same(h + up, w["out"]) - x) ** 2).mean()

    f = jax.jit(jax.grad(loss))
    return lambda: f(weights, x)


@case(FAMILY, devices=(1, 8))
def small_convolutions(jax, jnp, np):
    """An image of 32 x 32 goes down and up again: 3 x 3 convolutions of 3 to 16 channels, in steps of 2, and transposed."""
    forms = ("NHWC", "HWIO", "NHWC")
    taps = [jnp.asarray(normal(np, 3, 3, *pair)) for pair in ((3, 8), (8, 16), (16, 8))]

    def f(x, first, down, up):
        y = jax.nn.relu(jax.lax.conv_general_dilated(x, first, (1, 1), "SAME", dimension_numbers=forms))
        z = jax.nn.relu(jax.lax.conv_general_dilated(y, down, (2, 2), "SAME", dimension_numbers=forms))
        return y + jax.lax.conv_transpose(z, up, (2, 2), "SAME")

    f, x = jax.jit(f), rows(jax, np, normal(np, 8, 32, 32, 3))
    return lambda: f(x, *taps)


@case(FAMILY, devices=(1, 8))
def quantiles(jax, jnp, np):
    """`norm.ppf` of 100,000 shares, as inverse sampling takes it."""
    f, x = jax.jit(jax.scipy.stats.norm.ppf), rows(jax, np, np.linspace(1e-3, 1 - 1e-3, 100_000, dtype=np.float32))
    return lambda: f(x)


@case(FAMILY, devices=(1, 8))
def distances_of_points(jax, jnp, np):
    """How far 100,000 points of three coordinates are from the origin, column by column."""
    f = jax.jit(lambda p: jnp.sqrt(p[:, 0] ** 2 + p[:, 1] ** 2 + p[:, 2] ** 2))
    p = rows(jax, np, normal(np, 100_000, 3))
    return lambda: f(p)


@case(FAMILY, devices=(1, 8))
def bins_of_points(jax, jnp, np):
    """The cells of a grid that 200,000 coordinates lie in, as int32."""
    f, x = jax.jit(lambda x: jnp.floor((x + 4) * 32).astype(jnp.int32)), rows(jax, np, normal(np, 200_000))
    return lambda: f(x)


@case(FAMILY, devices=(1,))
def factors_of_few_columns(jax, jnp, np):
    """QR factors of 100 rows of 8 columns."""
    f, x = jax.jit(jnp.linalg.qr), jnp.asarray(normal(np, 100, 8))
    return lambda: f(x)


@case(FAMILY, devices=(1, 8))
def few_outputs(jax, jnp, np):
    """A last layer of 64 inputs and 8 outputs for 10,000 rows, and `relu`."""
    f = jax.jit(lambda x, w, b: jax.nn.relu(x @ w + b))
    x, w, b = rows(jax, np, normal(np, 10_000, 64)), jnp.asarray(normal(np, 64, 8)), jnp.asarray(normal(np, 8))
    return lambda: f(x, w, b)
