"""`ArrayImpl`, the concrete array: a typed value, a sharding, and one ndarray that holds all shards.

The value is stored as a block (see `shardwise.runtime.blocks`) or as the dense global array; each is a view of the other
if strides allow. Host views given to users are read-only, and cannot be made writable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import recent
from shardwise.base.dtypes import KeyDtype, canonicalize, is_key_dtype, physical
from shardwise.base.errors import JaxRuntimeError, about
from shardwise.base.html import text_html
from shardwise.base.shapes import Ndarray
from shardwise.base.treedef import leaf_type
from shardwise.engine.host_constants import keep_constant, known_constant
from shardwise.engine.host_values import host_values
from shardwise.engine.planned import check_room, recorder
from shardwise.engine.shards import Shard, ShardData, local_places, shard_places
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.ir import (
    Array,
    Literal,
    ShapedArray,
    check_index,
    check_scalar,
    check_truth,
    in_trace,
    is_eager,
    literal,
)
from shardwise.ops.rules.convert import install_array_constructor
from shardwise.runtime.capsules import capsule_of
from shardwise.runtime.copies import copy_dense
from shardwise.runtime.handout import read_only
from shardwise.runtime.hollow import is_hollow
from shardwise.sharding import Device, NamedSharding, PartitionSpec, PmapSharding, Sharding, SingleDeviceSharding
from shardwise.sharding.backend import default_device
from shardwise.sharding.formats import Format, format_of


class ArrayImpl(Array):
    """An array on one or more devices. The library makes them; users never do so directly."""

    __slots__ = ("__dict__", "__weakref__", "_block", "_dense", "_npy", "_origin", "_shards", "_sig")

    _sig: Signature
    _block: Ndarray | None
    _dense: Ndarray | None
    _origin: int  # identifies the making of an array over several processes (see shardwise.runtime.processes.origin)

    def __init__(
        self, sig: Signature, *, dense: Ndarray | None = None, block: Ndarray | None = None, origin: int = 0
    ) -> None:
        self._sig = sig
        self._origin = origin
        self._dense = dense
        self._block = block
        self._npy = None
        self._shards = None

    # -- storage -----------------------------------------------------------------------------------------------------------

    @property
    def dense(self) -> Ndarray:
        """The global value in physical dtype, of copies that differ the first; of an array over several processes, this process's part.
        For the library, which never writes to it."""
        dense = self._dense
        if dense is None:
            block = self._block
            if block is None:
                raise self._deleted_error()
            dense = self._dense = self._sig.form.to_dense(block)
        return dense

    @property
    def block(self) -> Ndarray:
        """The value in block form over the sharding's own device grid. For the library, which never writes to it."""
        block = self._block
        if block is None:
            block = self._block = self._sig.form.from_dense(self.dense)
        return block

    def _deleted_error(self) -> RuntimeError:
        shape = ",".join(map(str, self.shape))
        return about("deleted-array", RuntimeError(f"Array has been deleted with shape={self.dtype.name}[{shape}]."))

    @property
    def _known_origin(self) -> int:
        """A number that identifies the making of an array over several processes; 0 for other arrays."""
        return self._origin if self._sig.spans else 0

    # -- type and placement --------------------------------------------------------------------------------------------------

    @property
    def aval(self) -> ShapedArray:  # type: ignore[override]
        """The array's type."""
        return self._sig.aval

    @property
    def sharding(self) -> Sharding:
        """How the array lies over its devices."""
        return self._sig.sharding

    @property
    def format(self) -> Format:
        """The sharding, and the order of dims in memory."""
        return format_of(self._sig.aval.ndim, self._sig.sharding, self._sig.order)

    @property
    def committed(self) -> bool:
        """Whether the array was placed explicitly, so that computations run on its devices instead of moving it."""
        return self._sig.committed

    @property
    def _committed(self) -> bool:
        return self._sig.committed

    @property
    def device(self) -> Device | Sharding:
        """The device if the array is on one device, else the sharding. RuntimeError if the array was deleted."""
        self._check_alive()
        devices = self._sig.devices
        return devices[0] if len(devices) == 1 else self._sig.sharding

    def devices(self) -> set[Device]:
        """The devices that hold some part of the array. RuntimeError if it was deleted."""
        self._check_alive()
        return set(self._sig.devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can reach every device of the array."""
        return self._sig.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device holds the whole array."""
        return self._sig.sharding.is_fully_replicated

    @property
    def global_shards(self) -> list[Shard]:
        """One Shard per device; shards of other processes have no data."""
        if not self._sig.spans:
            return self.addressable_shards
        own = {shard.device: shard for shard in self.addressable_shards}
        shard_data = ShardData(self)
        return [own.get(place.device) or Shard(shard_data, place) for place in shard_places(self._sig)]

    @property
    def addressable_shards(self) -> list[Shard]:
        """One Shard per device of this process, in the sharding's device order."""
        self._check_alive()
        if self._shards is None:
            shard_data = ShardData(self)
            self._shards = [Shard(shard_data, place) for place in local_places(self._sig)]
        return list(self._shards)

    def addressable_data(self, index: int) -> ArrayImpl:
        """The data of the `index`-th shard of this process, as a single-device array."""
        shards = self.addressable_shards
        data = shards[0 if self.is_fully_replicated and shards else index].data
        assert data is not None
        return data

    # -- lifetime --------------------------------------------------------------------------------------------------------------

    def _check_alive(self) -> None:
        if self._block is None and self._dense is None:
            raise self._deleted_error()

    def is_deleted(self) -> bool:
        """Whether the array was deleted or donated."""
        return self._block is None and self._dense is None

    def delete(self) -> None:
        """Release the buffers; any later use of the data raises RuntimeError. Idempotent."""
        if self._shards:
            self._shards[0].forget(self._deleted_error)
        self._block = self._dense = self._npy = self._shards = None

    def block_until_ready(self) -> ArrayImpl:
        """The array itself: a computation has finished when its result exists."""
        if self.is_deleted():
            raise JaxRuntimeError(
                "block_until_ready was called on a deleted or donated array; use it before donating it."
            )
        return self

    def is_ready(self) -> bool:
        """True for any array that is not deleted."""
        self._check_alive()
        return True

    def copy_to_host_async(self) -> None:
        """Does nothing: the data is in host memory."""
        self._check_alive()

    def on_device_size_in_bytes(self) -> int:
        """The bytes of the shards on this process's devices; every replica counts."""
        shape = self.sharding.shard_shape(self.shape)
        count = len(self._sig.devices) if not self._sig.spans else sum(d.is_local for d in self._sig.devices)
        return int(np.prod(shape, dtype=np.int64)) * self.itemsize * count

    def unsafe_buffer_pointer(self) -> int:
        """The address of the data of a single-device array; ValueError for other arrays."""
        if len(self._sig.devices) != 1:
            raise ValueError(
                f"unsafe_buffer_pointer() needs a single-device array; this one has {len(self._sig.devices)} shards."
            )
        dense = self.dense
        if any(s == 0 and n > 1 for s, n in zip(dense.strides, dense.shape, strict=True)):
            # A constant is one element until somebody writes to it; readers of addresses expect all of them in memory.
            dense = self._dense = np.array(dense, order="C")
            self._block = self._npy = None
        return int(dense.ctypes.data)

    # -- host access -----------------------------------------------------------------------------------------------------------

    def _key_guard(self) -> None:
        if isinstance(self._sig.aval.dtype, KeyDtype):  # pyright: ignore[reportUnnecessaryIsInstance]  # a call less
            raise TypeError(
                "JAX array with PRNGKey dtype cannot be converted to a NumPy array, as its words mean nothing there. Use "
                "random.key_data(keys) for them."
            )

    @property
    def _value(self) -> Ndarray:
        value = self._npy
        if value is None:
            self._key_guard()
            if self._sig.spans:
                self._check_whole()
            value = read_only(self.dense)
            run = recorder()
            if run is None:
                self._npy = value
            elif is_hollow(value):  # the recorder notes each line that reads it
                run.read(self.shape, self.dtype)
        return value

    @property
    def _is_partial(self) -> bool:
        """Whether this process lacks some part of the value."""
        return self._sig.spans and (self._sig.absent or not self.is_fully_replicated)

    def _check_whole(self) -> None:
        """Raise RuntimeError if this process holds only a part of the value."""
        if self._is_partial:
            raise RuntimeError(
                "Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not possible. Use "
                "`jax.experimental.multihost_utils.process_allgather` for the whole value on every process, or the array's "
                "`addressable_shards` for the parts that this process holds."
            )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ndarray:
        value = self._value
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError(f"cannot convert {value.dtype} to {np.dtype(dtype)} without a copy; drop copy=False.")
            check_room(self.shape, self.dtype, "a converted copy")
            return value.astype(dtype)
        if copy:
            check_room(self.shape, self.dtype, "a copy")
        return value.copy() if copy else value

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if len(self._sig.devices) != 1:
            raise BufferError(
                "__dlpack__ is only supported for unsharded arrays; gather it with device_put(x, device) first."
            )
        if is_key_dtype(self.dtype):
            raise BufferError(f"{self.dtype} has no type of DLPack's; pass random.key_data of the keys.")
        if stream is not None:
            raise ValueError(f"CPU arrays have no streams; got stream={stream!r}, expected None.")
        value = self._value if max_version is not None and tuple(max_version) >= (1, 0) else self.dense
        return capsule_of(value, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        if len(self._sig.devices) != 1:
            raise BufferError("__dlpack_device__ is only supported for unsharded arrays.")
        return (1, 0)

    def __buffer__(self, flags: int) -> memoryview:
        if len(self._sig.devices) != 1:
            raise BufferError("Python buffer protocol is only defined for buffers with a single shard.")
        if self.dtype.kind == "V" or not self.dtype.isbuiltin:
            raise BufferError(f"{self.dtype.name} is not supported by the Python buffer protocol; use np.asarray(x).")
        return memoryview(self._value)  # type: ignore[arg-type]  # ndarrays are buffers

    def item(self, *args: int) -> Any:
        """One element as a Python scalar."""
        return self._value.item(*args)

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        check_room(self.shape, self.dtype, "a list")
        return self._value.tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The values' bytes in row-major order."""
        check_room(self.shape, self.dtype, "the bytes")
        return self._value.tobytes(order)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        self._check_alive()
        if self._is_partial:
            raise AssertionError("an array that spans several processes cannot be iterated over; index it instead.")
        sharding, is_committed = self.sharding, self.committed
        if isinstance(sharding, PmapSharding) or config.jax_debug_nans or config.jax_debug_infs or self._sig.varies:
            return (self[i] for i in range(self.shape[0]))
        if isinstance(sharding, NamedSharding) and sharding.is_fully_replicated:
            no_axes = (None,) * (self.ndim - 1 if sharding.mesh.explicit_axes else 0)
            sharding = NamedSharding(sharding.mesh, PartitionSpec(*no_axes), memory_kind=sharding.memory_kind)
        elif len(self._sig.devices) > 1:
            sharding, is_committed = SingleDeviceSharding(default_device()), False
        aval = array_type(self.shape[1:], self.dtype, self.weak_type, sharding)
        sig = signature(aval, sharding, is_committed)
        dense = self.dense
        return (ArrayImpl(sig, dense=dense[i, ...]) for i in range(self.shape[0]))

    def __bool__(self) -> bool:
        check_truth(self)
        return bool(self._value.reshape(()))

    def _scalar(self) -> Any:
        check_scalar(self)
        return self._value.item()

    def __float__(self) -> float:
        return float(self._scalar())

    def __int__(self) -> int:
        return int(self._scalar())

    def __complex__(self) -> complex:
        return complex(self._scalar())

    def __index__(self) -> int:
        check_index(self)
        return int(self._value.item())

    def __format__(self, spec: str) -> str:
        if not self.ndim and not is_key_dtype(self.dtype):
            return format(self._value[()], spec)
        if spec:
            raise TypeError(f"unsupported format string passed to an array of shape {self.shape}: {spec!r}")
        return str(self)

    def __str__(self) -> str:
        if is_key_dtype(self.dtype) or self._is_partial:
            return repr(self)
        return str(self._value)

    def _repr_html_(self) -> str:
        return text_html(f"{self!r}\n{self.sharding!r}")

    def __repr__(self) -> str:
        if self._is_partial:
            weak = ", weak_type=True" if self.weak_type else ""
            return f"Array(shape={self.shape}, dtype={self.dtype.name}{weak})"
        if is_key_dtype(self.dtype):
            words = np.ascontiguousarray(self.dense).reshape(*self.shape, 1).view(np.uint32)
            return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{words}"
        value = self._value
        weak = ", weak_type=True" if self.weak_type else ""
        tail = f"dtype={self.dtype.name}{weak})"
        if self.size == 0 and self.ndim:
            return f"Array([], shape={self.shape}, " + tail
        body = np.array2string(value, separator=", ", prefix="Array(", suffix=",")
        # JAX fills up with spaces instead of breaking the line, and counts so; doctests compare it.
        last_line = len(body) - body.rfind("\n") + 1
        gap = " " if last_line + len(tail) + 1 <= np.get_printoptions()["linewidth"] else " " * len("Array(")
        return f"Array({body},{gap}{tail}"

    # -- copies ------------------------------------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        self._check_whole()
        check_room(self.shape, self.dtype, "a pickled copy")
        return _unpickle_array, (
            read_only(self.dense),
            self.dtype if is_key_dtype(self.dtype) else None,
            self.weak_type,
        )

    def __copy__(self) -> ArrayImpl:
        return self._copy_dense()

    def __deepcopy__(self, memo: Any) -> ArrayImpl:
        return self._copy_dense()

    def _copy_dense(self) -> ArrayImpl:
        if self._sig.varies:
            return ArrayImpl(self._sig, block=copy_dense(self.block), origin=self._known_origin)
        return ArrayImpl(self._sig, dense=copy_dense(self.dense), origin=self._known_origin)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise about(
            "immutable",
            TypeError(
                "JAX arrays are immutable and do not support in-place item assignment. "
                "Instead of x[idx] = y, use x = x.at[idx].set(y)."
            ),
        )


leaf_type(ArrayImpl)


def nothing(sig: Signature) -> ArrayImpl:
    """An array of which this process holds nothing."""
    return ArrayImpl(sig, dense=np.empty(sig.form.shape, physical(sig.aval.dtype)))


def _unpickle_array(value: Ndarray, key_dtype: Any, weak_type: bool) -> ArrayImpl:
    value = value if key_dtype else host_values(value)
    return ArrayImpl(_host_signature(value.shape, key_dtype or value.dtype, weak_type, default_device()), dense=value)


def host_array(value: Ndarray, *, weak_type: bool = False, dtype: Any = None, explicit: bool = False) -> ArrayImpl:
    """A host ndarray as an uncommitted Array on the default device; see `host_values` for the other arguments."""
    dense = host_values(value, dtype, explicit)
    return ArrayImpl(_host_signature(dense.shape, dense.dtype, weak_type, default_device()), dense=dense)


@recent(4096)
def _host_signature(shape: tuple[int, ...], dtype: Any, weak_type: bool, device: Device) -> Signature:
    """The signature of an uncommitted array on `device`."""
    return signature(ShapedArray(shape, dtype, weak_type), SingleDeviceSharding(device), False)


def shared_array(value: Ndarray) -> ArrayImpl:
    """An uncommitted Array on the default device that shares the memory of a host ndarray; the owner may still write to it."""
    return ArrayImpl(_host_signature(value.shape, value.dtype, False, default_device()), dense=read_only(value))


def new_array(value: Ndarray, *, explicit: bool = False) -> Array:
    """A host ndarray as an array: by `host_array`, but inside a traced function as a constant of its program."""
    if is_eager():
        return host_array(value, explicit=explicit)
    if not value.ndim:
        return in_trace(literal(host_values(value, None, explicit)[()]))
    constant = known_constant(value, _host_signature(value.shape, canonicalize(value.dtype), False, default_device()))
    if constant is None:
        constant = host_array(value, explicit=explicit)
        keep_constant(value, constant)
    return in_trace(constant)


def from_literal(x: Literal) -> ArrayImpl:
    """A Literal as a 0-d uncommitted Array."""
    return ArrayImpl(signature(x.aval, SingleDeviceSharding(default_device()), False), dense=x.value)


install_array_constructor(new_array)
