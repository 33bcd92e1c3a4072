"""A local value in another layout: the steps of its plan as collectives, or a single exchange where that sends less.

Comes in: an atom of a region with the layouts that it has and shall have. Goes out: the moved atom. The region remembers it: a value
that is moved twice in the same way is moved once, and a slice of a value gets what it lacks from that. Layouts are those of a value of the
global shape: ops that treat the rows of one device as a whole move the same atom as a value of another shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, ShapedArray
from shardwise.ops.devices.all_gather import all_gather_op
from shardwise.ops.devices.all_slice import all_slice
from shardwise.ops.devices.all_to_all import all_to_all_op
from shardwise.ops.devices.first_replica import first_replica
from shardwise.ops.devices.ppermute import ppermute_op
from shardwise.ops.devices.relayout import device_bytes, layout_axes, relayout_op, route
from shardwise.passes.reshard import ReshardStep, plan_reshard, resharding_bytes, sends_blocks_twice, takes_detours

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


class Copy(NamedTuple):
    """A local value in another layout, as a value of this global shape."""

    dims: DimAxes
    shape: tuple[int, ...]
    atom: Atom


def reshard_atom(region: Region, atom: Atom, have: DimAxes, want: DimAxes, aval: ShapedArray) -> Atom:
    """`atom`, of global type `aval`, moved from layout `have` to another one, `want`."""
    sizes = region.grid.axis_sizes
    steps = plan_reshard(have, want, aval.shape, aval.itemsize, sizes)
    sent_bytes = sum(s.bytes_sent for s in steps)
    if sent_bytes and (atom, aval.shape) in region.sliced:
        source, before = region.sliced[atom, aval.shape]
        if resharding_bytes(before, want, aval.shape, aval.itemsize, sizes) < sent_bytes:
            return region.reshard(source, before, want, aval)
    known_copy = copy_of(region, atom, want, aval.shape) if sent_bytes else None
    if known_copy is not None:
        return known_copy
    direct = sends_blocks_twice(steps) and device_bytes(have, want, aval.shape, aval.itemsize, sizes) < sent_bytes
    across = region.across
    direct = direct or (across is not None and takes_detours(steps, across[1]))
    hidden = atom.aval.vma.difference(*have)  # axes over which copies of the value differ
    direct = direct and hidden.isdisjoint(layout_axes(have, want))
    if direct and (across is None or route(across[0], have, want) is not None):
        axes = layout_axes(have, want)
        params = {"source": have, "target": want, "sizes": region.sizes_of(axes)}
        new_atom: Atom = region.collective(relayout_op, [atom], axes, aval, params)
    else:
        new_atom = atom
        for step in steps:
            new_atom = _step(region, new_atom, step, aval, hidden)
    if sent_bytes:
        region.keep_copy(atom, Copy(want, aval.shape, new_atom))
    else:
        region.keep_cut(new_atom, aval.shape, atom, have)
    return new_atom


def copy_of(region: Region, atom: Atom, dims: DimAxes, shape: tuple[int, ...]) -> Atom | None:
    """The local value that `atom` became when it was brought into these dims; None if it was not."""
    for copy in region.moves.get(atom, ()):
        if copy.dims == dims and copy.shape == shape:
            return copy.atom
    return None


def copies_of(
    region: Region, atoms: Sequence[Atom], shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[DimAxes, ...], ...]:
    """The other layouts in which each of these local values, of these global shapes, is there; () if none of them is."""
    if region.moves.keys().isdisjoint(atoms):
        return ()
    return tuple(
        [
            tuple([c.dims for c in region.moves.get(atom, ()) if c.shape == shape])
            for atom, shape in zip(atoms, shapes, strict=True)
        ]
    )


def _step(region: Region, atom: Atom, step: ReshardStep, aval: ShapedArray, hidden: frozenset[str]) -> Atom:
    sizes = region.sizes_of(step.axes)
    if step.op is all_slice:
        return region.emit(all_slice, [atom], {"axes": step.axes, "sizes": sizes, "dim": step.dim})[0]
    if step.op is all_gather_op:
        params = {"sizes": sizes, "dim": step.dim, "tiled": True, "invariant": True}
        return region.collective(all_gather_op, [atom], step.axes, aval, params)
    if step.op is all_to_all_op:
        params = {"sizes": sizes, "split": step.target_dim, "concat": step.dim, "tiled": True}
        return region.collective(all_to_all_op, [atom], step.axes, aval, params)
    out = region.collective(ppermute_op, [atom], step.axes, aval, {"perm": tuple(step.perm)})
    varying_axes = {a for axes in step.result for a in axes}
    # The permute freed these axes: all replicas are equal, unless those were not which it sent.
    same = () if hidden.intersection(step.axes) else tuple(a for a in step.axes if a not in varying_axes)
    return region.emit(first_replica, [out], {"axes": same})[0] if same else out
