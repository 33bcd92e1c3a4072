"""Element types (`element_types` lists them): how they print, convert, and to which type mixed operands promote.

In: anything that names or carries a dtype (`'f4'`, `np.float32`, `shardwise.numpy.float32`, `float`, arrays,
Python scalars). Out: native-order `np.dtype` objects, ml_dtypes' small types included, or a `KeyDtype`;
always the same object for the same type, so callers may compare by identity.

A Python scalar is *weak*: it brings its kind (int, float, complex) but no width. Promotion is the least upper
bound in a lattice whose nodes are the dtypes and, between the kinds, the weak scalars `int*`, `float*` and
`complex*`. While 64-bit types are off (the default), they narrow to 32 bits on entry and in results.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Hashable
from typing import Any

import ml_dtypes
import numpy as np

from shardwise.base.config import config, context_token
from shardwise.base.element_types import BOOL, CANONICAL_32, CANONICAL_64, CATEGORIES
from shardwise.base.element_types import BY_NAME as BY_NAME
from shardwise.base.element_types import KEY_DTYPES as KEY_DTYPES
from shardwise.base.element_types import SCALAR_ALIASES as SCALAR_ALIASES
from shardwise.base.element_types import SCALAR_TYPES as SCALAR_TYPES
from shardwise.base.element_types import DType as DType
from shardwise.base.element_types import KeyDtype as KeyDtype
from shardwise.base.element_types import ScalarType as ScalarType
from shardwise.base.element_types import bfloat16 as bfloat16
from shardwise.base.element_types import bool_ as bool_
from shardwise.base.element_types import complex64 as complex64
from shardwise.base.element_types import complex128 as complex128
from shardwise.base.element_types import extended as extended
from shardwise.base.element_types import float0 as float0
from shardwise.base.element_types import float8_e4m3fn as float8_e4m3fn
from shardwise.base.element_types import float8_e5m2 as float8_e5m2
from shardwise.base.element_types import float16 as float16
from shardwise.base.element_types import float32 as float32
from shardwise.base.element_types import float64 as float64
from shardwise.base.element_types import int2 as int2
from shardwise.base.element_types import int4 as int4
from shardwise.base.element_types import int8 as int8
from shardwise.base.element_types import int16 as int16
from shardwise.base.element_types import int32 as int32
from shardwise.base.element_types import int64 as int64
from shardwise.base.element_types import is_key_dtype as is_key_dtype
from shardwise.base.element_types import key_dtype as key_dtype
from shardwise.base.element_types import prng_key as prng_key
from shardwise.base.element_types import set_array_constructor as set_array_constructor
from shardwise.base.element_types import uint2 as uint2
from shardwise.base.element_types import uint4 as uint4
from shardwise.base.element_types import uint8 as uint8
from shardwise.base.element_types import uint16 as uint16
from shardwise.base.element_types import uint32 as uint32
from shardwise.base.element_types import uint64 as uint64
from shardwise.base.lattice import STANDARD, STRICT, join
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tracebacks import user_stacklevel

_x64 = config.setting("jax_enable_x64").get

finfo: Any = ml_dtypes.finfo
iinfo: Any = ml_dtypes.iinfo


# ------------------------------------------------------------------------------------------------------------
# Conversion to a dtype

_PYTHON_TYPES: dict[type, np.dtype[Any]] = {
    bool: BOOL,
    int: BY_NAME["int64"],
    float: BY_NAME["float64"],
    complex: BY_NAME["complex128"],
}
_WEAK_PYTHON_TYPES = frozenset({int, float, complex})


def as_dtype(spec: Any) -> DType:
    """The dtype that `spec` names, at its full width: `as_dtype('i8')` is int64 whatever the 64-bit setting.

    Raises TypeError for what names no type, and for types that arrays cannot hold (strings, dates, objects).
    """
    if isinstance(spec, KeyDtype):
        return spec
    if spec is None:
        raise TypeError("None names no dtype.")
    dtype = np.dtype(spec)
    canonical = CANONICAL_64.get(dtype)
    if canonical is None:
        canonical = CANONICAL_64.get(dtype.newbyteorder("="))
    if canonical is None:
        raise TypeError(f"{dtype} is not a type of array elements; expected a bool, number or PRNG key type.")
    return canonical


def canonicalize(dtype: Any) -> DType:
    """The dtype of stored values of `dtype`: 64-bit types become 32-bit ones while `jax_enable_x64` is off."""
    table = CANONICAL_64 if _x64() else CANONICAL_32
    try:
        return table[dtype]
    except (KeyError, TypeError):
        full = as_dtype(dtype)
        return table.get(full, full)


def default_dtype(kind: str) -> np.dtype[Any]:
    """The type of a plain Python value: `kind` is 'b', 'i', 'u', 'f' or 'c'."""
    names = {"b": "bool", "i": "int64", "u": "uint64", "f": "float64", "c": "complex128"}
    return canonicalize(BY_NAME[names[kind]])  # type: ignore[return-value]


def check_requested(dtype: Any, fn_name: str = "") -> DType:
    """Resolve a dtype that the user asked for by name in a call of `fn_name`.

    Python's `int`, `float` and `complex` mean the default width. Any other 64-bit type warns (UserWarning)
    when it is narrowed. Raises TypeError for types that arrays cannot hold, ValueError for None and, in the
    dialect 0.10, for an array in place of its dtype (a DeprecationWarning in 0.5); structs of a dtype stand for it.
    """
    where = f" in {fn_name}" if fn_name else ""
    if dtype is None:
        raise ValueError(f"A dtype is needed{where}, got None.")
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return canonicalize(_PYTHON_TYPES[dtype])
    if hasattr(dtype, "weak_type") and hasattr(dtype, "__array__"):
        advice = f"An array was passed as a dtype{where}: pass its type, dtype=arr.dtype."
        if not config.dialect.functions.bad_uses_warn:
            raise ValueError(advice)
        warnings.warn(advice, DeprecationWarning, stacklevel=user_stacklevel())
        return canonicalize(dtype.dtype)
    try:
        full = as_dtype(dtype)
    except TypeError as err:
        raise TypeError(
            f"data type {dtype!r} not understood{where}: it names no bool, number or PRNG key type."
        ) from err
    canonical = canonicalize(full)
    if canonical is not full:
        request_text = f" requested{where}" if where else ""
        if config.jax_explicit_x64_dtypes == "error":
            raise ValueError(
                f"Explicitly requested dtype {full.name}{request_text} is not available while 64-bit types are off. Set jax_enable_x64, "
                f"or ask for {canonical.name}."
            )
        warnings.warn(
            f"Explicitly requested dtype {full.name}{request_text} is not available while 64-bit types are off, "
            f"and will be truncated to dtype {canonical.name}. Set jax_enable_x64 (or the environment "
            "variable JAX_ENABLE_X64) to have 64-bit types.",
            UserWarning,
            stacklevel=user_stacklevel(),
        )
    return canonical


def scalar_dtype(x: Any) -> np.dtype[Any]:
    """The default dtype of a Python scalar; OverflowError for an int that does not fit it."""
    kind = type(x)
    if kind not in _PYTHON_TYPES:  # a user's subclass, such as an IntEnum
        kind = next(t for t in (bool, int, float, complex) if isinstance(x, t))
    dtype = canonicalize(_PYTHON_TYPES[kind])
    if kind is int and isinstance(x, int):
        limits = np.iinfo(dtype)  # type: ignore[arg-type]
        if not limits.min <= x <= limits.max:
            raise OverflowError(
                f"Python int {x} too large to convert to {dtype.name}, which holds {limits.min} to "
                f"{limits.max}. Give it a float dtype, or enable 64-bit types with jax_enable_x64."
            )
    return dtype  # type: ignore[return-value]


def dtype_of(x: Any) -> DType:
    """The dtype of a value (array, tracer, NumPy or Python scalar) or of a dtype specification.

    Arrays keep the dtype they were made with; all else is canonicalized. TypeError if `x` has no valid dtype.
    """
    if hasattr(x, "weak_type"):
        return x.dtype
    return canonicalize(_operand(x).dtype)


def is_weak(x: Any) -> bool:
    """Whether the value `x` promotes by its kind only: Python numbers and arrays made from them."""
    return type(x) in _WEAK_PYTHON_TYPES or getattr(x, "weak_type", False) is True


# ------------------------------------------------------------------------------------------------------------
# Promotion

_STAR_TYPES: dict[str, type] = {"int*": int, "float*": float, "complex*": complex}  # the lattice's weak nodes
_STAR_OF_KIND = {"i": "int*", "u": "int*", "f": "float*", "c": "complex*", "b": "bool"}


def _kind(dtype: DType) -> str:
    """NumPy's kind letter; ml_dtypes' types, some of which report 'V', get the letter of their kind."""
    if dtype in CATEGORIES["signed integer"]:
        return "i"
    if dtype in CATEGORIES["unsigned integer"]:
        return "u"
    return "f" if dtype in CATEGORIES["real floating"] else dtype.kind


@dataclass(frozen=True, slots=True, eq=False)
class _Operand:
    """The properties of an argument on which promotion depends. Interned, so that caches compare by identity."""

    dtype: DType
    weak: bool


@functools.cache
def _operand_of(dtype: Any, weak: bool) -> _Operand:
    full = as_dtype(dtype)
    if full is not dtype:  # another spelling or byte order of a type
        return _operand_of(full, weak)
    return _Operand(full, weak)


_SCALAR_OPERANDS = {typ: _operand_of(dt, typ in _WEAK_PYTHON_TYPES) for typ, dt in _PYTHON_TYPES.items()}
_STRONG_OPERANDS: dict[Any, _Operand] = {
    dt: _operand_of(dt, False) for dt in (*BY_NAME.values(), float0, *KEY_DTYPES.values())
}


def _operand(x: Any) -> _Operand:
    """Classify a value or a dtype specification; the caller's hot path."""
    scalar_operand = _SCALAR_OPERANDS.get(type(x))
    if scalar_operand is not None:
        return scalar_operand
    try:
        dtype = x.dtype
    except AttributeError:
        return _operand_of_spec(x)
    if getattr(x, "weak_type", False) is True:
        return _operand_of(dtype, True)
    scalar_operand = _STRONG_OPERANDS.get(dtype)
    return scalar_operand if scalar_operand is not None else _operand_of_spec(x)


