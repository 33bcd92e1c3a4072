"""Fourier transforms by pocketfft, SciPy's library: directly, or through `scipy.fft`, which takes long to import."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.scipy_extensions import scipy_extension
from shardwise.base.shapes import Ndarray

_PLAIN, _BY_SIZE = 0, 2  # how it scales: not at all, or by one over the number of elements


def transform(
    x: Ndarray, dims: Sequence[int], inverse: bool = False, workers: int = 1, in_place: bool = False
) -> Ndarray:
    """The transform of complex `x` along `dims`. `in_place`: written over `x`. RuntimeError where the system starts no more threads."""
    x = _align_native(x)
    return _library().c2c(
        x, tuple(dims), not inverse, _BY_SIZE if inverse else _PLAIN, x if in_place else None, workers
    )


def transform_of_real(x: Ndarray, dims: Sequence[int], workers: int = 1) -> Ndarray:
    """The transform of real `x`: half a spectrum along the last of `dims`."""
    return _library().r2c(_align_native(x), tuple(dims), True, _PLAIN, None, workers)


def inverse_to_real(x: Ndarray, dims: Sequence[int], last: int, workers: int = 1) -> Ndarray:
    """The real values, `last` along the last of `dims`, of which `x` is half a spectrum."""
    return _library().c2r(_align_native(x), tuple(dims), last, False, _BY_SIZE, None, workers)


def _align_native(x: Ndarray) -> Ndarray:
    """Aligned and of this machine's byte order."""
    return x if x.flags.aligned and x.dtype.isnative else np.array(x, x.dtype.newbyteorder("="))


@functools.cache
def _library() -> Any:
    try:
        extension = scipy_extension("fft._pocketfft.pypocketfft")
    except ImportError:
        return _Public
    return extension if _works_as_expected(extension) else _Public


def _works_as_expected(library: Any) -> bool:
    """Whether the library's functions, which are private to SciPy, do what is expected of them here."""
    x = np.array([3, 5], np.float32)
    try:
        both = library.c2c(x.astype(np.complex64), (0,), True, _PLAIN, None, 1)
        half = library.r2c(x, (0,), True, _PLAIN, None, 1)
        back = library.c2r(half, (0,), 2, False, _BY_SIZE, None, 1)
    except (AttributeError, TypeError, ValueError):
        return False
    return bool((both == [8, -2]).all() and (half == [8, -2]).all() and (back == x).all())


class _Public:
    """The same functions through `scipy.fft`."""

    @staticmethod
    def c2c(x: Ndarray, dims: Any, forward: bool, scale: int, out: Ndarray | None, workers: int) -> Any:
        import scipy.fft

        transform = scipy.fft.fftn if forward else scipy.fft.ifftn
        return transform(x, axes=dims, workers=workers, overwrite_x=out is not None)

    @staticmethod
    def r2c(x: Ndarray, dims: Any, forward: bool, scale: int, out: None, workers: int) -> Any:
        import scipy.fft

        return scipy.fft.rfftn(x, axes=dims, workers=workers)

    @staticmethod
    def c2r(x: Ndarray, dims: Any, last: int, forward: bool, scale: int, out: None, workers: int) -> Any:
        import scipy.fft

        sizes = [x.shape[d] for d in dims[:-1]]
        return scipy.fft.irfftn(x, s=[*sizes, last], axes=dims, workers=workers)
