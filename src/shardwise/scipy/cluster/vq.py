"""`shardwise.scipy.cluster.vq`: the nearest entry of a code book for each observation."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.numpy._promote import array, promote_inexact
from shardwise.ops.rules.convert import as_array

__all__ = ["vq"]


def vq(obs: Any, code_book: Any, check_finite: bool = True) -> tuple[Array, Array]:
    """For each row of `obs` the index of the nearest row of `code_book`, and its distance. ValueError for other
    ranks.

    `check_finite` has no effect.

    >>> jax.scipy.cluster.vq.vq(jnp.array([[0.0, 1.0], [5.0, 5.0]]), jnp.array([[0.0, 0.0], [5.0, 6.0]]))
    (Array([0, 1], dtype=int32), Array([1., 1.], dtype=float32))
    """
    rows, book = array("vq", obs), array("vq", code_book, 1)
    if rows.ndim != book.ndim:
        raise ValueError("Observation and code_book should have the same rank")
    if rows.ndim == 1:
        rows, book = rows[:, None], book[:, None]
    if rows.ndim != 2:
        raise ValueError("ndim different than 1 or 2 are not supported")
    rows, book = map(as_array, promote_inexact(rows, book))
    distances = jnp.linalg.norm(rows[:, None] - book[None], axis=-1)
    code = jnp.argmin(distances, axis=-1)
    return code, jnp.min(distances, axis=-1)


__dir__ = _listing(__name__)
