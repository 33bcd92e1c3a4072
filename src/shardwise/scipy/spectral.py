"""Spectra of signals cut into overlapping windows: `stft` and its inverse, `csd` and `welch`; found in `scipy.signal`.

In: samples along one axis. Out: frequencies, times of the windows, and the windows' Fourier transforms or powers.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import issubdtype, to_complex, to_inexact
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import canonical_axis
from shardwise.scipy import trends

__all__ = ["csd", "istft", "stft", "welch"]

# The padding of the samples `x` by name of `boundary`; widths are those of each side.
_BOUNDARIES: dict[str | None, Callable[[Any, list[tuple[int, int]]], Any]] = {
    "even": lambda x, widths: jnp.pad(x, widths, "reflect"),
    "odd": lambda x, widths: jnp.pad(x, widths, "reflect", reflect_type="odd"),
    "constant": lambda x, widths: jnp.pad(x, widths, "edge"),
    "zeros": lambda x, widths: jnp.pad(x, widths),
    None: lambda x, widths: x,
}


def _window(window: Any, nperseg: int | None, length: int | None, dtype: Any) -> tuple[Any, int]:
    """The window's weights and their number; `length` is that of the signal, where there is one."""
    if isinstance(window, str | tuple):
        n = length if nperseg is None else nperseg
        assert n is not None
        if length is not None and n > length:
            warnings.warn(f"nperseg={n} is greater than input_length={length}, using nperseg={length}", stacklevel=4)
            n = length
        if window == "hann":
            weights = np.sin(np.pi * np.arange(n) / n) ** 2 if n > 1 else np.ones(1)
        else:
            from scipy.signal import get_window

            weights = get_window(window, n)
        return jnp.asarray(weights, dtype), n
    weights = jnp.asarray(window, dtype)
    if weights.ndim != 1:
        raise ValueError(f"window must be 1-D, got shape {weights.shape}.")
    if length is not None and length < weights.size:
        raise ValueError(f"window of {weights.size} is longer than input signal, of {length}.")
    if nperseg is not None and nperseg != weights.size:
        raise ValueError(f"value specified for nperseg, {nperseg}, is different from length of window, {weights.size}.")
    return weights, weights.size


def _frames(x: Any, n: int, step: int) -> Any:
    """[..., samples] -> [..., windows, n]."""
    starts = np.arange(0, x.shape[-1] - n + 1, step)
    return x[..., starts[:, None] + np.arange(n)]


def _overlap_add(frames: Any, step: int) -> Any:
    """The inverse of `_frames`; overlapping parts are added."""
    *batch, count, n = frames.shape
    at = np.arange(count)[:, None] * step + np.arange(n)
    return jnp.zeros((*batch, step * (count - 1) + n), frames.dtype).at[..., at].add(frames)


def _detrend_frames(frames: Any, detrend: Any) -> Any:
    if isinstance(detrend, str):
        return trends.detrend(frames, -1, detrend)
    if callable(detrend):
        return detrend(frames)
    if detrend:
        raise ValueError(f"Unsupported detrend type: {detrend}")
    return frames


def _positive(name: str, n: Any) -> int | None:
    if n is not None and operator.index(n) < 1:
        raise ValueError(f"{name} must be a positive integer")
    return None if n is None else operator.index(n)


