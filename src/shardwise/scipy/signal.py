"""`shardwise.scipy.signal`: convolutions and correlations of arrays of any rank, `detrend`, and spectra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import issubdtype
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, as_array, promote_inexact
from shardwise.scipy.spectral import csd, istft, stft, welch
from shardwise.scipy.trends import detrend

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]


def _pair(name: str, a: Any, b: Any) -> tuple[Array, Array]:
    x, y = jnp.asarray(a), jnp.asarray(b)
    if x.ndim != y.ndim:
        raise ValueError(f"{name}: in1 and in2 must have the same number of dimensions, got {x.ndim} and {y.ndim}")
    x, y = promote_inexact(x, y)
    return as_array(x), as_array(y)


def _no_swap(name: str, mode: str, x: Array, y: Array) -> tuple[Array, Array, bool]:
    """With 'valid' the larger array comes first; ValueError if neither is."""
    if mode != "valid":
        return x, y, False
    if all(m <= n for m, n in zip(y.shape, x.shape, strict=True)):
        return x, y, False
    if all(n <= m for m, n in zip(y.shape, x.shape, strict=True)):
        return y, x, True
    raise ValueError(f"{name}: one input must be smaller than the other in every dimension.")


def _slide_kernel(x: Array, kernel: Array, mode: str, precision: Any) -> Array:
    """Sums of products at every overlap of `mode`; the kernel is not reversed. ValueError for empty arrays."""
    if not x.size or not kernel.size:
        raise ValueError(
            f"convolutions and correlations take arrays that are not empty, got shapes {x.shape} and {kernel.shape}."
        )
    if mode == "full":
        padding = [(n - 1, n - 1) for n in kernel.shape]
    elif mode == "same":
        padding = [(n // 2, n - n // 2 - 1) for n in kernel.shape]
    elif mode == "valid":
        padding = [(0, 0)] * kernel.ndim
    else:
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    out = lax.conv_general_dilated(x[None, None], kernel[None, None], (1,) * x.ndim, padding, precision=precision)
    return out[0, 0]


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The convolution of `in1` and `in2`, arrays of one rank, with sizes by `mode`. 'full' has every overlap, 'valid'
    only whole ones, 'same' the size of `in1`.

    `method` 'fft' uses `fftconvolve`, 'direct' and 'auto' sum products. ValueError for other ranks or modes.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.

    >>> from shardwise.scipy import signal
    >>> signal.convolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0])).round(3)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"Got {method=}; expected 'auto', 'fft', or 'direct'.")
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    x, y = _pair("convolve", in1, in2)
    x, y, _ = _no_swap("convolve", mode, x, y)
    return _slide_kernel(x, jnp.flip(y), mode, precision)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The correlation of `in1` and `in2`, arrays of one rank; `mode`, `method` and `precision` as for `convolve`.

    >>> from shardwise.scipy import signal
    >>> signal.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0])).round(3)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    x, y = _pair("correlate", in1, in2)
    return convolve(x, jnp.flip(jnp.conj(y)), mode, method, precision)


def _plane(name: str, in1: Any, in2: Any, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"{name} only supports boundary='fill', fillvalue=0; pad the input with numpy.pad.")
    if jnp.ndim(in1) != 2 or jnp.ndim(in2) != 2:
        raise ValueError(f"{name} only supports 2-dimensional inputs.")


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Array:
    """`convolve` of the matrices `in1` and `in2`; `mode` and `precision` as there. NotImplementedError unless
    `boundary` is 'fill' and `fillvalue` 0: pad before the call.

    >>> from shardwise.scipy import signal
    >>> signal.convolve2d(jnp.ones((2, 2)), jnp.ones((1, 2))).round(3)
    Array([[1., 2., 1.],
           [1., 2., 1.]], dtype=float32)
    """
    _plane("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, "direct", precision)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0, precision: Any = None
) -> Array:
    """`correlate` of the matrices `in1` and `in2`, by `mode`; with 'same' the middle of the full one, the later entry
    where there are two.

    `boundary`, `fillvalue` and `precision` as for `convolve2d`.

    >>> from shardwise.scipy import signal
    >>> signal.correlate2d(jnp.ones((2, 2)), jnp.ones((1, 2))).round(3)
    Array([[1., 2., 1.],
           [1., 2., 1.]], dtype=float32)
    """
    _plane("correlate2d", in1, in2, boundary, fillvalue)
    if mode != "same":
        return correlate(in1, in2, mode, "direct", precision)
    x, y = _pair("correlate2d", in1, in2)
    padding = [((n - 1) // 2, n // 2) for n in y.shape]
    return lax.conv_general_dilated(x[None, None], jnp.conj(y)[None, None], (1, 1), padding, precision=precision)[0, 0]


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Sequence[int] | int | None = None) -> Array:
    """`convolve` of `in1` and `in2` by way of Fourier transforms, along `axes` (default: all), with sizes by `mode`;
    in the others sizes are equal or 1.

    Raises:
        ValueError: `mode` is another word, or sizes do not fit.

    >>> from shardwise.scipy import signal
    >>> signal.fftconvolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0])).round(3)
    Array([1., 3., 5., 3.], dtype=float32)
    """
    x, y = _pair("fftconvolve", array("fftconvolve", in1), array("fftconvolve", in2, 1))
    if mode not in ("full", "same", "valid"):
        raise ValueError("mode must be one of ['full', 'same', 'valid']")
    if not x.ndim:
        return lax.mul(x, y)
    chosen = list(range(x.ndim)) if axes is None else [a % x.ndim for a in ([axes] if isinstance(axes, int) else axes)]
    x, y, _ = _no_swap("fftconvolve", mode, x, y)
    sizes = [x.shape[a] + y.shape[a] - 1 for a in chosen]
    if issubdtype(x.dtype, np.complexfloating):
        full = jnp.fft.ifftn(jnp.fft.fftn(x, sizes, chosen) * jnp.fft.fftn(y, sizes, chosen), sizes, chosen)
    else:
        full = jnp.fft.irfftn(jnp.fft.rfftn(x, sizes, chosen) * jnp.fft.rfftn(y, sizes, chosen), sizes, chosen)
    if mode == "full":
        return full
    wanted_shape = [x.shape[a] if mode == "same" else x.shape[a] - y.shape[a] + 1 for a in range(x.ndim)]
    cut = [slice(None)] * x.ndim
    for a in chosen:
        start = (full.shape[a] - wanted_shape[a]) // 2
        cut[a] = slice(start, start + wanted_shape[a])
    return full[tuple(cut)]


__dir__ = _listing(__name__)
