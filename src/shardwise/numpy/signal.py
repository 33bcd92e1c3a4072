"""1-d convolution and correlation, through the general convolution; bits packed into bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import check_requested
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    array,
    as_array,
    canonical_axis,
    is_bool,
    is_complex,
    is_integer,
    promote_dtypes,
    promote_inexact,
)
from shardwise.numpy.predicates import to_bool
from shardwise.transforms.jit.shown_calls import shown_call


@shown_call("name mode flip precision preferred_element_type", name="_conv")
def _slide(name: str, x: Array, y: Array, mode: str, flip: bool, precision: Any, preferred_element_type: Any) -> Array:
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs, got shapes {x.shape} and {y.shape}.")
    if not x.size or not y.size:
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {x.shape} and {y.shape}.")
    if preferred_element_type is not None:
        preferred_element_type = check_requested(preferred_element_type, name)
    promote = promote_inexact if preferred_element_type is None else promote_dtypes
    x, y = map(as_array, promote(x, y))
    longer_second = x.size < y.size
    if longer_second:
        x, y = y, x
    n = y.size
    if mode == "full":
        padding = (n - 1, n - 1)
    elif mode == "same":
        padding = (n // 2, n - n // 2 - 1)
    elif mode == "valid":
        padding = (0, 0)
    else:
        raise ValueError(f"mode must be one of ['full', 'same', 'valid'], got {mode!r}")
    kernel = _reverse(y) if flip else y
    out = lax.conv_general_dilated(
        lax.expand_dims(x, (0, 1)),
        lax.expand_dims(kernel, (0, 1)),
        (1,),
        [padding],
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    out = lax.squeeze(out, (0, 1))
    return _reverse(out) if longer_second and not flip else out


@shown_call(name="_flip")
def _reverse(x: Array) -> Array:
    return lax.rev(x, (0,))


@shown_call("mode precision preferred_element_type")
def convolve(a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """The convolution of the 1-d arrays `a` and `v`: f[n], f[m] -> f[n + m - 1] ('full'), f[max(n, m)] ('same') or
    where they overlap wholly ('valid'). ValueError for other ranks, modes and empty arrays.

    Args:
        mode: 'full', 'same' or 'valid'.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.

    >>> jnp.convolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0]))
    Array([1., 3., 5., 3.], dtype=float32)
    """
    x, y = array("convolve", a), array("convolve", v, 1)
    return _slide("convolve", x, y, mode, True, precision, preferred_element_type)


@shown_call("mode precision preferred_element_type")
def correlate(
    a: Any, v: Any, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """The correlation of the 1-d arrays `a` and `v`, `v` conjugated; sizes as for `convolve`.

    Args:
        mode: 'full', 'same' or 'valid', as for `convolve`.
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.

    >>> jnp.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0]))
    Array([2., 3.], dtype=float32)
    """
    x, y = array("correlate", a), array("correlate", v, 1)
    if is_complex(y.dtype):
        y = lax.conj(y)
    return _slide("correlate", x, y, mode, False, precision, preferred_element_type)


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Array:
    """The truth values of `a` packed into the bits of bytes along `axis` (None: of the flattened array), zeros
    filling the last one.

    Args:
        bitorder: 'big' or 'little': whether the first one is the highest bit.

    Raises:
        TypeError: `a` is not of integers or bools.

    >>> jnp.packbits(jnp.array([0, 0, 0, 0, 0, 1, 0, 1]))
    Array([5], dtype=uint8)
    """
    x = array("packbits", a)
    if not (is_bool(x.dtype) or is_integer(x.dtype)):
        raise TypeError(f"Expected an input array of integer or boolean data type, got {x.dtype}.")
    shifts = _shifts(bitorder)
    x, d = _along(x, axis)
    bits = lax.convert_element_type(as_array(to_bool(x)), np.uint8)
    padding_bits = -bits.shape[d] % 8
    bits = lax.pad(
        bits, literal(0, np.dtype(np.uint8)), [(0, padding_bits if i == d else 0, 0) for i in range(bits.ndim)]
    )
    bits = lax.reshape(bits, (*bits.shape[:d], bits.shape[d] // 8, 8, *bits.shape[d + 1 :]))
    weights = lax.broadcast_in_dim(shifts, (8,) + (1,) * (bits.ndim - d - 2), (0,))
    weights = lax.expand_dims(weights, range(d + 1))
    return lax.reduce_sum(lax.shift_left(bits, weights), (d + 1,))


def unpackbits(a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """The bits of the bytes `a` (uint8) along `axis` (None: of the flattened array), cut or filled with zeros to
    `count`.

    Args:
        bitorder: 'big' or 'little': whether the highest bit comes first.

    Raises:
        TypeError: `a` is not of uint8.

    >>> jnp.unpackbits(jnp.array([5], dtype=jnp.uint8))
    Array([0, 0, 0, 0, 0, 1, 0, 1], dtype=uint8)
    """
    x = array("unpackbits", a)
    if x.dtype != np.uint8:
        raise TypeError(f"Expected an input array of unsigned byte data type, got {x.dtype}.")
    shifts = _shifts(bitorder)
    x, d = _along(x, axis)
    wide = lax.expand_dims(x, (d + 1,))
    by = lax.expand_dims(shifts, [i for i in range(wide.ndim) if i != d + 1])
    bits = lax.bitwise_and(lax.shift_right_logical(wide, by), literal(1, np.dtype(np.uint8)))
    bits = lax.reshape(bits, (*x.shape[:d], x.shape[d] * 8, *x.shape[d + 1 :]))
    if count is None:
        return bits
    n = bits.shape[d]
    wanted_bits = count if count >= 0 else n + count
    if wanted_bits <= n:
        return lax.slice_in_dim(bits, 0, max(wanted_bits, 0), axis=d)
    config = [(0, wanted_bits - n if i == d else 0, 0) for i in range(bits.ndim)]
    return lax.pad(bits, literal(0, np.dtype(np.uint8)), config)


def _shifts(bitorder: str) -> Array:
    if bitorder not in ("big", "little"):
        raise ValueError(f"'order' must be either 'little' or 'big', got {bitorder!r}.")
    count = lax.iota(np.uint8, 8)
    return count if bitorder == "little" else lax.rev(count, (0,))


def _along(x: Array, axis: int | None) -> tuple[Array, int]:
    return (lax.reshape(x, (x.size,)), 0) if axis is None else (x, canonical_axis(axis, x.ndim))


__all__ = ["convolve", "correlate", "packbits", "unpackbits"]
