"""`Mesh`: devices arranged in a grid whose axes have names.

Meshes are interned, so equality is identity and hashing is free.
"""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Iterable, Sequence
from contextlib import ContextDecorator
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.collections_given import given_items
from shardwise.base.config import Setting
from shardwise.base.errors import about
from shardwise.sharding.backend import device_list
from shardwise.sharding.backend import devices as all_devices
from shardwise.sharding.base_mesh import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    BaseMesh,
    axes_html,
    checked_names,
    checked_types,
)
from shardwise.sharding.device import Device
from shardwise.sharding.ownership import arrange_devices

legacy_stack: Setting[tuple[Mesh, ...]] = Setting("with_mesh", ())


class Mesh(BaseMesh, ContextDecorator):
    """Devices in a grid with named axes; interned and immutable.

    Args:
        devices: (nested sequence or array of) `Device`, one array dim per axis.
        axis_names: one name per axis; a str names one axis.
        axis_types: one type per axis; None: all Auto.

    As a context manager (or decorator) it sets the mesh for bare specs in `pjit` and `with_sharding_constraint`.

    Raises:
        ValueError: counts disagree, or a name is None or appears twice.
        TypeError: an entry is no `Device`, or `axis_types` holds something else.
    """

    __slots__ = ("_abstract", "_local_mesh", "_single_process", "device_list", "devices")

    devices: np.ndarray
    device_list: tuple[Device, ...]

    def __new__(cls, devices: Any, axis_names: Any, axis_types: Any = None) -> Mesh:
        """Find the mesh with these parts, or make it."""
        grid = devices if isinstance(devices, np.ndarray) else _device_array(devices)
        names = checked_names(axis_names)
        if grid.ndim != len(names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of its second argument "
                f"(`axis_names`), but got devices.ndim == {grid.ndim} and len(axis_names) == {len(names)}."
            )
        types = checked_types(axis_types, names, "Mesh")
        flat = tuple(grid.ravel().tolist())
        key = (flat, grid.shape, names, types)
        known_mesh = _meshes.get(key)
        if known_mesh is not None:
            return known_mesh
        # A mesh without axes may hold nothing: `Mesh(np.empty((), dtype=object), ())` is JAX's empty mesh.
        if names or flat != (None,):
            for entry in flat:
                if not isinstance(entry, Device):
                    raise TypeError(
                        f"Mesh takes devices, as devices() lists them; got {entry!r} of type {type(entry).__name__}."
                    )
            if len(set(flat)) != len(flat):
                raise ValueError("A Mesh holds each device once; a device appears twice in its list.")
        self = object.__new__(cls)
        self._fill(grid.shape, names, types)
        if flat and not names and flat != (None,):
            object.__setattr__(self, "size", 1)
        grid = grid.astype(object, copy=True)
        grid.flags.writeable = False
        put = object.__setattr__
        put(self, "devices", grid)
        put(self, "device_list", device_list(flat if flat != (None,) else ()))
        put(self, "_abstract", None)
        put(self, "_local_mesh", None)
        put(self, "_single_process", len({device.process_index for device in self.device_list}) <= 1)
        return _meshes.setdefault(key, self)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The grid without its devices."""
        own_mesh, names_device = self._abstract, config.dialect.meshes.abstract_names_device
        if own_mesh is None or own_mesh[0] is not names_device:
            first = self.device_list[0] if names_device and not self.empty else None
            device = None if first is None else AbstractDevice(first.device_kind, None, first.platform)
            mesh = AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=device)
            own_mesh = (names_device, mesh)
            object.__setattr__(self, "_abstract", own_mesh)
        return own_mesh[1]

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices: int64 of the mesh's shape."""
        ids = np.array([device.id for device in self.device_list], dtype=np.int64)
        return ids.reshape(self.axis_sizes)

    @property
    def is_multi_process(self) -> bool:
        """Whether the devices belong to several processes."""
        return not self._single_process

    @property
    def is_fully_local(self) -> bool:
        """Whether all devices belong to this process."""
        return self._single_process and (not self.device_list or self.device_list[0].is_local)

    @property
    def local_devices(self) -> list[Device]:
        """The mesh's devices that this process owns, in mesh order."""
        if self.is_fully_local:
            return list(self.device_list)
        return [device for device in self.device_list if device.is_local]

    @property
    def local_mesh(self) -> Mesh:
        """The part of the grid that this process owns.

        Raises:
            ValueError: this process's devices form no sub-block of the grid.
        """
        if self.is_fully_local:
            return self
        own_mesh: Mesh | None = self._local_mesh
        if own_mesh is None:
            local = np.array([device.is_local for device in self.device_list]).reshape(self.axis_sizes)
            block = []
            for axis in range(local.ndim):
                other = tuple(a for a in range(local.ndim) if a != axis)
                where = np.flatnonzero(local.any(axis=other))
                block.append(slice(where[0], where[-1] + 1) if len(where) else slice(0, 0))
            if not local[tuple(block)].all() or not local.any():
                raise ValueError(
                    "When passing host local inputs to pjit, devices connected to a single host must form a "
                    f"contiguous subcube of the global device mesh; this process's devices do not in {self}."
                )
            own_mesh = Mesh(self.devices[tuple(block)], self.axis_names, self.axis_types)
            object.__setattr__(self, "_local_mesh", own_mesh)
        return own_mesh

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """A mesh with some parts replaced."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def __enter__(self) -> Mesh:
        if config.jax_disallow_mesh_context_manager:
            raise RuntimeError(
                "Mesh context manager is disabled (jax_disallow_mesh_context_manager). Use `with set_mesh(mesh):`."
            )
        if config.dialect.meshes.entering_warns:
            warnings.warn(
                "`with mesh:` context manager is deprecated; use `with set_mesh(mesh):`.",
                DeprecationWarning,
                stacklevel=2,
            )
        legacy_stack.set((*legacy_stack.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        legacy_stack.set(legacy_stack.get()[:-1])

    def __str__(self) -> str:
        return f"Mesh({self._axes_text()})"

    def _repr_html_(self) -> str:
        return axes_html(self, f"Mesh of {self.size} {'device' if self.size == 1 else 'devices'}")

    def __repr__(self) -> str:
        shows_ids = config.dialect.meshes.shows_device_ids
        if self.empty:
            return "Mesh(device_ids=[], axis_names=())" if shows_ids else "Mesh(axis_sizes=(), axis_names=())"
        grid = f"device_ids={self.device_ids!r}" if shows_ids else f"axis_sizes={self.axis_sizes}"
        return f"Mesh({grid}, axis_names={self.axis_names}, axis_types={self._types_text()})"

    def __reduce__(self) -> Any:
        # Pickling reaches the devices, which refuse: like them, a mesh belongs to its process.
        return (Mesh, (self.devices, self.axis_names, self.axis_types))


_meshes: weakref.WeakValueDictionary[Any, Mesh] = weakref.WeakValueDictionary()


def _device_array(devices: Any) -> np.ndarray:
    if isinstance(devices, Device):
        result = np.empty((), object)
        result[()] = devices
        return result
    return np.array(devices)


EMPTY_MESH = Mesh(np.empty((), dtype=object), ())


def make_mesh(
    axis_shapes: Any,
    axis_names: Any,
    *arguments: Any,
    devices: Sequence[Device] | None = None,
    axis_types: Any = None,
) -> Mesh:
    """A mesh of the first `prod(axis_shapes)` devices, in row-major order, or arranged so that each process has a block of it.

    Args:
        axis_shapes: one size per axis.
        axis_names: one name per axis; a str names one axis.
        *arguments: `axis_types`, if given by position.
        devices: the devices to choose from; None: all.
        axis_types: one type per axis; None: Auto under the dialect 0.5, Explicit under 0.10.

    Raises:
        ValueError: there are fewer devices, counts disagree, or `axis_shapes` holds something other than integers.
        TypeError: `axis_shapes` is no sequence.

    >>> jax.make_mesh((2, 4), ("x", "y")).shape
    OrderedDict([('x', 2), ('y', 4)])
    """
    if len(arguments) > 1 or (arguments and axis_types is not None):
        raise TypeError("make_mesh takes axis_shapes, axis_names and axis_types by position, each once.")
    if arguments:
        axis_types = arguments[0]
    names = checked_names(axis_names)
    try:
        sizes = tuple(size.__index__() for size in axis_shapes)
    except (AttributeError, TypeError):
        error = ValueError if isinstance(axis_shapes, Iterable) else TypeError
        raise error(
            f"`axis_shapes` passed to `make_mesh` should be a sequence of ints, such as (8,). Got {axis_shapes!r}"
        ) from None
    if any(size < 1 for size in sizes):
        raise ValueError(f"make_mesh takes axis sizes of at least 1; got {sizes}.")
    if axis_types is None:
        axis_types = (AxisType[config.dialect.meshes.make_mesh_axis_type],) * len(names)
    available = (
        all_devices() if devices is None else list(given_items(devices, "make_mesh takes a sequence of devices"))
    )
    count = math.prod(sizes)
    if len(available) < count:
        virtual = devices is None and available[0].platform == "cpu"
        hint = (
            ". Ask for more right after the import, config.update('jax_num_cpu_devices', n), or from outside, JAX_NUM_CPU_DEVICES=n "
            "or shardwise run --devices n: they are virtual, n for each process."
        )
        text = (
            f"Number of devices {len(available)} must be >= the product of mesh_shape {sizes}{hint if virtual else ''}"
        )
        raise about("few-devices", ValueError(text))
    return Mesh(arrange_devices(available[:count], sizes), names, axis_types)
