"""Language models: attention in blocks, caches, experts, losses over split vocabularies, and layouts of their weights."""

from __future__ import annotations

from typing import Any

from tests.traffic.table import program


def _descent(e: Any, loss: Any, params: Any, *batch: Any) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        value, grads = e.jax.value_and_grad(loss)(params, *batch)
        return e.jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (params, *batch), (e.like(params), e.at())


def _normed(e: Any, x: Any) -> Any:
    return x * e.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


@program(data=2, model=4)
def attention_in_blocks_of_keys(e: Any) -> Any:
    """Flash attention: a scan over blocks of keys with running maxima and sums, heads split."""

    def f(q: Any, k: Any, v: Any) -> Any:
        jnp = e.jnp
        blocks = lambda t: jnp.moveaxis(t.reshape(4, 8, 32, 8, 16), 1, 0)  # noqa: E731

        def step(carry: Any, kv: Any) -> Any:
            top, total, out = carry
            s = jnp.einsum("bqhd,bkhd->bhqk", q, kv[0]) * 0.25
            new = jnp.maximum(top, s.max(-1))
            p, scale = jnp.exp(s - new[..., None]), jnp.exp(top - new)
            total = total * scale + p.sum(-1)
            out = out * scale[..., None] + jnp.einsum("bhqk,bkhd->bhqd", p, kv[1])
            return (new, total, out), None

        start = jnp.full((4, 8, 256), -jnp.inf), jnp.zeros((4, 8, 256)), jnp.zeros((4, 8, 256, 16))
        _, total, out = e.lax.scan(step, start, (blocks(k), blocks(v)))[0]
        return jnp.einsum("bhqd->bqhd", out / total[..., None])

    x = e.arg((4, 256, 8, 16), "data", None, "model")
    return f, (x, x, x), x.sharding


@program(data=2, seq=4)
def attention_in_blocks_of_split_keys(e: Any) -> Any:
    """The gradient of blockwise attention whose queries and keys are split along the sequence."""

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[i]) for i in range(3))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        s = jnp.where(jnp.arange(128)[:, None] >= jnp.arange(128), s, -1e9)
        return (jnp.einsum("bhqk,bkhd->bqhd", e.jax.nn.softmax(s), v) ** 2).mean()

    return _descent(e, loss, e.arg((3, 32, 4, 8)), e.arg((4, 128, 32), "data", "seq"))


@program(data=4, model=2)
def grouped_queries_decoded(e: Any) -> Any:
    """Grouped-query attention of one token against a cache whose heads are split, written at a position per sample."""

    def f(w: Any, x: Any, k: Any, v: Any, at: Any) -> Any:
        jnp = e.jnp
        q = jnp.einsum("bm,mhgd->bhgd", x, w["q"])
        put = e.jax.vmap(lambda cache, new, i: e.lax.dynamic_update_slice_in_dim(cache, new[None], i, 0))
        k = put(k, jnp.einsum("bm,mhd->bhd", x, w["k"]), at)
        v = put(v, jnp.einsum("bm,mhd->bhd", x, w["v"]), at)
        s = jnp.einsum("bhgd,bkhd->bhgk", q, k)
        s = jnp.where(jnp.arange(128) <= at[:, None, None, None], s, -1e9)
        out = jnp.einsum("bhgk,bkhd->bhgd", e.jax.nn.softmax(s), v)
        return jnp.einsum("bhgd,hgdm->bm", out, w["o"]), k, v

    w = {"q": e.arg((32, 2, 4, 16), None, "model"), "k": e.arg((32, 2, 16), None, "model"),
         "v": e.arg((32, 2, 16), None, "model"), "o": e.arg((2, 4, 16, 32), "model")}  # fmt: skip
    cache = e.arg((8, 128, 2, 16), "data", None, "model")
    args = w, e.arg((8, 32), "data"), cache, cache, e.arg((8,), "data", dtype="int32")
    return f, args, (e.at("data"), cache.sharding, cache.sharding)


