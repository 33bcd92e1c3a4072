"""`ragged_all_to_all`: each device sends each other one a run of rows, of any length, to a place that it names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.ir import Array, literal
from shardwise.ops.devices.parallel import all_gather, axis_index, checked_axes
from shardwise.ops.elementwise import add, bitwise_and, ge, lt, mul, sub
from shardwise.ops.elementwise.casts import convert_element_type
from shardwise.ops.elementwise.selection import select
from shardwise.ops.indexing.dim_slices import dynamic_slice_in_dim
from shardwise.ops.indexing.gather import gather
from shardwise.ops.indexing.window_numbers import GatherDimensionNumbers
from shardwise.ops.reductions.reduce import reduce_max, reduce_or
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.ops.shapes.iota import broadcasted_iota
from shardwise.ops.shapes.reshape import reshape

_INDEX = np.dtype(np.int32)
__all__ = ["ragged_all_to_all"]


def ragged_all_to_all(
    operand: Any,
    output: Any,
    input_offsets: Any,
    send_sizes: Any,
    output_offsets: Any,
    recv_sizes: Any,
    *,
    axis_name: Any,
    axis_index_groups: Any = None,
) -> Array:
    """`output` with the rows that the devices of an axis send to this one.

    Of the n devices along the axis this one sends device j the rows `operand[input_offsets[j] :][: send_sizes[j]]`, to stand from
    row `output_offsets[j]` on in the `output` of device j. `recv_sizes[j]` is the number of rows from device j; the senders determine it.

    Args:
        operand: [rows, ...], the rows to send; output: [other rows, ...], of the same dtype: the result's initial
            rows.
        input_offsets, send_sizes, output_offsets, recv_sizes: integers [n], or [k * n] for k runs per device.
        axis_name: the mesh axis.

    Raises:
        ValueError: offsets and sizes are no integers of one length that n divides, or operand and output differ beyond dim 0.
        NotImplementedError: with `axis_index_groups`.

    >>> mesh = jax.make_mesh((2,), ("i",))
    >>> f = lambda x, o, a, n, b, m: lax.ragged_all_to_all(x, o, a, n, b, m, axis_name="i")
    >>> x, o = jnp.arange(1, 5), jnp.zeros(4, int)  # device 0 has 1, 2; device 1 has 3, 4
    >>> at, one = jnp.array([0, 1, 0, 1]), jnp.ones(4, int)  # each sends one row to each
    >>> rows = jax.P("i")
    >>> jax.shard_map(f, mesh=mesh, in_specs=rows, out_specs=rows)(x, o, at, one, jnp.array([0, 0, 1, 1]), one)
    Array([1, 3, 2, 4], dtype=int32)
    """
    if axis_index_groups is not None:
        raise NotImplementedError("ragged_all_to_all takes no axis_index_groups; make a mesh axis of the groups.")
    names, sizes = checked_axes(axis_name, "ragged_all_to_all")
    rows, into = as_array(operand), as_array(output)
    numbers = {
        "input_offsets": input_offsets,
        "send_sizes": send_sizes,
        "output_offsets": output_offsets,
        "recv_sizes": recv_sizes,
    }
    values = {name: as_array(x) for name, x in numbers.items()}
    _check(rows, into, values, math.prod(sizes))
    if not rows.size or not into.size:
        return into
    runs = values["send_sizes"].size // math.prod(sizes)
    start = mul(axis_index(names), literal(runs, _INDEX))

    def mine(name: str) -> Array:
        """The entries, in all devices' descriptions of runs, of the runs to this device: [n * runs]."""
        gathered_values = all_gather(convert_element_type(values[name], _INDEX), names)
        return reshape(dynamic_slice_in_dim(gathered_values, start, runs, 1), (gathered_values.shape[0] * runs,))

    first, count, to = mine("input_offsets"), mine("send_sizes"), mine("output_offsets")
    height, senders = into.shape[0], first.shape[0]
    grid = (senders, height)
    across = lambda x: broadcast_in_dim(x, grid, (0,))  # noqa: E731
    offset = sub(broadcasted_iota(_INDEX, grid, 1), across(to))
    hit = bitwise_and(ge(offset, literal(0, _INDEX)), lt(offset, across(count)))
    device = broadcasted_iota(_INDEX, (math.prod(sizes), runs), 0)
    base = add(first, mul(reshape(device, (senders,)), literal(rows.shape[0], _INDEX)))
    chosen = select(hit, add(offset, across(base)), broadcast_in_dim(literal(-1, _INDEX), grid, ()))
    source = reduce_max(chosen, (0,))
    all_rows = all_gather(rows, names, tiled=True)
    dims = GatherDimensionNumbers(tuple(range(1, rows.ndim)), (0,), (0,))
    new_rows = gather(all_rows, reshape(source, (height, 1)), dims, (1, *rows.shape[1:]), mode="clip")
    is_written = broadcast_in_dim(reduce_or(hit, (0,)), into.shape, (0,))
    return select(is_written, new_rows, into)


def _check(rows: Array, into: Array, values: dict[str, Array], devices: int) -> None:
    if not rows.ndim or rows.shape[1:] != into.shape[1:] or rows.dtype != into.dtype:
        raise ValueError(
            f"ragged_all_to_all: operand and output must have equal dtypes and dims but for the first, got {rows.aval.str_short()} and "
            f"{into.aval.str_short()}."
        )
    length = values["send_sizes"].size
    for name, x in values.items():
        if x.dtype.kind not in "iu":
            raise ValueError(f"ragged_all_to_all {name} must be integer type, got {x.dtype}.")
        if x.ndim != 1 or x.size != length or not x.size or x.size % devices:
            raise ValueError(
                f"ragged_all_to_all {name} must be rank 1 with an entry, or some, for each of the {devices} devices along the axis, and as "
                f"long as send_sizes ({length}); got shape {x.shape}."
            )
