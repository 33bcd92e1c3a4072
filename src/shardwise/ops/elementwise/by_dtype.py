"""Kernels chosen by dtype: NumPy's loops for real blocks, our own functions for complex ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray


def by_dtype(ufunc: np.ufunc, complex_function: Callable[[Ndarray], Ndarray], single: Any = None) -> tuple[Any, Any]:
    """A function that calls `complex_function` on complex blocks, `single` (if given) on float32, else `ufunc`; and its choice."""
    narrow = np.dtype(np.float32)

    def choose(dtype: Any) -> Any:
        if dtype.kind == "c":
            return complex_function
        return ufunc if single is None or dtype != narrow else single

    def function(x: Ndarray) -> Ndarray:
        return choose(x.dtype)(x)

    function.__name__ = ufunc.__name__
    return function, choose
