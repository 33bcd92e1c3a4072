"""The order of `sort` in NumPy: NaNs are last and equal, -0.0 equals 0.0, complex numbers compare by real, then imaginary part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardwise.base.dtypes import isdtype
from shardwise.base.shapes import Ndarray
from shardwise.ops.rules.in_rows import in_rows


def comparable(x: Ndarray) -> Ndarray:
    """`x` in a dtype that NumPy sorts fast: ml_dtypes' small floats as float32, small ints as int8 or uint8."""
    if x.dtype.isbuiltin != 2:  # not registered with NumPy by a library
        return x
    if isdtype(x.dtype, "real floating"):
        return x.astype(np.float32)
    return x.astype(np.int8 if isdtype(x.dtype, "signed integer") else np.uint8)


def _parts(keys: Ndarray) -> list[Ndarray]:
    """The sort keys, most significant first. Complex numbers give two: NumPy would sort any with a NaN part last."""
    return [keys.real, keys.imag] if keys.dtype.kind == "c" and np.isnan(keys).any() else [keys]


def _sorted_values(x: Ndarray, axis: int, stable: bool) -> Ndarray:
    keys = comparable(x)
    if len(parts := _parts(keys)) > 1:
        return np.take_along_axis(x, np.lexsort(parts[::-1], axis=axis), axis)
    # Equal keys are indistinguishable, except for zeros of both signs: only a stable sort keeps the order of these.
    has_mixed_zeros = stable and keys.dtype.kind in "fc" and bool(((keys == 0) & np.signbit(keys.real)).any())
    out = np.sort(keys, axis=axis, kind="stable" if has_mixed_zeros or keys.dtype.kind == "c" else None)
    if keys.dtype.kind == "f" and not has_mixed_zeros and out.size and np.isnan(out.take(-1, axis)).any():
        out = np.sort(keys, axis=axis, kind="stable")  # NumPy's vector code gives all NaN the same bits
    return out if keys is x else out.astype(x.dtype)


def sorted_rows(operands: Sequence[Ndarray], axis: int, lead: int, stable: bool, num_keys: int) -> tuple[Ndarray, ...]:
    """`operands` sorted together along `axis` by the first `num_keys` of them; their first `lead` dims broadcast."""

    def work(*parts: Ndarray) -> tuple[Ndarray, ...]:
        return _sort_together(parts, axis, lead, stable, num_keys)

    return in_rows(work, operands, axis, [(x.shape[axis], x.dtype) for x in operands])


def _sort_together(
    operands: Sequence[Ndarray], axis: int, lead: int, stable: bool, num_keys: int
) -> tuple[Ndarray, ...]:
    if len(operands) == 1:
        return (_sorted_values(operands[0], axis, stable),)
    keys = np.broadcast_arrays(*(part for x in operands[:num_keys] for part in _parts(comparable(x))))
    order = keys[0].argsort(axis=axis, kind="stable") if len(keys) == 1 else np.lexsort(keys[::-1], axis=axis)
    loops = np.broadcast_shapes(*(x.shape[:lead] for x in operands))
    return tuple(_take_in_order(x, order, axis, loops) for x in operands)


def _take_in_order(x: Ndarray, order: Ndarray, axis: int, loops: tuple[int, ...]) -> Ndarray:
    shape = (*loops, *order.shape[len(loops) :])
    lead = len(loops)
    both = tuple(np.broadcast_shapes(x.shape[:lead], order.shape[:lead]))
    out = np.take_along_axis(
        np.broadcast_to(x, (*both, *x.shape[lead:])), np.broadcast_to(order, (*both, *order.shape[lead:])), axis
    )
    return out if out.shape == shape else np.broadcast_to(out, shape)
