"""Kernels chosen by dtype: NumPy's loops, but our own functions for complex blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.ops.rules.operands import Block


def by_dtype(ufunc: np.ufunc, complex_function: Callable[[Block], Block], single: Any = None) -> tuple[Any, Any]:
    """`ufunc`, but for complex blocks that function, and for float32 blocks `single` if that is given; and the choice by dtype."""
    narrow = np.dtype(np.float32)

    def choose(dtype: Any) -> Any:
        if dtype.kind == "c":
            return complex_function
        return ufunc if single is None or dtype != narrow else single

    def function(x: Block) -> Block:
        return choose(x.dtype)(x)

    function.__name__ = ufunc.__name__
    return function, choose
