"""Meshes: devices arranged in a grid whose axes have names.

`Mesh` holds devices, `AbstractMesh` only the grid's shape; types carry the latter. Both are interned, so equality is
identity and hashing is free.
"""

from __future__ import annotations

import enum
import math
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ContextDecorator
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.config import Setting
from shardwise.sharding.device import PLATFORM, Device, device_list
from shardwise.sharding.device import devices as all_devices


class AxisType(enum.Enum):
    """Who decides how arrays lie along a mesh axis: the compiler, the types, or the program itself."""

    Auto = 1
    Explicit = 2
    Manual = 3

    def __repr__(self) -> str:
        return self.name


_BY_NAME = {kind.name: kind for kind in AxisType}
_ABSENT: Any = object()

legacy_stack: Setting[tuple[Mesh, ...]] = Setting("with_mesh", ())


class AbstractDevice:
    """What a mesh's devices are, without naming them."""

    __slots__ = ("device_kind", "num_cores", "platform")

    def __init__(self, device_kind: str, num_cores: int | None = None, platform: str | None = None):
        for name, value in (("device_kind", device_kind), ("num_cores", num_cores), ("platform", platform)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"AbstractDevice({self._fields()})"

    def _fields(self) -> str:
        return f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"

    def _key(self) -> tuple[Any, ...]:
        return (self.device_kind, self.num_cores, self.platform)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractDevice) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __reduce__(self) -> Any:
        return (AbstractDevice, self._key())


class _Grid:
    """What both kinds of mesh have: named, typed axes with sizes."""

    __slots__ = (
        "__weakref__",
        "_position",
        "axis_names",
        "axis_sizes",
        "axis_types",
        "size",
    )

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    size: int
    _position: dict[Any, int]

    def _fill(self, sizes: tuple[int, ...], names: tuple[Any, ...], types: tuple[AxisType, ...]) -> None:
        put = object.__setattr__
        put(self, "axis_sizes", sizes)
        put(self, "axis_names", names)
        put(self, "axis_types", types)
        put(self, "size", math.prod(sizes) if names else 0)
        put(self, "_position", {name: i for i, name in enumerate(names)})

    @property
    def shape(self) -> OrderedDict[Any, int]:
        """Axis sizes by name."""
        return OrderedDict(self.shape_tuple)

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """Pairs of axis name and size."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def empty(self) -> bool:
        """Whether there is no axis."""
        return self.size == 0

    @property
    def is_scalar(self) -> bool:
        """Whether it is one device without axes."""
        return not self.axis_names and not self.empty

    def axis_position(self, name: Any) -> int:
        """Position of an axis by name; KeyError if there is none."""
        return self._position[name]

    def axis_size(self, name: Any) -> int:
        """Size of an axis by name; KeyError if there is none."""
        return self.axis_sizes[self._position[name]]

    def axis_type(self, name: Any) -> AxisType:
        """Type of an axis by name; KeyError if there is none."""
        return self.axis_types[self._position[name]]

    @property
    def _name_to_type(self) -> dict[Any, AxisType]:
        return dict(zip(self.axis_names, self.axis_types, strict=True))

    def _axes_of(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types, strict=True) if t is kind)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        """Names of the Auto axes."""
        return self._axes_of(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        """Names of the Explicit axes."""
        return self._axes_of(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        """Names of the Manual axes."""
        return self._axes_of(AxisType.Manual)

    def _all(self, *kinds: AxisType) -> bool:
        return bool(self.axis_types) and all(kind in kinds for kind in self.axis_types)

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether there are axes and all are Auto."""
        return self._all(AxisType.Auto)

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether there are axes and all are Explicit."""
        return self._all(AxisType.Explicit)

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether there are axes and all are Manual."""
        return self._all(AxisType.Manual)

    _are_all_axes_auto = are_all_axes_auto
    _are_all_axes_explicit = are_all_axes_explicit
    _are_all_axes_manual = are_all_axes_manual

    @property
    def _any_axis_auto(self) -> bool:
        return AxisType.Auto in self.axis_types

    @property
    def _any_axis_explicit(self) -> bool:
        return AxisType.Explicit in self.axis_types

    @property
    def _any_axis_manual(self) -> bool:
        return AxisType.Manual in self.axis_types

    def _axes_text(self) -> str:
        if not self.axis_names:
            return ""
        sizes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        return f"{sizes}, axis_types={self._types_text()}"

    def _types_text(self) -> str:
        return tuple.__repr__(self.axis_types)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"cannot assign to field {name!r}: meshes are immutable, make one with update()."
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}: meshes are immutable.")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def _checked_names(axis_names: Any) -> tuple[Any, ...]:
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    if None in names:
        raise ValueError(f"Mesh axis names cannot be None. Got: {names}")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1}, key=str)
        raise ValueError(f"Mesh axis names must be distinct; {twice} appears more than once in {names}.")
    return names


