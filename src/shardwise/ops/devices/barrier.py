"""Identity ops that passes interpret: `optimization_barrier`, names for `checkpoint` policies, and offloading by these policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.shapes import Ndarray
from shardwise.base.tree import tree_flatten, tree_map, tree_unflatten
from shardwise.ir import Equation, NarrowedEquation, PartOf, ShapedArray, bind, define_op
from shardwise.ir.key_uses import KeyUses, UsesOf
from shardwise.ir.op import Params, Types
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import along, back, do
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

__all__ = ["checkpoint_name", "optimization_barrier"]


def _rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Each result has its operand's layout."""
    dims, sizes = [], []
    for t in in_types:
        dims.append(tuple((len(sizes) + d,) if n != 1 else () for d, n in enumerate(t.shape)))
        sizes.extend(t.shape)
    return Rule(tuple(dims), tuple(dims), tuple(sizes), (Kind.PASS,) * len(sizes))


def _barrier_type(*types: ShapedArray) -> tuple[ShapedArray, ...]:
    return types


def _barrier_kernel(env: Env, *blocks: Ndarray) -> tuple[Ndarray, ...]:
    return blocks


def _barrier_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, list[Any]]:
    live = [t for t in tangents if t is not None]
    live_tangents = iter(do.optimization_barrier(*live) if live else ())
    return do.optimization_barrier(*primals), [None if t is None else next(live_tangents) for t in tangents]


def _barrier_transpose(cts: Sequence[Any], *args: Any) -> list[Any]:
    live = iter(do.optimization_barrier(*[c for c in cts if c is not None]))
    return [None if c is None else next(live) for c in cts]


def _barrier_batch(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> Any:
    return do.optimization_barrier(*values), list(dims)


def _barrier_keys(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    return KeyUses(forwards={i: i for i in range(len(eqn.outputs))})


def _barrier_narrow(params: Params, wanted: Sequence[bool], part_of: PartOf) -> NarrowedEquation:
    kept_positions = tuple([i for i, w in enumerate(wanted) if w])
    return NarrowedEquation(params, kept_positions, kept_positions)


optimization_barrier_p = define_op(
    "optimization_barrier",
    type_rule=_barrier_type,
    kernel=_barrier_kernel,
    rule=_rule,
    multiple_results=True,
    typed=True,
    hands_on=True,
    jvp=_barrier_jvp,
    transpose=_barrier_transpose,
    batch=_barrier_batch,
    keys=_barrier_keys,
    narrow=_barrier_narrow,
)


def optimization_barrier(operand: Any, /) -> Any:
    """The tree `operand` unchanged. Computations on the result are never merged with computations on `operand`.

    >>> lax.optimization_barrier((jnp.array(1), jnp.array(2)))
    (Array(1, dtype=int32, weak_type=True), Array(2, dtype=int32, weak_type=True))
    """
    leaves, tree = tree_flatten(operand)
    return tree_unflatten(tree, bind(optimization_barrier_p, *map(as_array, leaves)) if leaves else [])


def _name_type(x: ShapedArray, *, name: str) -> ShapedArray:
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _name_kernel(env: Env, x: Ndarray, *, name: str) -> Ndarray:
    return x


name_p = define_op(
    "name",
    type_rule=_name_type,
    kernel=_name_kernel,
    hands_on=True,
    jvp=along("name", lambda t, y, x, name: t),
    transpose=back(lambda ct, x, name: ct),
)


def _offload_type(x: ShapedArray, *, memory_kind: str) -> ShapedArray:
    return x


def _offload_kernel(env: Env, x: Ndarray, *, memory_kind: str) -> Ndarray:
    return x


# Stores a value in another memory (the host's) until it is read.
offload_p = define_op(
    "offload",
    type_rule=_offload_type,
    kernel=_offload_kernel,
    typed=True,
    hands_on=True,
    memory_kind=lambda params: params["memory_kind"],
    jvp=along("offload", lambda t, y, x, memory_kind: t),
    transpose=back(lambda ct, x, memory_kind: ct),
)


def checkpoint_name(x: Any, name: str) -> Any:
    """The tree `x` unchanged; the policies of `checkpoint` refer to its values by `name`.

    >>> from shardwise.ad_checkpoint import checkpoint_name
    >>> keep = jax.checkpoint_policies.save_only_these_names("wave")
    >>> f = jax.checkpoint(lambda x: jnp.cos(checkpoint_name(jnp.sin(x), "wave")), policy=keep)
    >>> jax.grad(f)(0.0)
    Array(-0., dtype=float32, weak_type=True)
    """
    return tree_map(lambda leaf: bind(name_p, as_array(leaf), name=name), x)