def _spectra(
    x: Any,
    y: Any,
    fs: Any,
    window: Any,
    nperseg: Any,
    noverlap: Any,
    nfft: Any,
    detrend: Any,
    return_onesided: bool,
    scaling: str,
    axis: int,
    stft: bool,
    boundary: str | None,
    padded: bool,
) -> tuple[Any, Any, Any]:
    """Frequencies, times, and per window the transforms of x (`stft`) or the powers of x with y, windows last."""
    if boundary not in _BOUNDARIES:
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: {list(_BOUNDARIES)}")
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling}")
    signals = [jnp.asarray(x)] if y is None else [jnp.asarray(x), jnp.asarray(y)]
    dtype = to_inexact(jnp.result_type(*signals))
    if len({s.ndim for s in signals}) > 1:
        raise ValueError(f"two-arguments must have the same rank ({signals[0].ndim} vs {signals[1].ndim}).")
    axis = canonical_axis(axis, signals[0].ndim)
    signals = [jnp.moveaxis(s.astype(dtype), axis, -1) for s in signals]
    result_dtype = to_complex(dtype)
    real_dtype = np.finfo(result_dtype).dtype
    if not all(s.size for s in signals):
        empty = jnp.zeros(signals[0].shape, real_dtype)
        return empty, empty, jnp.moveaxis(empty.astype(result_dtype), -1, axis)
    weights, n = _window(window, _positive("nperseg", nperseg), signals[0].shape[-1], dtype)
    step, size = _step_and_size(n, noverlap, nfft)
    is_onesided = return_onesided and not issubdtype(dtype, np.complexfloating)
    if return_onesided and not is_onesided:
        warnings.warn("Input data is complex, switching to return_onesided=False", stacklevel=3)
    longest = max(s.shape[-1] for s in signals)
    signals = [_extend_signal(s, longest, n, step, boundary, padded) for s in signals]
    total = signals[-1].shape[-1]
    parts = []
    for s in signals:
        frames = _detrend_frames(_frames(s, n, step), detrend)
        frames = frames * jnp.expand_dims(weights, range(frames.ndim - 1))
        parts.append(jnp.fft.rfft(frames, size) if is_onesided else jnp.fft.fft(frames, size))
    scale = 1 / (fs * jnp.sum(weights * weights)) if scaling == "density" else 1 / jnp.sum(weights) ** 2
    if stft:
        result = (parts[0] * jnp.sqrt(scale).astype(parts[0].dtype)).astype(result_dtype)
    else:
        result = _powers(parts, scale, size if is_onesided else None).astype(result_dtype)
        result = jnp.real(result) if y is None else result
    frequencies = (jnp.fft.rfftfreq if is_onesided else jnp.fft.fftfreq)(size, 1 / fs, dtype=real_dtype)
    times = jnp.arange(n / 2, total - n / 2 + 1, step, dtype=real_dtype) / fs
    if boundary is not None:
        times = times - n / 2 / fs
    # [..., windows, frequencies]: frequencies take the place of the samples.
    return frequencies, times, jnp.moveaxis(jnp.swapaxes(result, -1, -2), -2, axis)


def _step_and_size(n: int, noverlap: Any, nfft: Any) -> tuple[int, int]:
    """From one window of `n` samples to the next, and how many points are transformed."""
    overlap = n // 2 if noverlap is None else operator.index(noverlap)
    size = n if nfft is None else operator.index(nfft)
    if size < n:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    if overlap >= n:
        raise ValueError("noverlap must be less than nperseg.")
    return n - overlap, size


def _powers(parts: list[Any], scale: Any, points: int | None) -> Any:
    """The scaled products of one signal's transforms with the last one's. `points`: how many a one-sided transform had."""
    result = jnp.conj(parts[0]) * parts[-1]
    result = result * scale.astype(result.dtype)
    if points is None:
        return result
    # Each frequency stands for its negative one too, but 0 and the highest of an even number have none.
    both = np.full(result.shape[-1], 2.0)
    both[[0] if points % 2 else [0, -1]] = 1
    return result * jnp.asarray(both, result.dtype).reshape((1,) * (result.ndim - 1) + (-1,))


