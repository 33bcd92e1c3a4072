"""`shardwise.numpy.fft`: discrete Fourier transforms along any axes, with NumPy's names and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from operator import index
from typing import Any

import numpy as np

from shardwise.base.dtypes import check_requested, default_dtype, to_floating
from shardwise.base.listing import listing as _listing
from shardwise.engine.device_put import device_put
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, canonical_axes, canonical_axis, check_numbers, convert
from shardwise.numpy.creation import asarray
from shardwise.ops.linalg.fft import FftType
from shardwise.ops.linalg.fft import fft as _transformed
from shardwise.ops.rules.convert import as_array
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
           "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn"]  # fmt: skip

Shape = Sequence[int]
_transform = shown_call("fft_type fft_lengths", name="fft")(_transformed)


# -- along any axes --------------------------------------------------------------------------------------------


def _along(name: str, kind: FftType, a: Any, s: Shape | None, axes: Sequence[int] | None, norm: str | None) -> Array:
    """Bring the axes to the end, cut or pad them to `s`, transform, scale, and bring them back."""
    x = array(f"jax.numpy.fft.{name}", a)
    if s is not None:
        s = tuple(index(n) for n in s)
        if any(n < 1 for n in s):
            raise ValueError(f"jax.numpy.fft.{name}: Shape should be positive, got s={s}.")
        if axes is not None and len(s) != len(axes):
            raise ValueError(f"jax.numpy.fft.{name}: Shape and axes have different lengths: s={s}, axes={tuple(axes)}.")
    if axes is None:
        dims = tuple(range(x.ndim - (x.ndim if s is None else len(s)), x.ndim))
    else:
        dims = tuple(canonical_axis(d, x.ndim) for d in axes)
    if len(set(dims)) != len(dims):
        raise ValueError(f"jax.numpy.fft.{name} does not support repeated axes. Got axes {axes}.")
    check_numbers(f"jax.numpy.fft.{name}", x.dtype)
    order = (*(d for d in range(x.ndim) if d not in dims), *dims)
    is_moved = order != tuple(range(x.ndim))
    if is_moved:
        x = lax.transpose(x, order)
    rest = x.ndim - len(dims)
    half = kind is FftType.IRFFT and bool(dims)
    if s is None:
        s = x.shape[rest:]
        if half:
            s = (*s[:-1], max(0, 2 * (s[-1] - 1)))
    else:
        x = _fit_shape(x, (*x.shape[:rest], *s[:-1], s[-1] // 2 + 1 if half else s[-1]) if s else x.shape)
    x = _transform(x, kind, tuple(s))
    scale = _scale(name, name.startswith("i"), norm, prod(s))
    if scale != 1:
        x = lax.mul(x, literal(scale, x.dtype))
    return lax.transpose(x, tuple(np.argsort(order).tolist())) if is_moved else x


def _fit_shape(x: Array, shape: tuple[int, ...]) -> Array:
    """`x` cut, or padded with zeros at the ends, to `shape`."""
    kept_shape = tuple(min(n, m) for n, m in zip(x.shape, shape, strict=True))
    if kept_shape != x.shape:
        x = lax.slice(x, (0,) * x.ndim, kept_shape)
    if kept_shape != shape:
        x = lax.pad(x, literal(0, x.dtype), [(0, m - n, 0) for n, m in zip(kept_shape, shape, strict=True)])
    return x


def _scale(name: str, inverse: bool, norm: str | None, points: int) -> float:
    """The factor of a normalisation, beyond the inverse's own 1/n."""
    points = points or 1  # of nothing
    if norm is None or norm == "backward":
        return 1.0
    if norm == "ortho":
        return sqrt(points) if inverse else 1 / sqrt(points)
    if norm == "forward":
        return float(points) if inverse else 1 / points
    raise ValueError(f'jax.numpy.fft.{name}: Invalid norm value {norm}; should be "backward", "ortho" or "forward".')


