"""`shardwise.scipy.fft`: cosine transforms of type 2, and their inverses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import to_complex
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, canonical_axes, canonical_axis

__all__ = ["dct", "dctn", "idct", "idctn"]


def _check(type: int, norm: str | None) -> None:
    if type != 2:
        raise NotImplementedError("Only DCT type 2 is implemented; scipy.fft has the others, through pure_callback.")
    if norm is not None and norm not in ("backward", "ortho"):
        raise ValueError(f"jax.scipy.fft.dct: {norm=!r} is not implemented; use None, 'backward' or 'ortho'.")


def _resize_axis(x: Array, n: int | None, axis: int) -> Array:
    if n is None or n == x.shape[axis]:
        return x
    if n < x.shape[axis]:
        return x[tuple(slice(0, n) if d == axis else slice(None) for d in range(x.ndim))]
    return jnp.pad(x, [(0, n - x.shape[axis]) if d == axis else (0, 0) for d in range(x.ndim)])


def _along(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    return values.reshape([-1 if d == axis else 1 for d in range(ndim)])


def _ortho(n: int, dtype: Any) -> np.ndarray:
    """The factors that turn plain coefficients into those of an orthogonal transform."""
    scale = np.full(n, math.sqrt(1 / (2 * n)))
    scale[0] = math.sqrt(1 / (4 * n))
    return scale.astype(dtype)


def dct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete cosine transform of `x`, of `type` 2 along `axis`, of `n` entries (cut or padded with zeros).

    Real and imaginary parts of complex numbers are transformed each by itself.

    Args:
        norm: None, or 'ortho' for an orthogonal transform.

    Raises:
        NotImplementedError: `type` is other than 2. ValueError: `norm` is another word.

    >>> jax.scipy.fft.dct(jnp.array([1.0, 2.0, 3.0])).round(3)
    Array([12.   , -3.464,  0.   ], dtype=float32)
    """
    return _by_parts(_dct, _transformable("dct", x), type, n, axis, norm)


def _dct(x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    x = _resize_axis(x, n, axis)
    size = x.shape[axis]
    even = x[tuple(slice(None, None, 2) if d == axis else slice(None) for d in range(x.ndim))]
    odd = x[tuple(slice(1, None, 2) if d == axis else slice(None) for d in range(x.ndim))]
    spectrum = jnp.fft.fft(jnp.concatenate([even, jnp.flip(odd, axis)], axis), axis=axis)
    angle = np.exp(-0.5j * np.pi * np.arange(size) / size)
    out = 2 * jnp.real(spectrum * _along(angle, axis, x.ndim).astype(spectrum.dtype))
    return out * _along(_ortho(size, x.dtype), axis, x.ndim) if norm == "ortho" else out


def idct(x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `dct`, of `x`, with the same arguments: `type`, `n`, `axis`, `norm`.

    >>> jax.scipy.fft.idct(jax.scipy.fft.dct(jnp.array([1.0, 2.0, 3.0]))).round(3)
    Array([1., 2., 3.], dtype=float32)
    """
    return _by_parts(_idct, _transformable("idct", x), type, n, axis, norm)


def _idct(x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    x = _resize_axis(x, n, axis)
    size = x.shape[axis]
    plain = x / _along(_ortho(size, x.dtype), axis, x.ndim) if norm == "ortho" else x
    angle = np.exp(0.5j * np.pi * np.arange(size) / size)
    mirror = jnp.flip(plain, axis)
    shifted_values = jnp.concatenate([jnp.zeros_like(_first(plain, axis)), mirror[_cut(axis, x.ndim, size - 1)]], axis)
    wide = to_complex(x.dtype)
    spectrum = (
        lax.complex(*(v.astype(np.finfo(wide).dtype) for v in (plain, -shifted_values)))
        * _along(angle, axis, x.ndim).astype(wide)
        / 2
    )
    values = jnp.real(jnp.fft.ifft(spectrum, axis=axis))
    half = (size + 1) // 2
    even, odd = values[_cut(axis, x.ndim, half)], jnp.flip(values, axis)[_cut(axis, x.ndim, size - half)]
    woven_values = jnp.zeros_like(values)
    woven_values = woven_values.at[
        tuple(slice(None, None, 2) if d == axis else slice(None) for d in range(x.ndim))
    ].set(even)
    woven_values = woven_values.at[tuple(slice(1, None, 2) if d == axis else slice(None) for d in range(x.ndim))].set(
        odd
    )
    return woven_values.astype(x.dtype)


def _cut(axis: int, ndim: int, size: int) -> tuple[slice, ...]:
    return tuple(slice(0, size) if d == axis else slice(None) for d in range(ndim))


def _first(x: Array, axis: int) -> Array:
    return x[_cut(axis, x.ndim, 1)]


def _transformable(name: str, x: Any) -> Array:
    x = array(name, x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.result_type(float))


def _by_parts(one: Any, x: Array, type: int, n: int | None, axis: int, norm: str | None) -> Array:
    """The linear transform of the real part, and of the imaginary part if there is one."""
    _check(type, norm)
    axis = canonical_axis(axis, x.ndim)
    if not jnp.issubdtype(x.dtype, jnp.complexfloating):
        return one(x, n, axis, norm)
    return lax.complex(one(lax.real(x), n, axis, norm), one(lax.imag(x), n, axis, norm))


def _several(
    one: Any, x: Any, type: int, s: Sequence[int] | None, axes: Sequence[int] | None, norm: str | None
) -> Array:
    name = f"{one.__name__}n"
    x = _transformable(name, x)
    if axes is None:
        if s is not None and len(s) > x.ndim:
            raise ValueError(f"{name}: s has {len(s)} sizes, but x has {x.ndim} dims.")
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = canonical_axes(axes, x.ndim)
    if s is not None and len(s) != len(axes):
        raise ValueError(f"{name}: s and axes must have the same length, got {tuple(s)} and {tuple(axes)}.")
    sizes: Sequence[int | None] = [None] * len(axes) if s is None else list(s)
    for axis, n in zip(axes, sizes, strict=True):
        x = one(x, type=type, n=n, axis=axis, norm=norm)
    return x


def dctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """`dct` of `x` along several `axes`, all by default, of `s` entries. `type` and `norm` as there.

    >>> jax.scipy.fft.dctn(jnp.ones((2, 2))).round(3)
    Array([[16.,  0.],
           [ 0.,  0.]], dtype=float32)
    """
    return _several(dct, x, type, s, axes, norm)


def idctn(
    x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The inverse of `dctn`, of `x` with the same arguments: `type`, `s`, `axes`, `norm`.

    >>> jax.scipy.fft.idctn(jax.scipy.fft.dctn(jnp.ones((2, 2)))).round(3)
    Array([[1., 1.],
           [1., 1.]], dtype=float32)
    """
    return _several(idct, x, type, s, axes, norm)


__dir__ = _listing(__name__)
