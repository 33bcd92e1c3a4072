"""Waiting for results and effects, and computing immediately while a function is traced."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from shardwise.base.tree import tree_leaves
from shardwise.engine.array import ArrayImpl
from shardwise.ir import eagerly


def block_until_ready(x: Any) -> Any:
    """The tree `x` itself, once all of its arrays are computed; other leaves are ignored.

    Computations have finished when their result exists, so this returns at once; RuntimeError for a deleted array.

    >>> jax.block_until_ready(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    if type(x) is ArrayImpl:
        return x.block_until_ready()
    for leaf in tree_leaves(x):
        if type(leaf) is ArrayImpl and (leaf._block is not None or leaf._dense is not None):  # nothing to wait for
            continue
        wait = getattr(leaf, "block_until_ready", None)
        if wait is not None:
            wait()
    return x


def effects_barrier() -> None:
    """Wait for the side effects (printing, callbacks) of earlier calls. Returns at once: effects happen during the call.

    >>> jax.effects_barrier()
    """


def ensure_compile_time_eval() -> AbstractContextManager[Any]:
    """A context manager and decorator: ops in it run eagerly, on concrete values, even while a function is traced.

    Ops on traced values are still traced.

    >>> def f(x):
    ...     with jax.ensure_compile_time_eval():
    ...         n = jnp.sum(jnp.arange(3))  # 3, and no tracer
    ...     return x * int(n)
    >>> jax.jit(f)(2)
    Array(6, dtype=int32, weak_type=True)
    """
    return eagerly()