def fftn(a: Any, s: Shape | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The transform of `a` over `axes` (default: the last ``len(s)``, or all), cut or padded to `s`.

    Args:
        norm: who divides by the number of points: 'backward' (the inverse, default), 'forward', or both by its root,
            'ortho'.

    Raises:
        ValueError: an axis occurs twice, `s` and `axes` differ in length, or a size is below 1.

    >>> jnp.fft.fftn(jnp.ones((2, 2)))
    Array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _along("fftn", FftType.FFT, a, s, axes, norm)


def ifftn(a: Any, s: Shape | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The inverse of `fftn`: `a` transformed back over `axes` (default: all), cut or padded to `s`. `norm` as for
    `fftn`.

    >>> jnp.fft.ifftn(jnp.ones((2, 2)))
    Array([[1.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _along("ifftn", FftType.IFFT, a, s, axes, norm)


def rfftn(a: Any, s: Shape | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The transform of the reals `a` over `axes` (default: all), cut or padded to `s`: the last axis keeps ``n // 2
    + 1`` points. ValueError for complex operands. `norm` as for `fftn`.

    >>> jnp.fft.rfftn(jnp.ones((2, 2)))
    Array([[4.+0.j, 0.+0.j],
           [0.+0.j, 0.+0.j]], dtype=complex64)
    """
    return _along("rfftn", FftType.RFFT, a, s, axes, norm)


def irfftn(a: Any, s: Shape | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The inverse of `rfftn` over `axes` (default: all) of `a`; the last axis gets ``2 * (n - 1)`` points unless `s`
    says otherwise. `norm` as for `fftn`.

    >>> jnp.fft.irfftn(jnp.fft.rfftn(jnp.eye(2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return _along("irfftn", FftType.IRFFT, a, s, axes, norm)


# -- along one axis --------------------------------------------------------------------------------------------


def _along_one(name: str, kind: FftType, a: Any, n: int | None, axis: int | None, norm: str | None) -> Array:
    if isinstance(axis, list | tuple):
        raise ValueError(
            f"jax.numpy.fft.{name} does not support multiple axes. Please use jax.numpy.fft.{name}n. Got axis = {axis!r}."
        )
    return _along(name, kind, a, None if n is None else (n,), None if axis is None else (axis,), norm)


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform of `a` along one axis, cut or padded to `n` points: f32[m] -> c64[n]. `norm` as for `fftn`.

    Raises:
        ValueError: `axis` is a sequence or out of range, `n` is below 1, or `norm` is another word.

    >>> jnp.fft.fft(jnp.array([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along_one("fft", FftType.FFT, a, n, axis, norm)


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft`: `a` transformed back along `axis`, cut or padded to `n` points. `norm` as for `fftn`.

    >>> jnp.fft.ifft(jnp.array([4.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along_one("ifft", FftType.IFFT, a, n, axis, norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform of the reals `a` along `axis`: f32[m] -> c64[n // 2 + 1]. ValueError for complex operands.
    `norm` as for `fftn`.

    >>> jnp.fft.rfft(jnp.array([1.0, 1.0, 1.0, 1.0]))
    Array([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    return _along_one("rfft", FftType.RFFT, a, n, axis, norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `rfft` along `axis` for the half spectrum `a`: c64[m] -> f32[n], by default 2 * (m - 1) points.
    `norm` as for `fftn`.

    >>> jnp.fft.irfft(jnp.fft.rfft(jnp.array([1.0, 2.0, 3.0, 4.0])))
    Array([1., 2., 3., 4.], dtype=float32)
    """
    return _along_one("irfft", FftType.IRFFT, a, n, axis, norm)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform along `axis` of values with Hermitian symmetry, given in `a` as their first half: c64[m] ->
    f32[n], default 2 * (m - 1). `norm` as for `fftn`.

    Raises:
        ValueError: `axis` is a sequence, or `n` is below 1.

    >>> jnp.fft.hfft(jnp.array([1.0, 1.0, 1.0]))
    Array([4., 0., 0., 0.], dtype=float32)
    """
    x = array("jnp.fft.hfft", a)
    if isinstance(axis, list | tuple):
        raise ValueError(f"jax.numpy.fft.hfft does not support multiple axes.. Got axis = {axis!r}.")
    points = (x.shape[canonical_axis(axis, x.ndim)] - 1) * 2 if n is None else n
    out = _along_one("hfft", FftType.IRFFT, _conjugate(x), n, axis, norm)
    return lax.mul(out, literal(points, out.dtype))


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `hfft` along `axis` for the reals `a`: f32[m] -> c64[n // 2 + 1]. `norm` as for `fftn`.

    Raises:
        ValueError: `axis` is a sequence, `n` is below 1, or `a` is complex.

    >>> jnp.fft.ihfft(jnp.array([1.0, 0.0, 0.0, 0.0]))
    Array([0.25+0.j, 0.25+0.j, 0.25+0.j], dtype=complex64)
    """
    x = asarray(a)
    if isinstance(axis, list | tuple):
        raise ValueError(f"jax.numpy.fft.ihfft does not support multiple axes.. Got axis = {axis!r}.")
    points = x.shape[canonical_axis(axis, x.ndim)] if n is None else n
    out = _conjugate(_along_one("ihfft", FftType.RFFT, x, n, axis, norm))
    return lax.mul(out, literal(1 / points, out.dtype))


def _conjugate(x: Array) -> Array:
    return lax.conj(x) if x.dtype.kind == "c" else x


# -- along two axes --------------------------------------------------------------------------------------------


def _along_two(name: str, kind: FftType, a: Any, s: Shape | None, axes: Sequence[int], norm: str | None) -> Array:
    if len(axes) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes!r}.")
    return _along(name, kind, a, s, axes, norm)


def fft2(a: Any, s: Shape | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The transform of `a` over two `axes`, cut or padded to `s`. `norm` as for `fftn`.

    >>> jnp.fft.fft2(jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _along_two("fft2", FftType.FFT, a, s, axes, norm)


def ifft2(a: Any, s: Shape | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The inverse of `fft2`: `a` transformed back over two `axes`, cut or padded to `s`. `norm` as for `fftn`.

    >>> jnp.fft.ifft2(jnp.fft.fft2(jnp.eye(2)))
    Array([[1.+0.j, 0.+0.j],
           [0.+0.j, 1.+0.j]], dtype=complex64)
    """
    return _along_two("ifft2", FftType.IFFT, a, s, axes, norm)


def rfft2(a: Any, s: Shape | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The transform of the reals `a` over two `axes`, cut or padded to `s`, of which the last keeps ``n // 2 + 1``
    points. `norm` as for `fftn`.

    >>> jnp.fft.rfft2(jnp.eye(2))
    Array([[2.+0.j, 0.+0.j],
           [0.+0.j, 2.+0.j]], dtype=complex64)
    """
    return _along_two("rfft2", FftType.RFFT, a, s, axes, norm)


def irfft2(a: Any, s: Shape | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """The inverse of `rfft2`: `a` transformed back to reals over two `axes`, of which `s` gives the sizes. `norm` as
    for `fftn`.

    >>> jnp.fft.irfft2(jnp.fft.rfft2(jnp.eye(2)))
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return _along_two("irfft2", FftType.IRFFT, a, s, axes, norm)


# -- frequencies and shifts ------------------------------------------------------------------------------------


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of `fft`'s points for samples `d` apart: 0, 1, ..., -2, -1 divided by ``d * n``.

    Args:
        device: where the result lives: a Device or Sharding.

    >>> jnp.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    _check_freq("fftfreq", n, d)
    steps = np.arange(n)
    return _frequencies("fftfreq", (steps + n // 2) % n - n // 2, n, d, dtype, device)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of `rfft`'s points for samples `d` apart: 0, 1, ..., n // 2 divided by ``d * n``. `device` as
    for `fftfreq`.

    >>> jnp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    _check_freq("rfftfreq", n, d)
    return _frequencies("rfftfreq", np.arange(n // 2 + 1), n, d, dtype, device)


def _check_freq(name: str, n: Any, d: Any) -> None:
    if isinstance(n, list | tuple):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = {list(n)}.")
    if isinstance(d, list | tuple):
        raise ValueError(f"The d argument of jax.numpy.fft.{name} only takes a single value. Got d = {list(d)}.")


def _frequencies(name: str, steps: np.ndarray[Any, Any], n: int, d: Any, dtype: Any, device: Any) -> Array:
    result_dtype = default_dtype("f") if dtype is None else check_requested(dtype, f"jax.numpy.fft.{name}")
    real = to_floating(result_dtype)
    k = as_array(steps.astype(real))  # type: ignore[arg-type]
    span = lax.mul(convert(d, real), literal(n, real)) if isinstance(d, Array) else literal(d * n, real)
    out = lax.div(k, span)
    out = as_array(convert(out, result_dtype))
    if device is None:
        return out

    return device_put(out, device)


def fftshift(x: Any, axes: int | Sequence[int] | None = None) -> Array:
    """Bring frequency 0 to the middle of `x` along `axes` (default: all).

    >>> jnp.fft.fftshift(jnp.arange(4))
    Array([2, 3, 0, 1], dtype=int32)
    """
    return _roll_axes("fftshift", x, axes, forward=True)


def ifftshift(x: Any, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`: bring the middle of `x` along `axes` (default: all) to the front.

    >>> jnp.fft.ifftshift(jnp.fft.fftshift(jnp.arange(4)))
    Array([0, 1, 2, 3], dtype=int32)
    """
    return _roll_axes("ifftshift", x, axes, forward=False)


def _roll_axes(name: str, x: Any, axes: Any, forward: bool) -> Array:
    value = array(name, x)
    for d in canonical_axes(axes, value.ndim):
        n = value.shape[d]
        cut = n - n // 2 if forward else n // 2
        if 0 < cut < n:
            parts = [lax.slice_in_dim(value, cut, n, axis=d), lax.slice_in_dim(value, 0, cut, axis=d)]
            value = lax.concatenate(parts, d)
    return value


__dir__ = _listing(__name__)
