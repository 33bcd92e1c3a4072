"""Python's operators and the methods of arrays, set on `Array` once for concrete and traced ones.

In: `install_operators()`, called once at import. Out: ``x + y``, ``x[i]``, ``x.sum()`` on every `Array`. Operators first
try to bind their op directly: operands of one dtype, or an array and a Python number of its kind, need no promotion.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import SCALAR_TYPES, check_requested, isdtype, itemsize_bits
from shardwise.engine.device_put import device_put
from shardwise.ir import Array, Literal, Op, bind
from shardwise.lax import adaptive as lax
from shardwise.numpy import binary, bits, predicates, unary
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import as_array, astype, canonical_axis, has_several, is_bool, is_complex, number
from shardwise.numpy.at import at
from shardwise.numpy.creation import array
from shardwise.numpy.creation import astype as cast
from shardwise.numpy.indexing import getitem, iterate
from shardwise.numpy.products import matmul
from shardwise.ops.elementwise import binary as two
from shardwise.ops.elementwise import bitwise, comparison
from shardwise.ops.elementwise import unary as one

_ACCEPTED_TYPES = (int, float, complex, np.generic, np.ndarray, Array, Literal)  # bool is an int
_REJECTED_TYPES = (list, tuple, set, dict)

_DTYPES = [t.dtype for t in SCALAR_TYPES.values()]
_BOOL = frozenset(d for d in _DTYPES if isdtype(d, "bool"))
_INTS = frozenset(d for d in _DTYPES if isdtype(d, "integral"))
_FLOATS = frozenset(d for d in _DTYPES if isdtype(d, "real floating"))
_COMPLEX = frozenset(d for d in _DTYPES if isdtype(d, "complex floating"))
_NUMBERS = _INTS | _FLOATS | _COMPLEX
_REALS = _INTS | _FLOATS


def _foreign(x: Array, other: Any, symbol: str, reflected: bool = False) -> bool:
    """Whether `other`, the left operand of a `reflected` operator, must use its own operators.

    TypeError for containers, whose operators mean something else; subclasses, such as named tuples, may have operators for arrays.
    """
    if type(other) in _REJECTED_TYPES:
        left, right = (other, x) if reflected else (x, other)
        raise TypeError(
            f"unsupported operand type(s) for {symbol}: {type(left).__name__!r} and {type(right).__name__!r}. "
            "Turn the container into an array with jnp.asarray."
        )
    return not isinstance(other, _ACCEPTED_TYPES) and not hasattr(other, "__jax_array__")


def _operators(symbol: str, op: Op, direct: frozenset[Any], general: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The operator and its reflected form; `direct` holds the dtypes that `op` takes as they are."""

    def forward(self: Array, other: Any) -> Any:
        t = self.aval
        kind = other.__class__
        if kind is float or kind is int:
            if t.dtype in direct and (scalar := number(other, t)) is not None:
                return bind(op, self, scalar)
        elif isinstance(other, Array):
            u = other.aval
            if (
                (t is u or (t.dtype is u.dtype and t.ndim == u.ndim and t.weak_type is u.weak_type))
                and t.dtype in direct
                and not (t.weak_type and t.dtype in _BOOL)  # no two bools promote to a weak one
            ):
                return bind(op, self, other)
        elif _foreign(self, other, symbol):
            return NotImplemented
        return general(self, other)

    def reflected_operator(self: Array, other: Any) -> Any:
        t = self.aval
        kind = other.__class__
        if kind is float or kind is int:
            if t.dtype in direct and (scalar := number(other, t)) is not None:
                return bind(op, scalar, self)
        elif _foreign(self, other, symbol, reflected=True):
            return NotImplemented
        return general(other, self)

    return forward, reflected_operator


