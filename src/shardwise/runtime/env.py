"""`Env`: what a kernel may know of the devices it runs on: the device grid, and its leading dims in every block."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import cached_property
from shardwise.ir import Spread
from shardwise.sharding.ownership import Ownership


@dataclass(frozen=True)
class Env:
    """The device grid under a block.

    `axis_names` and `axis_sizes` describe the grid in row-major device order. Blocks have `lead` leading dims: one per grid
    axis (extent n where the value varies over the axis, else 1), then one per axis of an enclosing vmap.

    Where the grid lies over several processes, `processes` says who owns what. Blocks then hold this process's coordinates
    only: n is the number of those (`extent`), while `size` is still that of the whole axis.
    """

    axis_names: tuple[str, ...] = ()
    axis_sizes: tuple[int, ...] = ()
    extra: int = 0  # vmap axes after the grid axes
    processes: Ownership | None = field(default=None, kw_only=True)

    @property
    def lead(self) -> int:
        """How many leading dims every block has."""
        return len(self.axis_names) + self.extra

    def dim(self, axis: str) -> int:
        """The leading dim of a block that stands for a grid axis."""
        return self.axis_names.index(axis)

    def size(self, axis: str) -> int:
        """The number of devices along a grid axis."""
        return self.axis_sizes[self.axis_names.index(axis)]

    def extent(self, axis: str) -> int:
        """How many coordinates of a grid axis this process owns."""
        d = self.axis_names.index(axis)
        return self.axis_sizes[d] if self.processes is None else len(self.processes.coordinates[d])

    @cached_property
    def spread(self) -> Spread:
        """How many parts there are of values."""
        return Spread(dict(zip(self.axis_names, self.axis_sizes, strict=True)))

    def deeper(self) -> Env:
        """The Env inside one more vmap axis."""
        return replace(self, extra=self.extra + 1)

    def index(self, axes: tuple[str, ...]) -> np.ndarray:
        """int32 block `lead * (extent n or 1)`: each device's row-major position along `axes` (first name major). Nobody writes to it."""
        found = self._indices.get(axes)
        if found is None:
            found = self._indices[axes] = self._index(axes)
        return found

    def first_part(self, axes: tuple[str, ...]) -> int | None:
        """The position along `axes` of this process's first device; None if its devices are not consecutive."""
        if axes not in self._first_parts:
            dims = [self.dim(a) for a in axes]
            parts = np.moveaxis(self.index(axes), dims, range(len(dims))).reshape(-1)
            adjacent = np.array_equal(parts, np.arange(parts[0], parts[0] + parts.size))
            self._first_parts[axes] = int(parts[0]) if adjacent else None
        return self._first_parts[axes]

    @cached_property
    def _indices(self) -> dict[tuple[str, ...], np.ndarray]:
        return {}

    @cached_property
    def _first_parts(self) -> dict[tuple[str, ...], int | None]:
        return {}

    def _index(self, axes: tuple[str, ...]) -> np.ndarray:
        position = np.zeros((1,) * self.lead, np.int32)
        for axis in axes:
            n, d = self.size(axis), self.dim(axis)
            shape = [1] * self.lead
            own = np.arange(n, dtype=np.int32)
            if self.processes is not None:
                own = np.array(self.processes.coordinates[d], np.int32)
            shape[d] = len(own)
            position = position * np.int32(n) + own.reshape(shape)
        position.flags.writeable = False
        return position


SINGLE = Env()
