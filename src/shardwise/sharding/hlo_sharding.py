"""Tile assignments in the notation of XLA: `{devices=[4,1,2]<=[8] last_tile_dim_replicate}`.

A tile assignment is a grid of device numbers with one dim per array dim and, optionally, one more dim of replicas.
`OpSharding` is its mutable form with separate fields; `HloSharding` is checked and comparable, and has a text form.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.sharding.tiling import Tiling


class OpSharding:
    """The fields of a tile assignment; all may be set freely.

    Attributes:
        type: a member of `OpSharding.Type`.
        tile_assignment_dimensions: the shape of the grid of device numbers.
        tile_assignment_devices: its entries, row-major; or else
        iota_reshape_dims, iota_transpose_perm: how to reshape and transpose 0, 1, 2, ... to get them.
        replicate_on_last_tile_dim: whether the grid's last dim replicates.
        last_tile_dims: the types of trailing dims that split no array dim.
        tuple_shardings: of type TUPLE, one sharding per element.
    """

    class Type(enum.IntEnum):
        """The kind of sharding that the fields describe."""

        REPLICATED = 0
        MAXIMAL = 1
        TUPLE = 2
        OTHER = 3
        MANUAL = 4
        UNKNOWN = 5
        UNREDUCED = 6

    def __init__(self) -> None:
        self.type = OpSharding.Type.REPLICATED
        self.tile_assignment_dimensions: Sequence[int] = []
        self.tile_assignment_devices: Sequence[int] = []
        self.iota_reshape_dims: Sequence[int] = []
        self.iota_transpose_perm: Sequence[int] = []
        self.replicate_on_last_tile_dim = False
        self.last_tile_dims: Sequence[OpSharding.Type] = []
        self.tuple_shardings: Sequence[OpSharding] = []

    def clone(self) -> OpSharding:
        """A copy whose lists are its own."""
        copy = OpSharding()
        for name, value in vars(self).items():
            setattr(copy, name, list(value) if isinstance(value, (list, tuple)) else value)
        return copy

    def __repr__(self) -> str:
        lines = [f"type: {self.type.name}"]
        for name, value in vars(self).items():
            if name in ("type", "tuple_shardings"):
                continue
            if isinstance(value, bool):
                lines += [f"{name}: true"] if value else []
            else:
                lines += [f"{name}: {getattr(entry, 'name', entry)}" for entry in value]
        return "\n".join(lines) + "\n"


_Type = OpSharding.Type
_PLAIN = {
    _Type.REPLICATED: "{replicated}",
    _Type.MANUAL: "{manual}",
    _Type.UNKNOWN: "{unknown}",
    _Type.UNREDUCED: "{unreduced}",
}


class HloSharding:
    """A checked tile assignment; immutable, equal if it places the same tiles.

    Attributes:
        type: a member of `OpSharding.Type`.
        tiles: int64 grid of device numbers; of shape () for types that have none.
        subgroups: the types of the grid's trailing dims that split no array dim.
    """

    __slots__ = ("_iota", "subgroups", "tiles", "type")

    def __init__(
        self,
        type: OpSharding.Type,
        tiles: Any = 0,
        subgroups: tuple[OpSharding.Type, ...] = (),
        iota: tuple[Shape, Shape] | None = None,
    ):
        put = object.__setattr__
        tiles = np.asarray(tiles, np.int64)
        tiles.flags.writeable = False
        put(self, "type", type)
        put(self, "tiles", tiles)
        put(self, "subgroups", subgroups)
        put(self, "_iota", iota)

    @staticmethod
    def from_proto(op: OpSharding) -> HloSharding:
        """Check the fields and freeze them.

        Raises:
            ValueError: the fields contradict each other, or describe a tuple.
        """
        if op.type in _PLAIN:
            return HloSharding(op.type)
        if op.type == _Type.TUPLE:
            raise ValueError("A tuple of shardings describes several arrays; give one of its tuple_shardings.")
        shape = tuple(op.tile_assignment_dimensions)
        devices = list(op.tile_assignment_devices)
        if op.type == _Type.MAXIMAL:
            if len(devices) != 1:
                raise ValueError(f"A sharding of type MAXIMAL names exactly one device, got {devices}.")
            return HloSharding(_Type.MAXIMAL, devices[0])
        iota = None
        if op.iota_reshape_dims and not devices:
            reshape, perm = tuple(op.iota_reshape_dims), tuple(op.iota_transpose_perm)
            perm = perm or tuple(range(len(reshape)))
            if sorted(perm) != list(range(len(reshape))):
                raise ValueError(f"iota_transpose_perm {perm} does not permute iota_reshape_dims {reshape}.")
            if math.prod(reshape) != math.prod(shape):
                raise ValueError(f"iota_reshape_dims {reshape} and tile_assignment_dimensions {shape} differ in size.")
            numbers = np.arange(math.prod(reshape)).reshape(reshape).transpose(perm)
            iota = _merged_iota(reshape, perm)
        else:
            numbers = np.array(devices, np.int64)
            if numbers.size != math.prod(shape):
                raise ValueError(
                    f"tile_assignment_dimensions {shape} ask for {math.prod(shape)} devices, but "
                    f"tile_assignment_devices lists {numbers.size}."
                )
        subgroups = tuple(_Type(kind) for kind in op.last_tile_dims)
        if op.replicate_on_last_tile_dim:
            subgroups = (_Type.REPLICATED,)
        if len(subgroups) > len(shape):
            raise ValueError(f"{len(subgroups)} trailing tile dims cannot be taken from the tile dims {shape}.")
        return HloSharding(_Type.OTHER, numbers.reshape(shape), subgroups, iota)

    @staticmethod
    def from_string(text: str) -> HloSharding:
        """Parse the text form; ValueError if it is malformed."""
        return HloSharding.from_proto(_parse(text))

    @staticmethod
    def from_tiling(tiling: Tiling) -> HloSharding:
        """The tile assignment of a grid of devices, in the compact form `[tile dims]<=[grid]T(order)`."""
        if tiling.is_replicated:
            return HloSharding(_Type.REPLICATED)
        order = [axis for axes in tiling.dims for axis in axes] + list(tiling.replicated_axes)
        split_axes = [axis for axis in range(len(tiling.mesh_shape)) if tiling.mesh_shape[axis] > 1]
        reshape = tuple(tiling.mesh_shape[axis] for axis in split_axes)
        perm = tuple(split_axes.index(axis) for axis in order if tiling.mesh_shape[axis] > 1)
        copies = tiling.num_devices // math.prod(tiling.ways)
        shape = tiling.ways + ((copies,) if copies > 1 else ())
        numbers = np.arange(tiling.num_devices).reshape(reshape).transpose(perm).reshape(shape)
        return HloSharding(_Type.OTHER, numbers, (_Type.REPLICATED,) if copies > 1 else (), _merged_iota(reshape, perm))

    replicate = staticmethod(lambda: HloSharding(_Type.REPLICATED))
    manual = staticmethod(lambda: HloSharding(_Type.MANUAL))
    unknown = staticmethod(lambda: HloSharding(_Type.UNKNOWN))

    def is_replicated(self) -> bool:
        """Whether it is of type REPLICATED."""
        return self.type is _Type.REPLICATED

    def is_maximal(self) -> bool:
        """Whether it is of type MAXIMAL."""
        return self.type is _Type.MAXIMAL

    def is_manual(self) -> bool:
        """Whether it is of type MANUAL."""
        return self.type is _Type.MANUAL

    def is_unknown(self) -> bool:
        """Whether it is of type UNKNOWN."""
        return self.type is _Type.UNKNOWN

    def is_tiled(self) -> bool:
        """Whether it has a grid of device numbers."""
        return self.type is _Type.OTHER

    def tile_assignment_dimensions(self) -> list[int]:
        """The shape of the grid."""
        return list(self.tiles.shape)

    def tile_assignment_devices(self) -> list[int]:
        """The entries of the grid, row-major."""
        return self.tiles.ravel().tolist()

    def num_devices(self) -> int:
        """The size of the grid; 0 if there is none."""
        return self.tiles.size if self.is_tiled() else int(self.is_maximal())

    def num_dimensions(self) -> int:
        """The rank of the grid."""
        return self.tiles.ndim

    def replicate_on_last_tile_dim(self) -> bool:
        """Whether the grid's last dim replicates."""
        return self.subgroups == (_Type.REPLICATED,)

    def subgroup_types(self) -> list[OpSharding.Type]:
        """The types of the trailing dims, unless they are one that replicates."""
        return [] if self.replicate_on_last_tile_dim() else list(self.subgroups)

    @property
    def rank(self) -> int:
        """The number of array dims that the grid describes."""
        return self.tiles.ndim - len(self.subgroups)

    @property
    def ways(self) -> Shape:
        """The number of parts of each array dim."""
        return self.tiles.shape[: self.rank]

    @property
    def splits_nothing(self) -> bool:
        """Whether every device holds the whole array."""
        return not self.is_tiled() or math.prod(self.ways) == 1

    def coordinates(self) -> np.ndarray:
        """The part that each device holds: int64[num_devices, rank], by device number."""
        result = np.empty((self.tiles.size, self.rank), np.int64)
        parts = np.indices(self.tiles.shape).reshape(self.tiles.ndim, -1).T
        result[self.tiles.ravel()] = parts[:, : self.rank]
        return result

    def to_proto(self) -> OpSharding:
        """The fields."""
        op = OpSharding()
        op.type = self.type
        if self.is_maximal():
            op.tile_assignment_dimensions, op.tile_assignment_devices = [1], [int(self.tiles)]
        elif self.is_tiled():
            op.tile_assignment_dimensions = self.tile_assignment_dimensions()
            if self._iota is not None:
                op.iota_reshape_dims, op.iota_transpose_perm = (list(part) for part in self._iota)
            else:
                op.tile_assignment_devices = self.tile_assignment_devices()
            op.replicate_on_last_tile_dim = self.replicate_on_last_tile_dim()
            op.last_tile_dims = self.subgroup_types()
        return op

    def key(self) -> Any:
        """The value that equality and hashing compare."""
        if self.type in (_Type.REPLICATED, _Type.OTHER) and self.splits_nothing:
            return _Type.REPLICATED
        return (self.type, self.tiles.shape, self.subgroups, self.tiles.tobytes())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, HloSharding) and self.key() == other.key())

    def __hash__(self) -> int:
        return hash(self.key())

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}: HloSharding is immutable.")

    def __repr__(self) -> str:
        if self.type in _PLAIN:
            return _PLAIN[self.type]
        if self.is_maximal():
            return f"{{maximal device={int(self.tiles)}}}"
        if self._iota is None:
            devices = _list_numbers(self.tile_assignment_devices())
        else:
            reshape, perm = self._iota
            devices = f"<=[{_list_numbers(reshape)}]" + (f"T({_list_numbers(perm)})" if len(perm) > 1 else "")
        if not self.subgroups:
            last = ""
        elif self.replicate_on_last_tile_dim():
            last = " last_tile_dim_replicate"
        else:
            last = f" last_tile_dims={{{', '.join(kind.name.lower() for kind in self.subgroups)}}}"
        return f"{{devices=[{_list_numbers(self.tiles.shape)}]{devices}{last}}}"


