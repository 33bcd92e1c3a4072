"""Decompositions in small programs that are several steps: QR, singular values and eigenvalues of finite matrices, exponentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import Equation, literal
from shardwise.ops.control.while_loop import while_loop
from shardwise.ops.linalg.matrix_functions import PADE
from shardwise.ops.rules.derivative import do
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.ops.shapes.iota import broadcasted_iota


def without_pivots(eqn: Equation) -> bool:
    """Whether a QR decomposition leaves columns in their order."""
    return not eqn.params["pivoting"]


def qr(x: Any, *, full: bool, pivoting: bool) -> list[Any]:
    """q and r."""
    m, n = x.shape[-2:]
    rows = m if full else min(m, n)
    packed_factors, taus = do.geqrf(x)
    r = _cut(packed_factors, rows, n)
    row, column = (broadcasted_iota(np.int32, r.shape, r.ndim - k) for k in (2, 1))
    r = do.select_n(do.le(row, column), _full_like(r, 0), r)
    edges = [(0, 0, 0)] * (x.ndim - 1)
    base = do.pad(_cut(packed_factors, m, min(rows, n)), 0, padding_config=(*edges, (0, max(rows - n, 0), 0)))
    return [do.householder_product(base, taus), r]


def has_elements(eqn: Equation) -> bool:
    """Whether matrices are not empty."""
    return eqn.inputs[0].aval.size > 0


def svd(x: Any, **params: Any) -> list[Any]:
    """Singular values and vectors; NaN for matrices that are not finite, from which LAPACK may not return."""
    valid = _is_finite(x)
    return _where_valid(valid, do.svd_of_finite(_where(valid, x, 0), **params))


def rights_alone(eqn: Equation) -> bool:
    """Whether no left eigenvectors are wanted, of matrices whose eigenvalues NumPy computes in their precision."""
    return not eqn.params["left"] and eqn.inputs[0].aval.dtype.name != "complex64"


def eig(x: Any, *, left: bool, right: bool, vector_derivatives: bool) -> list[Any]:
    """Eigenvalues and right eigenvectors; NaN for matrices that are not finite."""
    valid = _is_finite(x)
    return _where_valid(valid, do.eig_of_finite(_where(valid, x, 0), right=right))


def is_real(eqn: Equation) -> bool:
    """Whether matrices hold floats of 32 or 64 bits."""
    return eqn.inputs[0].aval.dtype.name in PADE


def expm(x: Any, *, max_squarings: int) -> Any:
    """Exponentials by scaling and squaring, as of many matrices; NaN where that takes more than `max_squarings`."""
    coefficients, largest = PADE[x.dtype.name]
    last = x.ndim - 1
    columns = do.reduce_sum(do.abs(x), axes=(last - 1,), out_sharding=None)
    norms = do.reduce_max(columns, axes=(last - 1,))
    valid = do.lt(norms, largest * 2.0 ** (max_squarings + 1))
    ratio = do.max(do.div(norms, largest), 1.0)
    steps = do.ceil(do.div(do.log(ratio), math.log(2)))
    steps = do.select_n(valid, _full_like(steps, 0), steps)
    scaled_x = do.mul(_where(valid, x, 0), _spread(do.exp2(do.neg(steps)), x))
    odd, even = _parts(scaled_x, coefficients)
    out = do.solve(do.sub(even, odd), do.add(even, odd), transposed=False)
    most = do.reduce_max(steps, axes=tuple(range(steps.ndim)))

    def square_if_due(state: Any) -> Any:
        i, value = state
        more = _spread(do.gt(steps, i), value)
        return do.add(i, 1.0), do.select_n(more, value, _times(value, value))

    power = while_loop(lambda state: do.lt(state[0], most), square_if_due, (_full_like(most, 0), out))[1]
    return _where(valid, power, math.nan)


def expm_frechet(x: Any, direction: Any, *, max_squarings: int) -> Any:
    """The derivative of `expm` in a direction: the upper right block of the exponential of [[x, direction], [0, x]]."""
    n, d = x.shape[-1], x.ndim
    zero = _full_like(x, 0)
    rows = [do.concatenate(*blocks, dimension=d - 1) for blocks in ((x, direction), (zero, x))]
    both = expm(do.concatenate(*rows, dimension=d - 2), max_squarings=max_squarings)
    first, end = (*(0,) * (d - 1), n), (*both.shape[:-2], n, 2 * n)
    return do.slice(both, start_indices=first, limit_indices=end, strides=None)


def _parts(x: Any, coefficients: Sequence[int]) -> tuple[Any, Any]:
    """The odd and the even part of the polynomial with these coefficients, the lowest power's first."""
    row, column = (broadcasted_iota(np.int32, x.shape, x.ndim - k) for k in (2, 1))
    one = do.select_n(do.eq(row, column), _full_like(x, 0), _full_like(x, 1))
    powers = [one, square := _times(x, x)]
    while len(powers) < 4:
        powers.append(_times(powers[-1], square))

    def series(terms: Sequence[int]) -> Any:
        low = _full_like(x, 0)
        for c, p in zip(terms, powers, strict=False):
            low = do.add(low, do.mul(p, literal(c, x.dtype)))
        return do.add(low, _times(powers[3], series((0, *terms[4:])))) if len(terms) > 4 else low

    return _times(x, series(coefficients[1::2])), series(coefficients[::2])


def _times(x: Any, y: Any) -> Any:
    batch = tuple(range(x.ndim - 2))
    dims = (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch))
    return do.dot_general(
        x, y, dimension_numbers=dims, precision=None, preferred_element_type=x.dtype, out_sharding=None
    )


def _cut(x: Any, m: int, n: int) -> Any:
    """The first rows and columns."""
    limits = (*x.shape[:-2], m, n)
    return x if x.shape == limits else do.slice(x, start_indices=(0,) * x.ndim, limit_indices=limits, strides=None)


def _is_finite(x: Any) -> Any:
    """Whether all elements of a matrix are finite."""
    parts = [do.real(x), do.imag(x)] if x.dtype.kind == "c" else [x]
    finite_parts = [do.reduce_and(do.is_finite(part), axes=(x.ndim - 2, x.ndim - 1)) for part in parts]
    return finite_parts[0] if len(finite_parts) == 1 else do.and_(*finite_parts)


def _where_valid(valid: Any, found: Any) -> list[Any]:
    results = list(found) if isinstance(found, (list, tuple)) else [found]
    return [_where(valid, v, complex(math.nan, math.nan) if v.dtype.kind == "c" else math.nan) for v in results]


def _where(valid: Any, x: Any, other: Any) -> Any:
    return do.select_n(_spread(valid, x), _full_like(x, other), x)


def _spread(x: Any, like: Any) -> Any:
    """A value per matrix, for its elements."""
    return broadcast_in_dim(x, like.shape, tuple(range(x.ndim)))


def _full_like(like: Any, value: Any) -> Any:
    return broadcast_in_dim(literal(value, like.dtype), like.shape, ())
