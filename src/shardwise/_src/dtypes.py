"""`dtypes`, with the names that new kinds of dtypes are declared by."""

from typing import Any

import numpy as np

from shardwise.base.dtypes import DType as DType
from shardwise.core import get_aval
from shardwise.dtypes import *  # noqa: F403
from shardwise.dtypes import canonicalize_dtype as canonicalize_dtype


class ExtendedDType:
    """Base of dtypes that NumPy does not know. They can be declared; arrays hold random keys and NumPy's dtypes only."""

    name: str
    type: type


def dtype(x: Any) -> Any:
    """The dtype of an array or a host value as ops take it, or the one that a name or class of dtypes stands for here."""
    return canonicalize_dtype(x) if isinstance(x, str | np.dtype | type) else get_aval(x).dtype


def supports_inf(dtype: Any) -> bool:
    """Whether the float dtype has an infinity."""
    return bool(np.isinf(np.asarray(np.inf).astype(dtype).astype(np.float32)))


def to_complex_dtype(dtype: Any) -> np.dtype[Any]:
    """The complex dtype for numbers of `dtype`: complex128 for those of 64 bits (and complex128 itself), complex64 for others."""
    return np.dtype(
        np.complex128 if np.dtype(dtype).name in ("float64", "complex128", "int64", "uint64") else np.complex64
    )
