"""Types of values: `ShapedArray(shape, dtype, weak_type)` with explicit shardings and varying mesh axes.

A type is interned: equal types are one object, so caches compare by identity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.caches import InternTable
from shardwise.base.dtypes import float0, issubdtype, short_name
from shardwise.base.shapes import Axes
from shardwise.sharding import AbstractMesh, AxisType, ManualAxisType, NamedSharding, PartitionSpec, get_abstract_mesh

Spec = tuple[Axes, ...]  # per dim the mesh axes that split it, major first

NO_AXES: frozenset[str] = frozenset()
_array_types: InternTable[tuple[Any, ...], ShapedArray] = InternTable()


class ShapedArray:
    """The type of an array value.

    `mesh` is None unless some mesh axis is Explicit or Manual; `spec` then tells which Explicit axes split each dim.
    `vma` holds the Manual axes over which the value varies. `unreduced` axes hold partial sums, `reduced` ones are
    replicated values whose cotangents are unreduced.
    """

    __slots__ = (
        "dtype", "itemsize", "mesh", "nbytes", "ndim", "reduced", "shape", "size", "spec", "unreduced", "vma", "weak_type",
    )  # fmt: skip

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak_type: bool
    mesh: AbstractMesh | None
    spec: Spec
    vma: frozenset[str]
    unreduced: frozenset[str]
    reduced: frozenset[str]
    ndim: int
    size: int
    itemsize: int  # bytes of one element
    nbytes: int  # bytes of the whole value

    def __new__(
        cls,
        shape: Iterable[int],
        dtype: Any,
        weak_type: bool = False,
        *,
        mesh: AbstractMesh | None = None,
        spec: Spec | None = None,
        vma: frozenset[str] = NO_AXES,
        unreduced: frozenset[str] = NO_AXES,
        reduced: frozenset[str] = NO_AXES,
        sharding: NamedSharding | None = None,
    ) -> ShapedArray:
        shape = tuple(shape)
        if sharding is not None:
            mesh, spec, unreduced, reduced = _explicit_part(sharding, shape)
        if mesh is None or spec is None:
            spec = ((),) * len(shape)
        elif config.jax_remove_size_one_mesh_axis_from_type:
            spec = kept_spec(mesh, spec)
        key = (shape, dtype, weak_type, mesh, spec, vma, unreduced, reduced)
        known_value = _array_types.get(key)
        if known_value is not None:
            return known_value
        if not isinstance(dtype, np.dtype) and not hasattr(dtype, "physical"):
            return cls(
                shape, np.dtype(dtype), weak_type, mesh=mesh, spec=spec, vma=vma, unreduced=unreduced, reduced=reduced
            )
        self = object.__new__(cls)
        put = object.__setattr__
        put(self, "shape", tuple(int(n) for n in shape))
        put(self, "dtype", dtype)
        put(self, "weak_type", weak_type)
        put(self, "mesh", mesh)
        put(self, "spec", spec)
        put(self, "vma", vma)
        put(self, "unreduced", unreduced)
        put(self, "reduced", reduced)
        put(self, "ndim", len(shape))
        size = 1
        for n in shape:
            size *= int(n)
        put(self, "size", size)
        itemsize = int(dtype.itemsize)
        put(self, "itemsize", itemsize)
        put(self, "nbytes", size * itemsize)
        return _array_types.keep(key, self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r} of a type; use update({name}=...)")

    # Equality and hash are those of identity, inherited from object: types are interned.

    def __reduce__(self) -> tuple[Any, ...]:
        others = {k: getattr(self, k) for k in ("mesh", "spec", "vma", "unreduced", "reduced")}
        return (_rebuild, (self.shape, self.dtype, self.weak_type, others))

    def update(self, **changes: Any) -> ShapedArray:
        """This type with some fields replaced. A new shape drops the spec unless one is given."""
        keep = "shape" not in changes
        fields: dict[str, Any] = dict(
            shape=self.shape,
            dtype=self.dtype,
            weak_type=self.weak_type,
            mesh=self.mesh,
            spec=self.spec if keep else None,
            vma=self.vma,
            unreduced=self.unreduced,
            reduced=self.reduced,
        )
        fields.update(changes)
        return ShapedArray(fields.pop("shape"), fields.pop("dtype"), fields.pop("weak_type"), **fields)

    def to_tangent_aval(self) -> ShapedArray:
        """The type of tangents of such values: their own for floats and complex numbers, float0 for others."""
        return self if issubdtype(self.dtype, np.inexact) else self.update(dtype=np.dtype(float0), weak_type=False)

    at_least_vspace = to_tangent_aval

    @property
    def mat(self) -> ManualAxisType:
        """The value's type over Manual axes."""
        return ManualAxisType(varying=self.vma, unreduced=self.unreduced, reduced=self.reduced)

    manual_axis_type = mat

    @property
    def sharding(self) -> NamedSharding:
        """The explicit part of the value's sharding, over an abstract mesh: the one in context if the type names none."""
        mesh = self.mesh if self.mesh is not None else get_abstract_mesh()
        entries = [None if not axes else axes[0] if len(axes) == 1 else axes for axes in self.spec]
        marks: dict[str, Any] = {}
        if self.unreduced:
            marks["unreduced"] = set(self.unreduced)
        if self.reduced:
            marks["reduced"] = set(self.reduced)
        return NamedSharding(mesh, PartitionSpec(*entries, **marks))

    def strip_weak_type(self) -> ShapedArray:
        """This type with a strong dtype."""
        return self.update(weak_type=False) if self.weak_type else self

    def str_short(self, short_dtypes: bool = True) -> str:
        """Compact form such as ``f32[8@x,4]{V:y}``."""
        name = short_name(self.dtype) if short_dtypes else self.dtype.name
        dims = ",".join(f"{n}@{_axes_text(a)}" if a else str(n) for n, a in zip(self.shape, self.spec, strict=True))
        return f"{name}[{dims}]{self._marks()}"

    def _marks(self) -> str:
        if not config.dialect.types.show_marks:
            return ""
        parts = [
            f"{letter}:{_axes_text(tuple(sorted(axes)))}"
            for letter, axes in (("V", self.vma), ("U", self.unreduced), ("R", self.reduced))
            if axes
        ]
        return "{" + ", ".join(parts) + "}" if parts else ""

    def __str__(self) -> str:
        if config.dialect.types.str_is_short:
            return ("~" if self.weak_type else "") + self.str_short(short_dtypes=False)
        return repr(self)

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short(short_dtypes=False)}{weak})"


