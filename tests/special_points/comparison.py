"""When two answers are the same: in NaN, infinities, signs of zeros, and in numbers up to the rounding of their functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.special_points.bounds import Bound, bound_of

Numbers = np.ndarray[Any, Any]
Answer = dict[str, Any]

TINY = float(np.finfo(np.float32).tiny)  # XLA takes what is smaller for 0
DIGITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}

# NaN: ours is, theirs is a number; number: the reverse; infinity: one is infinite, or both are on other sides; sign: of zeros.
KINDS = ("shape", "NaN", "number", "infinity", "sign", "digits")
_SHAPE, _NAN, _NUMBER, _INFINITY, _SIGN, _DIGITS = range(1, 7)


def kinds(ours: Numbers, theirs: Numbers, bound: Bound) -> Numbers:
    """What differs in each element, as a position in `KINDS` plus 1; 0 where nothing does."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return np.full(ours.shape, _SHAPE)
    if ours.dtype.kind == "c":
        return np.maximum(kinds(ours.real, theirs.real, bound), kinds(ours.imag, theirs.imag, bound))
    if ours.dtype.kind in "biu":
        return np.where(ours != theirs, _DIGITS, 0)
    unit = 2.0 ** -DIGITS[ours.dtype.name]
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(a - b) > unit * (bound.ulps * np.abs(b) + bound.terms) + TINY
    out = np.where(off & (a != b), _DIGITS, 0)
    out[(a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))] = _SIGN
    out[(np.isinf(a) | np.isinf(b)) & (a != b)] = _INFINITY
    out[np.isnan(b) & ~np.isnan(a)] = _NUMBER
    out[np.isnan(a) & ~np.isnan(b)] = _NAN
    out[np.isnan(a) & np.isnan(b)] = 0
    return out


def _is_nan(x: Numbers) -> Numbers:
    return np.isnan(x.astype(np.complex128)) if x.dtype.kind in "fcV" else np.zeros(x.shape, bool)


def _spread(mask: Numbers, shape: tuple[int, ...]) -> Numbers:
    """The mask of results for operands of a shape: element by element, or row by row, or all."""
    if mask.shape == shape:
        return mask
    if mask.ndim and shape and len(mask) == shape[0]:
        mask = mask.any(axis=tuple(range(1, mask.ndim))).reshape(-1, *[1] * (len(shape) - 1))
        return np.broadcast_to(mask, shape)
    return np.broadcast_to(mask.any(), shape)


def differing(expression: str, ours: Answer, theirs: list[Answer]) -> dict[str, Numbers]:
    """By result, what differs in each element from all of their answers.

    Derivatives count where the values are numbers: of NaN there is none.
    """
    out: dict[str, Numbers] = {}
    undefined: list[Numbers] = []
    for key in sorted(theirs[0].keys() & ours.keys(), key=lambda k: (not k.startswith("value"), k)):
        if isinstance(theirs[0][key], str):
            continue
        found = [kinds(ours[key], answer[key], bound_of(expression, key)) for answer in theirs if key in answer]
        off = found[0]
        for other in found[1:]:
            off = np.where(other == 0, 0, off)
        if key.startswith("value"):
            if ours[key].shape == theirs[0][key].shape:
                undefined.append(_is_nan(ours[key]) | _is_nan(theirs[0][key]))
        else:
            for mask in undefined:
                off = np.where(_spread(mask, off.shape), 0, off)
        out[key] = off
    return out


def names_of(found: dict[str, Numbers], ours: Answer, theirs: Answer) -> set[str]:
    """What differs at all, as the table of differences calls it."""
    out = {"derivative"} if ("error" in ours) != ("error" in theirs) else set()
    for key, off in found.items():
        part = "value" if key.startswith("value") else "slope"
        out |= {f"{part}:{KINDS[kind - 1]}" for kind in np.unique(off) if kind}
    return out
