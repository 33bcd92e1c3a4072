"""`shardwise.experimental.pallas.tpu`: the language of kernels for TPUs, interpreted on the CPU.

Names that only a TPU gives a meaning to can be imported; using one refuses.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.refused import refuse_names
from shardwise.experimental.pallas.access import load as _load
from shardwise.experimental.pallas.access import store as _store
from shardwise.experimental.pallas.copies import AsyncCopyDescriptor as AsyncCopyDescriptor
from shardwise.experimental.pallas.copies import DeviceIdType as DeviceIdType
from shardwise.experimental.pallas.copies import SemaphoreType as SemaphoreType
from shardwise.experimental.pallas.copies import TpuSpace as MemorySpace
from shardwise.experimental.pallas.copies import async_copy as async_copy
from shardwise.experimental.pallas.copies import async_remote_copy as async_remote_copy
from shardwise.experimental.pallas.copies import make_async_copy as make_async_copy
from shardwise.experimental.pallas.copies import make_async_remote_copy as make_async_remote_copy
from shardwise.experimental.pallas.copies import semaphore_read as semaphore_read
from shardwise.experimental.pallas.copies import semaphore_signal as semaphore_signal
from shardwise.experimental.pallas.copies import semaphore_wait as semaphore_wait
from shardwise.experimental.pallas.copies import sync_copy as sync_copy
from shardwise.experimental.pallas.specs import PrefetchScalarGridSpec as PrefetchScalarGridSpec
from shardwise.ir import Array


class GridDimensionSemantics(enum.Enum):
    """How the steps along an axis of the grid may be ordered. A hint: they run in order."""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL = GridDimensionSemantics.PARALLEL
CORE_PARALLEL = GridDimensionSemantics.CORE_PARALLEL
SUBCORE_PARALLEL = GridDimensionSemantics.SUBCORE_PARALLEL
ARBITRARY = GridDimensionSemantics.ARBITRARY

TPUMemorySpace = MemorySpace
ANY = MemorySpace.ANY
CMEM = MemorySpace.CMEM
SMEM = MemorySpace.SMEM
VMEM = MemorySpace.VMEM
VMEM_SHARED = MemorySpace.VMEM_SHARED
HBM = MemorySpace.HBM
SEMAPHORE = MemorySpace.SEMAPHORE


@dataclass(frozen=True)
class CompilerParams:
    """Options of the compiler for TPUs. Kernels are interpreted: nothing of it acts."""

    dimension_semantics: Sequence[Any] | None = None
    allow_input_fusion: Sequence[bool] | None = None
    vmem_limit_bytes: int | None = None
    collective_id: int | None = None
    has_side_effects: Any = False
    flags: dict[str, Any] | None = None
    internal_scratch_in_bytes: int | None = None
    serialization_format: int = 1
    disable_bounds_checks: bool = False
    disable_semaphore_checks: bool = False
    skip_device_barrier: bool = False
    allow_collective_id_without_custom_barrier: bool = False
    shape_invariant_numerics: bool = True
    use_tc_tiling_on_sc: bool | None = None
    needs_layout_passes: bool = True
    fuse_transposed_lhs_in_matmul: bool = False


TPUCompilerParams = CompilerParams


@dataclass(frozen=True, kw_only=True)
class InterpretParams:
    """How JAX simulates a TPU. Steps run in order on one core here, and there is nothing to simulate beside it.

    Raises:
        NotImplementedError: a field that would change what runs.
    """

    detect_races: bool = False
    out_of_bounds_reads: Literal["raise", "uninitialized"] = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: Literal["nan", "zero"] = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    dma_execution_mode: Literal["eager", "on_wait"] = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Any = None

    def __post_init__(self) -> None:
        option_values = {
            "detect_races": self.detect_races,
            "skip_floating_point_ops": self.skip_floating_point_ops,
            "uninitialized_memory": self.uninitialized_memory != "nan",
            "num_cores_or_threads": self.num_cores_or_threads != 1,
            "random_seed": self.random_seed is not None,
            "grid_point_recorder": self.grid_point_recorder is not None,
        }
        names = [name for name, given in option_values.items() if given]
        if names:
            raise NotImplementedError(
                f"InterpretParams({', '.join(names)}) is not available: steps run in order, on one core. Leave it out; interpret=True has "
                "the same values."
            )


@contextmanager
def force_tpu_interpret_mode(params: InterpretParams | None = None) -> Generator[None]:
    """Context in which kernels are interpreted, as they always are. `params`: they were checked when they were made."""
    yield


def load(ref: Any, *, mask: Any = None) -> Array:
    """All elements of a Ref or view."""
    return _load(ref, None, mask=mask)


def store(ref: Any, val: Any, *, mask: Any = None) -> None:
    """Write the elements of a Ref or view where `mask` is True."""
    _store(ref, None, val, mask=mask)


def roll(x: Any, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None) -> Array:
    """Elements moved by `shift` along an axis, around its end; by `stride` more from each index along `stride_axis` to the next.

    ValueError for negative shifts and strides, axes that are out of range or the same, and one of the two without the other.
    """
    if isinstance(shift, int) and shift < 0:
        raise ValueError(f"shift must be non-negative, got {shift}.")
    if not 0 <= axis < x.ndim:
        raise ValueError(f"axis is out of range, got {axis} for an array of {x.ndim} dims.")
    if stride is None and stride_axis is None:
        return jnp.roll(x, shift, axis)
    if stride is None or stride_axis is None:
        raise ValueError("stride and stride_axis must be both specified or not.")
    if stride < 0:
        raise ValueError(f"stride must be non-negative, got {stride}.")
    if not 0 <= stride_axis < x.ndim or stride_axis == axis:
        raise ValueError(f"stride_axis must be another axis than {axis}, within {x.ndim} dims, got {stride_axis}.")
    size = x.shape[axis]
    positions = (
        lax.broadcasted_iota(np.int32, x.shape, axis)
        - shift
        - stride * lax.broadcasted_iota(np.int32, x.shape, stride_axis)
    )
    return jnp.take_along_axis(x, jnp.mod(positions, size), axis)


def bitcast(x: Any, ty: Any) -> Array:
    """The same bits as another dtype; elements are joined or cut along the last dim but one.

    ValueError for arrays of one dim, or a dim that cannot be cut so.
    """
    new, old = np.dtype(ty), np.dtype(x.dtype)
    if x.ndim < 2:
        raise ValueError(f"bitcast takes arrays of two dims and more, got shape {x.shape}.")
    *outer, rows, columns = x.shape
    if rows * old.itemsize % new.itemsize:
        raise ValueError(f"bitcast: {rows} rows of {old} do not make whole rows of {new}.")
    if new.itemsize == old.itemsize:
        return lax.bitcast_convert_type(x, new)
    if new.itemsize < old.itemsize:
        parts = jnp.swapaxes(lax.bitcast_convert_type(x, new), -1, -2)
        return parts.reshape(*outer, rows * old.itemsize // new.itemsize, columns)
    group = new.itemsize // old.itemsize
    return lax.bitcast_convert_type(jnp.swapaxes(x.reshape(*outer, rows // group, group, columns), -1, -2), new)


def with_memory_space_constraint(x: Any, memory_space: Any) -> Any:
    """`x`; a CPU has one memory, so that `memory_space` changes nothing."""
    return x


def touch(ref: Any) -> None:
    """Mark a Ref as read and written: a hint for compilers."""


__getattr__ = refuse_names(__name__)
__dir__ = _listing(__name__)
