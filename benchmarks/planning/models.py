"""Models of the published steps, to be planned: decoders written from public configurations, with their parallelism and remat.

In: a `Row` of `published_steps`. Out: a training step (AdamW) and the types and layouts of its arguments. Attention is blockwise, as
the flash attention of the recipes is: a loop over blocks of queries and keys whose scores stay in on-chip memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

Tree = Any
BATCH = ("data", "fsdp")


@dataclass(frozen=True)
class Decoder:
    """A decoder's sizes.

    Attributes:
        layers, dim, heads, kv_heads, head_dim, hidden, vocab: sizes.
        gated: whether the MLP has a gate (two products into it).
        window: keys that a query sees in local layers; 0: all.
        local: of how many layers all but one are local.
        experts, chosen: of a mixture of experts: how many, and how many of them a token visits.
        shared: hidden size of what each token visits besides them.
        capacity: tokens per expert over their even share; 1.0 without dropping.
        tied: whether the embedding is used for the logits.
        q_rank, kv_rank: of latent attention, the widths between the two products of queries and of keys and values; 0: one product.
        v_dim: of the values of latent attention; of keys 64 dims are shared by all heads.
    """

    layers: int
    dim: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    gated: bool = True
    window: int = 0
    local: int = 1
    experts: int = 0
    chosen: int = 0
    shared: int = 0
    capacity: float = 1.0
    tied: bool = False
    q_rank: int = 0
    kv_rank: int = 0
    v_dim: int = 0


@dataclass(frozen=True)
class Recipe:
    """How a step is run.

    Attributes:
        axes: sizes of the mesh axes 'data', 'fsdp', 'expert', 'tensor' and 'context'.
        batch: sequences per device (may be a part of one).
        sequence: tokens.
        saved: names of the values that the backward pass does not compute again; 'all products' of them.
        weights, moments: dtypes of the parameters, and of the first moment of AdamW.
        narrow: the 8-bit dtype in which the products of layers run, all three of each; '' for bfloat16.
        vocab_tiles: parts in which the logits are computed.
        one_hot: whether the embedding is a product with one-hot rows.
        offloads: whether what is saved goes to the host's memory.
        unrolled: whether layers stand one after the other rather than in a loop.
    """

    axes: Mapping[str, int]
    batch: float
    sequence: int
    saved: tuple[str, ...] = ()
    weights: str = "float32"
    moments: str = "float32"
    narrow: str = ""
    vocab_tiles: int = 1
    one_hot: bool = True
    offloads: bool = False
    unrolled: bool = False


def batch_axes(r: Recipe) -> tuple[str, ...]:
    """The axes that split sequences."""
    return BATCH + (("expert",) if r.axes.get("expert", 1) > 1 else ())


# -- attention --------------------------------------------------------------------------------------------------------------------

BLOCK = 2048
ROPE_DIM = 64  # of latent attention: dims of a key that carry its position


def _pairs(queries: int, keys: int, window: int, first: int) -> tuple[list[int], list[int]]:
    """The blocks of queries and keys that a causal mask (and a window) leaves; `first`: position of the first query in blocks."""
    reach = math.ceil(window / BLOCK) if window else keys
    found = [(i, j) for i in range(queries) for j in range(keys) if j <= first + i and first + i - j <= reach]
    return [i for i, _ in found], [j for _, j in found]


def _scores(q, k):
    return lax.dot_general(q, k, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def _one_head(window: int, first: int, q, k, v):
    """Attention of one head: bf16[s, d], by blocks; also the log of the sum of exponentials."""
    block = min(BLOCK, q.shape[0])
    number = (q.shape[0] // block, k.shape[0] // block)
    rows, columns = _pairs(*number, window, first)
    scale = q.shape[1] ** -0.5
    start = (
        jnp.full((q.shape[0],), -1e30, jnp.float32),
        jnp.zeros((q.shape[0],), jnp.float32),
        jnp.zeros((q.shape[0], v.shape[1]), jnp.float32),
    )

    def step(carry, at):
        top, total, out = carry
        i, j = at[0] * block, at[1] * block
        qi, kj, vj = (lax.dynamic_slice_in_dim(x, p, block) for x, p in ((q, i), (k, j), (v, j)))
        s = _scores(qi, kj) * scale
        s = jnp.where(jnp.arange(block)[:, None] + i >= jnp.arange(block)[None, :] + j, s, -1e30)
        old, sums, rest = (lax.dynamic_slice_in_dim(x, i, block) for x in (top, total, out))
        new = jnp.maximum(old, s.max(1))
        p = jnp.exp(s - new[:, None])
        shrink = jnp.exp(old - new)
        sums = sums * shrink + p.sum(1)
        rest = rest * shrink[:, None] + jnp.matmul(p.astype(v.dtype), vj, preferred_element_type=jnp.float32)
        put = lax.dynamic_update_slice_in_dim
        return (put(top, new, i, 0), put(total, sums, i, 0), put(out, rest, i, 0)), None

    (top, total, out), _ = lax.scan(step, start, jnp.stack([jnp.array(rows), jnp.array(columns)], 1))
    return (out / total[:, None]).astype(q.dtype), top + jnp.log(total)


def _one_head_backward(window: int, first: int, q, k, v, out, lse, g):
    """Cotangents of q, k and v of one head, by blocks; scores are computed again."""
    block = min(BLOCK, q.shape[0])
    number = (q.shape[0] // block, k.shape[0] // block)
    rows, columns = _pairs(*number, window, first)
    scale = q.shape[1] ** -0.5
    delta = (out.astype(jnp.float32) * g.astype(jnp.float32)).sum(1)
    start = tuple(jnp.zeros(x.shape, jnp.float32) for x in (q, k, v))

    def step(carry, at):
        dq, dk, dv = carry
        i, j = at[0] * block, at[1] * block
        cut = lax.dynamic_slice_in_dim
        qi, gi, li, di = (cut(x, i, block) for x in (q, g, lse, delta))
        kj, vj = (cut(x, j, block) for x in (k, v))
        s = _scores(qi, kj) * scale
        s = jnp.where(jnp.arange(block)[:, None] + i >= jnp.arange(block)[None, :] + j, s, -1e30)
        p = jnp.exp(s - li[:, None])
        dp = _scores(gi, vj)
        ds = (p * (dp - di[:, None]) * scale).astype(q.dtype)
        p = p.astype(q.dtype)

        def add(x, at, more):
            return lax.dynamic_update_slice_in_dim(x, cut(x, at, block) + more, at, 0)

        product = partial(jnp.matmul, preferred_element_type=jnp.float32)
        return (add(dq, i, product(ds, kj)), add(dk, j, product(ds.T, qi)), add(dv, j, product(p.T, gi))), None

    (dq, dk, dv), _ = lax.scan(step, start, jnp.stack([jnp.array(rows), jnp.array(columns)], 1))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


def _local_heads(run: Callable[..., Any], q, rest: tuple[Any, ...], group: int):
    """`run` for each head of each sequence, one after the other: [b, s, h, d] with `group` query heads per head of keys."""
    b, _, h, _ = q.shape

    def heads(x, repeats):
        x = jnp.moveaxis(x, 2, 1) if x.ndim > 3 else x
        x = jnp.repeat(x, repeats, axis=1) if repeats > 1 else x
        return x.reshape(b * h, *x.shape[2:])

    return lax.map(lambda xs: run(*xs), (heads(q, 1), *(heads(x, h // x.shape[2 if x.ndim > 3 else 1]) for x in rest)))


def attention(mesh, recipe: Recipe, window: int):
    """Causal attention of bf16[b, s, h, d] and bf16[b, s, kv, d], each device on its sequences and heads."""
    context = recipe.axes.get("context", 1)
    batch = batch_axes(recipe)
    spec = P(batch, "context" if context > 1 else None, "tensor", None)
    out_lse = P(batch, "tensor", "context" if context > 1 else None)
    # Of a context split over devices, the middle one stands for all: causal masks leave it half of the keys (balanced).
    part = recipe.sequence // context // BLOCK
    first = part * (context // 2) if context > 1 else 0

    def keys(x):
        return lax.all_gather(x, "context", axis=1, tiled=True) if context > 1 else x

    def forward_local(q, k, v):
        b, s, h, _ = q.shape
        out, lse = _local_heads(partial(_one_head, window, first), q, (keys(k), keys(v)), h // k.shape[2])
        return jnp.moveaxis(out.reshape(b, h, s, v.shape[3]), 1, 2), lse.reshape(b, h, s)

    def backward_local(q, k, v, out, lse, g):
        b, s, h, _ = q.shape
        run = partial(_one_head_backward, window, first)
        dq, dk, dv = _local_heads(run, q, (keys(k), keys(v), out, lse, g), h // k.shape[2])

        def back(x, like):
            x = jnp.moveaxis(x.reshape(b, h, *x.shape[1:]), 1, 2)
            x = x.reshape(*x.shape[:2], like.shape[2], h // like.shape[2], x.shape[3]).sum(3)
            if x.shape[1] > s:
                x = lax.psum_scatter(x, "context", scatter_dimension=1, tiled=True)
            return x.astype(like.dtype)

        return back(dq, q), back(dk, k), back(dv, v)

    shard = partial(jax.shard_map, mesh=mesh, check_vma=False)
    forward = shard(forward_local, in_specs=(spec,) * 3, out_specs=(spec, out_lse))
    backward = shard(backward_local, in_specs=(spec,) * 4 + (out_lse, spec), out_specs=(spec,) * 3)

    @jax.custom_vjp
    def known(q, k, v, out, lse):
        return out

    known.defvjp(
        lambda q, k, v, out, lse: (out, (q, k, v, out, lse)),
        lambda kept, g: (*backward(*kept, g), jnp.zeros_like(kept[3]), jnp.zeros_like(kept[4])),  # type: ignore[call-arg]
    )

    def attend(q, k, v):
        # The forward pass stands outside of the custom rule, where the policies of `checkpoint` see the names of its results.
        found = forward(*(lax.stop_gradient(x) for x in (q, k, v)))
        return known(q, k, v, *(jax.ad_checkpoint.checkpoint_name(x, "context") for x in found))

    return attend


# -- products in 8 bits --------------------------------------------------------------------------------------------------------------


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def narrow_product(rule: str, dtype: str, x, w):
    """A product whose operands are 8 bits wide, in the backward pass as well; scales are left out."""
    wide = jnp.int32 if dtype == "int8" else jnp.bfloat16
    return jnp.einsum(rule, x.astype(dtype), w.astype(dtype), preferred_element_type=wide).astype(jnp.bfloat16)


def _narrow_forward(rule, dtype, x, w):
    return narrow_product(rule, dtype, x, w), (x, w)


def _narrow_backward(rule, dtype, kept, g):
    operands, out = rule.split("->")
    left, right = operands.split(",")
    x, w = kept
    return narrow_product(f"{out},{right}->{left}", dtype, g, w), narrow_product(f"{left},{out}->{right}", dtype, x, g)


narrow_product.defvjp(_narrow_forward, _narrow_backward)


# -- layers -----------------------------------------------------------------------------------------------------------------------


def parameter_shapes(c: Decoder, expert: str | None) -> dict[str, tuple[tuple[int, ...], P]]:
    """Shapes and layouts of the parameters; those of layers are stacked. `expert`: the axis that splits experts, if any."""
    n, d = c.layers, c.dim
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {
        "embed": ((c.vocab, d), P("tensor", "fsdp")),
        "norm": ((d,), P(None)),
        "norm1": ((n, d), P(None, None)),
        "norm2": ((n, d), P(None, None)),
        "q": ((n, c.q_rank or d, c.heads, c.head_dim), P(None, "fsdp", "tensor", None)),
        "o": ((n, c.heads, c.v_dim or c.head_dim, d), P(None, "tensor", None, "fsdp")),
    }
    if c.q_rank:
        shapes["q_in"] = ((n, d, c.q_rank), P(None, "fsdp", None))
    if c.kv_rank:
        shapes["kv_in"] = ((n, d, c.kv_rank + ROPE_DIM), P(None, "fsdp", None))
        shapes["kv"] = ((n, c.kv_rank, c.heads, c.head_dim - ROPE_DIM + c.v_dim), P(None, "fsdp", "tensor", None))
    else:
        shapes["k"] = shapes["v"] = ((n, d, c.kv_heads, c.head_dim), P(None, "fsdp", "tensor", None))
    if not c.tied:
        shapes["unembed"] = ((d, c.vocab), P("fsdp", "tensor"))
    names = ("up", "gate") if c.gated else ("up",)
    if c.experts:
        shapes["router"] = ((n, d, c.experts), P(None, "fsdp", None))
        for name in names:
            shapes[name] = ((n, c.experts, d, c.hidden), P(None, expert, "fsdp", "tensor"))
        shapes["down"] = ((n, c.experts, c.hidden, d), P(None, expert, "tensor", "fsdp"))
    wide = c.shared if c.experts else c.hidden
    if wide:
        prefix = "shared_" if c.experts else ""
        for name in names:
            shapes[prefix + name] = ((n, d, wide), P(None, "fsdp", "tensor"))
        shapes[prefix + "down"] = ((n, wide, d), P(None, "tensor", "fsdp"))
    return shapes


def loss_function(c: Decoder, r: Recipe, mesh) -> Callable[..., Any]:
    """The mean loss of a batch of tokens."""
    split = "context" if r.axes.get("context", 1) > 1 else None
    split_experts = r.axes.get("expert", 1) > 1
    batch = batch_axes(r)
    attend_all, attend_local = attention(mesh, r, 0), attention(mesh, r, c.window)
    name = jax.ad_checkpoint.checkpoint_name
    bf16 = jnp.bfloat16

    def pin(x, *dims):
        return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*dims)))

    def norm(x, scale):
        y = x.astype(jnp.float32)
        return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * scale).astype(bf16)

    def product(x, w, rule):
        return narrow_product(rule, r.narrow, x, w) if r.narrow else jnp.einsum(rule, x, w, preferred_element_type=bf16)

    def rope(x):
        half = x.shape[-1] // 2
        angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * 10000.0 ** (-jnp.arange(half) / half)
        sin, cos = jnp.sin(angle)[:, None], jnp.cos(angle)[:, None]
        a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(bf16)

    def mlp(x, w, prefix=""):
        up = name(product(x, w[prefix + "up"], "bsd,df->bsf"), "mlpwi")
        if c.gated:
            up = jax.nn.silu(name(product(x, w[prefix + "gate"], "bsd,df->bsf"), "mlpwi")) * up
        else:
            up = jax.nn.gelu(up)
        return name(product(up, w[prefix + "down"], "bsf,fd->bsd"), "mlpwo")

    def experts(x, w):
        b, s, d = x.shape
        gates = jax.nn.softmax(jnp.einsum("bsd,de->bse", x, w["router"]).astype(jnp.float32))
        top, at = lax.top_k(gates, c.chosen)
        places = math.ceil(s * c.chosen * c.capacity / c.experts)
        # Each expert gets an even share of a sequence's tokens: the places of the published recipes without imbalance.
        order = jnp.argsort(at.reshape(b, -1), axis=1)
        kept = (
            order[:, : c.experts * places]
            if order.shape[1] >= c.experts * places
            else jnp.pad(order, ((0, 0), (0, c.experts * places - order.shape[1])))
        )
        tokens = jnp.take_along_axis(x, (kept // c.chosen)[..., None], axis=1)
        tokens = tokens.reshape(b, c.experts, places, d)
        if split_experts:
            tokens = pin(tokens, BATCH, "expert", None, None)
        up = product(tokens, w["up"], "becd,edf->becf")
        if c.gated:
            up = jax.nn.silu(product(tokens, w["gate"], "becd,edf->becf")) * up
        out = product(up, w["down"], "becf,efd->becd").reshape(b, -1, d)
        weight = jnp.take_along_axis(top.reshape(b, -1), kept, axis=1)[..., None].astype(bf16)
        parts = pin(out, batch, None, None) * weight
        return jax.vmap(lambda whole, at, part: whole.at[at].add(part))(jnp.zeros_like(x), kept // c.chosen, parts)

    def queries_keys_values(y, w):
        into = product(y, w["q_in"], "bsd,dr->bsr") if c.q_rank else y
        q = name(rope(product(into, w["q"], "bsd,dhk->bshk")), "query_proj")
        if not c.kv_rank:
            k = name(rope(product(y, w["k"], "bsd,dhk->bshk")), "key_proj")
            return q, k, name(product(y, w["v"], "bsd,dhk->bshk"), "value_proj")
        latent = product(y, w["kv_in"], "bsd,dr->bsr")
        kv = product(latent[..., : c.kv_rank], w["kv"], "bsr,rhk->bshk")
        shared = rope(latent[..., None, c.kv_rank :])
        k, v = kv[..., : -c.v_dim], kv[..., -c.v_dim :]
        shared = jnp.broadcast_to(shared, (*k.shape[:3], ROPE_DIM))
        return q, name(jnp.concatenate([k, shared], -1), "key_proj"), name(v, "value_proj")

    def layer(x, w, attend):
        w = {n: v if v.ndim == 1 else v.astype(bf16) for n, v in w.items()}
        x = name(pin(x, batch, split, "tensor"), "decoder_layer_input")
        y = norm(x, w["norm1"])
        out = attend(*queries_keys_values(y, w))
        x = x + name(product(out, w["o"], "bshk,hkd->bsd"), "out_proj")
        x = pin(x, batch, split, "tensor")
        y = norm(x, w["norm2"])
        if not c.experts:
            return x + mlp(y, w)
        return x + experts(y, w) + (mlp(y, w, "shared_") if c.shared else 0)

    policies = jax.checkpoint_policies
    if "all products" in r.saved:
        policy = policies.checkpoint_dots_with_no_batch_dims
    elif r.offloads:
        policy = policies.save_and_offload_only_these_names(
            names_which_can_be_saved=(),
            names_which_can_be_offloaded=tuple(r.saved),
            offload_src="device",
            offload_dst="pinned_host",
        )
    else:
        policy = policies.save_only_these_names(*r.saved)

    def loss(params, tokens):
        embed = params["embed"].astype(bf16)
        if r.one_hot:
            x = jnp.einsum("bsv,vd->bsd", jax.nn.one_hot(tokens, c.vocab, dtype=bf16), embed)
        else:
            x = embed[tokens]
        x = pin(x, batch, split, "tensor")
        stacked = {n: v for n, v in params.items() if n not in ("embed", "unembed", "norm")}
        if c.local > 1:
            stacked = {n: v.reshape(c.layers // c.local, c.local, *v.shape[1:]) for n, v in stacked.items()}

        @partial(jax.checkpoint, policy=policy, prevent_cse=r.unrolled)  # a loop keeps the second run apart as well
        def several(x, w):
            for i in range(c.local):
                attend = attend_all if i == c.local - 1 else attend_local
                x = layer(x, {n: v[i] for n, v in w.items()} if c.local > 1 else w, attend)
            return x, None

        if r.unrolled:
            for i in range(c.layers // c.local):
                x, _ = several(x, {n: v[i] for n, v in stacked.items()})
        else:
            x, _ = lax.scan(several, x, stacked)
        x = norm(x, params["norm"])
        out = embed.T if c.tied else params["unembed"].astype(bf16)

        @partial(jax.checkpoint, policy=policies.nothing_saveable)
        def entropy(x, targets):
            logits = jnp.einsum("bsd,dv->bsv", x, out).astype(jnp.float32)
            logits = pin(logits, batch, split, "tensor")
            right = jnp.sum(jnp.where(jnp.arange(c.vocab) == targets[..., None], logits, 0.0), -1)
            return (jax.nn.logsumexp(logits, axis=-1) - right).sum()

        if r.vocab_tiles == 1:
            return jnp.sum(entropy(x, tokens)) / tokens.size
        xs = jnp.moveaxis(x.reshape(x.shape[0], r.vocab_tiles, -1, c.dim), 1, 0)
        ts = jnp.moveaxis(tokens.reshape(tokens.shape[0], r.vocab_tiles, -1), 1, 0)
        return lax.map(lambda p: entropy(*p), (xs, ts)).sum() / tokens.size

    return loss


def training_step(c: Decoder, r: Recipe, mesh):
    """The step of AdamW, and its arguments as types with layouts: parameters, two moments, tokens."""
    loss = loss_function(c, r, mesh)

    def step(params, first, second, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        square = sum(jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads))
        clip = jnp.minimum(1.0, lax.rsqrt(square + 1e-6))

        def update(p, m, v, g):
            g = g.astype(jnp.float32) * clip
            m1 = 0.9 * m + 0.1 * g
            v1 = 0.95 * v + 0.05 * g * g
            p1 = p - 3e-4 * (m1 / (jnp.sqrt(v1) + 1e-8) + 0.1 * p)
            return p1.astype(p.dtype), m1.astype(m.dtype), v1.astype(v.dtype)

        new = {n: update(params[n], first[n], second[n], grads[n]) for n in params}
        return *({n: v[i] for n, v in new.items()} for i in range(3)), value

    def typed(dtype):
        return {
            n: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
            for n, (shape, spec) in parameter_shapes(c, "expert" if "expert" in r.axes else None).items()
        }

    count = math.prod(r.axes.values())
    split = "context" if r.axes.get("context", 1) > 1 else None
    batch = batch_axes(r)
    tokens = jax.ShapeDtypeStruct(
        (round(r.batch * count), r.sequence), jnp.int32, sharding=NamedSharding(mesh, P(batch, split))
    )
    args = typed(r.weights), typed(r.moments), typed("float32" if r.weights == "float32" else r.weights), tokens
    return jax.jit(step, donate_argnums=(0, 1, 2)), args


def planned(c: Decoder, r: Recipe, machine: str):
    """The plan of a step on a machine."""
    with jax.plan.on(machine):
        kinds = (jax.sharding.AxisType.Auto,) * len(r.axes)
        mesh = jax.make_mesh(tuple(r.axes.values()), tuple(r.axes), axis_types=kinds)
        step, args = training_step(c, r, mesh)
        return jax.plan.plan(step, *args, on=machine)
