"""Training: networks of images, normalization over batches, optimizers, pipelines, policies."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import program


def _descent(e: Any, loss: Any, params: Any, *batch: Any) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        return e.jax.tree.map(lambda p, g: p - 0.1 * g, params, e.jax.grad(loss)(params, *batch))

    return step, (params, *batch), e.like(params)


def _conv(e: Any, x: Any, w: Any, stride: int = 1, **more: Any) -> Any:
    dims = ("NHWC", "HWIO", "NHWC")
    return e.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=dims, **more)


def _batch_norm(e: Any, x: Any, scale: Any) -> Any:
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * e.lax.rsqrt(var + 1e-5) * scale


@program(data=4, space=2)
def residual_blocks(e: Any) -> Any:
    """Convolutions with batch norm and strides, images split over the batch and by rows."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        x = e.jax.nn.relu(_batch_norm(e, _conv(e, x, w["stem"], 2), w["scale"]))
        for a, b in w["blocks"]:
            h = e.jax.nn.relu(_batch_norm(e, _conv(e, x, a), w["scale"]))
            x = e.jax.nn.relu(x + _batch_norm(e, _conv(e, h, b), w["scale"]))
        z = x.mean((1, 2)) @ w["head"]
        return -(e.jax.nn.log_softmax(z) * e.jax.nn.one_hot(y, 10)).sum(-1).mean()

    k = e.arg((3, 3, 8, 8))
    w = {"stem": e.arg((5, 5, 3, 8)), "scale": e.arg((8,)), "blocks": [(k, k)] * 2, "head": e.arg((8, 10))}
    return _descent(e, loss, w, e.arg((8, 32, 32, 3), "data", "space"), e.arg((8,), "data", dtype="int32"))


@program(data=2, model=4)
def separable_convolutions(e: Any) -> Any:
    """Depthwise and pointwise convolutions with split channels and squeezed gates."""

    def loss(w: Any, x: Any) -> Any:
        h = e.jax.nn.silu(_conv(e, x, w["expand"]))
        h = e.jax.nn.silu(_conv(e, h, w["depth"], feature_group_count=32))
        gate = e.jax.nn.sigmoid(h.mean((1, 2)) @ w["squeeze"] @ w["excite"])
        return (_conv(e, h * gate[:, None, None], w["project"]) ** 2).mean()

    w = {"expand": e.arg((1, 1, 8, 32), None, None, None, "model"), "depth": e.arg((3, 3, 1, 32), None, None, None, "model"),
         "squeeze": e.arg((32, 4), "model"), "excite": e.arg((4, 32), None, "model"),
         "project": e.arg((1, 1, 32, 8), None, None, "model")}  # fmt: skip
    return _descent(e, loss, w, e.arg((8, 16, 16, 8), "data"))


