"""A decoder of PaLM's kind that answers requests: attention with one key and value head, beside a gated MLP, in one layer.

Pope et al., Efficiently Scaling Transformer Inference (arxiv.org/abs/2211.05102), say how it lies over a mesh x, y, z of
chips. Weights split their input over x and their heads over y and z (*weight stationary*), or are gathered whole for each layer
(*weight gathered*). Attention splits its heads, or its requests.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

ALL = ("x", "y", "z")
HEADS = ("y", "z", "x")  # heads lie over y and z; what the product inward sums over x splits them further
BF16, F32 = jnp.bfloat16, jnp.float32


@dataclasses.dataclass(frozen=True)
class Model:
    """Widths of a decoder; a layer holds two products: into queries and the MLP's two halves, and out of both."""

    layers: int
    dim: int
    heads: int
    hidden: int
    head: int = 256
    vocab: int = 256_000

    @property
    def inward(self) -> int:
        """Columns of a head in the product inward: its query and its parts of the MLP's halves."""
        return self.head + 2 * self.hidden // self.heads

    @property
    def outward(self) -> int:
        """Rows of a head in the product outward."""
        return self.head + self.hidden // self.heads


@dataclasses.dataclass(frozen=True)
class Serving:
    """How a model is served: the mesh x, y, z, requests at once, their length, the dtype of weights and the layouts."""

    mesh: tuple[int, int, int]
    batch: int
    length: int
    weights: str
    gathered: bool = False
    by_request: bool = True


def placed(mesh: jax.sharding.Mesh, shape: tuple[int, ...], dtype: Any, *spec: Any) -> jax.ShapeDtypeStruct:
    """The type of an argument with its layout."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def weights(c: Model, s: Serving, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """All weights; quantized ones have a scale for each of their columns."""
    place, n = partial(placed, mesh), c.layers
    made = {
        "inward": place((n, c.dim, c.heads, c.inward), s.weights, None, "x", ("y", "z")),
        "keys": place((n, c.dim, 2 * c.head), s.weights, None, "x"),
        "outward": place((n, c.heads, c.outward, c.dim), s.weights, None, ("y", "z"), None, "x"),
        "norm": place((n, c.dim), BF16, None, "x"),
        "embed": place((c.vocab, c.dim), BF16, ("y", "z"), "x"),
        "final": place((c.dim,), BF16, "x"),
    }
    if s.weights == "int8":
        made |= {
            "inward_scale": place((n, c.heads, c.inward), BF16, None, ("y", "z")),
            "keys_scale": place((n, 2 * c.head), BF16),
            "outward_scale": place((n, c.dim), BF16, None, "x"),
        }
    return made


def normed(x: Any, gain: Any) -> Any:
    """RMS norm in float32."""
    wide = x.astype(F32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)).astype(BF16) * gain


class Layouts:
    """Where activations lie between the products, by the names of their dims: B requests, L positions, E width, H heads."""

    def __init__(self, s: Serving, mesh: jax.sharding.Mesh):
        self.s, self.mesh = s, mesh

    def pin(self, x: Any, *spec: Any) -> Any:
        """The value in a layout."""
        return lax.with_sharding_constraint(x, NamedSharding(self.mesh, P(*spec)))

    def stream(self, x: Any) -> Any:
        """The residual stream BLE."""
        return self.pin(x, ALL) if self.s.gathered else self.pin(x, None, None, ALL)

    def into(self, x: Any) -> Any:
        """BLE before the product inward."""
        return x if self.s.gathered else self.pin(x, None, None, "x")

    def heads(self, x: Any) -> Any:
        """BLH after the product inward."""
        return self.pin(x, ALL) if self.s.gathered else self.pin(x, None, None, HEADS)

    def attended(self, x: Any) -> Any:
        """BLH within attention."""
        return self.pin(x, ALL) if self.s.gathered or self.s.by_request else self.pin(x, None, None, HEADS)

    def cache(self) -> tuple[Any, ...]:
        """Layout of a cache of a layer, BLD: attention by heads has it everywhere."""
        return (ALL,) if self.s.gathered or self.s.by_request else ()

    def out(self, x: Any) -> Any:
        """BLH before the product outward."""
        return x if self.s.gathered else self.pin(x, None, None, ("y", "z"))

    def weight(self, w: Any) -> Any:
        """A weight of a layer as its product reads it."""
        return self.pin(w) if self.s.gathered else w


def scaled(y: Any, w: dict[str, Any], name: str) -> Any:
    """What a product of quantized weights gives, in bfloat16."""
    return y.astype(BF16) * w[f"{name}_scale"] if f"{name}_scale" in w else y.astype(BF16)


def layer(c: Model, at: Layouts, x: Any, w: dict[str, Any], attend: Any) -> tuple[Any, Any]:
    """Attention and MLP of one normed input; `attend(query, keys)` gives what was attended, and what to keep."""
    y = at.into(normed(x, w["norm"]))
    wide = jnp.einsum("ble,ehi->blhi", y, at.weight(w["inward"]).astype(BF16))
    wide = at.heads(scaled(wide, w, "inward"))
    keys = scaled(jnp.einsum("ble,ei->bli", y, at.weight(w["keys"]).astype(BF16)), w, "keys")
    query, gate, up = jnp.split(wide, [c.head, c.head + c.hidden // c.heads], -1)
    attended, kept = attend(at.attended(query), keys)
    both = at.out(jnp.concatenate([at.heads(attended), jax.nn.silu(gate) * up], -1))
    out = jnp.einsum("blho,hoe->ble", both, at.weight(w["outward"]).astype(BF16))
    return x + at.stream(scaled(out, w, "outward")), kept


def attention(query: Any, keys: Any, mask: Any) -> Any:
    """Softmax attention of all heads over one key and value head, which lie side by side."""
    key, value = jnp.split(keys, 2, -1)
    scores = jnp.einsum("blhd,bmd->bhlm", query, key).astype(F32) * query.shape[-1] ** -0.5
    return jnp.einsum("bhlm,bmd->blhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)).astype(BF16), value)


def split_weights(params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights of layers, stacked, and those beside them."""
    beside = ("embed", "final")
    return {n: v for n, v in params.items() if n not in beside}, {n: params[n] for n in beside}