def _operand_of_spec(x: Any) -> _Operand:
    if isinstance(x, type) and x in _SCALAR_OPERANDS:
        return _SCALAR_OPERANDS[x]
    if isinstance(x, type | str | np.dtype | KeyDtype):
        return _operand_of(as_dtype(x), False)
    if isinstance(getattr(x, "dtype", None), np.dtype | KeyDtype):
        return _operand_of(x.dtype, False)
    if isinstance(x, bool | int | float | complex):  # subclasses of Python's numbers, such as IntEnum members
        return _operand_of(np.result_type(x), False)
    raise TypeError(f"{x!r} of type {type(x).__name__} has no dtype: expected an array, scalar or type name.")


@functools.lru_cache(maxsize=8192)
def _join(token: object, operands: tuple[_Operand, ...]) -> tuple[DType, bool]:
    """`lattice_result_type` of classified operands; `token` puts the settings read here into the key."""
    table = CANONICAL_64 if _x64() else CANONICAL_32
    dtypes = [table.get(op.dtype, op.dtype) for op in operands]
    all_weak = all(op.weak for op in operands)
    if all(dtype is dtypes[0] for dtype in dtypes) and (len(dtypes) == 1 or not all_weak):
        return dtypes[0], all_weak and dtypes[0] is not BOOL  # the one way in for PRNG keys
    if float0 in dtypes:
        raise TypeError(
            "float0s do not support any operations by design: they stand for tangents of integers. Make zeros of "
            "another dtype with jnp.zeros_like(x, dtype=...)."
        )
    strict = config.jax_numpy_dtype_promotion == "strict"
    order = STRICT if strict else STANDARD
    if all_weak and not strict:
        # Among weak operands the widths count: weak int16 and weak int32 give weak int32.
        name, weak = join(order, tuple(dt.name for dt in dtypes)), True
    else:
        nodes = zip(operands, dtypes, strict=True)
        names = tuple(_STAR_OF_KIND[_kind(dt)] if op.weak else dt.name for op, dt in nodes)
        name = join(order, names)
        weak = name in _STAR_TYPES
    dtype = _PYTHON_TYPES[_STAR_TYPES[name]] if name in _STAR_TYPES else BY_NAME[name]
    return table[dtype], weak and dtype is not BOOL


