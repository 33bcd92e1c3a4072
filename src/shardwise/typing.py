"""`shardwise.typing`: names for annotations, as in jax.typing."""

from typing import Any, TypeAlias, Union

import numpy as np

from shardwise.base.listing import listing as _listing
from shardwise.ir import Array

__all__ = ["ArrayLike", "DTypeLike"]

# Unlike those of `|`, unions of typing join texts that stand for classes: `"State" | ArrayLike`.
ArrayLike: TypeAlias = Union[Array, np.ndarray, np.bool_, np.number, bool, int, float, complex]  # noqa: UP007
DTypeLike: TypeAlias = Union[str, type[Any], np.dtype[Any]]  # noqa: UP007

__dir__ = _listing(__name__)
