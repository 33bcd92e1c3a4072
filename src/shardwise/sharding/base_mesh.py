"""Grids with named, typed axes: the base of every mesh, and the mesh without devices.

Types carry an `AbstractMesh`. It is interned, so equality is identity and hashing is free.
"""

from __future__ import annotations

import enum
import math
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.collections_given import given_keys
from shardwise.base.html import table_html


class AxisType(enum.Enum):
    """The authority over layouts along a mesh axis: the compiler, the types, or the program itself."""

    Auto = 1
    Explicit = 2
    Manual = 3

    def __repr__(self) -> str:
        return self.name


_ABSENT: Any = object()


class AbstractDevice:
    """The kind of a mesh's devices, without naming them."""

    __slots__ = ("device_kind", "num_cores", "platform")

    def __init__(self, device_kind: str, num_cores: int | None = None, platform: str | None = None):
        for name, value in (("device_kind", device_kind), ("num_cores", num_cores), ("platform", platform)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"AbstractDevice({self.fields_text()})"

    def fields_text(self) -> str:
        """The fields as ``name=value``, for texts."""
        return f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"

    def _key(self) -> tuple[Any, ...]:
        return (self.device_kind, self.num_cores, self.platform)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractDevice) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __setattr__(self, name: str, value: Any) -> None:
        raise config.dialect.meshes.frozen_error(f"cannot assign to field {name!r}")

    def __reduce__(self) -> Any:
        return (AbstractDevice, self._key())


class BaseMesh:
    """The base of both kinds of mesh: named, typed axes with sizes."""

    __slots__ = (
        "__weakref__",
        "axis_names",
        "axis_positions",
        "axis_sizes",
        "axis_types",
        "size",
    )

    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    size: int
    axis_positions: dict[Any, int]

    def _fill(self, sizes: tuple[int, ...], names: tuple[Any, ...], types: tuple[AxisType, ...]) -> None:
        put = object.__setattr__
        put(self, "axis_sizes", sizes)
        put(self, "axis_names", names)
        put(self, "axis_types", types)
        put(self, "size", math.prod(sizes) if names else 0)
        put(self, "axis_positions", {name: i for i, name in enumerate(names)})

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
        """Whether this is the empty mesh."""
        return self.size == 0

    @property
    def is_scalar(self) -> bool:
        """Whether it is one device without axes."""
        return not self.axis_names and not self.empty

    def axis_position(self, name: Any) -> int:
        """Position of an axis by name; KeyError if there is none."""
        return self.axis_positions[name]

    def axis_size(self, name: Any) -> int:
        """Size of an axis by name; KeyError if there is none."""
        return self.axis_sizes[self.axis_positions[name]]

    def axis_type(self, name: Any) -> AxisType:
        """Type of an axis by name; KeyError if there is none."""
        return self.axis_types[self.axis_positions[name]]

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
        raise config.dialect.meshes.frozen_error(
            f"cannot assign to field {name!r}: meshes are immutable, make one with update()."
        )

    def __delattr__(self, name: str) -> None:
        raise config.dialect.meshes.frozen_error(f"cannot delete field {name!r}: meshes are immutable.")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def checked_names(axis_names: Any) -> tuple[Any, ...]:
    """The names as a tuple (a str is one name); ValueError if one is None or appears twice."""
    names = (
        (axis_names,) if isinstance(axis_names, str) else given_keys(axis_names, "A mesh takes a tuple of axis names")
    )
    if None in names:
        raise ValueError(f"Mesh axis names cannot be None. Got: {names}")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1}, key=str)
        raise ValueError(f"Mesh axis names must be distinct; {twice} appears more than once in {names}.")
    return names


def checked_types(axis_types: Any, names: tuple[Any, ...], owner: str) -> tuple[AxisType, ...]:
    """The types as a tuple (None: all Auto); errors speak of `owner`."""
    if axis_types is None:
        return (AxisType.Auto,) * len(names)
    types = (axis_types,) if isinstance(axis_types, AxisType) or not np.iterable(axis_types) else tuple(axis_types)
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


class AbstractMesh(BaseMesh):
    """A mesh without devices: the sizes, names and types of its axes; interned and picklable.

    Args:
        axis_sizes: one size per axis.
        axis_names: one name per axis; a str names one axis.
        axis_types: one type per axis; None: all Auto.
        abstract_device: the kind of the devices, if known.

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
        names = checked_names(axis_names)
        try:
            sizes = tuple(size.__index__() for size in axis_sizes)
        except (AttributeError, TypeError):
            raise TypeError(
                f"AbstractMesh takes axis_sizes as a sequence of integers and axis_names beside it, as in "
                f"AbstractMesh((2, 4), ('x', 'y')); got axis_sizes={axis_sizes!r}."
            ) from None
        if len(sizes) != len(names):
            raise ValueError(f"AbstractMesh needs one name per axis; got axis_sizes={sizes} and axis_names={names}.")
        types = checked_types(axis_types, names, "AbstractMesh")
        key = (sizes, names, types, abstract_device)
        known_mesh = _abstract_meshes.get(key)
        if known_mesh is not None:
            return known_mesh
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
        given: Any = name_to_type
        if not isinstance(given, dict):
            raise TypeError(f"update_axis_types takes a dict from axis names to types; got {name_to_type!r}.")
        for name in name_to_type:
            if name not in self.axis_positions:
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
        device = f", {self.abstract_device.fields_text()}" if self.abstract_device is not None else ""
        return f"AbstractMesh({self._axes_text() or '(), axis_types=()'}{device})"

    def _repr_html_(self) -> str:
        return axes_html(self, "AbstractMesh")

    def __reduce__(self) -> Any:
        return (_rebuild_abstract, (self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device))


def axes_html(mesh: Any, caption: str) -> str:
    """The axes of a mesh as a table."""
    types = [kind.name for kind in mesh.axis_types]
    return table_html(caption, ("axis", "size", "type"), zip(mesh.axis_names, mesh.axis_sizes, types, strict=True))


def _rebuild_abstract(sizes: Any, names: Any, types: Any, device: Any) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


_abstract_meshes: weakref.WeakValueDictionary[Any, AbstractMesh] = weakref.WeakValueDictionary()
EMPTY_ABSTRACT_MESH = AbstractMesh((), ())
