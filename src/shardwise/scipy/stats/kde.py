"""A density estimated from samples: a normal distribution around each of them."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise import random
from shardwise.base.dtypes import issubdtype
from shardwise.base.treeclass import register_pytree_node_class
from shardwise.ir import Array
from shardwise.numpy._promote import promote_inexact
from shardwise.scipy import linalg
from shardwise.scipy.special import logsumexp, ndtr

__all__ = ["gaussian_kde"]


def _log_normal(offsets: Any, chol: Any) -> Any:
    """The log density of a centred normal distribution at `offsets` [d, ...], by the factor of its covariance."""
    d = offsets.shape[0]
    white_offsets = linalg.solve_triangular(chol, jnp.reshape(offsets, (d, -1)), lower=True)
    square = jnp.reshape(jnp.sum(white_offsets**2, 0), offsets.shape[1:])
    return -0.5 * square - jnp.sum(jnp.log(jnp.diagonal(chol))) - d / 2 * jnp.log(2 * pi).astype(chol.dtype)


@register_pytree_node_class
class gaussian_kde:
    """The density of `dataset` [n] or [d, n], real samples weighted by `weights` [n]; a pytree.

    `bw_method` is "scott", "silverman", a number that the covariance's root is multiplied by, or a function of this object
    that gives one. ValueError for fewer than two samples or weights of another shape, NotImplementedError for complex samples.
    """

    __slots__ = ("covariance", "dataset", "inv_cov", "neff", "weights")

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        data = jnp.atleast_2d(jnp.asarray(dataset))
        if issubdtype(data.dtype, np.complexfloating):
            raise NotImplementedError(
                "gaussian_kde of complex samples; stack their real and imaginary parts as two dimensions."
            )
        if not data.size > 1:
            raise ValueError("`dataset` input should have multiple elements.")
        d, n = data.shape
        if weights is None:
            self.dataset = jnp.asarray(promote_inexact(data)[0])
            self.weights = jnp.full(n, 1.0 / n, self.dataset.dtype)
        else:
            self.dataset, weights = map(jnp.asarray, promote_inexact(data, jnp.asarray(weights)))
            if jnp.ndim(weights) > 1:
                raise ValueError(f"`weights` input should be one-dimensional; got shape {jnp.shape(weights)}.")
            if jnp.size(weights) != n:
                raise ValueError(f"`weights` input should be of length n = {n}; got {jnp.size(weights)}.")
            self.weights = jnp.atleast_1d(weights) / jnp.sum(weights)
        self.neff = 1 / jnp.sum(self.weights**2)
        spread = jnp.atleast_2d(jnp.cov(self.dataset, aweights=self.weights))
        factor = self._factor(bw_method, d)
        self.covariance = spread * factor**2
        self.inv_cov = jnp.linalg.inv(spread) / factor**2

    def _factor(self, method: Any, d: int) -> Any:
        if callable(method):
            return method(self)
        if method is None or (isinstance(method, str) and method == "scott"):
            return self.neff ** (-1.0 / (d + 4))
        if isinstance(method, str) and method == "silverman":
            return (self.neff * (d + 2) / 4.0) ** (-1.0 / (d + 4))
        if isinstance(method, str) or not jnp.isscalar(method):
            raise ValueError(f"`bw_method` should be 'scott', 'silverman', a scalar, or a callable; got {method!r}.")
        return method

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Its arrays."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux: None, children: tuple[Any, ...]) -> gaussian_kde:
        """From its arrays."""
        instance = object.__new__(cls)
        instance.neff, instance.dataset, instance.weights, instance.covariance, instance.inv_cov = children
        return instance

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of samples."""
        return self.dataset.shape[1]

    def _points(self, points: Any) -> Any:
        points = jnp.atleast_2d(jnp.asarray(points))
        if issubdtype(points.dtype, np.complexfloating):
            raise NotImplementedError(
                "gaussian_kde at complex points; stack their real and imaginary parts as two dimensions."
            )
        d, m = points.shape
        if d == 1 and m == self.d:
            return jnp.reshape(points, (self.d, 1))
        if d != self.d:
            raise ValueError(f"points have dimension {d}, dataset has dimension {self.d}")
        return points

    def _logs(self, points: Any) -> Any:
        """The log of each sample's share at each point, [samples, points]."""
        points = self._points(points)
        offsets = points[:, None, :] - self.dataset[:, :, None]
        return _log_normal(offsets, jnp.linalg.cholesky(self.covariance)) + jnp.log(self.weights)[:, None]

    def evaluate(self, points: Any) -> Array:
        """The density at `points` [m] or [d, m]."""
        return jnp.sum(jnp.exp(self._logs(points)), 0)

    __call__ = evaluate

    def pdf(self, x: Any) -> Array:
        """The density at `x` [m] or [d, m]."""
        return self.evaluate(x)

    def logpdf(self, x: Any) -> Array:
        """The log of the density at points [m] or [d, m]."""
        return logsumexp(self._logs(x), 0)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Array:
        """The integral of this density times that of a normal distribution, `mean` [d] and `cov` [d, d]."""
        mean, cov = jnp.atleast_1d(jnp.squeeze(mean)), jnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}")
        logs = _log_normal(self.dataset - mean[:, None], jnp.linalg.cholesky(self.covariance + cov))
        return jnp.sum(jnp.exp(logs) * self.weights)

    def integrate_box_1d(self, low: Any, high: Any) -> Array:
        """The probability between two numbers; ValueError for more dimensions."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        if jnp.ndim(low) != 0 or jnp.ndim(high) != 0:
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        sigma = jnp.sqrt(self.covariance[0, 0])
        above, below = ((bound - self.dataset[0]) / sigma for bound in (low, high))
        return jnp.sum(self.weights * (ndtr(below) - ndtr(above)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of this density times another one of as many dimensions."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality")
        offsets = self.dataset[:, :, None] - other.dataset[:, None, :]
        logs = _log_normal(offsets, jnp.linalg.cholesky(self.covariance + other.covariance))
        return jnp.einsum("i,ij,j->", self.weights, jnp.exp(logs), other.weights)

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Array:
        """Samples drawn from the density, [d, *shape]."""
        which, noise = random.split(key)
        at = random.choice(which, self.n, shape, p=self.weights)
        zero = jnp.zeros(self.d, self.covariance.dtype)
        offset = random.multivariate_normal(noise, zero, self.covariance, shape, self.dataset.dtype)
        return self.dataset[:, at] + offset.T

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Any:
        """Not here: NotImplementedError."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: Any = None) -> Any:
        """Not here: NotImplementedError."""
        raise NotImplementedError("a gaussian_kde keeps its bandwidth; make another one with the other bw_method")
