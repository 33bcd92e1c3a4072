"""Programs over tables: graphs, clusters, histograms, ranks, sampling."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import program


@program(x=8)
def ranks_of_pages(e: Any) -> Any:
    """Twenty rounds of PageRank over split edges."""

    def f(sources: Any, targets: Any) -> Any:
        jnp, segment_sum = e.jnp, e.jax.ops.segment_sum
        degree = jnp.maximum(segment_sum(jnp.ones(8192), sources, num_segments=512), 1)

        def step(_: Any, rank: Any) -> Any:
            sent = (rank / degree)[sources]
            return 0.15 / 512 + 0.85 * segment_sum(sent, targets, num_segments=512)

        return e.lax.fori_loop(0, 20, step, jnp.full(512, 1 / 512))

    edges = e.arg((8192,), "x", dtype="int32")
    return f, (edges, edges), e.at()


@program(x=8)
def attention_over_edges(e: Any) -> Any:
    """Softmax of scores per target node, by segment maxima and sums; the gradient."""

    def loss(w: Any, nodes: Any, sources: Any, targets: Any) -> Any:
        jnp, ops = e.jnp, e.jax.ops
        h = nodes @ w["v"]
        s = (h @ w["a"])[sources] + (h @ w["b"])[targets]
        s = jnp.where(s > 0, s, 0.2 * s)
        p = jnp.exp(s - ops.segment_max(s, targets, num_segments=256)[targets])
        p = p / ops.segment_sum(p, targets, num_segments=256)[targets]
        return (ops.segment_sum(p[:, None] * h[sources], targets, num_segments=256) ** 2).mean()

    w = {"v": e.arg((16, 16)), "a": e.arg((16,)), "b": e.arg((16,))}
    edges = e.arg((4096,), "x", dtype="int32")
    return e.jax.grad(loss), (w, e.arg((256, 16)), edges, edges), e.like(w)


@program(x=8)
def nodes_pooled(e: Any) -> Any:
    """Means and maxima of nodes per graph of a batch, split nodes in order."""

    def f(nodes: Any, graph: Any) -> Any:
        ops = e.jax.ops
        total = ops.segment_sum(nodes, graph, num_segments=64)
        count = ops.segment_sum(e.jnp.ones(2048), graph, num_segments=64)
        top = ops.segment_max(nodes, graph, num_segments=64)
        return total / e.jnp.maximum(count, 1)[:, None], top

    return f, (e.arg((2048, 16), "x"), e.arg((2048,), "x", dtype="int32")), (e.at(), e.at())


@program(x=4, y=2)
def mixture_of_gaussians(e: Any) -> Any:
    """Rounds of expectation and maximization, points over one axis, components over the other."""

    def f(points: Any, mean: Any) -> Any:
        def step(mean: Any, _: Any) -> Any:
            z = -((points[:, None] - mean) ** 2).sum(-1)
            p = e.jax.nn.softmax(z)
            return (p.T @ points) / p.sum(0)[:, None], e.jax.nn.logsumexp(z, 1).mean()

        return e.lax.scan(step, mean, None, length=4)

    mean = e.arg((16, 4), "y")
    return f, (e.arg((2048, 4), "x"), mean), (mean.sharding, e.at())


@program(x=8)
def farthest_points(e: Any) -> Any:
    """Points chosen one after the other, each the farthest from those before."""

    def f(points: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            d, chosen = state
            last = points[chosen[i]]
            d = e.jnp.minimum(d, ((points - last) ** 2).sum(-1))
            return d, chosen.at[i + 1].set(d.argmax().astype("int32"))

        start = e.jnp.full(2048, e.jnp.inf), e.jnp.zeros(8, "int32")
        return e.lax.fori_loop(0, 7, step, start)[1]

    return f, (e.arg((2048, 3), "x"),), e.at()


@program(x=8)
def histogram_by_scatter(e: Any) -> Any:
    """Weights added at cells of a plane, points split."""

    def f(i: Any, j: Any, w: Any) -> Any:
        return e.jnp.zeros((64, 64)).at[i, j].add(w)

    cells = e.arg((8192,), "x", dtype="int32")
    return f, (cells, cells, e.arg((8192,), "x")), e.at()


@program(x=8)
def histogram_kept_split(e: Any) -> Any:
    """The same, its rows split."""

    def f(i: Any, j: Any, w: Any) -> Any:
        return e.jnp.zeros((64, 64)).at[i, j].add(w)

    cells = e.arg((8192,), "x", dtype="int32")
    return f, (cells, cells, e.arg((8192,), "x")), e.at("x")


@program(x=4, y=2)
def charges_on_a_mesh(e: Any) -> Any:
    """Particles deposit linearly on a split plane, then read the field back."""

    def f(at: Any, q: Any, field: Any) -> Any:
        jnp = e.jnp
        low = jnp.floor(at)
        frac, low = at - low, low.astype("int32") % 64
        rho, force = jnp.zeros((64, 64)), jnp.zeros(2048)
        for i in (0, 1):
            for j in (0, 1):
                weight = jnp.abs(1 - i - frac[:, 0]) * jnp.abs(1 - j - frac[:, 1])
                cell = (low[:, 0] + i) % 64, (low[:, 1] + j) % 64
                rho, force = rho.at[cell].add(q * weight), force + weight * field[cell]
        return rho, force

    field = e.arg((64, 64))
    return f, (e.arg((2048, 2), ("x", "y")), e.arg((2048,), ("x", "y")), field), (e.at(), e.at(("x", "y")))


@program(data=2, model=4)
def sampling_by_noise(e: Any) -> Any:
    """The greatest of split logits with Gumbel noise of a key, at a temperature."""

    def f(key: Any, z: Any) -> Any:
        return (z / 0.7 + e.jax.random.gumbel(key, (16, 4096))).argmax(-1)

    return f, (e.arg((2,), dtype="uint32"), e.arg((16, 4096), "data", "model")), e.at("data")


@program(data=2, model=4)
def nucleus_of_sorted(e: Any) -> Any:
    """Sorted probabilities of a split vocabulary, those beyond a sum dropped."""

    def f(z: Any) -> Any:
        jnp = e.jnp
        p = e.jax.nn.softmax(z)
        order = jnp.argsort(-p, axis=-1)
        running = jnp.cumsum(jnp.take_along_axis(p, order, -1), -1)
        cut = jnp.take_along_axis(p, jnp.take_along_axis(order, (running < 0.9).sum(-1, keepdims=True), -1), -1)
        return jnp.where(p >= cut, z, -jnp.inf)

    z = e.arg((16, 4096), "data", "model")
    return f, (z,), z.sharding


@program(data=8)
def beams_over_steps(e: Any) -> Any:
    """Beams scored, chosen and put in order, for some steps, with their histories."""

    def f(w: Any, state: Any) -> Any:
        jnp = e.jnp

        def step(carry: Any, i: Any) -> Any:
            score, ids, state = carry
            total = score[..., None] + e.jax.nn.log_softmax(state @ w)
            score, at = e.lax.top_k(total.reshape(16, -1), 4)
            beam, word = at // 32, at % 32
            order = lambda t: jnp.take_along_axis(t, beam[..., None], 1)  # noqa: E731
            ids = order(ids).at[:, :, i].set(word)
            return (score, ids, jnp.tanh(order(state) + e.jax.nn.one_hot(word, 32))), None

        start = jnp.zeros((16, 4)), jnp.zeros((16, 4, 6), "int32"), state
        return e.lax.scan(step, start, jnp.arange(6))[0][:2]

    return f, (e.arg((32, 32)), e.arg((16, 4, 32), "data")), (e.at("data"), e.at("data"))


@program(data=2, model=4)
def retrieval_in_a_split_index(e: Any) -> Any:
    """Products with a split index, the best rows of it, attended to."""

    def f(q: Any, index: Any) -> Any:
        s, at = e.lax.top_k(q @ index.T, 8)
        return e.jnp.einsum("bk,bkd->bd", e.jax.nn.softmax(s), index[at])

    return f, (e.arg((32, 32), "data"), e.arg((4096, 32), "model")), e.at("data")


@program(x=8)
def joined_tables(e: Any) -> Any:
    """Rows of a small table found for each row of a split one, sums per group."""

    def f(keys: Any, values: Any, table: Any, rate: Any) -> Any:
        at = e.jnp.clip(e.jnp.searchsorted(e.jnp.sort(table), keys), 0, 255)
        return e.jnp.bincount(at % 16, weights=values * rate[at], length=16)

    return f, (e.arg((8192,), "x"), e.arg((8192,), "x"), e.arg((256,)), e.arg((256,))), e.at()


@program(x=8)
def ranked_and_paired(e: Any) -> Any:
    """Ranks of a split column and their correlation with another."""

    def f(a: Any, b: Any) -> Any:
        rank = lambda t: e.jnp.argsort(e.jnp.argsort(t)) * 1.0  # noqa: E731
        return e.jnp.corrcoef(rank(a), rank(b))[0, 1]

    return f, (e.arg((8192,), "x"), e.arg((8192,), "x")), e.at()


@program(x=8)
def boosted_splits(e: Any) -> Any:
    """Histograms of gradients per feature and bin, the best cut of each."""

    def f(bins: Any, g: Any) -> Any:
        jnp = e.jnp
        one = lambda b: e.jax.ops.segment_sum(g, b, num_segments=16)  # noqa: E731
        hist = e.jax.vmap(one, 1)(bins)
        left = jnp.cumsum(hist, 1)
        gain = left**2 + (left[:, -1:] - left) ** 2
        return gain.argmax(1), gain.max(1)

    return f, (e.arg((4096, 8), "x", dtype="int32"), e.arg((4096,), "x")), (e.at(), e.at())
