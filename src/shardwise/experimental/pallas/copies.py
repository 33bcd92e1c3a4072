"""Copies between memories and the semaphores that count them. One thread runs a kernel, so that a copy is done when it has started."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import tree_flatten
from shardwise.experimental.pallas.memory import SEMAPHORE_DTYPE, MemoryRef, Space
from shardwise.ir import Array, ShapedArray
from shardwise.ref import AbstractRef


class DeviceIdType(enum.Enum):
    """How another device is named."""

    MESH = "mesh"
    LOGICAL = "logical"


class TpuSpace(Space):
    """The memory spaces of a TPU."""

    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    SEMAPHORE = "semaphore_mem"
    HBM = "hbm"
    ANY = "any"  # JAX 0.5 has it here

    def __repr__(self) -> str:
        return self.name


class SemaphoreType(enum.Enum):
    """The kinds of semaphores; one, or an array of them where it is called with a shape, is a scratch shape."""

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: tuple[int, ...]) -> MemoryRef:
        return MemoryRef(ShapedArray(tuple(shape), SEMAPHORE_DTYPE), TpuSpace.SEMAPHORE)

    def get_array_aval(self) -> ShapedArray:
        """The type of one semaphore."""
        return self(()).get_array_aval()

    def get_ref_aval(self) -> AbstractRef:
        """The type of a Ref to one."""
        return self(()).get_ref_aval()


def semaphore_read(sem_or_view: Any) -> Array:
    """The count of a semaphore, an int32."""
    return sem_or_view[...].astype(np.int32)


def semaphore_signal(sem_or_view: Any, inc: Any = 1, *, device_id: Any = None, **options: Any) -> None:
    """Add to the count of a semaphore. NotImplementedError for one of another device, and other options."""
    if device_id is not None or options:
        raise _no_other_device("semaphore_signal")
    sem_or_view[...] = sem_or_view[...] + jnp.asarray(inc).astype(SEMAPHORE_DTYPE)


def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Take from the count of a semaphore. It does not wait: nothing runs beside the kernel."""
    if decrement:
        sem_or_view[...] = sem_or_view[...] - jnp.asarray(value).astype(SEMAPHORE_DTYPE)


@dataclass(frozen=True)
class AsyncCopyDescriptor:
    """A copy from one Ref, or view, to another."""

    src_ref: Any
    dst_ref: Any
    dst_sem: Any

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Copy, or `add`, the elements. `priority` is for compilers."""
        value = self.src_ref[...]
        if add:
            self.dst_ref.addupdate(value, ...)
        else:
            self.dst_ref[...] = value
        semaphore_signal(self.dst_sem, self._count)

    def wait(self) -> None:
        """Take the copy's elements from its semaphore."""
        semaphore_wait(self.dst_sem, self._count)

    wait_recv = wait

    def wait_send(self) -> None:
        """NotImplementedError: the copy stays on the device."""
        raise _no_other_device("wait_send")

    @property
    def _count(self) -> int:
        return min(self.dst_ref.size, np.iinfo(SEMAPHORE_DTYPE).max)


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopyDescriptor:
    """A copy that is to be started and waited for."""
    return AsyncCopyDescriptor(src_ref, dst_ref, sem)


def async_copy(src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False) -> AsyncCopyDescriptor:
    """A copy that has started."""
    copy = make_async_copy(src_ref, dst_ref, sem)
    copy.start(priority, add=add)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copy, or `add`, the elements of each Ref of a tree."""
    for source, target in zip(tree_flatten(src_ref)[0], tree_flatten(dst_ref)[0], strict=True):
        if add:
            target.addupdate(source[...], ...)
        else:
            target[...] = source[...]


def make_async_remote_copy(*args: Any, **kwargs: Any) -> AsyncCopyDescriptor:
    """NotImplementedError: a kernel stays on its device."""
    raise _no_other_device("make_async_remote_copy")


def async_remote_copy(*args: Any, **kwargs: Any) -> AsyncCopyDescriptor:
    """NotImplementedError: a kernel stays on its device."""
    raise _no_other_device("async_remote_copy")


def _no_other_device(function: str) -> NotImplementedError:
    return NotImplementedError(
        f"pallas: {function} for another device is not available: a kernel stays on its device. Exchange with lax.ppermute or "
        "lax.all_gather between kernels, in shard_map."
    )