def prefill(c: Model, s: Serving, mesh: jax.sharding.Mesh) -> tuple[Any, tuple[Any, ...]]:
    """All positions of the requests at once: the next token's logits, and the caches of all layers."""
    at = Layouts(s, mesh)

    def step(params: Any, tokens: Any) -> Any:
        stacked, beside = split_weights(params)
        x = at.stream(beside["embed"][tokens])
        mask = jnp.tril(jnp.ones((s.length, s.length), bool))

        def attend(query: Any, keys: Any) -> Any:
            keys = at.pin(keys, *at.cache())
            return attention(query, keys, mask), keys

        x, caches = lax.scan(lambda x, w: layer(c, at, x, w, attend), x, stacked)
        x = normed(x[:, -1:], beside["final"])
        return jnp.einsum("ble,ve->blv", x, beside["embed"]), caches

    tokens = placed(mesh, (s.batch, s.length), jnp.int32, *((ALL,) if s.gathered else ()))
    return jax.jit(step), (weights(c, s, mesh), tokens)


def decode(c: Model, s: Serving, mesh: jax.sharding.Mesh) -> tuple[Any, tuple[Any, ...]]:
    """One token more of each request, the likeliest; its key and value enter the caches."""
    at = Layouts(s, mesh)

    def step(params: Any, caches: Any, tokens: Any, position: Any) -> Any:
        stacked, beside = split_weights(params)
        x = at.stream(beside["embed"][tokens])
        mask = jnp.arange(s.length) <= position

        def one(carry: Any, given: Any) -> Any:
            x, caches = carry
            w, i = given

            def attend(query: Any, keys: Any) -> Any:
                new = lax.dynamic_update_slice(caches, keys[None], (i, 0, position, 0))
                held = lax.dynamic_index_in_dim(new, i, keepdims=False)
                return attention(query, held, mask), new

            return layer(c, at, x, w, attend), None

        (x, caches), _ = lax.scan(one, (x, caches), (stacked, jnp.arange(c.layers)))
        logits = jnp.einsum("ble,ve->blv", normed(x, beside["final"]), beside["embed"])
        return jnp.argmax(logits, -1), caches

    caches = placed(mesh, (c.layers, s.batch, s.length, 2 * c.head), BF16, None, *at.cache())
    tokens = placed(mesh, (s.batch, 1), jnp.int32)
    position = placed(mesh, (), jnp.int32)
    return jax.jit(step, donate_argnums=1), (weights(c, s, mesh), caches, tokens, position)


def planned(c: Model, s: Serving, machine: str, task: Any) -> Any:
    """The plan of `prefill` or a step of `decode` on a machine."""
    with jax.plan.on(machine):
        mesh = jax.make_mesh(s.mesh, ALL, axis_types=(jax.sharding.AxisType.Auto,) * 3)
        step, args = task(c, s, mesh)
        return jax.plan.plan(step, *args, on=machine)
