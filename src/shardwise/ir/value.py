"""The values of programs: `Array`, the one public array type, and `Literal`, a typed Python or NumPy scalar.

`Array` is abstract: concrete arrays (`shardwise.engine.array`) and tracers (`shardwise.ir.trace`) derive from it. Operators and
methods are installed on it by the NumPy face, so that both kinds share one definition.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import KeyDtype, canonicalize, is_key_dtype, physical, scalar_dtype
from shardwise.ir.types import ShapedArray

if TYPE_CHECKING:
    from shardwise.numpy._array_methods import ArrayMethods
else:
    ArrayMethods = object


_PACKAGE = __name__.partition(".")[0] + "."


class Array(ArrayMethods):
    """An n-dimensional array spread over one or more devices, or the trace of one.

    Use it in ``isinstance`` tests and annotations; make arrays with ``shardwise.numpy`` functions or ``device_put``.
    """

    __module__ = _PACKAGE[:-1]
    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 100

    aval: ShapedArray

    def __init_subclass__(cls) -> None:
        # Libraries tell the maker of an array by the module of its class: the name by which programs import this library.
        if cls.__module__.startswith(_PACKAGE):
            cls.__module__ = Array.__module__

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"array API version {api_version!r} is not known; known: 2021.12 to 2024.12.")
        return importlib.import_module("shardwise.numpy")  # a public module, on a higher layer

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return self.aval.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @property
    def weak_type(self) -> bool:
        """Whether the dtype came from Python scalars alone and so yields to others in promotion."""
        return self.aval.weak_type

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.aval.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array, counted once however often it is replicated."""
        return self.aval.nbytes

    if TYPE_CHECKING:  # installed by the NumPy face

        def __eq__(self, other: Any) -> Array: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Array: ...  # type: ignore[override]
        def __add__(self, other: Any) -> Array: ...
        def __radd__(self, other: Any) -> Array: ...
        def __sub__(self, other: Any) -> Array: ...
        def __rsub__(self, other: Any) -> Array: ...
        def __mul__(self, other: Any) -> Array: ...
        def __rmul__(self, other: Any) -> Array: ...
        def __truediv__(self, other: Any) -> Array: ...
        def __rtruediv__(self, other: Any) -> Array: ...
        def __floordiv__(self, other: Any) -> Array: ...
        def __rfloordiv__(self, other: Any) -> Array: ...
        def __mod__(self, other: Any) -> Array: ...
        def __rmod__(self, other: Any) -> Array: ...
        def __pow__(self, other: Any) -> Array: ...
        def __rpow__(self, other: Any) -> Array: ...
        def __matmul__(self, other: Any) -> Array: ...
        def __rmatmul__(self, other: Any) -> Array: ...
        def __and__(self, other: Any) -> Array: ...
        def __rand__(self, other: Any) -> Array: ...
        def __or__(self, other: Any) -> Array: ...
        def __ror__(self, other: Any) -> Array: ...
        def __xor__(self, other: Any) -> Array: ...
        def __rxor__(self, other: Any) -> Array: ...
        def __lshift__(self, other: Any) -> Array: ...
        def __rlshift__(self, other: Any) -> Array: ...
        def __rshift__(self, other: Any) -> Array: ...
        def __rrshift__(self, other: Any) -> Array: ...
        def __lt__(self, other: Any) -> Array: ...
        def __le__(self, other: Any) -> Array: ...
        def __gt__(self, other: Any) -> Array: ...
        def __ge__(self, other: Any) -> Array: ...
        def __neg__(self) -> Array: ...
        def __pos__(self) -> Array: ...
        def __abs__(self) -> Array: ...
        def __invert__(self) -> Array: ...
        def __divmod__(self, other: Any) -> tuple[Array, Array]: ...
        def __round__(self, ndigits: int | None = None) -> Array: ...
        def __getitem__(self, index: Any) -> Array: ...
        def __iter__(self) -> Iterator[Array]: ...
        def __len__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def __float__(self) -> float: ...
        def __int__(self) -> int: ...
        def __index__(self) -> int: ...
        def __complex__(self) -> complex: ...
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]: ...
        def __dlpack__(
            self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
        ) -> Any: ...
        def __dlpack_device__(self) -> tuple[int, int]: ...