def _list_numbers(numbers: Sequence[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _merged_iota(reshape: Shape, perm: Shape) -> tuple[Shape, Shape]:
    """Join grid dims that stay adjacent under the permutation, so that equal assignments have equal texts."""
    runs: list[list[int]] = []
    for axis in perm:
        if reshape[axis] == 1:
            continue
        if runs and axis == runs[-1][-1] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if not runs:
        return (1,), (0,)
    sorted_runs = sorted(runs)
    sizes = tuple(math.prod(reshape[axis] for axis in run) for run in sorted_runs)
    return sizes, tuple(sorted_runs.index(run) for run in runs)


_TILED_PATTERN = re.compile(
    r"\{devices=\[(?P<shape>[\d,]+)\]"
    r"(?:<=\[(?P<reshape>[\d,]+)\](?:T\((?P<perm>[\d,]+)\))?|(?P<devices>[\d,]+))"
    r"(?:\s+(?P<last>last_tile_dim_replicate)|\s+last_tile_dims=\{(?P<kinds>[a-z, ]+)\})?\}"
)


def _parse(text: str) -> OpSharding:
    op = OpSharding()
    body = text.strip()
    for kind, plain in _PLAIN.items():
        if body == plain:
            op.type = kind
            return op
    maximal = re.fullmatch(r"\{maximal device=(\d+)\}", body)
    if maximal:
        op.type = _Type.MAXIMAL
        op.tile_assignment_dimensions, op.tile_assignment_devices = [1], [int(maximal[1])]
        return op
    match = _TILED_PATTERN.fullmatch(body)
    if match is None:
        raise ValueError(
            f"{text!r} is no sharding; expected a form such as '{{replicated}}', '{{maximal device=0}}' or "
            "'{devices=[2,1,4]<=[8] last_tile_dim_replicate}'."
        )

    def numbers(group: str) -> list[int]:
        return [int(number) for number in match[group].split(",")] if match[group] else []

    op.type = _Type.OTHER
    op.tile_assignment_dimensions = numbers("shape")
    op.tile_assignment_devices = numbers("devices")
    op.iota_reshape_dims, op.iota_transpose_perm = numbers("reshape"), numbers("perm")
    op.replicate_on_last_tile_dim = bool(match["last"])
    if match["kinds"]:
        op.last_tile_dims = [_Type[kind.strip().upper()] for kind in match["kinds"].split(",")]
    return op
