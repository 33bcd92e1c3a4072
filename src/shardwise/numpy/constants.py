"""Names of types and numbers: dtypes, constants, and questions about dtypes and shapes.

In: dtype specifications, array-likes. Out: dtypes, bools and ints, never arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base import dtypes as _dtypes
from shardwise.base.dtypes import finfo as finfo
from shardwise.base.dtypes import iinfo as iinfo
from shardwise.base.dtypes import isdtype as isdtype
from shardwise.base.dtypes import promote_types as promote_types
from shardwise.ir import Array, Literal
from shardwise.numpy._promote import canonical_axes, shape_of
from shardwise.numpy.creation import scalar_array

_dtypes.set_array_constructor(scalar_array)

ndarray = Array
dtype = np.dtype

e = np.e
euler_gamma = np.euler_gamma
inf = np.inf
nan = np.nan
newaxis = None
pi = np.pi

character = np.character
complexfloating = np.complexfloating
flexible = np.flexible
floating = np.floating
generic = np.generic
inexact = np.inexact
integer = np.integer
number = np.number
object_ = np.object_
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger
ComplexWarning = np.exceptions.ComplexWarning

iterable = np.iterable
set_printoptions = np.set_printoptions
get_printoptions = np.get_printoptions
printoptions = np.printoptions
array_repr = np.array_repr
array_str = np.array_str


def result_type(*args: Any) -> Any:
    """The dtype of an elementwise result over `args`: arrays, scalars and dtypes; None counts as the default float.

    >>> jnp.result_type(jnp.int32, jnp.float16, 2.0)
    dtype('float16')
    """
    return _dtypes.result_type(*args)


def can_cast(from_: Any, to: Any, casting: str = "safe") -> bool:
    """Whether values of dtype `from_` may be cast to `to` under NumPy's rule `casting`. TypeError if `to` is an array of NumPy's.

    >>> jnp.can_cast(jnp.int32, jnp.int8)
    False
    """
    if isinstance(from_, Array | Literal):
        from_ = from_.dtype
    if isinstance(to, np.ndarray):
        raise TypeError("can_cast: `to` is a dtype, got an array. Pass its type, arr.dtype.")
    return np.can_cast(getattr(from_, "dtype", from_), getattr(to, "dtype", to), casting)  # type: ignore[arg-type]


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether `arg1` is the dtype `arg2`, or stands below it in NumPy's hierarchy of types.

    >>> jnp.issubdtype(jnp.bfloat16, jnp.floating)
    True
    """
    return _dtypes.issubdtype(arg1, arg2)


def shape(a: Any) -> tuple[int, ...]:
    """The shape of the array, number or nested sequence `a`.

    >>> jnp.shape([[1, 2, 3]])
    (1, 3)
    """
    return tuple(shape_of(a))


def ndim(a: Any) -> int:
    """The number of dims of the array, number or nested sequence `a`.

    >>> jnp.ndim(jnp.ones((2, 3)))
    2
    """
    return len(shape(a))


def size(a: Any, axis: Any = None) -> int:
    """The number of elements of the array, number or nested sequence `a`, or the product of its sizes along `axis`.

    >>> jnp.size(jnp.ones((2, 3)), 1)
    3
    """
    sizes = shape(a)
    result = 1
    for d in range(len(sizes)) if axis is None else canonical_axes(axis, len(sizes)):
        result *= sizes[d]
    return result


__all__ = [
    "ComplexWarning", "array_repr", "array_str", "can_cast", "character",
    "complexfloating", "dtype", "e", "euler_gamma", "finfo", "flexible", "floating", "generic", "get_printoptions", "iinfo",
    "inexact", "inf", "integer", "isdtype", "issubdtype", "iterable", "nan", "ndarray", "ndim", "newaxis", "number", "object_",
    "pi", "printoptions", "promote_types", "result_type", "set_printoptions", "shape", "signedinteger", "size",
    "unsignedinteger",
]  # fmt: skip