@program(space=8)
def segmentation_by_rows(e: Any) -> Any:
    """Dilated convolutions in parallel, joined, over images split by rows; labels per pixel."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        h = e.jnp.concatenate(
            [e.jax.nn.relu(_conv(e, x, k, rhs_dilation=(d, d))) for d, k in zip((1, 2, 4), w["atrous"], strict=True)],
            -1,
        )
        z = _conv(e, h, w["head"])
        return (e.jax.nn.logsumexp(z, -1) - e.jnp.take_along_axis(z, y[..., None], -1)[..., 0]).mean()

    w = {"atrous": [e.arg((3, 3, 3, 4))] * 3, "head": e.arg((1, 1, 12, 8))}
    return _descent(e, loss, w, e.arg((2, 64, 32, 3), None, "space"), e.arg((2, 64, 32), None, "space", dtype="int32"))


@program(stage=8)
def stages_by_vmap_and_roll(e: Any) -> Any:
    """A pipeline: all stages at once by `vmap`, the state rolled to the next one."""

    def f(w: Any, x: Any) -> Any:
        def tick(state: Any, i: Any) -> Any:
            state = e.jnp.roll(state, 1, axis=0).at[0].set(x[i % 4])
            state = e.pin(e.jax.vmap(lambda w, s: e.jnp.tanh(s @ w))(w, state), "stage")
            return state, state[-1]

        return e.lax.scan(tick, e.pin(e.jnp.zeros((8, 16, 32)), "stage"), e.jnp.arange(11))[1]

    return f, (e.arg((8, 32, 32), "stage"), e.arg((4, 16, 32))), e.at()


@program(stage=4, data=2)
def stages_trained(e: Any) -> Any:
    """The gradient of such a pipeline with a split batch."""

    def loss(w: Any, x: Any) -> Any:
        def tick(state: Any, xi: Any) -> Any:
            state = e.jnp.concatenate([xi[None], state[:-1]], 0)
            state = e.pin(e.jax.vmap(lambda w, s: e.jnp.tanh(s @ w))(w, state), "stage", "data")
            return state, state[-1]

        out = e.lax.scan(tick, e.jnp.zeros((4, 16, 32)), x)[1]
        return (out**2).mean()

    return _descent(e, loss, e.arg((4, 32, 32), "stage"), e.arg((6, 16, 32), None, "data"))


@program(data=8)
def factored_moments(e: Any) -> Any:
    """Adafactor: moments of rows and columns of split weights."""

    def step(w: Any, row: Any, col: Any, x: Any) -> Any:
        jnp = e.jnp
        g = e.jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
        row = 0.9 * row + 0.1 * (g**2).mean(1)
        col = 0.9 * col + 0.1 * (g**2).mean(0)
        update = g / jnp.sqrt(row[:, None] * col / row.mean() + 1e-8)
        update = update / jnp.maximum(1, jnp.sqrt((update**2).mean()))
        return w - 0.01 * update, row, col

    args = e.arg((128, 256), "data"), e.arg((128,), "data"), e.arg((256,)), e.arg((256, 128), "data")
    return step, args, e.like(args[:3])


@program(data=4, model=2)
def orthogonalized_momentum(e: Any) -> Any:
    """Muon: Newton-Schulz steps of a momentum split over both axes."""

    def step(w: Any, m: Any, g: Any) -> Any:
        m = 0.9 * m + g
        x = m / (e.jnp.linalg.norm(m) + 1e-7)
        for _ in range(3):
            a = x @ x.T
            x = 3.4 * x - 4.7 * (a @ x) + 2.0 * (a @ a @ x)
        return w - 0.1 * x, m

    w = e.arg((64, 256), "data", "model")
    return step, (w, w, w), (w.sharding, w.sharding)


@program(data=8)
def orthogonalized_rows(e: Any) -> Any:
    """Newton-Schulz in a loop, a tall momentum split by rows, products taken on the small side."""

    def step(w: Any, g: Any) -> Any:
        def one(_: Any, x: Any) -> Any:
            a = x.T @ x
            return 1.5 * x - 0.5 * x @ a

        return w - 0.1 * e.lax.fori_loop(0, 5, one, g / e.jnp.linalg.norm(g))

    w = e.arg((512, 32), "data")
    return step, (w, w), w.sharding


@program(data=8)
def lion_and_average(e: Any) -> Any:
    """Signs of moments split like the weights, decayed, and an average of the weights."""

    def step(w: Any, m: Any, average: Any, x: Any) -> Any:
        g = e.jax.grad(lambda w: e.jax.nn.softplus(x @ w[0] @ w[1]).mean())(w)
        tree = e.jax.tree.map
        w = tree(lambda p, m, g: p - 1e-3 * (e.jnp.sign(0.9 * m + 0.1 * g) + 0.1 * p), w, m, g)
        return w, tree(lambda m, g: 0.99 * m + 0.01 * g, m, g), tree(lambda a, p: 0.99 * a + 0.01 * p, average, w)

    w = [e.arg((64, 128), None, "data"), e.arg((128, 64), "data")]
    outs = e.like(w)
    return step, (w, w, w, e.arg((256, 64), "data")), (outs, outs, outs)


@program(data=8)
def norms_per_layer(e: Any) -> Any:
    """LARS: rates by the norms of each split weight and of its gradient; losses scaled, steps skipped if not finite."""

    def step(w: Any, scale: Any, x: Any, y: Any) -> Any:
        jnp = e.jnp
        g = e.jax.grad(lambda w: ((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2).mean() * scale)(w)
        g = [t / scale for t in g]
        finite = jnp.all(jnp.array([jnp.isfinite(t).all() for t in g]))
        rates = [jnp.linalg.norm(p) / (jnp.linalg.norm(t) + 1e-6) for p, t in zip(w, g, strict=True)]
        new = [jnp.where(finite, p - 0.01 * r * t, p) for p, r, t in zip(w, rates, g, strict=True)]
        return new, jnp.where(finite, scale * 2, scale / 2)

    w = [e.arg((64, 128), "data"), e.arg((128, 64), "data")]
    x = e.arg((256, 64), "data")
    return step, (w, e.arg(()), x, x), (e.like(w), e.at())


@program(data=8)
def gradients_per_sample(e: Any) -> Any:
    """Clipped one by one and summed."""

    def step(w: Any, x: Any, y: Any) -> Any:
        g = e.jax.vmap(e.jax.grad(lambda w, x, y: (e.jnp.tanh(x @ w) - y).sum() ** 2), (None, 0, 0))(w, x, y)
        norm = e.jnp.sqrt((g**2).sum((1, 2), keepdims=True))
        return w - (g * e.jnp.minimum(1, 1 / norm)).mean(0)

    return step, (e.arg((32, 16)), e.arg((64, 32), "data"), e.arg((64, 16), "data")), e.at()


@program(data=8)
def advantages_backwards_in_time(e: Any) -> Any:
    """Generalized advantages by a reverse scan, a clipped ratio, normalized over the batch; the gradient."""

    def loss(w: Any, obs: Any, actions: Any, rewards: Any, old: Any) -> Any:
        jnp = e.jnp
        value = (obs @ w["v"])[..., 0]
        delta = rewards[:-1] + 0.99 * value[1:] - value[:-1]
        adv = e.lax.scan(lambda c, d: ((d + 0.9 * c), (d + 0.9 * c)), jnp.zeros(64), delta, reverse=True)[1]
        adv = e.lax.stop_gradient((adv - adv.mean()) / (adv.std() + 1e-8))
        logp = e.jax.nn.log_softmax(obs[:-1] @ w["p"])
        logp = jnp.take_along_axis(logp, actions[:-1, :, None], -1)[..., 0]
        ratio = jnp.exp(logp - old[:-1])
        return -jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv).mean() + (delta**2).mean()

    w = {"v": e.arg((16, 1)), "p": e.arg((16, 8))}
    t = e.arg((17, 64), None, "data")
    return _descent(e, loss, w, e.arg((17, 64, 16), None, "data"), e.arg((17, 64), None, "data", dtype="int32"), t, t)


@program(data=8)
def replay_in_a_ring(e: Any) -> Any:
    """A ring buffer split by its slots, written at a position, read at drawn ones."""

    def f(buffer: Any, new: Any, at: Any, drawn: Any) -> Any:
        places = (at + e.jnp.arange(16)) % 4096
        buffer = buffer.at[places].set(new)
        return buffer, buffer[drawn]

    args = e.arg((4096, 16), "data"), e.arg((16, 16)), e.arg((), dtype="int32"), e.arg((64,), dtype="int32")
    return f, args, (e.at("data"), e.at())


@program(data=8)
def teacher_and_student(e: Any) -> Any:
    """Centers of a teacher's outputs, averaged over the batch and by momentum, as in self-distillation."""

    def step(w: Any, t: Any, center: Any, a: Any, b: Any) -> Any:
        def loss(w: Any) -> Any:
            target = e.jax.nn.softmax((b @ t - center) / 0.04)
            return -(target * e.jax.nn.log_softmax(a @ w / 0.1)).sum(-1).mean()

        w = w - e.jax.grad(loss)(w)
        return w, 0.99 * t + 0.01 * w, 0.9 * center + 0.1 * (b @ t).mean(0)

    x = e.arg((256, 64), "data")
    args = e.arg((64, 128)), e.arg((64, 128)), e.arg((128,)), x, x
    return step, args, e.like(args[:3])


