"""`shardwise.scipy.interpolate`: values on a rectangular grid, looked up between its points."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.base.treedef import register_pytree_node
from shardwise.ir import Array
from shardwise.numpy._promote import promote_to_inexact

__all__ = ["RegularGridInterpolator"]

_METHODS = ("linear", "nearest")


def _check_method(method: str) -> str:
    if method not in _METHODS:
        raise ValueError(f"method {method!r} is not defined; use one of {', '.join(map(repr, _METHODS))}.")
    return method


def _queries(xi: Any, n: int) -> Array:
    """Query points along the last dim: from one array, or from a tuple of one array per coordinate."""
    if isinstance(xi, tuple) and len(xi) == 1:
        xi = xi[0]
    if isinstance(xi, tuple):
        return jnp.stack([x.astype(float) for x in jnp.broadcast_arrays(*xi)], -1)
    points = jnp.asarray(xi)
    return jnp.reshape(points, (-1, n)) if points.ndim == 1 else points


class RegularGridInterpolator:
    """A function of N coordinates known on a grid: called with points, it gives the values there.

    `points` are N increasing arrays, the coordinates of the grid along each dim; `values` is an array of at least N dims,
    dims after the first N are looked up together. `method` is "linear" or "nearest". Points outside of the grid get
    `fill_value`, or, with None, the extrapolation of the outermost cell. An interpolator is a pytree: it may be an argument of jitted
    functions, and derivatives are taken of its grid and values. ValueError for other methods, for more coordinates
    than dims and for a `fill_value` that the values' dtype does not hold.
    """

    def __init__(
        self, points: Any, values: Any, method: str = "linear", bounds_error: bool = False, fill_value: Any = np.nan
    ) -> None:
        self.method = _check_method(method)
        self.bounds_error = bounds_error
        if bounds_error:
            raise NotImplementedError(
                "`bounds_error` would have to look at values under jit; see which results are fill_value."
            )
        self.values = jnp.asarray(promote_to_inexact("RegularGridInterpolator", values)[0])
        if len(points) > self.values.ndim:
            raise ValueError(f"there are {len(points)} point arrays, but values has {self.values.ndim} dimensions")
        self.fill_value = None if fill_value is None else jnp.asarray(fill_value)
        if self.fill_value is not None and not np.can_cast(self.fill_value.dtype, self.values.dtype, "same_kind"):
            raise ValueError("fill_value must be either 'None' or of a type compatible with values")
        self.grid = tuple(jnp.asarray(p) for p in points)

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at points `xi` [..., N], or at a tuple of N arrays of coordinates.

        Out: [..., and the dims of `values` after the first N]. ValueError if the points have another dimension.
        """
        method = self.method if method is None else _check_method(method)
        n = len(self.grid)
        points = _queries(xi, n)
        if points.shape[-1] != n:
            raise ValueError(
                f"the requested sample points xi have dimension {points.shape[-1]}, but this "
                f"RegularGridInterpolator has dimension {n}"
            )
        flat = jnp.reshape(points, (-1, n))
        cells, shares, outside = [], [], jnp.zeros(flat.shape[:1], bool)
        for d, grid in enumerate(self.grid):
            x = flat[:, d]
            cell = jnp.clip(jnp.searchsorted(grid, x) - 1, 0, grid.size - 2)
            cells.append(cell)
            shares.append((x - grid[cell]) / (grid[cell + 1] - grid[cell]))
            outside = outside | (x < grid[0]) | (x > grid[-1])
        trailing_ndim = self.values.ndim - n
        if method == "nearest":
            result = self.values[tuple(jnp.where(s <= 0.5, c, c + 1) for c, s in zip(cells, shares, strict=True))]
        else:
            result = jnp.asarray(0.0)
            for corner in itertools.product((0, 1), repeat=n):
                weight = jnp.asarray(1.0)
                for side, share in zip(corner, shares, strict=True):
                    weight = weight * (share if side else 1 - share)
                at = tuple(cell + side for cell, side in zip(cells, corner, strict=True))
                result = result + self.values[at] * jnp.reshape(weight, (-1,) + (1,) * trailing_ndim)
        if self.fill_value is not None:
            result = jnp.where(jnp.reshape(outside, (-1,) + (1,) * trailing_ndim), self.fill_value, result)
        return jnp.reshape(result, (*points.shape[:-1], *self.values.shape[n:]))


def _rebuild(aux: tuple[str, bool], children: tuple[Any, Any, Any]) -> RegularGridInterpolator:
    """The object with these leaves, unchecked: they may be placeholders."""
    instance = object.__new__(RegularGridInterpolator)
    instance.method, instance.bounds_error = aux
    instance.grid, instance.values, instance.fill_value = children
    return instance


register_pytree_node(
    RegularGridInterpolator, lambda x: ((x.grid, x.values, x.fill_value), (x.method, x.bounds_error)), _rebuild
)

__dir__ = _listing(__name__)
