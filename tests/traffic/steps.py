"""Further training and inference steps: recurrences, normalization, contrastive losses, products over two axes."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import program


def _descent(e: Any, loss: Any, params: Any, *batch: Any) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        grads = e.jax.grad(loss)(params, *batch)
        return e.jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    return step, (params, *batch), e.like(params)


@program(data=4, model=2)
def recurrent_cells(e: Any) -> Any:
    """A gated recurrence over time with split hidden units."""

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, xt: Any) -> Any:
            z = e.jax.nn.sigmoid(xt @ w["xz"] + h @ w["hz"])
            h = (1 - z) * h + z * e.jnp.tanh(xt @ w["xh"] + h @ w["hh"])
            return h, None

        return (e.lax.scan(step, e.jnp.zeros((64, 128)), x)[0] ** 2).mean()

    w = {k: e.arg((32 if k[0] == "x" else 128, 128), None, "model") for k in ("xz", "hz", "xh", "hh")}
    return _descent(e, loss, w, e.arg((16, 64, 32), None, "data"))


@program(data=2, seq=4)
def attention_by_exchange(e: Any) -> Any:
    """Sequences split outside of attention, heads inside of it."""

    def f(x: Any, w: Any) -> Any:
        jnp = e.jnp
        q, k, v = (e.pin(jnp.einsum("bsm,mhd->bshd", x, w[i]), "data", None, "seq") for i in range(3))
        s = e.jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        out = e.pin(jnp.einsum("bhqk,bkhd->bqhd", s, v), "data", "seq")
        return out.reshape(*x.shape[:2], -1)

    return f, (e.arg((4, 256, 64), "data", "seq"), e.arg((3, 64, 8, 8))), e.at("data", "seq")


@program(data=2, model=4)
def norms_along_the_sequence(e: Any) -> Any:
    """Tensor parallelism whose norms work on a split sequence."""

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        for up, down in w:
            y = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
            h = e.pin(e.jax.nn.gelu(e.pin(y, "data") @ up), "data", None, "model")
            x = x + e.pin(h @ down, "data", "model")
        return (x**2).mean()

    w = [(e.arg((64, 256), None, "model"), e.arg((256, 64), "model"))] * 2
    return _descent(e, loss, w, e.arg((4, 128, 64), "data", "model"))


@program(data=8)
def contrastive_pairs(e: Any) -> Any:
    """Two towers, each sample against all others of the batch."""

    def loss(w: Any, a: Any, b: Any) -> Any:
        jnp = e.jnp
        p, q = a @ w[0], b @ w[1]
        p, q = (t / jnp.linalg.norm(t, axis=-1, keepdims=True) for t in (p, q))
        z = p @ q.T
        return -jnp.trace(e.jax.nn.log_softmax(z)) / 512

    x = e.arg((512, 64), "data")
    return _descent(e, loss, [e.arg((64, 32)), e.arg((64, 32))], x, x)


@program(data=8)
def preconditioned_step(e: Any) -> Any:
    """Statistics of gradients, both sides, of split parameters."""

    def step(w: Any, left: Any, right: Any, x: Any) -> Any:
        g = e.jax.grad(lambda w: (e.jnp.tanh(x @ w) ** 2).mean())(w)
        left, right = left + g @ g.T, right + g.T @ g
        return w - left @ g @ right, left, right

    w, left, right = e.arg((128, 256), "data"), e.arg((128, 128), "data"), e.arg((256, 256), "data")
    return step, (w, left, right, e.arg((512, 128), "data")), e.like((w, left, right))


@program(x=4, y=2)
def product_over_two_axes(e: Any) -> Any:
    """Both operands and the result in blocks."""
    a = e.arg((512, 512), "x", "y")
    return (lambda a, b: a @ b), (a, a), a.sharding


@program(x=4, y=2)
def products_in_a_row(e: Any) -> Any:
    """Three products whose operands are split by rows, columns and both."""
    args = e.arg((256, 512), "x"), e.arg((512, 256), None, "y"), e.arg((256, 512), "y", "x")
    return (lambda a, b, c: e.jnp.tanh(a @ b) @ c), args, e.at("x")


@program(data=2, space=4)
def volumes(e: Any) -> Any:
    """Convolutions of volumes with dilations, normalized by group."""

    def loss(w: Any, x: Any) -> Any:
        for k in w:
            x = e.lax.conv_general_dilated(
                x, k, (1, 1, 1), "SAME", rhs_dilation=(2, 1, 1), dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
            )
            g = x.reshape(*x.shape[:4], 2, -1)
            g = (g - g.mean((1, 2, 3, 5), keepdims=True)) / e.jnp.sqrt(g.var((1, 2, 3, 5), keepdims=True) + 1e-5)
            x = e.jax.nn.relu(g.reshape(x.shape))
        return (x**2).mean()

    return _descent(e, loss, [e.arg((3, 3, 3, 4, 4))] * 2, e.arg((2, 16, 16, 16, 4), "data", "space"))


@program(data=2, space=4)
def pyramid_of_images(e: Any) -> Any:
    """Blurred and halved, differences of what is doubled again."""

    def f(x: Any) -> Any:
        levels = []
        for _ in range(2):
            small = e.lax.reduce_window(x, 0.0, e.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
            levels.append(x - e.jnp.repeat(e.jnp.repeat(small, 2, 1), 2, 2))
            x = small
        return levels

    return f, (e.arg((4, 64, 64, 3), "data", "space"),), None


@program(data=4, model=2)
def half_precision_step(e: Any) -> Any:
    """Weights kept in float32 and split over both axes, products in float16."""

    def loss(w: Any, x: Any) -> Any:
        h = x
        for p in w:
            h = e.jax.nn.relu(h @ p.astype("float16"))
        return (h.astype("float32") ** 2).mean()

    w = [e.arg((128, 512), "data", "model"), e.arg((512, 128), "model", "data")]
    return _descent(e, loss, w, e.arg((256, 128), "data", dtype="float16"))


@program(data=8)
def averaged_parameters(e: Any) -> Any:
    """Gradients accumulated over microbatches, an average of parameters kept split."""

    def step(w: Any, average: Any, x: Any) -> Any:
        def one(g: Any, xi: Any) -> Any:
            return g + e.jax.grad(lambda w: (e.jnp.sin(xi @ w) ** 2).mean())(w), None

        g = e.lax.scan(one, e.jnp.zeros_like(w), x)[0]
        w = w - g
        return w, 0.9 * average + 0.1 * w

    w = e.arg((128, 128), "data")
    return step, (w, w, e.arg((4, 256, 128), None, "data")), (w.sharding, w.sharding)


@program(x=8)
def autocorrelation(e: Any) -> Any:
    """A split series with itself at a few lags."""

    def f(x: Any) -> Any:
        return e.jnp.stack([(x[: 4096 - k] * x[k:]).sum() for k in range(4)])

    return f, (e.arg((4096,), "x"),), e.at()


@program(x=8)
def cyclic_reduction(e: Any) -> Any:
    """Even and odd rows of a split system, put together again."""

    def f(x: Any) -> Any:
        even, odd = x[::2], x[1::2]
        even = even - 0.5 * (odd + e.jnp.roll(odd, 1, 0))
        return e.jnp.stack([even, odd], 1).reshape(x.shape)

    return f, (e.arg((4096, 8), "x"),), e.at("x")


@program(x=8)
def distances_by_time_warping(e: Any) -> Any:
    """Many pairs of series, a table per pair, by a scan over rows."""

    def f(a: Any, b: Any) -> Any:
        def row(last: Any, ai: Any) -> Any:
            cost = (ai[:, None] - b) ** 2
            up = e.jnp.minimum(last, e.jnp.pad(last[:, :-1], ((0, 0), (1, 0)), constant_values=1e9))
            return cost + up, None

        return e.lax.scan(row, e.jnp.zeros((64, 128)), a.T)[0][:, -1]

    return f, (e.arg((64, 128), "x"), e.arg((64, 128), "x")), e.at("x")


@program(x=4, y=2)
def messages_between_two_sets(e: Any) -> Any:
    """A bipartite graph: messages along split edges, added up at users split over one axis and at items split over the other."""
    users, items, edges = 64, 32, 256

    def loss(w: Any, u: Any, v: Any, a: Any, b: Any) -> Any:
        for k in range(2):
            m = e.jax.nn.relu(u[a] @ w[k, 0] + v[b] @ w[k, 1])
            u = e.jax.nn.relu(u @ w[k, 2] + e.jax.ops.segment_sum(m, a, users))
            v = e.jax.nn.relu(v @ w[k, 3] + e.jax.ops.segment_sum(m, b, items))
        return e.jax.nn.softplus(-(u[a] * v[b]).sum(-1)).mean()

    ends = e.arg((edges,), ("x", "y"), dtype="int32")
    return _descent(e, loss, e.arg((2, 4, 16, 16)), e.arg((users, 16), "x"), e.arg((items, 16), "y"), ends, ends)


@program(data=4, model=2)
def pages_of_a_cache(e: Any) -> Any:
    """One token decoded with keys that lie in pages, which a table per sequence lists."""

    def decode(pages: Any, table: Any, q: Any, k: Any, at: Any) -> Any:
        page = e.jnp.take_along_axis(table, (at // 4)[:, None], 1)[:, 0]
        pages = pages.at[page, at % 4].set(k)
        keys = pages[table].reshape(q.shape[0], -1, *k.shape[1:])
        scores = e.jnp.einsum("bhd,bthd->bht", q, keys)
        seen = e.jnp.arange(scores.shape[-1]) <= at[:, None, None]
        weights = e.jax.nn.softmax(e.jnp.where(seen, scores, -1e9), -1)
        return e.jnp.einsum("bht,bthd->bhd", weights, keys), pages

    pages, q = e.arg((32, 4, 4, 8), None, None, "model"), e.arg((8, 4, 8), "data", "model")
    table, at = e.arg((8, 4), "data", dtype="int32"), e.arg((8,), "data", dtype="int32")
    return decode, (pages, table, q, q, at), (q.sharding, pages.sharding)


@program(x=4, y=2)
def vorticity_by_transforms(e: Any) -> Any:
    """A step of a flow: velocities and gradients of a field over both axes by Fourier transforms."""

    def step(w: Any) -> Any:
        k = e.jnp.fft.fftfreq(32) * 32
        kx, ky = k[:, None], k[None]
        size = kx**2 + ky**2
        h = e.jnp.fft.fft2(w)
        stream = h / e.jnp.where(size == 0, 1, size)
        u, v, wx, wy = (e.jnp.fft.ifft2(1j * f).real for f in (ky * stream, -kx * stream, kx * h, ky * h))
        return w - 0.01 * (u * wx + v * wy)

    return step, (e.arg((32, 32), "x", "y"),), None