def check_truth(x: Array) -> None:
    """ValueError unless `x` has one element, as `bool()` needs; TypeError for PRNG keys."""
    if is_key_dtype(x.dtype):
        raise TypeError(f"An array of PRNG keys has no truth value; got {x.aval.str_short()}.")
    if x.size != 1:
        what = "an empty array" if x.size == 0 else "an array with more than one element"
        raise ValueError(f"The truth value of {what} is ambiguous. Use a.any() or a.all()")


def check_scalar(x: Array) -> None:
    """TypeError unless `x` can become a Python number."""
    if x.ndim:
        raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={x.ndim}")


def check_index(x: Array) -> None:
    """TypeError unless `x` can serve as a Python integer."""
    if x.ndim or x.dtype.kind not in "iu":
        raise TypeError(f"Only integer scalar arrays can be converted to a scalar index; got {x.aval.str_short()}")


class Literal:
    """A scalar constant with its type; `value` is a 0-d ndarray of the type's physical dtype."""

    __slots__ = ("aval", "value")

    def __init__(self, value: np.ndarray[Any, Any], aval: ShapedArray) -> None:
        self.value = value
        self.aval = aval

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def ndim(self) -> int:
        return 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    @property
    def val(self) -> Any:
        """The value as a Python or NumPy scalar."""
        return self.value.item() if self.aval.weak_type else self.value[()]

    def __repr__(self) -> str:
        return f"{self.value.item()}:{self.aval.str_short()}"


# The types of Python's numbers, which are weak, by whether 64 bits are kept.
_FLOATS = {x64: ShapedArray((), np.dtype(np.float64 if x64 else np.float32), True) for x64 in (False, True)}
_INTS = {x64: ShapedArray((), np.dtype(np.int64 if x64 else np.int32), True) for x64 in (False, True)}


def literal(value: Any, dtype: Any = None, weak_type: bool | None = None) -> Literal:
    """`value` (a Python or NumPy scalar) as a Literal; Python scalars are weakly typed unless `dtype` is given."""
    if dtype is None:
        if type(value) is float and weak_type is None:
            aval = _FLOATS[config.x64]
            return Literal(np.array(value, aval.dtype), aval)
        if type(value) is int and weak_type is None and -(1 << 31) <= value < 1 << 31:
            aval = _INTS[config.x64]
            return Literal(np.array(value, aval.dtype), aval)
        if isinstance(value, np.generic):
            dtype, weak = canonicalize(value.dtype), False
        else:
            dtype, weak = scalar_dtype(value), not isinstance(value, bool)
    else:
        weak = False
    if isinstance(dtype, KeyDtype):
        stored_dtype = physical(dtype)
        data = value if getattr(value, "dtype", None) == stored_dtype else _each_word(int(value), stored_dtype)
        return Literal(np.asarray(data), ShapedArray((), dtype))
    # NumPy makes no void, as float0 is, of an int.
    exact = isinstance(value, int) and dtype.kind != "V"
    data = _int_scalar(int(value), dtype) if exact else np.asarray(value).astype(dtype, copy=False)
    return Literal(data, ShapedArray((), dtype, weak if weak_type is None else weak_type))


def _each_word(value: int, stored: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A key all of whose words are this number."""
    words = np.full(stored.itemsize // 4, value & 0xFFFFFFFF, np.uint32)
    return words.view(stored).reshape(())


def _int_scalar(value: int, dtype: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value, dtype=dtype)
    except OverflowError:
        if not -(1 << 63) <= value < 1 << 64:
            raise
        # What 64 bits hold wraps, as a cast of an array does.
        return np.asarray(value & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64).astype(dtype)
