"""Asking for types: `typeof`, `ShapeDtypeStruct`, `eval_shape`'s results."""

from __future__ import annotations

from typing import Any

from shardwise.base import config
from shardwise.base.dtypes import as_dtype, canonicalize
from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import array_type
from shardwise.ir import Array, ShapedArray
from shardwise.ir.axis_scope import visible_type
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import ManualAxisType, NamedSharding, PartitionSpec, Sharding, get_concrete_mesh
from shardwise.sharding.formats import Format, Layout
from shardwise.sharding.sharding import rank_text


def typeof(x: Any) -> ShapedArray:
    """The type of `x`, an array, tracer, NumPy array or scalar, with explicit shardings:
    ``ShapedArray(int32[4@X,2])``.

    Raises TypeError for other values.

    >>> print(jax.typeof(jnp.ones((2, 3))).shape)
    (2, 3)
    """
    if isinstance(x, Array):
        return visible_type(x.aval)
    if isinstance(x, ShapedArray):
        return x
    if isinstance(x, ShapeDtypeStruct):
        return x.aval
    own = getattr(x, "aval", None)  # of a Ref
    return host_type(x) if own is None else own


def host_type(x: Any) -> ShapedArray:
    """The type that a host value would have as an Array; no Array is made."""
    import numpy as np

    if isinstance(x, np.ndarray):
        return ShapedArray(x.shape, canonicalize(x.dtype))
    return as_value(x).aval


class ShapeDtypeStruct:
    """A type without data: shape, dtype, and optionally sharding and weak_type. Accepted by every function that needs only types.

    With `is_ref` it stands for a `Ref` to such an array.

    >>> jax.ShapeDtypeStruct((2, 3), jnp.float32)
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("_placed", "dtype", "is_ref", "layout", "manual_axis_type", "shape", "weak_type")

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
        manual_axis_type: Any = None,
        is_ref: bool = False,
    ) -> None:
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        self.is_ref = is_ref
        layout: Layout | None = None
        if isinstance(sharding, Format):
            if sharding.layout is Layout.AUTO:
                raise TypeError(
                    f"`Layout.AUTO` cannot be used in place of a device-local layout in a `ShapeDtypeStruct`. Got {sharding}."
                )
            layout = sharding.layout if isinstance(sharding.layout, Layout) else None
            sharding = sharding.resolve_sharding("ShapeDtypeStruct")
        self.layout = layout  # the order of dims in memory, where it is given
        if sharding is not None and not isinstance(sharding, (Sharding, PartitionSpec)):
            raise ValueError(
                f"sharding should be an instance of `jax.sharding.Sharding`, `jax.sharding.PartitionSpec` or None. Got "
                f"{sharding} of type {type(sharding)}."
            )
        self.shape = tuple(shape)
        spec = sharding.spec if isinstance(sharding, NamedSharding) else sharding
        checks_spec = config.dialect.arrays.struct_checks_spec
        if checks_spec and isinstance(spec, PartitionSpec) and len(spec) > self.ndim:
            raise ValueError(rank_text(sharding or spec, len(spec), self.ndim))
        self._placed = sharding
        self.dtype = as_dtype(dtype)
        self.weak_type = weak_type
        if isinstance(manual_axis_type, ManualAxisType):
            if manual_axis_type.unreduced or manual_axis_type.reduced:
                raise NotImplementedError(
                    f"ShapeDtypeStruct: {manual_axis_type} has unreduced or reduced axes; give them by the spec of the sharding."
                )
            manual_axis_type = manual_axis_type.varying
        self.manual_axis_type = frozenset(manual_axis_type or ())

    def __setattr__(self, name: str, value: Any) -> None:
        if not (config.dialect.arrays.struct_is_frozen and hasattr(self, name)):
            object.__setattr__(self, name, value)
        elif getattr(self, name) != value:
            raise RuntimeError(
                f"Cannot reassign attributes ({name}) of immutable ShapeDtypeStruct objects. Make another with update({name}=...)."
            )

    @property
    def sharding(self) -> Sharding | None:
        """The sharding; that of a PartitionSpec is over the mesh in context, and TypeError without one."""
        placement = self._placed
        if not isinstance(placement, PartitionSpec):
            return placement
        mesh = get_concrete_mesh()
        if mesh.empty:
            raise TypeError(
                "When specifying PartitionSpec to `ShapeDtypeStruct`, the context mesh cannot be empty. Set one with set_mesh, or pass a "
                "NamedSharding."
            )
        return NamedSharding(mesh, placement)

    @sharding.setter
    def sharding(self, value: Sharding | PartitionSpec | None) -> None:
        self._placed = value

    @property
    def format(self) -> Format:
        """The sharding and the order of dims in memory, as far as they are given."""
        return Format(self.layout, self.sharding)

    @property
    def vma(self) -> frozenset[str]:
        """The manual axes over which the value varies."""
        return self.manual_axis_type

    @property
    def aval(self) -> ShapedArray:
        """The type."""
        dtype = canonicalize(self.dtype)
        if self.sharding is None:
            return ShapedArray(self.shape, dtype, self.weak_type, vma=self.vma)
        return array_type(self.shape, dtype, self.weak_type, self.sharding).update(vma=self.vma)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The struct of an array, tracer, scalar or struct, with its sharding if the value is committed.

        >>> import numpy as np
        >>> ShapeDtypeStruct.like(np.ones((2, 3), np.float32))
        ShapeDtypeStruct(shape=(2, 3), dtype=float32)
        """
        aval = typeof(x)
        is_placed = x.committed if isinstance(x, ArrayImpl) else isinstance(x, ShapeDtypeStruct)
        sharding = x.sharding if is_placed else None
        if sharding is None and aval.mesh is not None and aval.mesh.explicit_axes and not aval.mesh.auto_axes:
            sharding = aval.sharding
        return cls(
            aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type, manual_axis_type=aval.vma or None
        )

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with some fields replaced. ValueError for a sharding without a layout where this struct has one."""
        if self.layout is not None and isinstance(changes.get("sharding"), Sharding):
            raise ValueError(
                f"You are updating ShapeDtypeStruct with a {type(changes['sharding'])} when the original ShapeDtypeStruct had a concrete "
                f"layout {self.format}. Pass a Format(layout, sharding)."
            )
        placement = self._placed if self.layout is None else self.format
        fields: dict[str, Any] = {"shape": self.shape, "dtype": self.dtype, "sharding": placement, "weak_type": self.weak_type,
                  "manual_axis_type": self.manual_axis_type, "is_ref": self.is_ref, **changes}  # fmt: skip
        return ShapeDtypeStruct(fields.pop("shape"), fields.pop("dtype"), **fields)

    def _key(self) -> tuple[Any, ...]:
        return (self.shape, self.dtype, self.sharding, self.layout, self.weak_type, self.manual_axis_type, self.is_ref)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        layout = f", format={self.layout}" if self.layout is not None else ""
        weak = f", weak_type={self.weak_type}" if self.weak_type else ""
        vma = f", vma={set(self.vma)}" if self.vma else ""
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{layout}{weak}{vma}{ref})"
