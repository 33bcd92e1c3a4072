"""`dce_sink`: values that programs keep computing though nobody reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.tree import tree_leaves
from shardwise.ir import bind
from shardwise.ops.control.callback import debug_callback
from shardwise.ops.rules.bodies import define_shown
from shardwise.ops.rules.convert import as_value

__all__ = ["dce_sink"]


def _body(x: Any, *, prevent_mlir_dce: bool) -> list[Any]:
    if prevent_mlir_dce:  # a callback is never dropped
        debug_callback(_read, (x,), {}, ordered=True)
    return []


def _read(x: Any) -> None:
    del x


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    del tangents
    return bind(_dce_sink_p, *primals, **params), []


_dce_sink_p = define_shown("dce_sink", _body, several=True, effects=True, jvp=_jvp)


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Keep the equations that compute the arrays of the tree `val` in traced programs, though nothing reads them.

    Programs that run leave it out, unless `prevent_mlir_dce` is set. `vmap` drops the mark, as JAX's does.

    >>> print(jax.make_jaxpr(lambda x: lax.dce_sink(x * 2))(1.0).eqns[0].primitive)
    mul
    """
    for leaf in tree_leaves(val):
        bind(_dce_sink_p, as_value(leaf), prevent_mlir_dce=bool(prevent_mlir_dce))
