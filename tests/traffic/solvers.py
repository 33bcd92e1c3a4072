"""Scientific programs: graphs, clusters, differential equations, filters, state spaces."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import program


@program(x=8)
def graph_by_segment_sums(e: Any) -> Any:
    """Messages along split edges between split nodes."""

    def f(nodes: Any, sources: Any, targets: Any, w: Any) -> Any:
        sent = e.jax.nn.relu(nodes @ w)[sources]
        return e.jax.ops.segment_sum(sent, targets, num_segments=1024)

    edges = e.arg((4096,), "x", dtype="int32")
    return f, (e.arg((1024, 32), "x"), edges, edges, e.arg((32, 32))), e.at("x")


@program(x=8)
def graph_train(e: Any) -> Any:
    """The same with a degree in the denominator; the gradient of the weights."""

    def loss(w: Any, nodes: Any, sources: Any, targets: Any) -> Any:
        degree = e.jax.ops.segment_sum(e.jnp.ones(4096), targets, num_segments=1024)
        sent = e.jax.ops.segment_sum((nodes @ w)[sources], targets, num_segments=1024)
        return ((sent / e.jnp.maximum(degree, 1)[:, None]) ** 2).mean()

    edges = e.arg((4096,), "x", dtype="int32")
    return e.jax.grad(loss), (e.arg((32, 32)), e.arg((1024, 32)), edges, edges), e.at()


@program(x=8)
def clusters(e: Any) -> Any:
    """One round of k-means over split points."""

    def f(points: Any, centers: Any) -> Any:
        jnp = e.jnp
        near = ((points[:, None] - centers) ** 2).sum(-1).argmin(1)
        hot = e.jax.nn.one_hot(near, 16)
        return (hot.T @ points) / jnp.maximum(hot.sum(0), 1)[:, None]

    return f, (e.arg((4096, 8), "x"), e.arg((16, 8))), e.at()


@program(x=8)
def clusters_in_a_loop(e: Any) -> Any:
    """Ten rounds, by segment sums."""

    def f(points: Any, centers: Any) -> Any:
        def round_(_: Any, c: Any) -> Any:
            near = (points @ c.T * -2 + (c**2).sum(-1)).argmin(1)
            sums = e.jax.ops.segment_sum(points, near, num_segments=16)
            counts = e.jax.ops.segment_sum(e.jnp.ones(4096), near, num_segments=16)
            return sums / e.jnp.maximum(counts, 1)[:, None]

        return e.lax.fori_loop(0, 10, round_, centers)

    return f, (e.arg((4096, 8), "x"), e.arg((16, 8))), e.at()


@program(x=4, y=2)
def heat_in_a_loop(e: Any) -> Any:
    """Steps of a five-point stencil with fixed borders."""

    def f(u: Any) -> Any:
        def step(_: Any, u: Any) -> Any:
            inner = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
            return u.at[1:-1, 1:-1].set(inner)

        return e.lax.fori_loop(0, 20, step, u)

    u = e.arg((256, 256), "x", "y")
    return f, (u,), u.sharding


@program(x=4, y=2)
def waves(e: Any) -> Any:
    """Steps of a wave equation on a torus, by rolls."""

    def f(u: Any, v: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            u, v = carry
            lap = sum(e.jnp.roll(u, s, d) for s in (1, -1) for d in (0, 1)) - 4 * u
            v = v + 0.1 * lap
            return (u + 0.1 * v, v), None

        return e.lax.scan(step, (u, v), None, length=10)[0]

    u = e.arg((256, 256), "x", "y")
    return f, (u, u), (u.sharding, u.sharding)


@program(x=8)
def advection_by_padding(e: Any) -> Any:
    """Upwind differences of a padded line, and its gradient with respect to the start."""

    def f(u: Any) -> Any:
        def run(u: Any) -> Any:
            for _ in range(3):
                p = e.jnp.pad(u, (1, 1), mode="edge")
                u = u - 0.1 * (p[1:-1] - p[:-2])
            return (u**2).sum()

        return e.jax.grad(run)(u)

    return f, (e.arg((4096,), "x"),), e.at("x")


@program(x=8)
def state_space_scan(e: Any) -> Any:
    """A diagonal linear recurrence along a split sequence, by an associative scan."""

    def f(a: Any, b: Any) -> Any:
        join = lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1])  # noqa: E731
        return e.lax.associative_scan(join, (a, b))[1]

    return f, (e.arg((1024, 16), "x"), e.arg((1024, 16), "x")), e.at("x")


@program(x=8)
def state_space_by_batch(e: Any) -> Any:
    """The same over time, the batch split."""

    def f(a: Any, x: Any) -> Any:
        def step(h: Any, inputs: Any) -> Any:
            at, xt = inputs
            h = at * h + xt
            return h, h

        return e.lax.scan(step, e.jnp.zeros((64, 16)), (a, x))[1]

    return f, (e.arg((128, 64, 16), None, "x"), e.arg((128, 64, 16), None, "x")), e.at(None, "x")


@program(x=8)
def spectral_filter(e: Any) -> Any:
    """Poisson's equation by Fourier transforms of split rows."""

    def f(u: Any) -> Any:
        k = e.jnp.fft.fftfreq(256)
        k2 = k[:, None] ** 2 + k[None] ** 2
        hat = e.jnp.fft.fft2(u)
        return e.jnp.fft.ifft2(hat / e.jnp.where(k2 == 0, 1, k2)).real

    return f, (e.arg((256, 256), "x"),), e.at("x")


