"""`Env`: what a kernel may know of the devices it runs on: the device grid, and its leading dims in every block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Env:
    """The device grid under a block.

    `axis_names` and `axis_sizes` describe the grid in row-major device order. Blocks have `lead` leading dims: one per grid
    axis (extent n where the value varies over the axis, else 1), then one per axis of an enclosing vmap.
    """

    axis_names: tuple[str, ...] = ()
    axis_sizes: tuple[int, ...] = ()
    extra: int = 0  # vmap axes after the grid axes

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

    def index(self, axes: tuple[str, ...]) -> np.ndarray:
        """int32 block `lead * (extent n or 1)`: each device's row-major position along `axes` (first name major)."""
        position = np.zeros((1,) * self.lead, np.int32)
        for axis in axes:
            n, d = self.size(axis), self.dim(axis)
            shape = [1] * self.lead
            shape[d] = n
            position = position * np.int32(n) + np.arange(n, dtype=np.int32).reshape(shape)
        return position


SINGLE = Env()
