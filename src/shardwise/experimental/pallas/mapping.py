"""How an array is cut into blocks: a `BlockSpec` fitted to an array, which reads and writes the block of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import tree_structure
from shardwise.experimental.pallas.grid import at_position
from shardwise.experimental.pallas.memory import uninitialized_array
from shardwise.experimental.pallas.specs import BlockDim, Blocked, BlockSpec, Element, Squeezed
from shardwise.ir import Array, ShapedArray, Tracer, eval_program
from shardwise.ops.control.bodies import Body, trace_body
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ref import Ref

INDEX = ShapedArray((), np.dtype(np.int32))


@dataclass(frozen=True)
class Mapping:
    """The blocks of one array.

    Attributes:
        array: the type of the array.
        dims: the kind of each dim.
        index_map: from the grid's indices, and the prefetched scalars, to the block's index per dim; None for zeros.
    """

    array: ShapedArray
    dims: tuple[BlockDim, ...]
    index_map: Body | None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of a block."""
        return tuple(map(_size, self.dims))

    @property
    def block(self) -> ShapedArray:
        """The type of a block as the kernel sees it."""
        kept_sizes = tuple(_size(d) for d in self.dims if not isinstance(d, Squeezed))
        return ShapedArray(kept_sizes, self.array.dtype)

    @property
    def _paddings(self) -> list[tuple[int, int]]:
        """Elements before and after the array: those that an `Element` asks for, and those that complete the last block."""
        pad_widths: list[tuple[int, int]] = []
        for dim, n in zip(self.dims, self.array.shape, strict=True):
            low, high = dim.padding if isinstance(dim, Element) else (0, 0)
            pad_widths.append((low, high + -(low + n + high) % max(_size(dim), 1)))
        return pad_widths

    def pad(self, x: Array) -> Array:
        """The array with whole blocks; elements outside of it are as memory that is not written yet."""
        paddings = self._paddings
        if not any(map(any, paddings)):
            return x
        return lax.pad(x, uninitialized_array((), x.dtype), [(low, high, 0) for low, high in paddings])

    def trim(self, x: Array) -> Array:
        """The array without the padding of `pad`."""
        lows = [low for low, _ in self._paddings]
        return lax.slice(x, lows, [low + n for low, n in zip(lows, self.array.shape, strict=True)])

    def starts(self, indices: Sequence[Array], scalars: Sequence[Array]) -> list[Array]:
        """The first element of a step's block, per dim."""
        if self.index_map is None:
            return [jnp.int32(0)] * len(self.dims)
        index_values = eval_program(self.index_map.program, [*self.index_map.consts, *indices, *scalars])
        return [
            as_array(convert(as_value(i), INDEX.dtype, False)) * (_size(d) if isinstance(d, Blocked) else 1)
            for i, d in zip(index_values, self.dims, strict=True)
        ]

    def read(self, x: Array, starts: Sequence[Array]) -> Array:
        """The block that begins there."""
        whole = x if x.shape == self.sizes else lax.dynamic_slice(x, starts, self.sizes)
        return whole.reshape(self.block.shape)

    def write(self, x: Array, block: Array, starts: Sequence[Array]) -> Array:
        """The array with another block there."""
        new = block.reshape(self.sizes)
        return new if x.shape == self.sizes else lax.dynamic_update_slice(x, new, starts)


def _size(dim: BlockDim) -> int:
    return 1 if isinstance(dim, Squeezed) else int(dim.block_size or 0)


def mapping_of(
    spec: BlockSpec, array: ShapedArray, origin: str, grid: Sequence[Any], scalars: Sequence[ShapedArray]
) -> Mapping:
    """A spec fitted to an array. `origin` names the array in errors; `scalars` are the types of the prefetched arguments.

    Raises:
        ValueError: the spec does not fit: the number of dims, or the number and types of the indices that its map gives.
        NotImplementedError: dims of a kind that is not interpreted.
    """
    dims = spec.dims(array.shape, origin)
    for dim in dims:
        if not isinstance(dim, Blocked | Element | Squeezed):
            raise NotImplementedError(
                f"pallas_call: {origin} has the block dim {dim}; kernels are interpreted with sizes, None, `Blocked`, `Element` and "
                "`Squeezed`. Use pl.Element, or read a part of the whole array in the kernel."
            )
    if spec.index_map is None:
        return Mapping(array, dims, None)
    return Mapping(array, dims, _traced_map(spec.index_map, dims, origin, grid, scalars))


def _traced_map(
    function: Any, dims: tuple[BlockDim, ...], origin: str, grid: Sequence[Any], scalars: Sequence[ShapedArray]
) -> Body:
    name = getattr(function, "__name__", "index_map")
    intro = f"Index map function {name} for {origin}"

    def indices(*args: Any) -> Any:
        with at_position(args[: len(grid)], grid):
            outs = function(*args[: len(grid)], *map(Ref, args[len(grid) :]))
        outs = tuple(outs) if isinstance(outs, (tuple, list)) else (outs,)
        if len(outs) != len(dims):
            raise ValueError(
                f"{intro} must return {len(dims)} values to match block_shape={dims}. Currently returning {len(outs)} values: {outs}"
            )
        return outs

    types = (*[INDEX] * len(grid), *scalars)
    body = trace_body(indices, tree_structure((0,) * len(types)), types, name)
    for i, out in enumerate(body.out_types):
        if out.shape or out.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
            raise ValueError(f"{intro} must return integer scalars. Output[{i}] has type {out}.")
    captured_arrays = [x for x in map(as_array, body.consts) if x.ndim or isinstance(x, Tracer)]
    if captured_arrays:
        types_text = ", ".join(x.aval.str_short() for x in captured_arrays)
        raise ValueError(
            f"{intro} must not capture constants: [{types_text}]. Compute them from the indices, or pass them as prefetched scalars."
        )
    return body
