"""`shardwise.dtypes`: questions about dtypes, named as in jax.dtypes."""

from typing import Any

import ml_dtypes

from shardwise.base.dtypes import DType, KeyDtype, canonicalize
from shardwise.base.dtypes import extended as extended
from shardwise.base.dtypes import finfo as finfo
from shardwise.base.dtypes import float0 as float0
from shardwise.base.dtypes import iinfo as iinfo
from shardwise.base.dtypes import issubdtype as issubdtype
from shardwise.base.dtypes import itemsize_bits as itemsize_bits
from shardwise.base.dtypes import prng_key as prng_key
from shardwise.base.dtypes import result_type as result_type
from shardwise.base.dtypes import scalar_type_of as scalar_type_of
from shardwise.base.errors import TypePromotionError as TypePromotionError
from shardwise.base.listing import listing as _listing

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]


bfloat16 = ml_dtypes.bfloat16  # of host values: numpy.bfloat16(x) is an Array


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> DType:
    """The dtype that arrays get when `dtype` is asked for: its 32-bit counterpart unless 64-bit types are on.

    None is NumPy's name for float64.

    Raises:
        ValueError: `dtype` is that of random keys and `allow_extended_dtype` is False.

    >>> from shardwise import dtypes
    >>> dtypes.canonicalize_dtype("float64")
    dtype('float32')
    """
    result = canonicalize(float if dtype is None else dtype)
    if isinstance(result, KeyDtype) and not allow_extended_dtype:
        raise ValueError(f"canonicalize_dtype({dtype}): keys have no NumPy dtype; pass allow_extended_dtype=True.")
    return result


__dir__ = _listing(__name__)
