"""Types of elements: which exist, and the scalar types that name them.

Tables intern them: all spellings of a type give one `np.dtype` object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeGuard

import ml_dtypes
import numpy as np

from shardwise.base.lazy_dataclasses import dataclass

# ------------------------------------------------------------------------------------------------------------
# Types that NumPy does not know


class extended(np.generic):
    """Abstract scalar type of the dtypes that are not NumPy's; only for `issubdtype`."""


class prng_key(extended):
    """Abstract scalar type of typed PRNG keys; only for `issubdtype`."""


@dataclass(frozen=True, slots=True, repr=False)
class KeyDtype:
    """Element type of a typed PRNG key array: a key of so many uint32 words, stored as ONE element of NumPy's.

    The words of the key lie in it in memory order, so `block.view(np.uint32)` shows them.
    """

    tag: str = "fry"
    words: int = 2

    @property
    def name(self) -> str:
        return f"key<{self.tag}>"

    @property
    def type(self) -> type[np.generic]:
        return prng_key

    @property
    def physical(self) -> np.dtype[Any]:
        return _PHYSICAL[self.words]

    @property
    def itemsize(self) -> int:
        return 4 * self.words

    @property
    def kind(self) -> str:
        return "V"  # like NumPy's other types without arithmetic

    def __repr__(self) -> str:
        return self.name


DType: TypeAlias = "np.dtype[Any] | KeyDtype"

key_dtype = KeyDtype()
# The key types by the names of their generators.
KEY_DTYPES = {
    "threefry2x32": key_dtype,
    "threefry4x32": KeyDtype("fry4", 4),
    "philox2x32": KeyDtype("phx2", 1),
    "philox4x32": KeyDtype("phx4", 2),
    "rbg": KeyDtype("rbg", 4),
    "unsafe_rbg": KeyDtype("urbg", 4),
}


def is_key_dtype(dtype: object) -> TypeGuard[KeyDtype]:
    """Whether `dtype` is the element type of typed PRNG keys."""
    return isinstance(dtype, KeyDtype)


# The tangent type of integer and bool values: carries no data.
float0 = np.dtype([("float0", np.void, 0)])

# Keys of one and of four words are moved as they are: no numbers, so nothing computes with them.
_PHYSICAL = {1: np.dtype((np.void, 4)), 2: np.dtype(np.uint64), 4: np.dtype((np.void, 16))}
BOOL = np.dtype(np.bool_)

