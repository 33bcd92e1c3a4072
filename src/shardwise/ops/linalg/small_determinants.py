"""Determinants in small programs: by their definition up to 3 by 3, else by LU decompositions, as the kernels do."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.ir import Equation, literal
from shardwise.ops.linalg.determinants import small_det
from shardwise.ops.rules.derivative import do
from shardwise.ops.shapes.iota import broadcasted_iota

_DOUBLE = np.dtype(np.float64)


def are_real(eqn: Equation) -> bool:
    """Whether matrices have elements, which are floats of a word or two."""
    x = eqn.inputs[0].aval
    return x.dtype.name in ("float32", "float64") and x.shape[-1] > 0


def det(x: Any) -> Any:
    """Determinants of matrices."""
    n = x.shape[-1]
    if n > 3:
        sign, diagonal = _by_lu(x)
        return do.mul(sign, do.reduce_prod(diagonal, axes=(x.ndim - 2, x.ndim - 1)))
    wide = do.convert_element_type(x, new_dtype=_DOUBLE, weak_type=False)
    elements = [[_Number(_element(wide, i, j)) for j in range(n)] for i in range(n)]
    (determinant,) = small_det([elements], n)
    return do.convert_element_type(determinant.value, new_dtype=x.dtype, weak_type=False)


def slogdet(x: Any) -> list[Any]:
    """Signs and logarithms of the magnitudes."""
    sign, diagonal = _by_lu(x)
    axes = (x.ndim - 2, x.ndim - 1)
    signs = do.mul(sign, do.reduce_prod(do.sign(diagonal), axes=axes))
    return [signs, do.reduce_sum(do.log(do.abs(diagonal)), axes=axes, out_sharding=None)]


def _by_lu(x: Any) -> tuple[Any, Any]:
    """The signs of the permutations, and the matrices of the upper factors' diagonals, with ones elsewhere."""
    packed_factors, pivots, _ = do.lu(x)
    rows, columns = (broadcasted_iota(np.int32, x.shape, x.ndim - k) for k in (2, 1))
    ones = do.broadcast_in_dim(literal(1, x.dtype), shape=x.shape, broadcast_dimensions=())
    diagonal = do.select_n(do.eq(rows, columns), ones, packed_factors)
    is_moved = do.ne(pivots, broadcasted_iota(np.int32, pivots.shape, pivots.ndim - 1))
    odd = do.reduce_xor(is_moved, axes=(pivots.ndim - 1,))
    return do.select_n(odd, literal(1, x.dtype), literal(-1, x.dtype)), diagonal


def _element(x: Any, i: int, j: int) -> Any:
    start, end = (0,) * (x.ndim - 2), x.shape[:-2]
    part = do.slice(x, start_indices=(*start, i, j), limit_indices=(*end, i + 1, j + 1), strides=None)
    return do.reshape(part, new_sizes=x.shape[:-2])


class _Number:
    """A traced value with Python's operators."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __add__(self, other: _Number) -> _Number:
        return _Number(do.add(self.value, other.value))

    def __sub__(self, other: _Number) -> _Number:
        return _Number(do.sub(self.value, other.value))

    def __mul__(self, other: _Number) -> _Number:
        return _Number(do.mul(self.value, other.value))