@program(data=2, seq=4)
def decode_with_split_cache(e: Any) -> Any:
    """One token against a cache split along its positions, one of which is written."""

    def f(q: Any, k: Any, v: Any, k1: Any, v1: Any, at: Any) -> Any:
        jnp = e.jnp
        k = e.lax.dynamic_update_slice(k, k1[:, None], (0, at, 0, 0))
        v = e.lax.dynamic_update_slice(v, v1[:, None], (0, at, 0, 0))
        s = jnp.where(jnp.arange(256) <= at, jnp.einsum("bhd,bkhd->bhk", q, k), -1e9)
        return jnp.einsum("bhk,bkhd->bhd", e.jax.nn.softmax(s), v), k, v

    cache, row = e.arg((4, 256, 4, 16), "data", "seq"), e.arg((4, 4, 16), "data")
    return f, (row, cache, cache, row, row, e.arg((), dtype="int32")), (row.sharding, cache.sharding, cache.sharding)


@program(data=2, model=4)
def generation_in_a_loop(e: Any) -> Any:
    """Greedy decoding: a loop of steps that write the cache and choose of a split vocabulary."""

    def f(w: Any, ids: Any) -> Any:
        jnp = e.jnp

        def step(i: Any, state: Any) -> Any:
            ids, cache = state
            x = w["table"][ids[:, i]]
            cache = cache.at[:, i].set(x @ w["k"])
            s = jnp.where(jnp.arange(16) <= i, jnp.einsum("bd,bkd->bk", x @ w["q"], cache), -1e9)
            x = x + jnp.einsum("bk,bkd->bd", e.jax.nn.softmax(s), cache) @ w["o"]
            return ids.at[:, i + 1].set((x @ w["head"]).argmax(-1).astype("int32")), cache

        return e.lax.fori_loop(0, 15, step, (ids, jnp.zeros((8, 16, 64))))[0]

    w = {"table": e.arg((512, 32)), "head": e.arg((32, 512), None, "model"), "o": e.arg((64, 32), "model")}
    w |= {k: e.arg((32, 64), None, "model") for k in "qk"}
    return f, (w, e.arg((8, 16), "data", dtype="int32")), e.at("data")


@program(data=2, model=4)
def experts_with_capacity(e: Any) -> Any:
    """Two experts per token, slots of a fixed capacity, tokens beyond it dropped; the gradient."""

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        probs = e.jax.nn.softmax(x @ w["gate"])
        top, chosen = e.lax.top_k(probs, 2)
        hot = e.jax.nn.one_hot(chosen, 8)
        flat = jnp.moveaxis(hot, 1, 2).reshape(4, 128, 8)
        place = (jnp.cumsum(flat, 1) - 1).reshape(4, 2, 64, 8)
        place = jnp.moveaxis(place, 1, 2)
        kept = hot * (place < 24)
        slots = e.jax.nn.one_hot((place * hot).sum(-1).astype("int32"), 24)
        send = jnp.einsum("bske,bskc->bsec", kept, slots)
        given = jnp.einsum("bsec,bsm->ebcm", send, x)
        h = e.jax.nn.silu(jnp.einsum("ebcm,emh->ebch", given, w["up"]))
        back = jnp.einsum("ebch,ehm->ebcm", h, w["down"])
        weight = jnp.einsum("bske,bskc,bsk->bsec", kept, slots, top)
        return (jnp.einsum("bsec,ebcm->bsm", weight, back) ** 2).mean()

    w = {"gate": e.arg((32, 8)), "up": e.arg((8, 32, 64), "model"), "down": e.arg((8, 64, 32), "model")}
    return _descent(e, loss, w, e.arg((4, 64, 32), "data"))


@program(data=2, expert=2, model=2)
def experts_over_three_axes(e: Any) -> Any:
    """Experts on one axis, their hidden units on another, tokens on a third."""

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        gates = e.jax.nn.softmax(x @ w["gate"])
        h = e.jax.nn.gelu(jnp.einsum("bsm,emh->ebsh", x, w["up"]))
        out = jnp.einsum("ebsh,ehm,bse->bsm", h, w["down"], gates)
        return (out**2).mean()

    w = {"gate": e.arg((32, 4)), "up": e.arg((4, 32, 64), "expert", None, "model"),
         "down": e.arg((4, 64, 32), "expert", "model")}  # fmt: skip
    return _descent(e, loss, w, e.arg((4, 64, 32), "data"))