def _checked_types(axis_types: Any, names: tuple[Any, ...], owner: str) -> tuple[AxisType, ...]:
    if axis_types is None:
        return (AxisType.Auto,) * len(names)
    types = (
        (axis_types,)
        if isinstance(axis_types, AxisType) or not np.iterable(axis_types)
        else tuple(axis_types)
    )
    if not all(isinstance(kind, AxisType) for kind in types):
        raise TypeError(
            f"axis_types passed to {owner} must be of type `jax.sharding.AxisType`. "
            f"Got {types} of type {tuple(type(kind).__name__ for kind in types)}"
        )
    if len(types) != len(names):
        raise ValueError(
            f"Number of axis names should match the number of axis_types. Got axis_names={names} and "
            f"axis_types={tuple.__repr__(types)}"
        )
    return types


class AbstractMesh(_Grid):
    """A mesh without devices: the sizes, names and types of its axes; interned and picklable.

    Args:
        axis_sizes: one size per axis.
        axis_names: one name per axis; a str names one axis.
        axis_types: one type per axis; None: all Auto.
        abstract_device: what the devices are, if known.

    Raises:
        ValueError: counts disagree, or a name is None or appears twice.
        TypeError: `axis_types` holds something else.
    """

    __slots__ = ("abstract_device",)

    abstract_device: AbstractDevice | None

    def __new__(
        cls,
        axis_sizes: Sequence[int],
        axis_names: Any = (),
        axis_types: Any = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> AbstractMesh:
        """Find the mesh with these parts, or make it."""
        names = _checked_names(axis_names)
        try:
            sizes = tuple(size.__index__() for size in axis_sizes)
        except (AttributeError, TypeError):
            raise TypeError(
                f"AbstractMesh takes axis_sizes as a sequence of integers and axis_names beside it, as in "
                f"AbstractMesh((2, 4), ('x', 'y')); got axis_sizes={axis_sizes!r}."
            ) from None
        if len(sizes) != len(names):
            raise ValueError(
                f"AbstractMesh needs one name per axis; got axis_sizes={sizes} and axis_names={names}."
            )
        types = _checked_types(axis_types, names, "AbstractMesh")
        key = (sizes, names, types, abstract_device)
        known = _abstract_meshes.get(key)
        if known is not None:
            return known
        self = object.__new__(cls)
        self._fill(sizes, names, types)
        object.__setattr__(self, "abstract_device", abstract_device)
        return _abstract_meshes.setdefault(key, self)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh itself."""
        return self

    def update(
        self,
        axis_sizes: Any = None,
        axis_names: Any = None,
        axis_types: Any = None,
        abstract_device: Any = _ABSENT,
    ) -> AbstractMesh:
        """A mesh with some parts replaced."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            abstract_device=self.abstract_device if abstract_device is _ABSENT else abstract_device,
        )

    def update_axis_types(self, name_to_type: dict[Any, AxisType]) -> AbstractMesh:
        """A mesh in which the named axes have other types."""
        for name in name_to_type:
            if name not in self._position:
                raise ValueError(f"update_axis_types: {name!r} is no axis of {self}.")
        return self.update(axis_types=tuple(name_to_type.get(n, t) for n, t in self._name_to_type.items()))

    def _refuse(self, name: str) -> Any:
        raise ValueError(
            f"AbstractMesh does not implement {name}: it has no devices. Use a Mesh, made by make_mesh or Mesh."
        )

    devices = property(lambda self: self._refuse("devices"))
    device_ids = property(lambda self: self._refuse("device_ids"))
    local_mesh = property(lambda self: self._refuse("local_mesh"))
    local_devices = property(lambda self: self._refuse("local_devices"))
    is_multi_process = property(lambda self: self._refuse("is_multi_process"))

    def __enter__(self) -> Any:
        return self._refuse("__enter__")

    def __exit__(self, *exc: object) -> Any:
        return self._refuse("__exit__")

    def __repr__(self) -> str:
        device = f", {self.abstract_device._fields()}" if self.abstract_device is not None else ""
        return f"AbstractMesh({self._axes_text()}{device})"

    def __reduce__(self) -> Any:
        return (_rebuild_abstract, (self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device))


def _rebuild_abstract(sizes: Any, names: Any, types: Any, device: Any) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


