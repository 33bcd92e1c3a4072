"""The functions that are `ufunc`s, with their reductions: `add.reduce`, `maximum.accumulate`, `multiply.at`, ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import to_inexact
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy import binary, bits, predicates, reductions, unary
from shardwise.numpy._documented import as_ufunc
from shardwise.numpy._promote import as_array, astype
from shardwise.numpy._ufunc import frompyfunc as frompyfunc
from shardwise.numpy._ufunc import ufunc as ufunc
from shardwise.numpy.at import at
from shardwise.numpy.cumulative import cumprod, cumsum


def _at(method: str, of_bools: str | None = None) -> Any:
    def update(x: Array, indices: Any, b: Any) -> Array:
        return getattr(at(x)[indices], of_bools if of_bools and x.dtype == bool else method)(b)

    return update


def _running_extremum(function: Any) -> Any:
    def accumulate(x: Array, axis: int, dtype: Any) -> Array:
        result = as_array(astype(x, dtype or x.dtype))
        if result.dtype != bool:
            return function(result, axis)
        return lax.convert_element_type(function(lax.convert_element_type(result, np.uint8), axis), bool)

    return accumulate


def _running_logsumexp(x: Array, axis: int, dtype: Any) -> Array:
    return lax.cumlogsumexp(as_array(astype(x, dtype or to_inexact(x.dtype))), axis)


def _define(name: str, call: Any, identity: Any, **methods: Any) -> ufunc:
    call.__name__ = name
    call.__doc__ = as_ufunc(call.__doc__, "are the two operands")
    return ufunc(call, 2, 1, name=name, nargs=2, identity=identity, call=call, **methods)


def _all_reduce(function: Any) -> Any:
    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        result = function(a, axis, keepdims=keepdims, where=where)
        if initial is not None:
            combine = bits.bitwise_and if function is reductions.all else bits.bitwise_or
            result = combine(result, predicates.not_equal(initial, 0))
        return result if dtype is None else lax.convert_element_type(result, dtype)

    return reduce


def _without_dtype(function: Any) -> Any:
    def reduce(a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any) -> Array:
        result = function(a, axis, keepdims=keepdims, initial=initial, where=where)
        return result if dtype is None else lax.convert_element_type(result, dtype)

    return reduce


add = _define("add", binary.add, 0, reduce=reductions.sum, accumulate=cumsum, at=_at("add", "max"))
multiply = _define(
    "multiply", binary.multiply, 1, reduce=reductions.prod, accumulate=cumprod, at=_at("multiply", "min")
)
subtract = _define("subtract", binary.subtract, None, at=_at("subtract"))
maximum = _define(
    "maximum",
    binary.maximum,
    None,
    reduce=_without_dtype(reductions.max),
    accumulate=_running_extremum(lax.cummax),
    at=_at("max"),
)
minimum = _define(
    "minimum",
    binary.minimum,
    None,
    reduce=_without_dtype(reductions.min),
    accumulate=_running_extremum(lax.cummin),
    at=_at("min"),
)
bitwise_and = _define(
    "bitwise_and",
    bits.bitwise_and,
    -1,
    reduce=reductions.reduce_bits("bitwise_and", lax.reduce_and, lax.bitwise_and, -1),
)
bitwise_or = _define(
    "bitwise_or", bits.bitwise_or, 0, reduce=reductions.reduce_bits("bitwise_or", lax.reduce_or, lax.bitwise_or, 0)
)
bitwise_xor = _define(
    "bitwise_xor", bits.bitwise_xor, 0, reduce=reductions.reduce_bits("bitwise_xor", lax.reduce_xor, lax.bitwise_xor, 0)
)
logical_and = _define("logical_and", predicates.logical_and, True, reduce=_all_reduce(reductions.all))
logical_or = _define("logical_or", predicates.logical_or, False, reduce=_all_reduce(reductions.any))
logical_xor = _define("logical_xor", predicates.logical_xor, False)
logaddexp = _define("logaddexp", binary.logaddexp, -np.inf, accumulate=_running_logsumexp)
logaddexp2 = _define("logaddexp2", binary.logaddexp2, -np.inf)
unary.negative.__doc__ = as_ufunc(unary.negative.__doc__, "is the operand")
negative = ufunc(unary.negative, 1, 1, name="negative", nargs=1, call=unary.negative)

__all__ = [
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "frompyfunc", "logaddexp", "logaddexp2", "logical_and", "logical_or",
    "logical_xor", "maximum", "minimum", "multiply", "negative", "subtract", "ufunc",
]  # fmt: skip
