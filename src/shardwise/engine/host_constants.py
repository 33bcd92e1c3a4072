"""Host arrays that traced functions use: one constant for all uses of an array, as long as a program holds it.

Each use enters by itself, often in a loop over layers, and programs keep their constants. The array may be written to between two uses,
so its values are compared before the constant is taken again.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.engine.signature import Signature
from shardwise.runtime.hollow import is_hollow

_constants: dict[int, tuple[ref[Ndarray], ref[Any]]] = {}


def known_constant(value: Ndarray, sig: Signature) -> Any:
    """The constant that was made of this very array, if it has the array's values now and this signature; otherwise None."""
    entry = _constants.get(id(value))
    constant = entry[1]() if entry is not None and entry[0]() is value else None
    return constant if constant is not None and constant._sig is sig and _same_values(constant.dense, value) else None


def keep_constant(value: Ndarray, constant: Any) -> None:
    """Remember the constant that was made of `value` while both are there."""
    key = id(value)

    def forget(gone: ref[Any]) -> None:
        entry = _constants.get(key)
        if entry is not None and (gone is entry[0] or gone is entry[1]):  # another array may have the number by now
            _constants.pop(key, None)

    _constants[key] = (ref(value, forget), ref(constant, forget))


def _same_values(dense: Ndarray, value: Ndarray) -> bool:
    """Whether `dense` has the bits of `value` in its own dtype."""
    if is_hollow(dense) or dense.shape != value.shape:
        return False
    return np.array_equal(_bytes(dense), _bytes(value if value.dtype == dense.dtype else value.astype(dense.dtype)))


def _bytes(x: Ndarray) -> Ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)
