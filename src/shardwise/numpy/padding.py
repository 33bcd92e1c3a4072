"""`pad`: arrays with more elements around them: constants, their own elements again, ramps or statistics.

In: an array, how much to add before and after each dim, and a mode. Out: an array of the same dtype.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.errors import ConcretizationTypeError, TracerArrayConversionError
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import as_array, convert, is_integer, value, zero_like
from shardwise.numpy.creation import asarray
from shardwise.numpy.functional import apply_along_axis
from shardwise.numpy.means import mean
from shardwise.numpy.quantiles import median
from shardwise.numpy.ranges import linspace
from shardwise.numpy.reductions import amax, amin
from shardwise.numpy.unary import round
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["pad"]

Pairs = Any  # (before, after) for each dim

_KEYWORDS = {
    "constant": "constant_values", "edge": "", "empty": "", "linear_ramp": "end_values", "maximum": "stat_length",
    "mean": "stat_length", "median": "stat_length", "minimum": "stat_length", "reflect": "reflect_type",
    "symmetric": "reflect_type", "wrap": "",
}  # fmt: skip


@shown_call("pad_width mode kwargs", name="_pad")
def pad(array: Any, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any) -> Array:
    """`array` with elements added before and after each dim.

    Args:
        pad_width: the number of elements: an int, (before, after), or one of these per dim; known while tracing.
        mode: 'constant' (`constant_values`, default 0), 'edge', 'reflect' or 'symmetric' (mirrored without or with the edge;
            `reflect_type` 'even' or 'odd'), 'wrap', 'linear_ramp' (to `end_values`), 'maximum', 'minimum', 'mean' or
            'median' (of `stat_length` elements), 'empty', or a function of (padded row, widths, axis, kwargs) that returns
            the row.

    Raises:
        TypeError: `pad_width` is not of ints. ValueError: it is negative or does not fit, or a keyword is not the mode's.
        NotImplementedError: another mode. ConcretizationTypeError: `pad_width` is traced.

    >>> jnp.pad(jnp.array([1, 2]), (1, 2), constant_values=9)
    Array([9, 1, 2, 9, 9], dtype=int32)
    """
    x = checked("pad", array)
    given = _pairs(pad_width, x.ndim, "pad_width")
    if given.dtype.kind not in "iu":
        raise TypeError(f"pad: `pad_width` must be of integral type, got {pad_width!r}.")
    widths = [(before, after) for before, after in given.tolist()]
    if callable(mode):
        return _by_function(x, widths, mode, kwargs)
    if mode not in _KEYWORDS:
        raise NotImplementedError(
            f"Unimplemented padding mode {mode!r} for pad. Expected one of {', '.join(_KEYWORDS)}, or a function."
        )
    foreign = set(kwargs) - {_KEYWORDS[mode]}
    if foreign:
        raise ValueError(f"pad: unsupported keyword arguments for mode {mode!r}: {', '.join(sorted(foreign))}.")
    if not x.ndim:
        return x
    if any(w < 0 for w in itertools.chain(*widths)):
        raise ValueError(f"pad: index can't contain negative values, got pad_width={pad_width!r}.")
    if mode in ("constant", "empty"):
        return _constant(x, widths, kwargs.get("constant_values", 0))
    if mode == "linear_ramp":
        return _ramp(x, widths, _pairs(kwargs.get("end_values", 0), x.ndim, "end_values"))
    if mode in _STATISTICS:
        lengths = kwargs.get("stat_length")
        return _statistic(x, widths, None if lengths is None else _pairs(lengths, x.ndim, "stat_length"), mode)
    return _own_elements(x, widths, mode, kwargs.get("reflect_type", "even"))


def _pairs(given: Any, ndim: int, name: str) -> np.ndarray[Any, Any]:
    """A number, a pair, or one of these per dim, as an array with a pair per dim."""
    try:
        values = np.asarray(given)
    except ValueError as error:
        raise TypeError(f"pad: `{name}` entries must be the same shape, got {given!r}.") from error
    except TracerArrayConversionError as error:
        raise ConcretizationTypeError(
            f"Abstract tracer value encountered where concrete value is expected: {name} of pad must be known while tracing. Pass "
            "it as a static argument."
        ) from error
    if values.shape not in ((ndim, 2), (1, 2), (2,), (1,), ()):
        raise ValueError(
            f"pad: {name} of an array of {ndim} dims has unsupported shape {values.shape}; expected ({ndim}, 2), (1, 2), "
            "(2,), (1,) or ()."
        )
    return values if values.shape == (ndim, 2) else np.broadcast_to(values, (ndim, 2))


# -- constants -------------------------------------------------------------------------------------------------


def _constant(x: Array, widths: Pairs, constants: Any) -> Array:
    if isinstance(constants, int | float):
        number = convert(value("pad", constants), x.dtype, x.weak_type)
        return lax.pad(x, number, [(before, after, 0) for before, after in widths])
    values = as_array(convert(asarray(constants), x.dtype, x.weak_type))
    if values.size == 1 and values.ndim < 2:
        return lax.pad(x, lax.reshape(values, ()), [(before, after, 0) for before, after in widths])
    if values.ndim == 1 and values.shape[0] != 2:
        raise ValueError(f"pad: constant_values has unsupported shape {values.shape}; expected a pair, or one per dim.")
    values = lax.broadcast_in_dim(values, (x.ndim, 2), range(2 - values.ndim, 2))
    for d, pair in enumerate(widths):  # one dim after the other: corners take the last dim's values
        for side, width in enumerate(pair):
            if width:
                config = [(0, 0, 0)] * x.ndim
                config[d] = (0, width, 0) if side else (width, 0, 0)
                corner = lax.slice(values, (d, side), (d + 1, side + 1))
                x = lax.pad(x, lax.reshape(corner, ()), config)
    return x


# -- the array's own elements ----------------------------------------------------------------------------------


def _own_elements(x: Array, widths: Pairs, mode: str, reflect_type: str) -> Array:
    if reflect_type not in ("even", "odd"):
        raise ValueError(f"pad: reflect_type must be 'even' or 'odd', got {reflect_type!r}.")
    for d, (before, after) in enumerate(widths):
        n = x.shape[d]
        if not before + after:
            continue
        if not n:
            raise ValueError(f"pad: can't extend empty axis {d} using mode {mode!r}; use 'constant' or 'empty'.")
        index = np.arange(-before, n + after)
        if reflect_type == "odd" and mode in ("reflect", "symmetric"):
            x = _odd(x, d, index, mode)
        else:
            x = _pick_slices(x, d, _mirror_positions(index, n, mode)[0])
    return x


def _mirror_positions(
    index: np.ndarray[Any, Any], n: int, mode: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For each position the element of a dim of size n, and the number of reflections in between."""
    if mode == "edge":
        return np.clip(index, 0, n - 1), np.zeros_like(index)
    if mode == "wrap":
        return index % n, np.zeros_like(index)
    period = n - 1 if mode == "reflect" and n > 1 else n  # between two mirrors
    rounds, place = np.divmod(index, period)
    return np.where(rounds % 2, n - 1 - place, place), rounds