@program(data=4, model=2)
def diffusion_step(e: Any) -> Any:
    """Noise by drawn times, a network with group norms and split channels, the gradient."""

    def loss(w: Any, x: Any, noise: Any, t: Any) -> Any:
        jnp = e.jnp
        level = jnp.cos(t / 8.0)[:, None, None, None]
        h = _conv(e, level * x + jnp.sqrt(1 - level**2) * noise, w["in"])
        g = h.reshape(*h.shape[:3], 4, -1)
        g = (g - g.mean((1, 2, 4), keepdims=True)) * e.lax.rsqrt(g.var((1, 2, 4), keepdims=True) + 1e-5)
        h = e.jax.nn.silu(g.reshape(h.shape) * (1 + e.jax.nn.one_hot(t, 8) @ w["time"])[:, None, None])
        return ((_conv(e, h, w["out"]) - noise) ** 2).mean()

    w = {"in": e.arg((3, 3, 3, 16), None, None, None, "model"), "time": e.arg((8, 16), None, "model"),
         "out": e.arg((3, 3, 16, 3), None, None, "model")}  # fmt: skip
    x = e.arg((8, 16, 16, 3), "data")
    return _descent(e, loss, w, x, x, e.arg((8,), "data", dtype="int32"))


@program(explicit=True, data=8)
def data_parallel_explicit(e: Any) -> Any:
    """A regression whose batch is split by its type."""

    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return ((e.jnp.tanh(x @ w[0]) @ w[1] - y) ** 2).mean()

        return e.jax.tree.map(lambda p, g: p - g, w, e.jax.grad(loss)(w))

    x = e.arg((256, 32), "data", None)
    return step, ([e.arg((32, 64), None, None), e.arg((64, 32), None, None)], x, x), None
