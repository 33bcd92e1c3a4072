"""`shard_alike`: two values get the same layout, in whichever order propagation reaches them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.shapes import Ndarray
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.ir import ShapedArray, bind, define_op
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import do, full_in_front
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Rule, pointwise_rule

__all__ = ["shard_alike"]


def _type(x: ShapedArray, y: ShapedArray) -> tuple[ShapedArray, ...]:
    return x, y


def _kernel(env: Env, x: Ndarray, y: Ndarray) -> tuple[Ndarray, ...]:
    return x, y


def _rule(in_types: Sequence[ShapedArray], out_types: Sequence[ShapedArray], params: Any) -> Rule:
    shape = in_types[0].shape
    return pointwise_rule((shape, shape), (shape, shape))


def _pair(x: Any, y: Any) -> list[Any]:
    """The tangents or cotangents of both values, with the same layout where both exist."""
    return [x, y] if x is None or y is None else list(do.shard_alike(x, y))


def _batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Any) -> Any:
    return do.shard_alike(*[full_in_front(size, v, d) for v, d in zip(values, dims, strict=True)]), [0, 0]


shard_alike_p = define_op(
    "shard_alike",
    type_rule=_type,
    kernel=_kernel,
    rule=_rule,
    multiple_results=True,
    typed=True,
    batch=_batch,
    jvp=lambda primals, tangents: (do.shard_alike(*primals), _pair(*tangents)),
    transpose=lambda cts, x, y: _pair(*cts),
)


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """The trees `x` and `y`, with each pair of leaves sharded alike. The trees have the same structure and leaf shapes.

    Raises ValueError where structures or shapes differ.

    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> x = jax.device_put(jnp.arange(4), jax.NamedSharding(mesh, jax.P("x")))
    >>> f = lambda x: jax.experimental.shard_alike.shard_alike(x, jnp.zeros_like(x))[1]
    >>> jax.jit(f)(x).sharding.spec
    PartitionSpec('x',)
    """
    (xs, tree), (ys, other) = tree_flatten(x), tree_flatten(y)
    if tree != other:
        raise ValueError(f"Trees should match. Got x_tree: {tree}, y_tree: {other}")
    pairs = []
    for a, b in zip(map(as_array, xs), map(as_array, ys), strict=True):
        if a.shape != b.shape:
            raise ValueError(
                f"The leaves shapes of `x` and `y` should match. Got `x` leaf shape={a.shape} and `y` leaf shape={b.shape}"
            )
        pairs.append(bind(shard_alike_p, a, b))
    return tree_unflatten(tree, [p[0] for p in pairs]), tree_unflatten(tree, [p[1] for p in pairs])