_SIGNED_NAMES = ("int1", "int2", "int4", "int8", "int16", "int32", "int64")
_UNSIGNED_NAMES = tuple("u" + name for name in _SIGNED_NAMES)
_TINY_FLOAT_NAMES = (
    "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
_FLOAT_NAMES = (*_TINY_FLOAT_NAMES, "bfloat16", "float16", "float32", "float64")
_COMPLEX_NAMES = ("complex64", "complex128")


def _existing_dtypes(names: Iterable[str]) -> dict[str, np.dtype[Any]]:
    """name -> dtype for the names that NumPy or this version of ml_dtypes defines."""
    type_by_name = {name: getattr(ml_dtypes, name, None) or getattr(np, name, None) for name in names}
    return {name: np.dtype(scalar) for name, scalar in type_by_name.items() if scalar is not None}


_SIGNED_DTYPES = _existing_dtypes(_SIGNED_NAMES)
_UNSIGNED_DTYPES = _existing_dtypes(_UNSIGNED_NAMES)
_FLOATS = _existing_dtypes(_FLOAT_NAMES)
_COMPLEXES = _existing_dtypes(_COMPLEX_NAMES)
BY_NAME: dict[str, np.dtype[Any]] = {"bool": BOOL, **_SIGNED_DTYPES, **_UNSIGNED_DTYPES, **_FLOATS, **_COMPLEXES}

# Interning tables: every spelling of a type (np.longlong, np.int64, ...) maps to one object; the second also
# narrows. Scalar types are keys too; they hash apart from their dtypes.
CANONICAL_64: dict[Any, Any] = {key: dt for dt in BY_NAME.values() for key in (dt, dt.type)}
CANONICAL_64[float0] = float0
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
CANONICAL_32: dict[Any, Any] = {key: BY_NAME.get(_NARROW.get(dt.name, ""), dt) for key, dt in CANONICAL_64.items()}

CATEGORIES: dict[str, frozenset[np.dtype[Any]]] = {
    "bool": frozenset({BOOL}),
    "signed integer": frozenset(_SIGNED_DTYPES.values()),
    "unsigned integer": frozenset(_UNSIGNED_DTYPES.values()),
    "real floating": frozenset(_FLOATS.values()),
    "complex floating": frozenset(_COMPLEXES.values()),
}
CATEGORIES["integral"] = CATEGORIES["signed integer"] | CATEGORIES["unsigned integer"]
CATEGORIES["numeric"] = frozenset(BY_NAME.values()) - {BOOL}


# ------------------------------------------------------------------------------------------------------------
# Scalar types: `float32(3)` makes an array, and `float32` itself is a dtype


_construct_array: Callable[[Any, np.dtype[Any]], Any] | None = None


def set_array_constructor(fn: Callable[[Any, np.dtype[Any]], Any]) -> None:
    """Install `fn(value, dtype) -> Array`, which calls of scalar types such as `float32(3)` use."""
    global _construct_array
    _construct_array = fn


class ScalarType(type):
    """Class of `shardwise.numpy.float32` and its like: a dtype, equal to NumPy's scalar type, callable."""

    dtype: np.dtype[Any]

    @classmethod
    def of(cls, scalar: type[np.generic]) -> ScalarType:
        """The scalar type of NumPy's; users' classes may inherit from it as from any class."""
        namespace = {
            "dtype": np.dtype(scalar),
            "__module__": "shardwise.numpy",
            "__doc__": f"{scalar.__name__} as a dtype; called, it makes an array of its argument.",
        }
        return cls(scalar.__name__, (), namespace)

    @property
    def __numpy_dtype__(cls) -> np.dtype[Any]:
        return cls.dtype

    def __call__(cls, x: Any) -> Any:
        if _construct_array is None:
            raise RuntimeError(f"{cls.__name__}(...) makes an array: import shardwise before calling it.")
        return _construct_array(x, cls.dtype)

    def __eq__(cls, other: object) -> bool:
        return cls is other or bool(other == cls.dtype.type)

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)


SCALAR_TYPES: dict[str, ScalarType] = {name: ScalarType.of(dt.type) for name, dt in BY_NAME.items()}

bool_ = SCALAR_TYPES["bool"]
int2, int4 = SCALAR_TYPES["int2"], SCALAR_TYPES["int4"]
int8, int16, int32, int64 = (SCALAR_TYPES[f"int{bits}"] for bits in (8, 16, 32, 64))
uint2, uint4 = SCALAR_TYPES["uint2"], SCALAR_TYPES["uint4"]
uint8, uint16, uint32, uint64 = (SCALAR_TYPES[f"uint{bits}"] for bits in (8, 16, 32, 64))
float16, float32, float64 = (SCALAR_TYPES[f"float{bits}"] for bits in (16, 32, 64))
bfloat16 = SCALAR_TYPES["bfloat16"]
float8_e4m3fn, float8_e5m2 = SCALAR_TYPES["float8_e4m3fn"], SCALAR_TYPES["float8_e5m2"]
complex64, complex128 = SCALAR_TYPES["complex64"], SCALAR_TYPES["complex128"]

# Every public spelling, ready for the `numpy` face: `globals().update(SCALAR_TYPES | SCALAR_ALIASES)`.
SCALAR_ALIASES: dict[str, ScalarType] = {
    "bool_": bool_, "int_": int64, "uint": uint64, "float_": float64, "complex_": complex128,
    "single": float32, "double": float64, "csingle": complex64, "cdouble": complex128,
}  # fmt: skip
