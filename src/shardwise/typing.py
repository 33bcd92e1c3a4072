"""`shardwise.typing`: names for annotations, as in jax.typing."""

from typing import Any, TypeAlias

import numpy as np

from shardwise.ir import Array

__all__ = ["ArrayLike", "DTypeLike"]

ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any]
