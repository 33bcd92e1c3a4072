"""Expressions over all that `jax.lax`, `jax.numpy`, `jax.nn` and `jax.scipy` have to differentiate and to map.

Each line is the body of a function of the operands before its colon; `OPERANDS` says what each letter is. Marks after
``##`` narrow what is compared: ``vmap`` (no derivatives), ``first`` (no second derivatives), ``reverse`` (no forward mode),
``f64`` and ``f32`` (only in double or in single precision).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.transforms.face_calls import CONTROL, CUSTOM, MATRICES, NEURAL, PRODUCTS, SPECIAL
from tests.transforms.face_tables import ELEMENTWISE, ORDER, REDUCTIONS, SHAPES

_RNG = np.random.default_rng(11)


def _normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape)


def _distinct(*shape: int) -> np.ndarray:
    return _RNG.permutation(int(np.prod(shape))).reshape(shape) * 0.1 - 0.53


_SQUARE = _normal(3, 3)
# What the letters stand for. Floats and complex numbers are differentiated, the others are not.
OPERANDS: dict[str, np.ndarray] = {
    "r": _normal(3, 4), "q": _normal(3, 4), "p": _RNG.uniform(0.3, 2.0, (3, 4)), "g": _RNG.uniform(1.2, 3.0, (3, 4)),
    "u": _RNG.uniform(-0.85, 0.85, (3, 4)), "o": _RNG.uniform(0.1, 0.9, (3, 4)), "d": _distinct(3, 4), "v": _normal(4), "w": _normal(4),
    "z": _distinct(6), "s": _SQUARE + 3 * np.eye(3), "m": _normal(4, 2), "h": _SQUARE @ _SQUARE.T + np.eye(3),
    "t": _normal(2, 3, 4), "a": np.asarray(0.7), "c": _normal(3, 4) + 1j * _normal(3, 4),
    "e": (_normal(3, 3) + 1j * _normal(3, 3)) / 2 + 2 * np.eye(3), "i": _RNG.integers(-3, 4, (3, 4)).astype(np.int32),
    "k": np.array([2, 0, 1], np.int32), "n": np.array([1, 3, 0, 1], np.int32), "b": _RNG.uniform(size=(3, 4)) > 0.5,
    "f": np.array([1.5, 2.5, 0.5]),
}  # fmt: skip

# Mapping takes so many elements, each a small change of the operand.
MAPPED = 2


@dataclass(frozen=True)
class Line:
    """An expression, the letters of its operands, and marks."""

    text: str
    letters: tuple[str, ...]
    marks: frozenset[str]

    def __repr__(self) -> str:
        return self.text

    @property
    def key(self) -> str:
        """A name for its answers in a file."""
        data = b"".join(OPERANDS[x].tobytes() for x in self.letters)
        return f"{zlib.crc32(self.text.encode() + ' '.join(sorted(self.marks)).encode() + data):08x}"


def parsed(text: str) -> Iterator[Line]:
    """The lines of a table: ``operands: expression ## marks``."""
    for raw in text.strip().splitlines():
        line, _, marks = raw.partition("##")
        letters, _, expression = line.partition(":")
        if expression:
            yield Line(expression.strip(), tuple(letters.split()), frozenset(marks.split()))


TABLES = {
    "elementwise": ELEMENTWISE, "shapes": SHAPES, "reductions": REDUCTIONS, "order": ORDER, "products": PRODUCTS, "neural": NEURAL,
    "special": SPECIAL, "matrices": MATRICES, "control": CONTROL, "custom": CUSTOM,
}  # fmt: skip
LINES = {name: tuple(parsed(table)) for name, table in TABLES.items()}