@program(x=8)
def conjugate_gradients(e: Any) -> Any:
    """A split dense system."""

    def f(a: Any, b: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            x, r, p, rr = state
            ap = a @ p
            step = rr / (p @ ap)
            x, r = x + step * p, r - step * ap
            new = r @ r
            return x, r, r + new / rr * p, new

        return e.lax.fori_loop(0, 8, step, (e.jnp.zeros_like(b), b, b, b @ b))[0]

    return f, (e.arg((512, 512), "x"), e.arg((512,), "x")), e.at("x")


@program(x=8)
def power_iteration(e: Any) -> Any:
    """The greatest eigenvalue of a matrix split by columns."""

    def f(a: Any, v: Any) -> Any:
        def step(_: Any, v: Any) -> Any:
            v = a @ v
            return v / e.jnp.linalg.norm(v)

        return e.lax.fori_loop(0, 8, step, v)

    return f, (e.arg((512, 512), None, "x"), e.arg((512,))), e.at()


@program(x=8)
def nearest_neighbors(e: Any) -> Any:
    """Distances to split points, the nearest of them."""

    def f(points: Any, queries: Any) -> Any:
        d = ((queries[:, None] - points) ** 2).sum(-1)
        return e.lax.top_k(-d, 5)

    return f, (e.arg((8192, 4), "x"), e.arg((32, 4))), [e.at(), e.at()]


@program(x=8)
def particles(e: Any) -> Any:
    """Forces between all pairs, targets split."""

    def f(p: Any) -> Any:
        d = p[:, None] - p
        return (d / ((d**2).sum(-1, keepdims=True) + 0.1) ** 1.5).sum(1)

    return f, (e.arg((512, 3), "x"),), e.at("x")


@program(x=8)
def monte_carlo(e: Any) -> Any:
    """Draws made where they are used, and their moments."""

    def f(key: Any, x: Any) -> Any:
        u = e.pin(e.jax.random.uniform(key, (65536,)), "x")
        return ((u < x) * 1.0).mean(), u.var()

    return f, (e.arg((2,), dtype="uint32"), e.arg((65536,), "x")), (e.at(), e.at())


@program(x=8)
def resampled_particles(e: Any) -> Any:
    """Systematic resampling: running weights, a search, rows taken."""

    def f(weights: Any, states: Any) -> Any:
        c = e.jnp.cumsum(weights)
        at = e.jnp.searchsorted(c, (e.jnp.arange(4096) + 0.5) / 4096 * c[-1])
        return states[at]

    return f, (e.arg((4096,), "x"), e.arg((4096, 4), "x")), e.at("x")


@program(x=4, y=2)
def gram_schmidt(e: Any) -> Any:
    """Products with a transposed operand in two layouts, a solve of the small factor."""

    def f(x: Any, y: Any) -> Any:
        gram = x.T @ x + 1e-3 * e.jnp.eye(32)
        return e.jnp.linalg.solve(gram, x.T @ y)

    return f, (e.arg((4096, 32), "x"), e.arg((4096, 8), "x", "y")), e.at()


@program(x=8)
def moving_statistics(e: Any) -> Any:
    """A centered window of means and maxima."""

    def f(x: Any) -> Any:
        mean = e.lax.reduce_window(x, 0.0, e.lax.add, (5,), (1,), "SAME") / 5
        top = e.lax.reduce_window(x, -e.jnp.inf, e.lax.max, (5,), (1,), "SAME")
        return mean, top

    return f, (e.arg((65536,), "x"),), (e.at("x"), e.at("x"))


@program(x=8)
def exponential_average(e: Any) -> Any:
    """A recurrence by a scan over blocks of a split line."""

    def f(x: Any) -> Any:
        decay = 0.9 ** e.jnp.arange(64)
        blocks = x.reshape(-1, 64)
        inner = e.jnp.convolve(decay, e.jnp.ones(1), mode="full")
        return e.jnp.einsum("bt,t->b", blocks, inner)

    return f, (e.arg((4096,), "x"),), e.at("x")