def _contains(self: Array, item: Any) -> bool:
    """Whether the one-dimensional array has this scalar as an element."""
    if item is None or isinstance(item, str):
        raise TypeError(f"Array.__contains__: unsupported operand type {type(item)}.")
    item = checked("Array.__contains__", item)
    if self.ndim != 1:
        raise ValueError(f"Array.__contains__: search array must be one-dimensional, got shape {self.shape}.")
    if item.ndim:
        raise ValueError(f"Array.__contains__: query value must be a scalar, got shape {item.shape}.")
    return bool(predicates.equal(self, item).any())


def _general_operators(symbol: str, general: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The operator and its reflected form, without a direct op."""

    def forward(self: Array, other: Any) -> Any:
        return NotImplemented if _foreign(self, other, symbol) else general(self, other)

    def reflected_operator(self: Array, other: Any) -> Any:
        return NotImplemented if _foreign(self, other, symbol, reflected=True) else general(other, self)

    return forward, reflected_operator


def _power(self: Array, other: Any) -> Any:
    if other.__class__ is int and self.aval.dtype in _NUMBERS:
        return binary.integer_power(self, other)
    return NotImplemented if _foreign(self, other, "**") else binary.power(self, other)


def _matmul(x: Any, y: Any) -> Array:

    return matmul(x, y)


def _install_arithmetic(cls: type) -> None:
    direct: list[tuple[str, str, Op, frozenset[Any], Any]] = [
        ("add", "+", two.add_p, _NUMBERS | _BOOL, binary.add),
        ("sub", "-", two.sub_p, _NUMBERS, binary.subtract),
        ("mul", "*", two.mul_p, _NUMBERS | _BOOL, binary.multiply),
        ("truediv", "/", two.div_p, _FLOATS | _COMPLEX, binary.true_divide),
        ("and", "&", bitwise.and_p, _INTS | _BOOL, bits.bitwise_and),
        ("or", "|", bitwise.or_p, _INTS | _BOOL, bits.bitwise_or),
        ("xor", "^", bitwise.xor_p, _INTS | _BOOL, bits.bitwise_xor),
        ("lshift", "<<", bitwise.shift_left_p, _INTS, bits.left_shift),
    ]
    for name, symbol, op, dtypes, general in direct:
        forward, reflected_operator = _operators(symbol, op, dtypes, general)
        _set(cls, f"__{name}__", forward)
        _set(cls, f"__r{name}__", reflected_operator)
    for name, symbol, general in (
        ("floordiv", "//", binary.floor_divide),
        ("mod", "%", binary.remainder),
        ("divmod", "divmod()", binary.divmod),
        ("pow", "**", binary.power),
        ("rshift", ">>", bits.right_shift),
        ("matmul", "@", _matmul),
    ):
        forward, reflected_operator = _general_operators(symbol, general)
        _set(cls, f"__{name}__", forward)
        _set(cls, f"__r{name}__", reflected_operator)
    _set(cls, "__pow__", _power)
    comparisons: list[tuple[str, str, Op, frozenset[Any], Any]] = [
        ("eq", "==", comparison.eq_p, _NUMBERS | _BOOL, predicates.equal),
        ("ne", "!=", comparison.ne_p, _NUMBERS | _BOOL, predicates.not_equal),
        ("lt", "<", comparison.lt_p, _REALS | _BOOL, predicates.less),
        ("le", "<=", comparison.le_p, _REALS | _BOOL, predicates.less_equal),
        ("gt", ">", comparison.gt_p, _REALS | _BOOL, predicates.greater),
        ("ge", ">=", comparison.ge_p, _REALS | _BOOL, predicates.greater_equal),
    ]
    for name, symbol, op, dtypes, general in comparisons:
        _set(cls, f"__{name}__", _operators(symbol, op, dtypes, general)[0])
    _set(cls, "__neg__", lambda self: bind(one.neg_p, self))
    _set(cls, "__pos__", lambda self: self)
    _set(cls, "__abs__", lambda self: unary.absolute(self))
    _set(cls, "__invert__", lambda self: bind(one.not_p, self))
    _set(cls, "__round__", _round)


# -- methods ---------------------------------------------------------------------------------------------------


def _numpy() -> Any:
    return sys.modules["shardwise.numpy"] if "shardwise.numpy" in sys.modules else __import__("shardwise.numpy").numpy


# Methods that are functions of shardwise.numpy with the array as first argument.
_FUNCTIONS = (
    "all any argmax argmin argpartition argsort clip conj conjugate cumprod cumsum diagonal dot max mean min nonzero prod ptp "
    "repeat round searchsorted sort squeeze std sum swapaxes take trace var choose"
).split()


def sign_methods(namespace: Any) -> None:
    """Give the methods that are functions of shardwise.numpy the signatures of these, now that there are such."""
    for name in _FUNCTIONS:
        shape = inspect.signature(getattr(namespace, name))
        first, *others = shape.parameters.values()
        vars(Array)[name].__signature__ = shape.replace(parameters=[first.replace(name="self"), *others])


def _method(name: str) -> Callable[..., Any]:
    def method(self: Array, *args: Any, **kwargs: Any) -> Any:
        return getattr(_numpy(), name)(self, *args, **kwargs)

    method.__doc__ = f"See `shardwise.numpy.{name}`."
    return method


def _reshape(self: Array, *args: Any, order: str = "C", copy: bool | None = None, out_sharding: Any = None) -> Array:
    """The array in another shape, given as one sequence or as several ints, one of which may be -1."""
    shape = args[0] if len(args) == 1 else args
    return _numpy().reshape(self, shape, order, copy=copy, out_sharding=out_sharding)


def _transpose(self: Array, *args: Any) -> Array:
    """The array with its axes in another order, given as one sequence or as several ints; reversed by default."""
    if not args or (len(args) == 1 and args[0] is None):
        return lax.transpose(self, range(self.ndim)[::-1])
    axes = args[0] if len(args) == 1 and has_several(args[0]) else args
    return lax.transpose(self, [canonical_axis(d, self.ndim) for d in axes])


def _matrix_transpose(self: Array) -> Array:
    """The last two axes swapped. ValueError below two."""
    if self.ndim < 2:
        raise ValueError(f"mT requires ndim to be at least 2, got {self.ndim}.")
    axes = range(self.ndim)
    return lax.transpose(self, [*axes[:-2], axes[-1], axes[-2]])


def _flatten(self: Array, order: str = "C", *, out_sharding: Any = None) -> Array:
    """The elements in one dim."""
    return _numpy().ravel(self, order, out_sharding=out_sharding)


def _astype(self: Array, dtype: Any, copy: bool = False, device: Any = None) -> Array:
    """The array cast to `dtype`."""

    return cast(self, dtype, copy=copy, device=device)


def _copy(self: Array) -> Array:
    """A copy with the same sharding."""

    return array(self, copy=True)


def _compress(
    self: Array,
    condition: Any,
    axis: int | None = None,
    *,
    out: None = None,
    size: int | None = None,
    fill_value: Any = 0,
) -> Array:
    """The slices along `axis` where `condition` is true."""
    return _numpy().compress(condition, self, axis, size=size, fill_value=fill_value, out=out)


def _view(self: Array, dtype: Any = None, type: None = None) -> Array:
    """The bits of the array read as another dtype; the last dim grows or shrinks with the widths.

    ValueError where the last dim does not divide, and for scalars of another width.
    """
    if type is not None:
        raise NotImplementedError("view: arrays have one type, so type= is not supported. Leave it out.")
    if dtype is None or check_requested(dtype, "view") == self.dtype:
        return self
    target = check_requested(dtype, "view")
    x = self
    if is_bool(x.dtype):
        x = as_array(astype(x, np.dtype(np.uint8)))
    elif is_complex(x.dtype):
        parts = [lax.expand_dims(part, (x.ndim,)) for part in (lax.real(x), lax.imag(x))]
        x = lax.concatenate(parts, x.ndim)
        x = lax.reshape(x, (*x.shape[:-2], 2 * x.shape[-2])) if self.ndim else x
    if is_bool(target):
        return as_array(predicates.to_bool(_view_bits(x, np.dtype(np.uint8))))
    if is_complex(target):
        flat = _view_bits(x, np.dtype(np.float32 if target == np.complex64 else np.float64))
        if not flat.ndim or flat.shape[-1] % 2:
            raise ValueError(f"view: the last dim of {self.shape} of {self.dtype} does not divide into {target}.")
        pairs = lax.reshape(flat, (*flat.shape[:-1], flat.shape[-1] // 2, 2))
        return lax.complex(lax.index_in_dim(pairs, 0, -1, False), lax.index_in_dim(pairs, 1, -1, False))
    return _view_bits(x, target)


def _view_bits(x: Array, target: Any) -> Array:
    old, new = itemsize_bits(x.dtype), itemsize_bits(target)
    if old == new:
        return x if x.dtype == target else lax.bitcast_convert_type(x, target)
    if not x.ndim:
        raise ValueError(f"view: a scalar of {x.dtype} cannot be viewed as {target}, which has another width.")
    if old > new:
        out = lax.bitcast_convert_type(x, target)
        return lax.reshape(out, (*x.shape[:-1], x.shape[-1] * (old // new)))
    ratio = new // old
    if x.shape[-1] % ratio:
        raise ValueError(f"view: the last dim of {x.shape} of {x.dtype} does not divide into {target}.")
    return lax.bitcast_convert_type(lax.reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio)), target)


def _round(self: Array, ndigits: int | None = None) -> Array:
    """Python's ``round(x)``: integers without `ndigits`, as for Python floats."""
    rounded_value = unary.round(self, ndigits or 0)
    return rounded_value if ndigits is not None else _astype(rounded_value, int)


def _to_device(self: Array, device: Any, *, stream: Any = None) -> Array:
    """The array on a Device or with a Sharding. ValueError for a stream: CPU devices have none."""
    if stream is not None:
        raise ValueError(f"to_device: CPU devices have no streams, got stream={stream!r}. Leave it out.")
    return device_put(self, device)


def _byteswap(self: Array) -> Array:
    """The array with the bytes of each element reversed."""
    size = self.dtype.itemsize
    if size == 1:
        return self
    if is_complex(self.dtype):
        return lax.complex(_byteswap(lax.real(self)), _byteswap(lax.imag(self)))
    swapped_bytes = lax.rev(lax.bitcast_convert_type(self, np.uint8), (self.ndim,))
    return lax.bitcast_convert_type(swapped_bytes, self.dtype)


def _flat(self: Array) -> Any:
    """Not offered: arrays are immutable. Use ravel() or iterate over it."""
    raise NotImplementedError("x.flat is an iterator that writes in place; arrays are immutable. Use x.ravel().")


def _tracer_len(self: Array) -> int:
    if not self.ndim:
        raise TypeError("len() of unsized object")
    return self.shape[0]


def _set(cls: type, name: str, value: Any) -> None:
    """Make a function, of its own for this, the method `name`."""
    value.__name__ = name
    value.__qualname__ = f"Array.{name}"
    setattr(cls, name, value)


def _install_methods(cls: type) -> None:

    for name in _FUNCTIONS:
        _set(cls, name, _method(name))
    for name, function in (
        ("reshape", _reshape),
        ("transpose", _transpose),
        ("flatten", _flatten),
        ("ravel", _flatten),
        ("astype", _astype),
        ("copy", _copy),
        ("compress", _compress),
        ("view", _view),
        ("to_device", _to_device),
        ("byteswap", _byteswap),
    ):
        setattr(cls, name, function)
    cls.__getitem__ = getitem
    cls.__iter__ = iterate
    cls.__contains__ = _contains
    cls.__len__ = _tracer_len
    for name, getter in (
        ("T", _transpose),
        ("mT", _matrix_transpose),
        ("real", unary.real),
        ("imag", unary.imag),
        ("flat", _flat),
        ("at", at),
    ):
        setattr(cls, name, property(getter))


def install_operators() -> None:
    """Give every `Array`, concrete or traced, Python's operators and NumPy's methods."""
    _install_arithmetic(Array)
    _install_methods(Array)