def lattice_result_type(*args: Any) -> tuple[DType, bool]:
    """(dtype, weak) of an elementwise result over `args`: values or dtype specifications.

    Weak types keep their width here: one weak int16 gives (int16, True). TypePromotionError if none fits all.
    """
    if not args:
        raise ValueError("result_type needs at least one array, scalar or dtype.")
    return _join(context_token(), tuple([_operand(x) for x in args]))


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an elementwise result over `args`; None counts as the default float.

    A weak result gets the default width of its kind. With `return_weak_type_flag`, the pair (dtype, weak).

    >>> from shardwise import dtypes
    >>> dtypes.result_type(jnp.int8, jnp.float16)
    dtype('float16')
    """
    dtype, weak = lattice_result_type(*[float32 if x is None else x for x in args])
    if weak:
        dtype = default_dtype(_kind(dtype))
    return (dtype, weak) if return_weak_type_flag else dtype


def promote_types(a: Any, b: Any) -> np.dtype[Any]:
    """The join of the dtypes `a` and `b` as they stand: 64-bit types stay, `int` and the like are weak.

    >>> jnp.promote_types('int32', 'float16')
    dtype('float16')
    """
    if not (isinstance(a, Hashable) and isinstance(b, Hashable)):  # values, which stand for their dtypes
        a, b = (_own_dtype(x) for x in (a, b))
    return _promote_types(context_token(), a, b)


def _own_dtype(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        raise TypeError("promote_types takes dtypes, got a NumPy array; pass its dtype.")
    return x if isinstance(x, Hashable) else getattr(x, "dtype", x)


@functools.lru_cache(maxsize=2048)
def _promote_types(token: object, a: Any, b: Any) -> np.dtype[Any]:
    if config.jax_numpy_dtype_promotion == "strict":
        order = STRICT
    else:
        order = STANDARD if _x64() else config.dialect.functions.lattice_without_x64
    name = join(order, (_lattice_name(a), _lattice_name(b)))
    return _PYTHON_TYPES[_STAR_TYPES[name]] if name in _STAR_TYPES else BY_NAME[name]


def _lattice_name(spec: Any) -> str:
    for star, typ in _STAR_TYPES.items():
        if spec is typ:
            return star
    return spec.name if isinstance(spec, KeyDtype) else np.dtype(spec).name


# ------------------------------------------------------------------------------------------------------------
# Casts


def safe_to_cast(source: Any, target: Any) -> bool:
    """Whether promotion alone would turn `source` (value or dtype) into the dtype of `target`."""
    to = dtype_of(target)
    return dtype_of(source) == to or result_type(source, to) == to


def to_inexact(dtype: Any) -> DType:
    """The type in which inexact functions such as `sin` compute: bool and ints become float32 (of 64 bits: float64)."""
    full = as_dtype(dtype)
    if full is BOOL or full in CATEGORIES["integral"]:
        return BY_NAME["float64" if full.itemsize == 8 else "float32"]
    return full


def to_floating(dtype: Any) -> DType:
    """`to_inexact`, with complex types replaced by the type of their parts."""
    inexact = to_inexact(dtype)
    return {"complex64": BY_NAME["float32"], "complex128": BY_NAME["float64"]}.get(inexact.name, inexact)


def to_complex(dtype: Any) -> np.dtype[Any]:
    """The complex type that holds `dtype`: complex128 for 64-bit types and complex128, else complex64."""
    return BY_NAME["complex128" if to_inexact(dtype).name in ("float64", "complex128") else "complex64"]


def reduction_dtype(dtype: Any) -> DType:
    """The result type of `sum` and `prod`: bool and ints widen to the default int (or uint), floats stay."""
    full = as_dtype(dtype)
    if full is BOOL:
        return default_dtype("i")
    if full in CATEGORIES["integral"]:
        default = default_dtype(_kind(full))
        return default if full.itemsize < default.itemsize else full
    return full


# ------------------------------------------------------------------------------------------------------------
# Questions about types


def issubdtype(a: Any, b: Any) -> bool:
    """Whether the dtype `a` is `b` or below it: `numpy.issubdtype`, which also knows ml_dtypes' types, `KeyDtype`,
    `extended` and `prng_key`.

    >>> from shardwise import dtypes
    >>> dtypes.issubdtype(jnp.int8, jnp.integer)
    True
    """
    return _issubdtype(_scalar_type(a), _scalar_type(b))


def _scalar_type(spec: Any) -> type:
    """The scalar type (`np.generic` or a subclass) that `spec` is or names."""
    if isinstance(spec, KeyDtype):
        return spec.type
    if isinstance(spec, type) and not isinstance(spec, ScalarType) and issubclass(spec, np.generic):
        return spec
    return np.dtype(spec).type


@functools.lru_cache(maxsize=2048)
def _issubdtype(a: type, b: type) -> bool:
    # ml_dtypes' scalar types all derive directly from np.generic, so their kinds are listed here.
    dtype = BY_NAME.get(a.__name__)
    if dtype is not None and dtype.type is a and a.__module__ != "numpy":
        kind = {"i": np.signedinteger, "u": np.unsignedinteger, "f": np.floating}[_kind(dtype)]
        return b is a or issubclass(kind, b)
    return issubclass(a, b)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` belongs to `kind`: a category name of the array API, a dtype, or a tuple of these.

    Categories: 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating', 'complex floating',
    'numeric'. ValueError for another string that names no dtype, TypeError for other objects.

    >>> jnp.isdtype(jnp.float32, 'real floating')
    True
    """
    given = dtype if isinstance(dtype, KeyDtype) else np.dtype(dtype)
    return any([_is_of_kind(given, one) for one in (kind if isinstance(kind, tuple) else (kind,))])