def _odd(x: Array, d: int, index: np.ndarray[Any, Any], mode: str) -> Array:
    """Mirrored in points: each mirror turns the values around that of the edge, so two of them raise by a difference."""
    n = x.shape[d]
    source, rounds = _mirror_positions(index, n, mode)
    source_values = _pick_slices(x, d, source)
    first, last = lax.slice_in_dim(x, 0, 1, axis=d), lax.slice_in_dim(x, n - 1, n, axis=d)

    def along(numbers: np.ndarray[Any, Any]) -> Array:
        column = numbers.reshape([-1 if i == d else 1 for i in range(x.ndim)])
        return as_array(convert(asarray(column), x.dtype, x.weak_type))

    # The value is sign * element + a * first + b * last.
    sign = along(np.where(rounds % 2, -1, 1))
    firsts, lasts = along(-2 * (rounds // 2)), along(2 * ((rounds + 1) // 2))
    return lax.add(lax.mul(sign, source_values), lax.add(lax.mul(firsts, first), lax.mul(lasts, last)))


def _pick_slices(x: Array, d: int, source: np.ndarray[Any, Any]) -> Array:
    """The slices of `x` along a dim at these positions, as a few runs that go up, go down, or stay."""
    pieces = []
    start = 0
    while start < len(source):
        end, step = _run(source, start)
        low, high = sorted((int(source[start]), int(source[end - 1])))
        piece = lax.slice_in_dim(x, low, high + 1, axis=d)
        if step == -1:
            piece = lax.rev(piece, (d,))
        elif step == 0:
            piece = _repeat_slice(piece, d, end - start)
        pieces.append(piece)
        start = end
    return lax.concatenate(pieces, d)


def _run(source: np.ndarray[Any, Any], start: int) -> tuple[int, int]:
    """Where the run that begins at `start` ends, and its step: 1, -1 or 0."""
    if start + 1 == len(source):
        return start + 1, 1
    steps = np.diff(source[start:])
    step = int(steps[0])
    if abs(step) > 1:
        return start + 1, 1
    other = np.flatnonzero(steps != step)
    return (start + 1 + int(other[0]) if len(other) else len(source)), step


def _repeat_slice(piece: Array, d: int, times: int) -> Array:
    """A slice of size 1 along `d`, repeated."""
    return lax.broadcast_in_dim(piece, (*piece.shape[:d], times, *piece.shape[d + 1 :]), range(piece.ndim))


# -- computed values -------------------------------------------------------------------------------------------


def _ramp(x: Array, widths: Pairs, ends: Pairs) -> Array:
    for d, (before, after) in enumerate(widths):
        n = x.shape[d]

        def ramp(end: Any, edge: int, steps: int, d: int = d, x: Array = x) -> Array:
            side = lax.index_in_dim(x, edge, d, keepdims=False)
            numbers = linspace(end, side, steps, endpoint=False, dtype=x.dtype, axis=d)
            return as_array(convert(numbers, x.dtype, x.weak_type))

        low, high = ramp(ends[d][0], 0, before), ramp(ends[d][1], n - 1, after)
        x = lax.concatenate([low, x, lax.rev(high, (d,))], d)
    return x


_STATISTICS: dict[str, Callable[..., Array]] = {"maximum": amax, "minimum": amin, "mean": mean, "median": median}


def _statistic(x: Array, widths: Pairs, lengths: Pairs | None, mode: str) -> Array:
    for d, pair in enumerate(widths):
        n = x.shape[d]
        counts = (n, n) if lengths is None else tuple(min(int(length), n) for length in lengths[d])
        if lengths is not None and 0 in counts:
            raise ValueError("pad: stat_length of 0 yields no value for padding.")
        spans = ((0, counts[0]), (n - counts[1], n))
        sides = []
        for (start, end), width in zip(spans, pair, strict=True):
            number = _STATISTICS[mode](lax.slice_in_dim(x, start, end, axis=d), axis=d, keepdims=True)
            number = round(number) if is_integer(x.dtype) else number
            sides.append(_repeat_slice(as_array(convert(number, x.dtype, x.weak_type)), d, width))
        x = lax.concatenate([sides[0], x, sides[1]], d)
    return x


def _by_function(x: Array, widths: Pairs, function: Callable[..., Any], kwargs: dict[str, Any]) -> Array:
    padded_values = lax.pad(x, zero_like(x), [(before, after, 0) for before, after in widths])
    for d, pair in enumerate(widths):
        padded_values = apply_along_axis(function, d, padded_values, pair, d, kwargs)
    return padded_values
