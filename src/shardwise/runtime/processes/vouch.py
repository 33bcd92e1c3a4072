"""Host values that enter a program of several processes: each process brings its own, and all must be equal.

Comes in: what a process passes as replicated arguments. Goes out: nothing, or an error on every process that names the values.
A program tells the others of its values in the number that they compare (`announce`); `compare_value` compares one at once.
"""

from __future__ import annotations

import hashlib

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.runtime.processes.comm import World, as_bytes
from shardwise.runtime.processes.origin import number_of

_PLAIN = 1 << 16  # bytes up to which every one goes through the hash
_ROW = 4093  # words; a prime, so that rows of the values that change places do not end up in the same column
_SHOWN = 4  # elements up to which a message shows the value itself


def checksum(x: Ndarray) -> int:
    """A 62-bit number that stands for an array's type and value, at the speed of memory."""
    data = as_bytes(np.ascontiguousarray(x))
    digest = hashlib.blake2b(f"{x.dtype.name}{x.shape}".encode(), digest_size=8)
    if data.nbytes > _PLAIN:
        rows = data.nbytes // (8 * _ROW)
        words = data[: rows * 8 * _ROW].view(np.uint64).reshape(rows, _ROW)
        digest.update(np.add.reduce(words, axis=0).data)
        data = data[rows * 8 * _ROW :]
    digest.update(data.data)
    return int.from_bytes(digest.digest(), "little") >> 2


def describe_value(x: Ndarray, known: int) -> str:
    """A value for an error message; `known` is its checksum."""
    value = f"= {x.ravel().tolist()}" if x.size <= _SHOWN else f"with the checksum {known:x}"
    return f"{x.dtype.name}[{','.join(map(str, x.shape))}] {value}"


def compare_value(world: World, ranks: tuple[int, ...], name: str, label: str, value: Ndarray) -> int:
    """Raise DivergenceError if another process of `ranks` brings another value to `name`; else the value's checksum."""
    known = checksum(value)

    def tell() -> str:
        return f"{name} on values of each process's own, which must be equal: {label}: {describe_value(value, known)}"

    world.meet(ranks, hash((number_of(f"the host values of {name}"), known)) & ((1 << 61) - 1) | 1, tell)
    return known