def _is_of_kind(dtype: DType, kind: Any) -> bool:
    if isinstance(kind, str) and kind in CATEGORIES:
        return dtype in CATEGORIES[kind]
    try:
        return dtype == (kind if isinstance(kind, KeyDtype) else np.dtype(kind))
    except TypeError as err:
        expectation = f"one of {', '.join(map(repr, CATEGORIES))}, or a dtype"
        if isinstance(kind, str):
            raise ValueError(f"isdtype: kind={kind!r} is not known; expected {expectation}.") from err
        raise TypeError(f"isdtype: kind={kind!r} is not {expectation}, or a tuple of these.") from err


def scalar_type_of(x: Any) -> type:
    """The Python type (bool, int, float or complex) of the values that `x`, a value or dtype, holds.

    Raises:
        TypeError: `x` holds no such numbers.

    >>> from shardwise import dtypes
    >>> dtypes.scalar_type_of(jnp.float32(1))
    <class 'float'>
    """
    python_types = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
    dtype = dtype_of(x)
    try:
        return python_types[_kind(dtype)]
    except KeyError:
        raise TypeError(f"Values of dtype {dtype.name} have no Python scalar type.") from None


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element of `dtype`; fewer than it occupies in memory for int4 and other types below a byte.

    >>> from shardwise import dtypes
    >>> dtypes.itemsize_bits(jnp.int4)
    4
    """
    full = as_dtype(dtype)
    kind = _kind(full)
    if kind in "iu":
        return iinfo(full).bits
    if kind == "f":
        return finfo(full).bits
    return 8 * full.itemsize


def supports_inf(dtype: Any) -> bool:
    """Whether `dtype` has an infinity."""
    full = as_dtype(dtype)
    return _kind(full) in "fc" and bool(np.isinf(np.array(np.inf).astype(physical(full))))


def physical(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype whose elements store `dtype`: uint64 or 16 bytes for PRNG keys, else the type itself."""
    return dtype.physical if isinstance(dtype, KeyDtype) else as_dtype(dtype)  # type: ignore[return-value]


@functools.cache
def name_of(dtype: np.dtype[Any]) -> str:
    """`dtype.name`. NumPy puts it together each time, which takes longer than many a kernel."""
    return dtype.name


@functools.cache
def short_name(dtype: DType) -> str:
    """The name used in printed types: f32, i32, u8, bf16, c64, bool, f8_e4m3fn, key<fry>, float0."""
    if dtype == float0:
        return "float0"
    if isinstance(dtype, KeyDtype):
        return dtype.name
    name = dtype.name
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name
