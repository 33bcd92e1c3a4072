"""Conversion of user arguments to op operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from shardwise.base.dtypes import DType, float0
from shardwise.ir import Array, Literal, Tracer, in_trace, literal

_SCALARS = (bool, int, float, complex, np.generic)
_make_array: list[Callable[[np.ndarray[Any, Any]], Array]] = []


def install_array_constructor(make: Callable[[np.ndarray[Any, Any]], Array]) -> None:
    """Set the function that makes uncommitted Arrays of host arrays (`shardwise.engine.array` does so at import)."""
    _make_array[:] = [make]


def plain_ndarray(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`x` as a plain ndarray: a subclass's own arithmetic (np.matrix, for example) must not run in kernels.

    Raises ValueError for a masked array, whose mask would be lost.
    """
    if type(x) is np.ndarray:
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "numpy masked arrays are not supported as inputs: pass x.filled(value), or the data and the mask as two arrays."
        )
    return np.asarray(x)


def as_value(x: Any) -> Array | Literal:
    """`x` as an op operand: Arrays and tracers unchanged, scalars as Literals, host arrays as uncommitted Arrays.

    Raises TypeError for anything else (lists included, as JAX does).
    """
    if type(x) is np.ndarray:
        return _make_array[0](x)
    if isinstance(x, (Array, Literal)):
        return x
    if isinstance(x, _SCALARS):
        return literal(x)
    if isinstance(x, np.ndarray):
        return _make_array[0](x)
    if hasattr(x, "__jax_array__"):
        return as_value(own_array(x))
    raise TypeError(
        f"Argument {x!r} of type {type(x)} is not a valid JAX type: expected an array or a scalar. Wrap lists with "
        "jnp.asarray first."
    )


def own_array(x: Any) -> Any:
    """The result of `x.__jax_array__()`: an array or a scalar. Raises TypeError for another object, which might name itself again."""
    value = x.__jax_array__()
    if isinstance(value, (Array, Literal, np.ndarray, *_SCALARS)):
        return value
    raise TypeError(f"__jax_array__() of {type(x)} gave {type(value)}: expected an array or a scalar.")


def wide_int(x: Any, dtype: DType) -> Any:
    """A Python int beyond the default integers as a weak Literal of `dtype`, which may hold it; anything else unchanged."""
    return literal(x, dtype, True) if type(x) is int and not -(1 << 31) <= x < 1 << 31 else x


def wide_float(x: Any) -> Any:
    """A Python int beyond the default integers as a float, for functions that compute in floats; anything else unchanged."""
    return float(x) if type(x) is int and not -(1 << 31) <= x < 1 << 31 else x


def hand_out(values: Iterable[Any]) -> list[Any]:
    """Results as users get them: those of float0, the tangents of integers, are host arrays unless they are traced."""
    return [
        np.zeros(x.shape, float0) if getattr(x, "dtype", None) == float0 and not isinstance(x, Tracer) else x
        for x in values
    ]


def given_to_user(values: Iterable[Any]) -> list[Any]:
    """Operands as functions of the user's get them: constants of a program are arrays of the one that runs."""
    return [as_array(x) if isinstance(x, Literal) else x for x in values]


def as_array(x: Any) -> Array:
    """`x` as an Array: like `as_value`, but scalars become 0-d Arrays that keep their weak type."""
    value = as_value(x)
    if isinstance(value, Literal):
        return in_trace(value)
    return value