class ReferenceType(ShapedArray):
    """The type of a reference, in programs that are traced to be shown: ``Ref{f32[2]}``. `inner` is that of its array."""

    __slots__ = ("inner",)
    inner: ShapedArray

    def __new__(cls, inner: ShapedArray) -> ReferenceType:
        known_value = _references.get(inner)
        if known_value is not None:
            return known_value
        self = object.__new__(cls)
        for name in ShapedArray.__slots__:
            object.__setattr__(self, name, getattr(inner, name))
        object.__setattr__(self, "inner", inner)
        return _references.keep(inner, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ReferenceType, (self.inner,))

    def update(self, **changes: Any) -> ReferenceType:
        """The type of a reference to such an array."""
        return ReferenceType(self.inner.update(**changes))

    def str_short(self, short_dtypes: bool = True) -> str:
        """Compact form: ``Ref{f32[2]}``."""
        return f"Ref{{{self.inner.str_short(short_dtypes)}}}"

    def __repr__(self) -> str:
        return self.str_short(short_dtypes=False)

    __str__ = __repr__


_references: InternTable[ShapedArray, ReferenceType] = InternTable()


def kept_spec(mesh: AbstractMesh, spec: Spec) -> Spec:
    """The spec that a type keeps: without axes of size 1, which split nothing, where `remove_size_one_mesh_axis_from_type` says so."""
    if not config.jax_remove_size_one_mesh_axis_from_type:
        return spec
    return tuple([tuple([a for a in axes if mesh.axis_size(a) != 1]) for axes in spec])


def _explicit_part(
    sharding: NamedSharding, shape: tuple[int, ...]
) -> tuple[AbstractMesh | None, Spec, frozenset[str], frozenset[str]]:
    """The mesh, spec and marks of a type with that sharding, as its property `sharding` gives it; ValueError if it does not fit."""
    mesh, entries, ndim = sharding.mesh.abstract_mesh, sharding.spec.partitions, len(shape)
    if len(entries) > ndim:
        raise ValueError(f"a sharding of {len(entries)} dims, {sharding.spec}, does not fit a type of {ndim} dims.")
    if all(kind is AxisType.Auto for kind in mesh.axis_types or ()):
        return None, ((),) * ndim, NO_AXES, NO_AXES
    named_parts = {
        name for name, kind in zip(mesh.axis_names, mesh.axis_types or (), strict=True) if kind is AxisType.Explicit
    }
    axes = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries] + [()] * (
        ndim - len(entries)
    )
    spec = tuple(tuple(a for a in dim if a in named_parts) for dim in axes)
    for d, dim in enumerate(spec):
        ways = math.prod(mesh.axis_size(a) for a in dim)
        if shape[d] % ways:
            raise ValueError(
                f"Sharding spec {dim} implies that array axis {d} is partitioned {ways} times, but that does not evenly divide the "
                f"dimension size {shape[d]}. Got shape: {shape} and sharding {sharding}."
            )
    return mesh, spec, frozenset(sharding.spec.unreduced), frozenset(sharding.spec.reduced)


def _rebuild(shape: tuple[int, ...], dtype: Any, weak_type: bool, others: dict[str, Any]) -> ShapedArray:
    return ShapedArray(shape, dtype, weak_type, **others)


def _axes_text(axes: Axes) -> str:
    return axes[0] if len(axes) == 1 else "(" + ",".join(axes) + ")"