def _extend_signal(signal: Any, length: int, n: int, step: int, boundary: str | None, padded: bool) -> Any:
    """A signal with zeros up to `length` samples, then its boundaries, then, if `padded`, zeros that fill the last window of n."""

    def at(before: int, behind: int) -> list[tuple[int, int]]:
        return [(0, 0)] * (signal.ndim - 1) + [(before, behind)]

    signal = jnp.pad(signal, at(0, length - signal.shape[-1]))
    signal = _BOUNDARIES[boundary](signal, at(n // 2, n // 2))
    return jnp.pad(signal, at(0, -(signal.shape[-1] - n) % step % n)) if padded else signal


def stft(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """The Fourier transforms of overlapping windows of `x` along `axis`: frequencies, times, transforms with times last.

    `window` is a name or the weights themselves, `nperseg` their number, `noverlap` the overlap of neighbours (half of it by
    default), `nfft` the transforms' length. `boundary` says how the ends are continued ('even', 'odd', 'constant', 'zeros' or
    None), `padded` whether zeros fill the last window. ValueError for sizes that do not fit.

    Args:
        fs: samples per unit of time.
        detrend: how each window is detrended: a `type` of `detrend`, a function, or False.
        return_onesided: half of the frequencies for real `x`.

    >>> from shardwise.scipy import signal
    >>> signal.stft(jnp.ones(64), nperseg=16)[2].shape
    (9, 9)
    """
    return _spectra(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, "spectrum", axis, True, boundary, padded
    )


def csd(
    x: Any,
    y: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The frequencies that `x` and `y` share: frequencies, and the average ('mean' or 'median') of the windows'
    powers.

    `scaling` is 'density' (per unit of frequency) or 'spectrum'; `fs`, `window`, `nperseg`, `noverlap`, `nfft`,
    `detrend`, `return_onesided` and `axis` as for `stft`. With None for `y` the powers of x.

    Raises:
        ValueError: `average` is another word, or sizes do not fit.

    >>> from shardwise.scipy import signal
    >>> signal.csd(jnp.ones(64), jnp.ones(64), nperseg=16)[1].shape
    (9,)
    """
    frequencies, _, power = _spectra(
        x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, False, None, False
    )
    if y is not None:
        power = power + 0j
    if power.ndim < 2 or not power.size:
        return frequencies, power
    count = power.shape[-1]
    if average not in ("mean", "median"):
        raise ValueError(f'average must be "median" or "mean", got {average}')
    if count == 1:
        return frequencies, power[..., 0]
    if average == "mean":
        return frequencies, jnp.mean(power, -1)
    middle = jnp.median(jnp.real(power), -1)
    if issubdtype(power.dtype, np.complexfloating):
        middle = middle + 1j * jnp.median(jnp.imag(power), -1)
    even = 2 * np.arange(1, (count - 1) // 2 + 1)
    bias = 1 + np.sum(1 / (even + 1) - 1 / even)  # of the median of exponentially distributed values, beside their mean
    return frequencies, middle / jnp.asarray(bias, middle.dtype)


def welch(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The power of `x` at each frequency, averaged over windows; `fs`, `window`, `nperseg`, `noverlap`, `nfft`,
    `detrend`, `return_onesided`, `scaling`, `axis` and `average` as for `csd`.

    >>> from shardwise.scipy import signal
    >>> signal.welch(jnp.ones(64), nperseg=16)[0].shape
    (9,)
    """
    frequencies, power = csd(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )
    return frequencies, jnp.real(power)


def istft(
    Zxx: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """The signal whose `stft` is nearest to `Zxx`: times and samples. `boundary`: the ends were continued, and are
    cut off.

    ValueError for fewer than two dims, equal axes, and sizes that do not fit. `fs`, `window`, `nperseg`, `noverlap`
    and `nfft` as for `stft`.

    Args:
        input_onesided: `Zxx` holds half of the frequencies, as of real signals.
        time_axis, freq_axis: the dims of `Zxx` of times and of frequencies.

    >>> from shardwise.scipy import signal
    >>> signal.istft(signal.stft(jnp.ones(64), nperseg=16)[2], nperseg=16)[1].shape
    (64,)
    """
    z = jnp.asarray(Zxx)
    if z.ndim < 2:
        raise ValueError("Input stft must be at least 2d!")
    freq, time = freq_axis % z.ndim, time_axis % z.ndim
    if freq == time:
        raise ValueError("Must specify differing time and frequency axes!")
    z = z.astype(to_complex(z.dtype))
    natural = 2 * (z.shape[freq] - 1) if input_onesided else z.shape[freq]
    n = _positive("nperseg", nperseg) or natural
    size = operator.index(nfft) if nfft is not None else natural + (input_onesided and n == natural + 1)
    if size < n:
        raise ValueError(f"FFT length ({size}) must be longer than nperseg ({n}).")
    overlap = operator.index(noverlap) if noverlap else n // 2
    if overlap >= n:
        raise ValueError("noverlap must be less than nperseg.")
    z = jnp.moveaxis(z, (time, freq), (-2, -1))
    frames = (jnp.fft.irfft(z, size) if input_onesided else jnp.fft.ifft(z, size))[..., :n]
    weights, _ = _window(window, n, None, jnp.real(frames).dtype)
    if weights.size != n:
        raise ValueError(f"window must have length of {n}")
    scaled_values = (jnp.sum(weights) * weights).astype(frames.dtype)
    x = _overlap_add(frames * scaled_values.reshape((1,) * (frames.ndim - 1) + (n,)), n - overlap)
    cover = _overlap_add(jnp.broadcast_to(weights * weights, frames.shape[-2:]), n - overlap)
    if boundary:
        x, cover = (lax.slice_in_dim(v, n // 2, -(n // 2), axis=-1) for v in (x, cover))
    x = x / jnp.expand_dims(jnp.where(cover > 1e-10, cover, 1.0).astype(x.dtype), range(x.ndim - 1))
    x = jnp.moveaxis(x, -1, time - (freq < time))
    return jnp.arange(x.shape[0], dtype=cover.dtype) / fs, x  # times of the first dim, as in SciPy