@program(data=8)
def experts_exchanged(e: Any) -> Any:
    """Slots made where the tokens are, exchanged to the experts and back."""

    def f(x: Any, chosen: Any, w: Any) -> Any:
        jnp = e.jnp
        send = jnp.einsum("gse,gsm->gem", e.jax.nn.one_hot(chosen, 8), x)
        send = e.pin(send, None, "data")
        out = jnp.einsum("gem,emn->gen", send, w)
        out = e.pin(out, "data")
        return jnp.einsum("gse,gen->gsn", e.jax.nn.one_hot(chosen, 8), out)

    args = e.arg((16, 64, 32), "data"), e.arg((16, 64), "data", dtype="int32"), e.arg((8, 32, 32), "data")
    return f, args, e.at("data")


@program(data=2, model=4)
def tied_embedding_over_the_width(e: Any) -> Any:
    """A table split by columns, looked up and multiplied with, its losses by the labels' positions."""

    def loss(w: Any, ids: Any) -> Any:
        jnp = e.jnp
        x = e.jax.nn.gelu(w["table"][ids[:, :-1]] @ w["mix"])
        z = x @ w["table"].T
        picked = jnp.take_along_axis(z, ids[:, 1:, None], -1)[..., 0]
        return (e.jax.nn.logsumexp(z, -1) - picked).mean()

    w = {"table": e.arg((512, 64), None, "model"), "mix": e.arg((64, 64), None, "model")}
    return _descent(e, loss, w, e.arg((8, 17), "data", dtype="int32"))


@program(data=2, model=4)
def loss_in_chunks(e: Any) -> Any:
    """Cross entropy of a split vocabulary, in chunks of the tokens by a scan, rematerialized."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        jnp = e.jnp

        def chunk(total: Any, xy: Any) -> Any:
            z = xy[0] @ w
            picked = jnp.take_along_axis(z, xy[1][..., None], -1)[..., 0]
            return total + (e.jax.nn.logsumexp(z, -1) - picked).sum(), None

        xs = jnp.moveaxis(x.reshape(8, 4, 16, 32), 1, 0), jnp.moveaxis(y.reshape(8, 4, 16), 1, 0)
        return e.lax.scan(e.jax.checkpoint(chunk), 0.0, xs)[0] / 512

    args = e.arg((8, 64, 32), "data"), e.arg((8, 64), "data", dtype="int32")
    return _descent(e, loss, e.arg((32, 1024), None, "model"), *args)


@program(data=2, model=4)
def smoothed_labels(e: Any) -> Any:
    """Label smoothing and a z-loss over a split vocabulary, padding masked."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        lse = e.jax.nn.logsumexp(z, -1, keepdims=True)
        target = 0.9 * e.jax.nn.one_hot(y, 1024) + 0.1 / 1024
        each = -(target * (z - lse)).sum(-1) + 1e-4 * lse[..., 0] ** 2
        mask = (y > 0) * 1.0
        return (each * mask).sum() / mask.sum()

    args = e.arg((8, 32, 32), "data"), e.arg((8, 32), "data", dtype="int32")
    return _descent(e, loss, e.arg((32, 1024), None, "model"), *args)


@program(data=2, model=4)
def adapters_of_low_rank(e: Any) -> Any:
    """Gradients of the factors beside frozen split weights, two layers."""

    def loss(a: Any, w: Any, x: Any) -> Any:
        h = e.jax.nn.gelu(x @ w[0] + (x @ a[0][0]) @ a[0][1])
        return ((h @ w[1] + (h @ a[1][0]) @ a[1][1]) ** 2).mean()

    w = [e.arg((64, 256), None, "model"), e.arg((256, 64), "model")]
    a = [(e.arg((64, 4)), e.arg((4, 256), None, "model")), (e.arg((256, 4), "model"), e.arg((4, 64)))]
    return _descent(e, loss, a, w, e.arg((64, 64), "data"))


def _decoder(e: Any, w: Any, x: Any, act: Any) -> Any:
    jnp = e.jnp
    y = _normed(e, x)
    q, k, v = (jnp.einsum("bsm,mhd->bshd", y, w[n]) for n in "qkv")
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4
    s = jnp.where(jnp.tril(jnp.ones((64, 64), bool)), s, -1e9)
    o = jnp.einsum("bhqk,bkhd->bqhd", e.jax.nn.softmax(s), v)
    x = act(x + jnp.einsum("bshd,hdm->bsm", o, w["o"]))
    y = _normed(e, x)
    h = e.jax.nn.silu(y @ w["gate"]) * (y @ w["up"])
    return act(x + h @ w["down"])


