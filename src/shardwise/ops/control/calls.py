"""Functions with a derivative of their own: an op that runs as the program of its body and differentiates by rule.

In: a body written with array functions, a rule for tangents. Out: a function; compilation sees the body's equations, and so does `vmap`
unless the body is elementwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.ir import Array, Literal, Shown, bind, in_trace
from shardwise.ops.rules.batching import BatchedValues
from shardwise.ops.rules.bodies import define_body_op, traced_body
from shardwise.ops.rules.derivative import do, full_in_front

Rule = Callable[..., tuple[Array, Array | None]]


def define_call(name: str, body: Callable[..., Array], jvp: Rule, **fields: Any) -> Callable[..., Array]:
    """``body(*values, **params)``, whose derivative is ``jvp(primals, tangents, **params) -> (result, tangent)``.

    `fields` are others of its `Op`. Programs that are shown have the ops of `body` in its place, if `shown` says nothing else.
    """

    program_of = traced_body(name, lambda *xs, **params: [body(*xs, **params)])

    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Array], list[Array | None]]:
        result, tangent = jvp(primals, tangents, **params)
        return [result], [tangent]

    def parts(values: tuple[Any, ...], params: dict[str, Any]) -> list[Any]:
        return [body(*[in_trace(x) if isinstance(x, Literal) else x for x in values], **params)]

    fields.setdefault("shown", Shown(parts=parts))
    op = define_body_op(name, program_of, jvp=rule, **fields)

    def call(*values: Any, **params: Any) -> Array:
        """The result of `body` for these values."""
        return bind(op, *values, **params)[0]

    return call


def define_elementwise(name: str, body: Callable[..., Array], jvp: Rule, **fields: Any) -> Callable[..., Array]:
    """`define_call` of an elementwise body without params, on operands of one shape or scalars: under `vmap`, too, its derivative is
    `jvp`.
    """

    def batch(size: int, axis: Any, values: Sequence[Any], dims: Sequence[int | None], params: Any) -> BatchedValues:
        front_values = [
            x if d is None and not x.ndim else full_in_front(size, x, d) for x, d in zip(values, dims, strict=True)
        ]
        full = max(front_values, key=lambda x: x.ndim)
        return [call(*[x if x.ndim in (0, full.ndim) else _along_front(x, full) for x in front_values])], [0]

    call = define_call(name, body, jvp, batch=batch, **fields)
    return call


def _along_front(x: Any, full: Any) -> Array:
    """`x`, a scalar per element of the first dim, in the shape of `full`."""
    sharding = full.aval.sharding if full.aval.mesh is not None else None
    return do.broadcast_in_dim(x, shape=full.shape, broadcast_dimensions=(0,), out_sharding=sharding)


def define_along(name: str, body: Callable[..., Array], *pushes: Callable[..., Array] | None) -> Callable[..., Array]:
    """``body(*values)``, elementwise; each operand's tangent moves the result by ``push(tangent, result, *values)``.

    None for operands in which there is no derivative.
    """

    def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Array, Array | None]:
        result = call(*primals)
        pairs = [(p, t) for p, t in zip(pushes, tangents, strict=True) if p is not None and t is not None]
        parts = [push(t, result, *primals) for push, t in pairs]
        return result, functools.reduce(do.add, parts) if parts else None

    call = define_elementwise(name, body, jvp)
    return call