class Mesh(_Grid, ContextDecorator):
    """Devices in a grid with named axes; interned and immutable.

    Args:
        devices: (nested sequence or array of) `Device`, one array dim per axis.
        axis_names: one name per axis; a str names one axis.
        axis_types: one type per axis; None: all Auto.

    As a context manager (or decorator) it is the mesh of bare specs inside `pjit` and `with_sharding_constraint`.

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
        names = _checked_names(axis_names)
        if grid.ndim != len(names):
            raise ValueError(
                "Mesh requires the ndim of its first argument (`devices`) to equal the length of its second argument "
                f"(`axis_names`), but got devices.ndim == {grid.ndim} and len(axis_names) == {len(names)}."
            )
        types = _checked_types(axis_types, names, "Mesh")
        flat = tuple(grid.ravel().tolist())
        key = (flat, grid.shape, names, types)
        known = _meshes.get(key)
        if known is not None:
            return known
        # A mesh without axes may hold nothing: `Mesh(np.empty((), dtype=object), ())` is JAX's empty mesh.
        if names or flat != (None,):
            for entry in flat:
                if not isinstance(entry, Device):
                    raise TypeError(
                        f"Mesh takes devices, as devices() lists them; got {entry!r} of type {type(entry).__name__}."
                    )
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
        cached = self._abstract
        if cached is None or cached[0] is not config.dialect:
            device = AbstractDevice(PLATFORM, None, PLATFORM) if config.latest and not self.empty else None
            mesh = AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=device)
            cached = (config.dialect, mesh)
            object.__setattr__(self, "_abstract", cached)
        return cached[1]

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
        if self._local_mesh is None:
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
            mesh = Mesh(self.devices[tuple(block)], self.axis_names, self.axis_types)
            object.__setattr__(self, "_local_mesh", mesh)
        return self._local_mesh

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """A mesh with some parts replaced."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    def __enter__(self) -> Mesh:
        if config.latest:
            warnings.warn(
                "Entering a mesh with `with mesh:` is deprecated; use `with set_mesh(mesh):`.",
                DeprecationWarning,
                stacklevel=2,
            )
        legacy_stack.set((*legacy_stack.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        legacy_stack.set(legacy_stack.get()[:-1])

    def __str__(self) -> str:
        return f"Mesh({self._axes_text()})"

    def __repr__(self) -> str:
        if self.empty:
            return (
                "Mesh(axis_sizes=(), axis_names=())"
                if config.latest
                else "Mesh(device_ids=[], axis_names=())"
            )
        grid = f"axis_sizes={self.axis_sizes}" if config.latest else f"device_ids={self.device_ids!r}"
        return f"Mesh({grid}, axis_names={self.axis_names}, axis_types={self._types_text()})"

    def __reduce__(self) -> Any:
        # Reaches the devices, which refuse: a mesh belongs to its process as they do.
        return (Mesh, (self.devices, self.axis_names, self.axis_types))


_meshes: weakref.WeakValueDictionary[Any, Mesh] = weakref.WeakValueDictionary()
_abstract_meshes: weakref.WeakValueDictionary[Any, AbstractMesh] = weakref.WeakValueDictionary()


def _device_array(devices: Any) -> np.ndarray:
    if isinstance(devices, Device):
        result = np.empty((), object)
        result[()] = devices
        return result
    return np.array(devices)


EMPTY_MESH = Mesh(np.empty((), dtype=object), ())
EMPTY_ABSTRACT_MESH = AbstractMesh((), ())


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Any,
    *arguments: Any,
    devices: Sequence[Device] | None = None,
    axis_types: Any = None,
) -> Mesh:
    """A mesh of the first `prod(axis_shapes)` devices, in row-major order.

    Args:
        axis_shapes: one size per axis.
        axis_names: one name per axis; a str names one axis.
        *arguments: `axis_types`, if given by position.
        devices: which devices to take from; None: all.
        axis_types: one type per axis; None: Auto under the `seed` dialect, Explicit under `latest`.

    Raises:
        ValueError: there are fewer devices, or counts disagree.
        TypeError: `axis_shapes` is no sequence of integers.
    """
    if len(arguments) > 1 or (arguments and axis_types is not None):
        raise TypeError("make_mesh takes axis_shapes, axis_names and axis_types by position, each once.")
    if arguments:
        axis_types = arguments[0]
    names = _checked_names(axis_names)
    try:
        sizes = tuple(size.__index__() for size in axis_shapes)
    except (AttributeError, TypeError):
        raise TypeError(
            f"make_mesh takes axis_shapes as a sequence of integers, such as (8,); got {axis_shapes!r}."
        ) from None
    if any(size < 1 for size in sizes):
        raise ValueError(f"make_mesh takes axis sizes of at least 1; got {sizes}.")
    if axis_types is None:
        axis_types = (_BY_NAME[config.dialect.make_mesh_axis_type],) * len(names)
    available = all_devices() if devices is None else list(devices)
    count = math.prod(sizes)
    if len(available) < count:
        raise ValueError(f"Number of devices {len(available)} must be >= the product of mesh_shape {sizes}")
    grid = np.empty(count, object)
    grid[:] = available[:count]
    return Mesh(grid.reshape(sizes), names, axis_types)
