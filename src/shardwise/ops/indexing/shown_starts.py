"""Starts of windows as JAX's programs have them: those that may be negative are counted from the end by ops of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.ir import Literal, Op, Program, ShapedArray, bind, literal, trace_program
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import do, scalar


def counted_starts(starts: Sequence[Any], sizes: Sequence[int], wrap: Sequence[bool]) -> list[Any]:
    """Starts of slices that no longer count from the end.

    JAX counts known starts of a slice while it traces; those of an index, which are not marked in `wrap`, by ops as the others.
    """
    index = not all(wrap) or not any(isinstance(s, Literal) for s in starts)
    return [
        _count_from_end(s, n, index) if wraps or index else s for s, n, wraps in zip(starts, sizes, wrap, strict=True)
    ]


def _count_from_end(start: Any, size: int, index: bool) -> Any:
    aval = start.aval
    if aval.dtype.kind != "i":
        return start
    if isinstance(start, Literal) and not index:
        start_number = int(start.value)
        return literal(start_number + size if start_number < 0 else start_number, dtype=aval.dtype)
    strong = convert(start, aval.dtype, False) if aval.weak_type and index else start
    negative = do.lt(strong, literal(0, dtype=aval.dtype))
    if strong.aval.weak_type:
        strong, start = convert(start, aval.dtype, False), start
    else:
        start = strong
    return do.select_n(negative, start, do.add(strong, literal(size, dtype=aval.dtype)))


def wrapped_index(index: Any, size: int) -> Any:
    """An index array whose negative elements count from the end of a dim."""
    aval = index.aval
    if aval.dtype.kind != "i":
        return index
    zero, extent = literal(0, dtype=aval.dtype), literal(size, dtype=aval.dtype)
    if aval.weak_type:
        zero, extent = scalar(0, aval.dtype), scalar(size, aval.dtype)
    return convert(do.select_n(do.lt(index, zero), index, do.add(index, extent)), aval.dtype, False)


def counting_windows(op: Callable[[], Op], dims: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """`Shown.parts` of gathers and scatters: JAX's do not count negative starts from the end, other ops do before them.

    `dims` is the field of the dimension numbers that says which dims of the operand the starts are of.
    """

    def parts(values: tuple[Any, ...], params: dict[str, Any]) -> Any:
        operand, starts, *rest = values
        if not params["wrap_negative"] or any(v.aval.mesh is not None for v in values):
            return None
        sizes = [operand.aval.shape[d] for d in getattr(params["dimension_numbers"], dims)]
        return bind(op(), operand, _counted_vectors(starts, sizes), *rest, **{**params, "wrap_negative": False})

    return parts


def _counted_vectors(starts: Any, sizes: Sequence[int]) -> Any:
    if len(set(sizes)) <= 1:
        return wrapped_index(starts, sizes[0]) if sizes else starts
    aval = starts.aval
    if aval.dtype.kind != "i":
        return starts
    extents = as_array(np.array(sizes, aval.dtype))
    wide = do.broadcast_in_dim(extents, shape=aval.shape, broadcast_dimensions=(aval.ndim - 1,), out_sharding=None)
    return do.select_n(do.lt(starts, literal(0, dtype=aval.dtype)), starts, do.add(starts, wide))


@recent(64)
def combination(combine: str, scalar: ShapedArray) -> Program:
    """The program that combines two elements by the op `combine`."""
    return trace_program(lambda a, b: [getattr(do, combine)(a, b)], [scalar, scalar])[0]
