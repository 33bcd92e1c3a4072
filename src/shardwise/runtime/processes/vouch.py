"""Host values that enter a program of several processes: each process brings its own, and all must be equal.

Comes in: what a process passes as replicated arguments. Goes out: nothing, or an error on every process that names the values.
Only programs that exchange data are held to it: others may run on one process alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardwise.runtime.blocks import Ndarray
from shardwise.runtime.processes.comm import World, as_bytes, number_of

_PLAIN = 1 << 16  # bytes up to which every one goes through the hash
_ROW = 4093  # words; a prime, so that rows of the values that change places do not end up in the same column
_SHOWN = 4  # elements up to which a message shows the value itself


def checksum(x: Ndarray) -> int:
    """A 62-bit number that stands for an array's type and value, at the speed of memory."""
    import hashlib

    data = as_bytes(np.ascontiguousarray(x))
    digest = hashlib.blake2b(f"{x.dtype.name}{x.shape}".encode(), digest_size=8)
    if data.nbytes > _PLAIN:
        rows = data.nbytes // (8 * _ROW)
        words = data[: rows * 8 * _ROW].view(np.uint64).reshape(rows, _ROW)
        digest.update(np.add.reduce(words, axis=0).data)
        data = data[rows * 8 * _ROW :]
    digest.update(data.data)
    return int.from_bytes(digest.digest(), "little") >> 2


class Vouch:
    """The values that a process brings to each call of one program, compared with the others'.

    `labels` names them by their position among the arguments; the first `constants` arguments never change. `positions` are
    those that are to be brought to the next call.
    """

    __slots__ = ("_base", "_constants", "_labels", "_name", "_ranks", "_world", "positions")

    def __init__(
        self, world: World, ranks: tuple[int, ...], name: str, labels: Mapping[int, str], constants: int = 0
    ) -> None:
        self._world = world
        self._ranks = ranks
        self._name = name
        self._labels = dict(labels)
        self._constants = constants
        self._base = number_of(f"the host values of {name}")
        self.positions = tuple(labels)

    def __call__(self, values: Sequence[Ndarray]) -> None:
        """Raise DivergenceError if another process brings other values; `values` are those at `positions`."""
        sums = [checksum(v) for v in values]
        number = (hash((self._base, *sums)) & ((1 << 61) - 1)) | 1
        self._world.meet(self._ranks, number, lambda: self._told(values, sums))
        if self.positions[0] < self._constants:
            self.positions = tuple(i for i in self.positions if i >= self._constants)

    def _told(self, values: Sequence[Ndarray], sums: Sequence[int]) -> str:
        shown = []
        for i, v, known in zip(self.positions, values, sums, strict=True):
            value = f"= {v.ravel().tolist()}" if v.size <= _SHOWN else f"with the checksum {known:x}"
            shown.append(f"{self._labels[i]}: {v.dtype.name}[{','.join(map(str, v.shape))}] {value}")
        return f"{self._name} on values of each process's own, which must be equal: {'; '.join(shown)}"