def _decoder_weights(e: Any, f: Any, m: Any, *lead: int) -> Any:
    none = (None,) * len(lead)
    w = {n: e.arg((*lead, 64, 4, 16), *none, f, m) for n in "qkv"} | {"o": e.arg((*lead, 4, 16, 64), *none, m, None, f)}
    return w | {
        "gate": e.arg((*lead, 64, 256), *none, f, m),
        "up": e.arg((*lead, 64, 256), *none, f, m),
        "down": e.arg((*lead, 256, 64), *none, m, f),
    }


@program(data=4, model=2)
def decoder_in_two_ways(e: Any) -> Any:
    """A decoder layer with weights split over both axes and sequences split between its parts."""

    def loss(w: Any, x: Any) -> Any:
        return (_decoder(e, w, x, lambda t: e.pin(t, "data", "model")) ** 2).mean()

    return _descent(e, loss, _decoder_weights(e, "data", "model"), e.arg((8, 64, 64), "data", "model"))


@program(data=2, fsdp=2, model=2)
def decoder_over_three_axes(e: Any) -> Any:
    """Layers in a scan, the batch over two axes, weights over the other pair."""

    def loss(w: Any, x: Any) -> Any:
        def layer(x: Any, w: Any) -> Any:
            return _decoder(e, w, x, lambda t: e.pin(t, ("data", "fsdp"))), None

        return (e.lax.scan(e.jax.checkpoint(layer), x, w)[0] ** 2).mean()

    return _descent(e, loss, _decoder_weights(e, "fsdp", "model", 3), e.arg((8, 64, 64), ("data", "fsdp")))


@program(data=8)
def decoder_with_split_parameters(e: Any) -> Any:
    """Every weight split over all devices, an unrolled pair of layers."""

    def loss(w: Any, x: Any) -> Any:
        for layer in w:
            x = _decoder(e, layer, x, lambda t: e.pin(t, "data"))
        return (x**2).mean()

    return _descent(e, loss, [_decoder_weights(e, "data", None)] * 2, e.arg((8, 64, 64), "data"))


@program(x=4, y=2)
def weights_stationary(e: Any) -> Any:
    """Few tokens against weights split both ways: activations move, weights stay."""

    def f(x: Any, w: Any) -> Any:
        for up, down in w:
            h = e.pin(e.jax.nn.relu(x @ up), None, "y")
            x = e.pin(h @ down, None, "x")
        return x

    w = [(e.arg((256, 512), "x", "y"), e.arg((512, 256), "y", "x"))] * 2
    return f, (e.arg((8, 256), None, "x"), w), e.at(None, "x")


@program(data=2, model=4)
def rotary_positions(e: Any) -> Any:
    """Halves of each head rotated by positions along a split sequence; the gradient."""

    def loss(w: Any, x: Any) -> Any:
        jnp = e.jnp
        q = jnp.einsum("bsm,mhd->bshd", x, w)
        angle = jnp.arange(64)[:, None] * 0.5 ** jnp.arange(8)
        c, s = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        a, b = jnp.split(q, 2, -1)
        return (jnp.concatenate([a * c - b * s, a * s + b * c], -1) ** 3).mean()

    return _descent(e, loss, e.arg((32, 4, 16)), e.arg((4, 64, 32), "data", "model"))


@program(seq=8)
def relative_shift(e: Any) -> Any:
    """Scores by distance brought to positions by a pad and a reshape, the queries split."""

    def f(s: Any) -> Any:
        b, n, m = s.shape
        return e.jnp.pad(s, ((0, 0), (0, 0), (1, 0))).reshape(b, m + 1, n)[:, 1:].reshape(b, n, m)

    return f, (e.arg((2, 64, 64), None, "seq"),), e.at(None, "seq")


