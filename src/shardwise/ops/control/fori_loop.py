"""`fori_loop`: a loop over ints, as a `scan` where its length is known and a `while_loop` where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.base import config
from shardwise.base.dtypes import is_weak
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import tree_flatten
from shardwise.ir import is_concrete, literal
from shardwise.ops.control.scan import check_unroll, scan, scan_body
from shardwise.ops.control.while_loop import while_loop
from shardwise.ops.elementwise.binary import add
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.elementwise.comparison import lt
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.operands import dtype_kind

__all__ = ["fori_loop"]


@user_facing
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """``val = body_fun(i, val)`` for i from `lower` up to but not including `upper`, beginning with `init_val`.

    Args:
        lower, upper: integer scalars of one dtype. With concrete ones the loop is a `scan` of known length, through which
            reverse-mode derivatives pass.
        body_fun: from the index and a tree of arrays to the next tree: same structure, same types.
        unroll: a hint; only for concrete bounds. It changes nothing.

    Raises:
        TypeError: the bounds are no integers of one dtype, or the body changes the structure or the types of its value.
        ValueError: `unroll` for bounds that are not concrete.

    >>> lax.fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int32, weak_type=True)
    """
    if not callable(body_fun):
        raise TypeError(f"lax.fori_loop takes a function as its third argument, got {body_fun!r}.")
    dtype = _bounds_dtype(lower, upper)
    if is_concrete(lower) and is_concrete(upper):
        return _run_counted_loop(int(lower), int(upper), body_fun, init_val, 1 if unroll is None else unroll)
    if unroll not in (None, False, 1):
        raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically known.")
    first, last = (convert(as_value(b), dtype, is_weak(lower) and is_weak(upper)) for b in (lower, upper))

    def in_range(state: Any) -> Any:
        return lt(state[0], state[1])

    def step(state: Any) -> Any:
        i, end, value = state
        return add(i, literal(1, dtype, True)), end, body_fun(i, value)

    return while_loop(in_range, step, (first, last, init_val))[2]


def _bounds_dtype(lower: Any, upper: Any) -> Any:
    a, b = as_value(lower), as_value(upper)
    for bound in (a, b):
        if bound.ndim or dtype_kind(bound.dtype) not in "iuf":
            raise TypeError(f"fori_loop takes integer scalars as bounds, got {lower!r} and {upper!r}.")
    if a.dtype == b.dtype:
        return a.dtype
    if dtype_kind(a.dtype) == dtype_kind(b.dtype) == "i" and a.weak_type != b.weak_type:
        return b.dtype if a.weak_type else a.dtype
    raise TypeError(
        f"lower and upper arguments to fori_loop must have equal types, got {a.dtype.name} and {b.dtype.name}."
    )


def _run_counted_loop(lower: int, upper: int, body_fun: Callable[[Any, Any], Any], init_val: Any, unroll: Any) -> Any:
    check_unroll(unroll)
    length = max(upper - lower, 0)
    if config.jax_disable_jit and not length:
        return init_val

    def step(state: Any, _: None) -> Any:
        i, value = state
        return (add(i, 1), body_fun(i, value)), None

    start = literal(lower)
    if config.jax_disable_jit:
        return scan(step, (start, init_val), None, length)[0][1]
    _, tree = _no_arrays()
    (_, value), _ = scan_body(
        step, (start, init_val), (), tree, length, False, "fori_loop body", known_as=(body_fun, "fori"), blame=step
    )
    return value


def _no_arrays() -> Any:

    return tree_flatten(None)
