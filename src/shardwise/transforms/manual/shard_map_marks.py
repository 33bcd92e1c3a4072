"""`unreduced` and `reduced` axes of in_specs and out_specs.

Outside a body, a value that is unreduced over an axis is stored as the finished sum; only its type says that the sum is pending.
Inside, each device has a part of it: on entry the first device gets the whole value and the others get zeros; on exit the parts
are summed. A `reduced` value is the same on all devices, inside and outside; its cotangent is unreduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise.ir import Array, ShapedArray, bind
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.devices.first_replica import first_replica, on_first
from shardwise.ops.devices.variance import pcast_op, pvary_op
from shardwise.sharding import PartitionSpec

_NONE: frozenset[str] = frozenset()


class Marks(NamedTuple):
    """The unreduced and reduced axes of a spec or type: those that split no dim."""

    unreduced: frozenset[str] = _NONE
    reduced: frozenset[str] = _NONE

    def on(self, aval: ShapedArray) -> ShapedArray:
        """A global type with these marks."""
        return aval.update(unreduced=self.unreduced, reduced=self.reduced) if any(self) else aval

    @property
    def dual(self) -> Marks:
        """The marks of cotangents."""
        return Marks(self.reduced, self.unreduced)


def marks_of(spec: PartitionSpec | ShapedArray) -> Marks:
    """The marks of an in_spec, an out_spec or a type."""
    return Marks(frozenset(spec.unreduced), frozenset(spec.reduced))


def check_marks(mesh: Any, manual: frozenset[str], side: str, specs: Sequence[PartitionSpec]) -> None:
    """ValueError unless marked axes are Explicit; NotImplementedError if some axes of the mesh stay automatic."""
    for spec in specs:
        marks = marks_of(spec)
        if not any(marks):
            continue
        if not manual >= set(mesh.axis_names):
            raise NotImplementedError(
                f"unreduced and reduced axes can only be passed to {side}_specs when shard_map is in full manual mode, but of "
                f"{mesh.axis_names} only {sorted(manual)} are manual. Leave axis_names out."
            )
        if missing_axes := [a for axes in marks for a in axes if a not in mesh.axis_names]:
            raise ValueError(
                f"shard_map {side}_specs refers to {missing_axes[0]!r} in {spec}; the mesh has axes {mesh.axis_names}."
            )
        if set(mesh.explicit_axes) != set(mesh.axis_names):
            raise ValueError(
                f"unreduced and reduced, as in {spec}, can only be used when the mesh passed to shard_map contains axis names all of type "
                f"`Explicit`, got {mesh}."
            )


def cast_to_partial(x: Array, spec: PartitionSpec) -> Array:
    """A checked result that varies over axes which its out_spec marks as unreduced, as partial sums over them."""
    axes = marks_of(spec).unreduced & x.aval.vma
    return bind(pcast_op, x, axes=tuple(sorted(axes)), to="unreduced") if axes else x


def check_results(name: str, specs: Sequence[PartitionSpec], values: Sequence[Array]) -> None:
    """ValueError if a checked result is a partial sum or `reduced` and its out_spec does not mark it so, or the reverse."""
    for spec, value in zip(specs, values, strict=True):
        own, wanted_marks = marks_of(value.aval), marks_of(spec)
        for mark, has, given in zip(Marks._fields, own, wanted_marks, strict=True):
            if has != given:
                raise ValueError(
                    f"out_specs passed to shard_map: {spec} does not match the type of the result of {name!r}, {value.aval}, which is "
                    f"{mark} over {sorted(has)}. Cast it with pcast, take the sum of an unreduced value with psum, or mark the axes "
                    f"in the spec."
                )


def enter_block(x: Array, spec: PartitionSpec, check: bool) -> Array:
    """A block on entry to the body."""
    marks = marks_of(spec)
    if marks.unreduced:
        axes = tuple(sorted(marks.unreduced))
        x = on_first(x, axes)
        x = bind(pcast_op, x, axes=axes, to="unreduced") if check else x
    if marks.reduced and check:
        x = bind(pcast_op, x, axes=tuple(sorted(marks.reduced)), to="reduced")
    return x


def leave_block(x: Array, spec: PartitionSpec) -> Array:
    """A result of the body on exit."""
    marks = marks_of(spec)
    if marks.unreduced:
        x = bind(all_reduce, x, axes=tuple(sorted(marks.unreduced)), kind="sum", groups=None)
    if marks.reduced:
        axes = tuple(sorted(marks.reduced))
        x = bind(first_replica, bind(pvary_op, x, axes=axes), axes=axes)
    return x
