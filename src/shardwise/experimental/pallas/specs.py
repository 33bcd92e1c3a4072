"""The specification of a kernel's call: `GridSpec`, `BlockSpec` and the kinds of its dims, `CostEstimate`."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array


@dataclass(frozen=True)
class Blocked:
    """A dim that is cut into blocks of this size; `index_map` gives the number of a block.

    As an `indexing_mode`, which JAX 0.5 has, it has no size.
    """

    block_size: int | None = None

    def __str__(self) -> str:
        return f"Blocked({self.block_size})"


@dataclass(frozen=True)
class Element:
    """A dim of which a block may begin at any element: `index_map` gives it. `padding`: elements before and after the array."""

    block_size: int
    padding: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"Element({self.block_size}" + (f", padding={self.padding})" if self.padding != (0, 0) else ")")


@dataclass(frozen=True)
class Squeezed:
    """A dim of which a block has one element; the kernel does not see it."""


@dataclass(frozen=True)
class BoundedSlice:
    """A dim of which `index_map` gives a slice of at most this size. No kernel is interpreted with it, in JAX neither."""

    block_size: int


@dataclass(frozen=True)
class Indirect:
    """A dim of which `index_map` gives an array of positions. No kernel is interpreted with it, in JAX neither."""

    block_size: int


@dataclass(frozen=True)
class Unblocked:
    """JAX 0.5's `indexing_mode` for blocks that begin at any element. `padding`: elements before and after each dim."""

    padding: Sequence[tuple[int, int]] | None = None


squeezed = Squeezed()
unblocked = Unblocked()
BlockDim = Element | Squeezed | Blocked | BoundedSlice | Indirect
IndexingMode = Blocked | Unblocked


@enum.unique
class RevisitMode(enum.Enum):
    """When an output's block may be visited again. A hint: here it is safe at any time."""

    IMMEDIATE = "immediate"
    ANY = "any"


@dataclass(frozen=True)
class Buffered:
    """How many buffers a pipeline has for a block. A hint: here there is one."""

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


@dataclass
class BlockSpec:
    """How an array is cut into the blocks that a kernel sees.

    Attributes:
        block_shape: the size of each dim of a block: a number, None for a dim that is squeezed out, or `Element`, `Blocked`, `Squeezed`;
            None for the whole array.
        index_map: from the position in the grid to a block: its number per dim, the first element where the dim is an `Element`. None
            for the first one.
        memory_space: its space. A CPU has one memory.
        pipeline_mode: a hint.
        indexing_mode: JAX 0.5's way to say which dims are `Element`: all for an `Unblocked`.
    """

    block_shape: Sequence[BlockDim | int | None] | None = None
    index_map: Callable[..., Any] | None = None
    memory_space: Any = dataclasses.field(kw_only=True, default=None)
    pipeline_mode: Buffered | None = None
    indexing_mode: IndexingMode | None = dataclasses.field(kw_only=True, default=None)

    replace = dataclasses.replace

    def dims(self, shape: tuple[int, ...], origin: str) -> tuple[BlockDim, ...]:
        """The kind of each dim of a block of an array of this shape. ValueError if they do not fit."""
        if self.block_shape is None:
            return tuple(map(Blocked, shape))
        dims = tuple(map(_dim, self.block_shape))
        if len(dims) != len(shape):
            raise ValueError(
                f"Block shape for {origin} (= {dims}) must have the same number of dimensions as the array shape {shape}. Give a size, or "
                "None, for each of its dims."
            )
        if isinstance(self.indexing_mode, Unblocked):
            paddings = self.indexing_mode.padding or [(0, 0)] * len(dims)
            return tuple(
                Element(d.block_size, p) if isinstance(d, Blocked) and d.block_size is not None else d
                for d, p in zip(dims, paddings, strict=True)
            )
        return dims


def _dim(dim: Any) -> BlockDim:
    if dim is None:
        return squeezed
    if isinstance(dim, BlockDim):
        return dim
    try:
        return Blocked(int(dim))
    except (TypeError, ValueError):
        raise ValueError(
            f"Unsupported block dimension type: {type(dim)}. Allowed types: `pl.Squeezed`, `pl.Blocked`, `pl.Element`, `int`, `None`."
        ) from None


class NoBlockSpec:
    """Stands for specs that were not given."""

    def __repr__(self) -> str:
        return "NoBlockSpec"


no_block_spec = NoBlockSpec()


class GridSpec:
    """The grid of a kernel, how its operands are cut, and its scratch memory.

    Args:
        grid: sizes, of which some may be arrays, or pairs of a name and a size.
        in_specs: a tree of `BlockSpec` like the arguments.
        out_specs: one like the results.
        scratch_shapes: a tree of `MemoryRef`: memory that keeps its contents from one step to the next.

    Raises:
        ValueError: `in_specs` is no sequence, or `grid` has other entries than integers.
    """

    num_scalar_prefetch = 0

    def __init__(
        self, grid: Any = (), in_specs: Any = no_block_spec, out_specs: Any = no_block_spec, scratch_shapes: Any = ()
    ) -> None:
        if in_specs is not no_block_spec and not isinstance(in_specs, Sequence):
            raise ValueError(f"`in_specs` must be a tuple or a list. Found: {in_specs}")
        self.in_specs: Any = tuple(in_specs) if isinstance(in_specs, list) else in_specs
        self.out_specs: Any = tuple(out_specs) if isinstance(out_specs, list) else out_specs
        self.scratch_shapes: Any = scratch_shapes if isinstance(scratch_shapes, dict) else tuple(scratch_shapes)
        self.grid_names: tuple[Hashable, ...] | None = None
        sizes: tuple[Any, ...] = (grid,) if isinstance(grid, (int, np.integer)) else tuple(grid)
        if sizes and isinstance(sizes[0], tuple):
            self.grid_names, sizes = tuple(name for name, _ in sizes), tuple(size for _, size in sizes)
        if not all(isinstance(g, (int, np.integer, Array)) for g in sizes):
            raise ValueError(f"Grid must be a tuple of integers or jax.Array, got {grid}")
        self.grid: tuple[Any, ...] = tuple(int(g) if isinstance(g, np.integer) else g for g in sizes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(grid={self.grid}, in_specs={self.in_specs}, out_specs={self.out_specs})"


class PrefetchScalarGridSpec(GridSpec):
    """A `GridSpec` whose first `num_scalar_prefetch` arguments go to the kernel and to each `index_map` as whole Refs."""

    def __init__(
        self,
        num_scalar_prefetch: int,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ) -> None:
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self.num_scalar_prefetch = num_scalar_prefetch


@dataclass(frozen=True)
class CostEstimate:
    """The cost of a kernel, for compilers to know. ValueError for other values than integers."""

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not isinstance(value, int):
                raise ValueError(
                    f"All fields in CostEstimate must be ints. {name} is not an int: {type(value)}({value})"
                )

    def to_json(self) -> bytes:
        """The fields as JSON."""
        fields = ", ".join(f'"{name}": {value}' for name, value in dataclasses.asdict(self).items())
        return f"{{{fields}}}".encode("ascii")
