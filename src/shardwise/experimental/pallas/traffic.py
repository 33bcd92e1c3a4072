"""The traffic of a kernel on an accelerator: blocks are copied where the one of the next step is another.

In: a grid and the mappings of its arrays. Out: a `Kernel`, which plans for accelerators read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardwise.experimental.pallas.mapping import Mapping
from shardwise.experimental.pallas.memory import SEMAPHORE_DTYPE
from shardwise.experimental.pallas.specs import CostEstimate
from shardwise.ir import Atom, Kernel, Program, ShapedArray


def written_kernel(
    name: str,
    grid: Sequence[object],
    blocks: Sequence[Mapping],
    results: Sequence[Mapping],
    scratch: Sequence[ShapedArray],
    body: Program,
    cost: CostEstimate | None,
) -> Kernel:
    """The kernel of a call. Of sizes of the grid that are arrays one step is counted."""
    sizes = [int(n) if isinstance(n, (int, np.integer)) else 1 for n in grid]
    arrays = (*blocks, *results)
    whole = sum([m.array.nbytes for m in arrays])
    moved_bytes = sum([_bytes_of(m) * _copies(m, sizes) for m in arrays])
    steps = math.prod(sizes)
    buffers = 2 if steps > 1 else 1  # one is computed on while the other is copied
    held_bytes = sum([buffers * _bytes_of(m) for m in arrays if m.index_map is not None])
    held_bytes += sum([t.nbytes for t in scratch if t.dtype != SEMAPHORE_DTYPE])
    return Kernel(
        name,
        tuple(sizes),
        body if sizes else None,
        moved_bytes / whole if whole else 1.0,
        held_bytes,
        flops=None if cost is None else float(cost.flops),
        transcendentals=None if cost is None else float(cost.transcendentals),
        bytes_accessed=None if cost is None else float(cost.bytes_accessed),
        written=sum([m.array.nbytes for m in results]),
    )


def _bytes_of(mapping: Mapping) -> int:
    """The bytes of a block; of an array that is not cut all of it."""
    return mapping.block.nbytes


def _copies(mapping: Mapping, sizes: Sequence[int]) -> int:
    """How often a block is copied: in each step of the innermost axis of the grid that the block depends on, and of those around it."""
    if mapping.index_map is None or not sizes:
        return 1
    program = mapping.index_map.program
    indices = program.inputs[program.num_consts :]
    read = _read_by_results(program)
    if any(v in read for v in indices[len(sizes) :]):  # which block it is say the prefetched scalars
        return math.prod(sizes)
    inner = max([i for i, v in enumerate(indices[: len(sizes)]) if v in read], default=-1)
    return math.prod(sizes[: inner + 1])


def _read_by_results(program: Program) -> set[Atom]:
    """The values that results follow from."""
    read = set(program.outputs)
    for eqn in reversed(program.equations):
        if not read.isdisjoint(eqn.outputs):
            read.update(eqn.inputs)
    return read
