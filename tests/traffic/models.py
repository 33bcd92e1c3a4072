"""Training and inference steps."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import program


def _step(e: Any, loss: Any, rate: float = 0.1) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        value, grads = e.jax.value_and_grad(loss)(params, *batch)
        return e.jax.tree.map(lambda p, g: p - rate * g, params, grads), value

    return step


def _train(e: Any, loss: Any, params: Any, *batch: Any) -> Any:
    return _step(e, loss), (params, *batch), (e.like(params), e.at())


@program(data=4, model=2)
def moe_top1(e: Any) -> Any:
    """A mixture of experts by one-hot dispatch products."""

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        gates = e.jax.nn.softmax(x @ w["gate"])
        chosen = e.jax.nn.one_hot(gates.argmax(-1), 8)
        place = (jnp.cumsum(chosen, 1) * chosen - 1).astype("int32")
        slots = e.jax.nn.one_hot(place, 32) * chosen[..., None]
        sent = jnp.einsum("bsec,bsm->ebcm", slots, x)
        sent = e.pin(sent, "data", None, None, None)
        h = e.jax.nn.relu(jnp.einsum("ebcm,emh->ebch", sent, w["up"]))
        back = e.pin(jnp.einsum("ebch,ehm->ebcm", h, w["down"]), "data", None, None, None)
        out = jnp.einsum("bsec,ebcm->bsm", slots * gates[..., None], back)
        return (out**2).mean()

    w = {"gate": e.arg((64, 8)), "up": e.arg((8, 64, 256), "data", None, "model"),
         "down": e.arg((8, 256, 64), "data", "model")}  # fmt: skip
    return _train(e, loss, w, e.arg((8, 128, 64), "data"))


@program(data=8)
def moe_scatter(e: Any) -> Any:
    """Tokens sorted by expert and scattered into slots."""

    def f(x: Any, gate: Any, w: Any) -> Any:
        jnp = e.jnp
        expert = (x @ gate).argmax(-1)
        hot = e.jax.nn.one_hot(expert, 8, dtype="int32")
        place = (jnp.cumsum(hot, 0) * hot).sum(-1) - 1
        slots = jnp.zeros((8, 256, 64)).at[expert, place].set(x, mode="drop")
        out = jnp.einsum("ecm,emn->ecn", e.pin(slots, "data"), w)
        return out[expert, jnp.minimum(place, 255)]

    return f, (e.arg((1024, 64), "data"), e.arg((64, 8)), e.arg((8, 64, 64), "data")), e.at("data")


@program(data=2, space=4)
def unet(e: Any) -> Any:
    """Down with strides, up with transposed convolutions, skips joined."""

    def conv(x: Any, w: Any, stride: int = 1) -> Any:
        return e.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(w: Any, x: Any, y: Any) -> Any:
        jnp, relu = e.jnp, e.jax.nn.relu
        a = relu(conv(x, w[0]))
        b = relu(conv(a, w[1], 2))
        c = relu(conv(b, w[2], 2))
        up = e.lax.conv_transpose(c, w[3], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        b = relu(conv(jnp.concatenate([b, up], -1), w[4]))
        up = e.lax.conv_transpose(b, w[5], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        out = conv(jnp.concatenate([a, up], -1), w[6])
        return ((out - y) ** 2).mean()

    shapes = [(3, 3, 3, 8), (3, 3, 8, 16), (3, 3, 16, 32), (3, 3, 32, 16), (3, 3, 32, 16), (3, 3, 16, 8), (3, 3, 16, 3)]
    image = e.arg((8, 64, 64, 3), "data", "space")
    return _train(e, loss, [e.arg(s) for s in shapes], image, image)


@program(data=8)
def convolutions_of_a_vgg(e: Any) -> Any:
    """Convolutions, max pooling, a dense head."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        for k in w["conv"]:
            x = e.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = e.lax.reduce_window(e.jax.nn.relu(x), -e.jnp.inf, e.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        z = x.reshape(x.shape[0], -1) @ w["head"]
        return -(e.jax.nn.log_softmax(z) * e.jax.nn.one_hot(y, 10)).sum(-1).mean()

    w = {"conv": [e.arg((3, 3, 3, 16)), e.arg((3, 3, 16, 32))], "head": e.arg((8 * 8 * 32, 10))}
    return _train(e, loss, w, e.arg((64, 32, 32, 3), "data"), e.arg((64,), "data", dtype="int32"))


def _attention(e: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = e.jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = e.jnp.where(mask, scores, -1e9)
    return e.jnp.einsum("bhqk,bkhd->bqhd", e.jax.nn.softmax(scores), v)


@program(data=4, model=2)
def attention_grouped(e: Any) -> Any:
    """Grouped keys and values, a causal mask, heads over an axis; the gradient."""

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        q = jnp.einsum("bsm,mhd->bshd", x, w["q"])
        k, v = (jnp.repeat(jnp.einsum("bsm,mhd->bshd", x, w[i]), 4, axis=2) for i in "kv")
        out = _attention(e, q, k, v, jnp.tril(jnp.ones((128, 128), bool)))
        return (jnp.einsum("bshd,hdm->bsm", out, w["o"]) ** 2).mean()

    w = {"q": e.arg((64, 8, 16), None, "model"), "k": e.arg((64, 2, 16), None, "model"),
         "v": e.arg((64, 2, 16), None, "model"), "o": e.arg((8, 16, 64), "model")}  # fmt: skip
    return _train(e, loss, w, e.arg((8, 128, 64), "data"))


@program(seq=8)
def attention_by_sequence(e: Any) -> Any:
    """Queries split along the sequence, keys gathered."""

    def f(x: Any, w: Any) -> Any:
        q, k, v = (e.jnp.einsum("bsm,mhd->bshd", x, w[i]) for i in range(3))
        return _attention(e, q, k, v)

    return f, (e.arg((2, 512, 64), None, "seq"), e.arg((3, 64, 8, 8))), e.at(None, "seq")


@program(seq=8)
def attention_in_windows(e: Any) -> Any:
    """Each block of queries sees its own keys and those of the block before."""

    def f(q: Any, k: Any, v: Any) -> Any:
        jnp = e.jnp
        cut = lambda t: t.reshape(2, 16, 32, 4, 16)  # noqa: E731
        with_last = lambda t: jnp.concatenate([jnp.roll(cut(t), 1, axis=1), cut(t)], axis=2)  # noqa: E731
        s = jnp.einsum("bnqhd,bnkhd->bnhqk", cut(q), with_last(k))
        out = jnp.einsum("bnhqk,bnkhd->bnqhd", e.jax.nn.softmax(s), with_last(v))
        return out.reshape(q.shape)

    x = e.arg((2, 512, 4, 16), None, "seq")
    return f, (x, x, x), e.at(None, "seq")


@program(data=2, model=4)
def decode_with_cache(e: Any) -> Any:
    """One token against caches whose rows are written at a position."""

    def f(w: Any, x: Any, k: Any, v: Any, at: Any) -> Any:
        jnp = e.jnp
        q, k1, v1 = (jnp.einsum("bm,mhd->bhd", x, w[i]) for i in range(3))
        k = e.lax.dynamic_update_slice_in_dim(k, k1[:, None], at, 1)
        v = e.lax.dynamic_update_slice_in_dim(v, v1[:, None], at, 1)
        s = jnp.where(jnp.arange(256) <= at, jnp.einsum("bhd,bkhd->bhk", q, k), -1e9)
        return jnp.einsum("bhk,bkhd->bhd", e.jax.nn.softmax(s), v), k, v

    cache = e.arg((8, 256, 8, 16), "data", None, "model")
    args = e.arg((3, 64, 8, 16), None, None, "model"), e.arg((8, 64), "data"), cache, cache, e.arg((), dtype="int32")
    return f, args, (e.at("data", "model"), cache.sharding, cache.sharding)


@program(data=4, model=2)
def loss_over_a_split_vocabulary(e: Any) -> Any:
    """Cross entropy of logits whose classes are split, labels taken by position."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        return (e.jax.nn.logsumexp(z, -1) - e.jnp.take_along_axis(z, y[:, None], -1)[:, 0]).mean()

    return _train(e, loss, e.arg((64, 4096), None, "model"), e.arg((256, 64), "data"),
                  e.arg((256,), "data", dtype="int32"))  # fmt: skip


@program(data=2, model=4)
def loss_of_a_tied_embedding(e: Any) -> Any:
    """A table split by rows, looked up and multiplied with."""

    def loss(w: Any, ids: Any) -> Any:
        x = e.jnp.take(w, ids[:, :-1], axis=0)
        z = e.jnp.einsum("bsm,vm->bsv", x, w)
        hot = e.jax.nn.one_hot(ids[:, 1:], w.shape[0])
        return -(e.jax.nn.log_softmax(z) * hot).sum(-1).mean()

    return _train(e, loss, e.arg((2048, 64), "model"), e.arg((16, 33), "data", dtype="int32"))


@program(data=8)
def embeddings_of_a_recommender(e: Any) -> Any:
    """Bags of ids in tables split by rows; a product of the sums."""

    def f(users: Any, items: Any, a: Any, b: Any) -> Any:
        return ((users[a].sum(1)) * (items[b].sum(1))).sum(-1)

    table = e.arg((8192, 32), "data")
    ids = e.arg((256, 4), "data", dtype="int32")
    return f, (table, table, ids, ids), e.at("data")


@program(data=8)
def embeddings_of_a_recommender_train(e: Any) -> Any:
    """The gradient of such tables, in their layout."""

    def loss(tables: Any, a: Any, b: Any) -> Any:
        return ((tables[0][a].sum(1)) * (tables[1][b].sum(1))).sum(-1).mean()

    table = e.arg((8192, 32), "data")
    ids = e.arg((1024, 4), "data", dtype="int32")
    return _train(e, loss, [table, table], ids, ids)


@program(data=8)
def optimizer_states_split(e: Any) -> Any:
    """ZeRO: parameters everywhere, moments split; the batch split."""

    def step(params: Any, moments: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return ((e.jnp.tanh(x @ p[0]) @ p[1] - y) ** 2).mean()

        grads = e.jax.grad(loss)(params)
        grads = [e.pin(g, "data") for g in grads]
        moments = [0.9 * m + 0.1 * g for m, g in zip(moments, grads, strict=True)]
        return [p - e.pin(m, None) for p, m in zip(params, moments, strict=True)], moments

    params = [e.arg((64, 256)), e.arg((256, 64))]
    moments = [e.arg((64, 256), "data"), e.arg((256, 64), "data")]
    x = e.arg((512, 64), "data")
    return step, (params, moments, x, x), (e.like(params), e.like(moments))


@program(data=8)
def adam_with_split_parameters(e: Any) -> Any:
    """FSDP with Adam, clipped by the global norm."""

    def step(params: Any, m: Any, v: Any, x: Any) -> Any:
        jnp, tree = e.jnp, e.jax.tree
        loss = lambda p: (jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]) ** 2).mean()  # noqa: E731
        grads = e.jax.grad(loss)(params)
        norm = jnp.sqrt(sum((g**2).sum() for g in grads))
        grads = tree.map(lambda g: g * jnp.minimum(1, 1 / norm), grads)
        m = tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grads)
        return tree.map(lambda p, a, b: p - a / (jnp.sqrt(b) + 1e-8), params, m, v), m, v

    params = [e.arg((64, 256), "data"), e.arg((256, 64), None, "data")]
    outs = e.like(params)
    return step, (params, params, params, e.arg((512, 64), "data")), (outs, outs, outs)


@program(stage=8)
def pipeline_by_permutes(e: Any) -> Any:
    """Microbatches through stages in a `shard_map`."""

    def f(w: Any, x: Any) -> Any:
        def stages(w: Any, x: Any) -> Any:
            first = e.lax.axis_index("stage") == 0

            def tick(carry: Any, i: Any) -> Any:
                got = e.jnp.where(first, x[i % 8], carry)
                out = e.jnp.tanh(got @ w[0])
                return e.lax.ppermute(out, "stage", [(k, (k + 1) % 8) for k in range(8)]), out

            return e.lax.scan(tick, e.lax.pcast(x[0], "stage", to="varying"), e.jnp.arange(15))[1][-8:]

        return e.jax.shard_map(stages, mesh=e.mesh, in_specs=(e.P("stage"), e.P()), out_specs=e.P(None, "stage"))(w, x)

    return f, (e.arg((8, 32, 32), "stage"), e.arg((8, 16, 32))), None


@program(data=2, model=4)
def layers_in_a_scan(e: Any) -> Any:
    """Tensor parallelism with weights split over both axes, rematerialized."""

    def loss(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            h = e.pin(e.jax.nn.gelu(x @ w["up"]), "data", "model")
            return x + e.pin(h @ w["down"], "data"), None

        return (e.lax.scan(e.jax.checkpoint(layer), x, w)[0] ** 2).mean()

    w = {"up": e.arg((4, 64, 256), None, "data", "model"), "down": e.arg((4, 256, 64), None, "model", "data")}
    return _train(e, loss, w, e.arg((128, 64), "data"))


@program(data=8)
def patches_of_a_vision_transformer(e: Any) -> Any:
    """Images cut into patches, layer norm, a mean over patches."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        jnp = e.jnp
        x = x.reshape(-1, 4, 8, 4, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 16, 192) @ w["patch"]
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)
        z = x.mean(1) @ w["head"]
        return -(e.jax.nn.log_softmax(z) * e.jax.nn.one_hot(y, 16)).sum(-1).mean()

    w = {"patch": e.arg((192, 64), "data"), "head": e.arg((64, 16))}
    return _train(e, loss, w, e.arg((64, 32, 32, 3), "data"), e.arg((64,), "data", dtype="int32"))


@program(data=4, model=2)
def adversarial_step(e: Any) -> Any:
    """A generator and a discriminator trained against each other."""

    def step(g: Any, d: Any, z: Any, x: Any) -> Any:
        make = lambda g: e.jnp.tanh(z @ g[0]) @ g[1]  # noqa: E731
        judge = lambda d, x: e.jax.nn.relu(x @ d[0]) @ d[1]  # noqa: E731
        g_grad = e.jax.grad(lambda g: -judge(d, make(g)).mean())(g)
        d_grad = e.jax.grad(lambda d: (judge(d, make(g)) - judge(d, x)).mean())(d)
        update = lambda p, q: e.jax.tree.map(lambda a, b: a - b, p, q)  # noqa: E731
        return update(g, g_grad), update(d, d_grad)

    g = [e.arg((32, 256), None, "model"), e.arg((256, 64), "model")]
    d = [e.arg((64, 256), None, "model"), e.arg((256, 1), "model")]
    return step, (g, d, e.arg((256, 32), "data"), e.arg((256, 64), "data")), (e.like(g), e.like(d))


@program(data=8)
def beam_search_step(e: Any) -> Any:
    """Scores of beams and words, the best of them, and the beams put in their order."""

    def f(scores: Any, logits: Any, state: Any) -> Any:
        total = scores[..., None] + e.jax.nn.log_softmax(logits)
        best, at = e.lax.top_k(total.reshape(16, -1), 4)
        beam, word = at // 512, at % 512
        return best, word, e.jnp.take_along_axis(state, beam[..., None], axis=1)

    args = e.arg((16, 4), "data"), e.arg((16, 4, 512), "data"), e.arg((16, 4, 64), "data")
    return f, args, (e.at("data"), e.at("data"), e.at("data"))


@program(data=2, model=4)
def sample_from_split_logits(e: Any) -> Any:
    """The greatest of a split vocabulary, nucleus sampling with a sort and a running sum."""

    def f(logits: Any, noise: Any) -> Any:
        best, at = e.lax.top_k(logits, 16)
        p = e.jnp.cumsum(e.jax.nn.softmax(best), -1)
        kept = e.jnp.where(p - e.jax.nn.softmax(best) < 0.9, best, -1e9)
        return e.jnp.take_along_axis(at, (kept + noise).argmax(-1)[:, None], -1)[:, 0]

    return f, (e.arg((32, 8192), "data", "model"), e.arg((32, 16), "data")), e.at("data")
