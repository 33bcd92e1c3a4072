"""`shardwise.image`: arrays resampled along some dims, named as in jax.image."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import finfo, issubdtype
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.ops.rules.dims import shape_tuple

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """How samples between entries are made of them."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method of a name, 'bilinear' and 'bicubic' among them; ValueError for another."""
        if s not in _NAMES:
            raise ValueError(f'Unknown resize method "{s}"; the methods are {", ".join(sorted(_NAMES))}.')
        return _NAMES[s]


_NAMES = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
}


def _triangle(x: Any) -> Any:
    return jnp.maximum(0, 1 - jnp.abs(x))


def _cubic(a: float, x: Any) -> Any:
    """Keys's kernel with slope `a` at 1, for x >= 0."""
    near = (((a + 2.0) * x - (a + 3.0)) * x) * x + 1.0
    far = ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    return jnp.where(x >= 2, 0.0, jnp.where(x >= 1, far, near))


def _lanczos(radius: float, x: Any) -> Any:
    y = radius * jnp.sin(np.pi * x) * jnp.sin(np.pi * x / radius)
    small = x <= 1e-3
    inside = jnp.where(small, 1.0, y / jnp.where(small, 1.0, np.pi**2 * x**2))
    return jnp.where(x > radius, 0.0, inside)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The weight of an entry by its distance, in entries; None: by how much of the entry the sample covers.

    `beyond` entries before the first and after the last are copies of these.
    """

    weight: Callable[[Any], Any] | None
    beyond: int = 0


_KERNELS = {
    ResizeMethod.LINEAR: _Kernel(_triangle),
    ResizeMethod.CUBIC: _Kernel(functools.partial(_cubic, -0.5)),
    ResizeMethod.CUBIC_PYTORCH: _Kernel(functools.partial(_cubic, -0.75), beyond=2),
    ResizeMethod.LANCZOS3: _Kernel(functools.partial(_lanczos, 3.0)),
    ResizeMethod.LANCZOS5: _Kernel(functools.partial(_lanczos, 5.0)),
    ResizeMethod.AREA: _Kernel(None),
}


def _kernel(kind: ResizeMethod, antialias: bool) -> _Kernel:
    """The kernel of a method. That of PyTorch differs from the usual cubic one only without antialiasing."""
    return _KERNELS[ResizeMethod.CUBIC if antialias and kind is ResizeMethod.CUBIC_PYTORCH else kind]


def _weights(old: int, new: int, scale: Any, shift: Any, kernel: _Kernel, antialias: bool, dtype: Any) -> Any:
    """The weights of `old` entries in `new` samples: an (old, new) matrix.

    Samples outside are 0, except with a kernel for which the ends go on.
    """
    scale, shift = (jnp.asarray(v, dtype) for v in (scale, shift))
    inverse = 1.0 / scale
    width = jnp.maximum(inverse, 1.0) if antialias else 1.0
    centers = (jnp.arange(new, dtype=dtype) + 0.5) * inverse - shift * inverse - 0.5
    entries = jnp.arange(-kernel.beyond, old + kernel.beyond, dtype=dtype)[:, None]
    if kernel.weight is None:
        left = jnp.arange(new, dtype=dtype) * inverse - shift * inverse
        weights = jnp.maximum(0.0, jnp.minimum(left + inverse, entries + 1.0) - jnp.maximum(left, entries))
    else:
        weights = kernel.weight(jnp.abs(centers[None, :] - entries) / width)
    if kernel.beyond:
        first, last = weights[: kernel.beyond].sum(0), weights[old + kernel.beyond :].sum(0)
        weights = weights[kernel.beyond : old + kernel.beyond].at[0].add(first).at[-1].add(last)
    total = jnp.sum(weights, axis=0, keepdims=True)
    weights = jnp.where(
        jnp.abs(total) > 1000 * float(finfo(np.float32).eps), weights / jnp.where(total != 0, total, 1), 0
    )
    if kernel.beyond:
        return weights.astype(dtype)
    inside = (centers >= -0.5) & (centers <= old - 0.5)
    return jnp.where(inside[None, :], weights, 0).astype(dtype)


def _resample(
    x: Array,
    shape: Sequence[int],
    dims: Sequence[int],
    scale: Any,
    translation: Any,
    kernel: _Kernel,
    antialias: bool,
    precision: Any,
) -> Array:
    work = np.dtype(np.float32) if x.dtype.itemsize < 4 else finfo(x.dtype).dtype
    out = x
    # Dims that shrink go first: what follows computes with fewer elements, and sums fewer over devices.
    for i, dim in sorted(enumerate(dims), key=lambda entry: shape[entry[1]] / max(1, x.shape[entry[1]])):
        matrix = _weights(x.shape[dim], shape[dim], scale[i], translation[i], kernel, antialias, work).astype(x.dtype)
        out = jnp.moveaxis(jnp.tensordot(out, matrix, ((dim,), (0,)), precision=precision), -1, dim)
    return out


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: Any,
    antialias: bool = True,
    precision: Any = lax.Precision.HIGHEST,
) -> Array:
    """`image` at the points ``(i + 0.5 - translation) / scale - 0.5`` of `spatial_dims`, as an array of `shape`.

    Args:
        image: any real array; integers become floats.
        shape: of the result; equal to that of `image` in the other dims.
        spatial_dims: the dims to resample.
        scale, translation: one number for each of them, traced or not.
        method: a `ResizeMethod` or its name, but 'nearest'.
        antialias: widen the kernel where the result has fewer entries.
        precision: of the products; on CPUs all give the same result.

    Raises ValueError for a shape of another rank or size, an unknown method, or 'nearest'.

    >>> move = jax.image.scale_and_translate
    >>> move(jnp.array([1.0, 2.0, 3.0]), (3,), (0,), jnp.array([1.0]), jnp.array([1.0]), "linear")
    Array([0., 1., 2.], dtype=float32)
    """
    x = _inexact(image)
    shape = shape_tuple(shape, "scale_and_translate")
    if len(shape) != x.ndim:
        raise ValueError(f"shape must have length equal to the number of dimensions of x; {shape} vs {x.shape}")
    kind = _kind(method)
    if kind == ResizeMethod.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for scale_and_translate; use resize.")
    dims = [d % x.ndim for d in spatial_dims]
    others = [d for d in range(x.ndim) if d not in dims and shape[d] != x.shape[d]]
    if others:
        raise ValueError(
            f"scale_and_translate: dims {others} are not in spatial_dims, but change from {x.shape} to {shape}."
        )
    scale, translation = jnp.asarray(scale), jnp.asarray(translation)
    if scale.shape != (len(dims),) or translation.shape != (len(dims),):
        raise ValueError(
            f"scale and translation need one number for each of {len(dims)} spatial_dims, got shapes {scale.shape} and "
            f"{translation.shape}."
        )
    return _resample(x, shape, dims, scale, translation, _kernel(kind, antialias), antialias, precision)


def _kind(method: Any) -> ResizeMethod:
    """The method of that name. ValueError for values that are neither a name nor a method."""
    kind = ResizeMethod.from_string(method) if isinstance(method, str) else method
    if not isinstance(kind, ResizeMethod):
        raise ValueError(f"the method is the name of one or a ResizeMethod, got {method!r}.")
    return kind


def resize(
    image: Any, shape: Sequence[int], method: Any, antialias: bool = True, precision: Any = lax.Precision.HIGHEST
) -> Array:
    """`image` with as many entries along each dim as `shape` has.

    Args:
        image: any real array; integers become floats, except with 'nearest'.
        shape: of the same rank.
        method: 'nearest', 'linear', 'cubic', 'cubic-pytorch', 'lanczos3', 'lanczos5', 'area', their other names, or a
            `ResizeMethod`.
        antialias: widen the kernel along dims that shrink; not with 'nearest'.
        precision: of the products; on CPUs all give the same result.

    Raises ValueError for a shape of another rank or an unknown method.

    >>> jax.image.resize(jnp.array([[1.0, 3.0]]), (1, 4), 'linear')
    Array([[1. , 1.5, 2.5, 3. ]], dtype=float32)
    """
    kind = _kind(method)
    shape = shape_tuple(shape, "resize")
    x = jnp.asarray(image)
    if len(shape) != x.ndim:
        raise ValueError(f"shape must have length equal to the number of dimensions of x; {shape} vs {x.shape}")
    if kind == ResizeMethod.NEAREST:
        return _nearest(x, shape)
    x = _inexact(x)
    dims = [d for d in range(x.ndim) if shape[d] != x.shape[d]]
    scale = [1.0 if shape[d] == 0 else shape[d] / x.shape[d] for d in dims]
    return _resample(x, shape, dims, scale, [0.0] * len(dims), _kernel(kind, antialias), antialias, precision)


def _nearest(x: Array, shape: Sequence[int]) -> Array:
    for dim, (old, new) in enumerate(zip(x.shape, shape, strict=True)):
        if old != new:
            rows = np.floor((np.arange(new, dtype=np.float32) + 0.5) * np.float32(old) / np.float32(new)).astype(
                np.int32
            )
            x = jnp.take(x, rows, axis=dim, mode="clip")
    return x


def _inexact(x: Any) -> Array:
    x = jnp.asarray(x)
    return x if issubdtype(x.dtype, np.inexact) else x.astype(jnp.result_type(float))


__dir__ = _listing(__name__)