@program(data=8)
def preferences_between_pairs(e: Any) -> Any:
    """Log probabilities of chosen and rejected answers under two models, the gradient of one."""

    def logp(e: Any, w: Any, x: Any, y: Any) -> Any:
        z = e.jax.nn.log_softmax(e.jnp.tanh(x @ w[0]) @ w[1])
        return e.jnp.take_along_axis(z, y[..., None], -1)[..., 0].sum(-1)

    def loss(w: Any, ref: Any, a: Any, b: Any, y: Any) -> Any:
        better = logp(e, w, a, y) - logp(e, ref, a, y)
        worse = logp(e, w, b, y) - logp(e, ref, b, y)
        return -e.jax.nn.log_sigmoid(0.1 * (better - worse)).mean()

    w = [e.arg((32, 64), "data"), e.arg((64, 128), "data")]
    x = e.arg((16, 16, 32), "data")
    return _descent(e, loss, w, w, x, x, e.arg((16, 16), "data", dtype="int32"))


@program(data=4, model=2)
def speculative_acceptance(e: Any) -> Any:
    """Draft tokens judged by two split distributions, the accepted prefix kept."""

    def f(p: Any, q: Any, ids: Any, u: Any) -> Any:
        jnp = e.jnp
        p, q = e.jax.nn.softmax(p), e.jax.nn.softmax(q)
        pick = lambda t: jnp.take_along_axis(t, ids[..., None], -1)[..., 0]  # noqa: E731
        kept = jnp.cumprod((u < pick(p) / pick(q)) * 1, -1)
        rest = jnp.maximum(p - q, 0)
        at = jnp.minimum(kept.sum(-1), 3)
        again = jnp.take_along_axis(rest, at[:, None, None], 1)[:, 0].argmax(-1)
        return kept, again

    z = e.arg((8, 4, 1024), "data", None, "model")
    args = z, z, e.arg((8, 4), "data", dtype="int32"), e.arg((8, 4), "data")
    return f, args, (e.at("data"), e.at("data"))


@program(explicit=True, data=4, model=2)
def dense_layers_explicit(e: Any) -> Any:
    """A feed-forward step whose types carry the layouts, written with `out_sharding`."""

    def loss(w: Any, x: Any) -> Any:
        h = e.jax.nn.relu(e.jnp.einsum("bm,mh->bh", x, w[0], out_sharding=e.P("data", "model")))
        return (e.jnp.einsum("bh,hm->bm", h, w[1], out_sharding=e.P("data", None)) ** 2).mean()

    def step(w: Any, x: Any) -> Any:
        return e.jax.tree.map(lambda p, g: p - g, w, e.jax.grad(loss)(w, x))

    w = [e.arg((64, 256), None, "model"), e.arg((256, 64), "model", None)]
    return step, (w, e.arg((64, 64), "data", None)), None


@program(explicit=True, data=2, model=4)
def attention_explicit(e: Any) -> Any:
    """Attention by heads with typed layouts."""

    def f(q: Any, k: Any, v: Any, o: Any) -> Any:
        jnp = e.jnp
        s = e.jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        out = jnp.einsum("bhqk,bkhd->bqhd", s, v)
        return jnp.einsum("bqhd,hdm->bqm", out, o, out_sharding=e.P("data", "model", None))

    x = e.arg((4, 64, 4, 16), "data", None, "model", None)
    return f, (x, x, x, e.arg((4, 16, 64), "model", None, None)), None


@program(explicit=True, y=2, z=4)
def attention_left_to_auto(e: Any) -> Any:
    """Grouped-query attention whose axes are Auto inside of an explicit program: heads over both axes, those of keys over one."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        jnp = e.jnp
        s = jnp.einsum("bhgqd,bhkd->bhgqk", q.reshape(4, 4, 4, 16, 8), k).reshape(4, 16, 16, 32)
        p = e.jax.nn.softmax(s).reshape(4, 4, 4, 16, 32)
        return jnp.einsum("bhgqk,bhkd->bhgqd", p, v).reshape(4, 16, 16, 8)

    def f(w: Any, x: Any, k: Any, v: Any) -> Any:
        q = e.jnp.einsum("bsm,mhd->bhsd", x, w["q"])
        out = e.jax.sharding.auto_axes(attention, out_sharding=e.P(None, ("y", "z")))(q, k, v)
        return e.jnp.einsum("bhsd,hdm->bsm", out, w["o"], out_sharding=e.P())

    w = {"q": e.arg((32, 16, 8), None, ("y", "z")), "o": e.arg((16, 8, 32), ("y", "z"))}
    kv = e.arg((4, 4, 32, 8), None, "y")
    return f, (w, e.arg((4, 16, 32)), kv, kv), None
