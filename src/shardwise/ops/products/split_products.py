"""Dot algorithms: operands are split into rounded parts, of which products are added up.

An operand x becomes x0 + x1 + ..., where x0 is x rounded to the algorithm's type, x1 the remainder, rounded, and so on. Of the
products of parts the largest ones are taken, as many as the algorithm says, and added from the smallest on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.dtypes import as_dtype
from shardwise.base.shapes import Ndarray
from shardwise.ops.rules.precision import CanonicalPrecision, DotAlgorithm, DotAlgorithmPreset


class _Steps(NamedTuple):
    """The types of both operands' parts and of sums ('tf32' and 'any' are no types of arrays), how many parts, how many products."""

    lhs: str
    rhs: str
    total: str
    lhs_parts: int = 1
    rhs_parts: int = 1
    products: int = 1


_ANY = _Steps("any", "any", "float32")
_PRESETS = {
    "DEFAULT": None,
    "ANY_F8_ANY_F8_F32": _ANY, "ANY_F8_ANY_F8_F32_FAST_ACCUM": _ANY,
    "ANY_F8_ANY_F8_ANY": _ANY, "ANY_F8_ANY_F8_ANY_FAST_ACCUM": _ANY,
    "F16_F16_F16": _Steps("float16", "float16", "float16"),
    "F16_F16_F32": _Steps("float16", "float16", "float32"),
    "BF16_BF16_BF16": _Steps("bfloat16", "bfloat16", "bfloat16"),
    "BF16_BF16_F32": _Steps("bfloat16", "bfloat16", "float32"),
    "BF16_BF16_F32_X3": _Steps("bfloat16", "bfloat16", "float32", 2, 2, 3),
    "BF16_BF16_F32_X6": _Steps("bfloat16", "bfloat16", "float32", 3, 3, 6),
    "BF16_BF16_F32_X9": _Steps("bfloat16", "bfloat16", "float32", 3, 3, 9),
    "TF32_TF32_F32": _Steps("tf32", "tf32", "float32"),
    "TF32_TF32_F32_X3": _Steps("tf32", "tf32", "float32", 2, 2, 3),
    "F32_F32_F32": _Steps("float32", "float32", "float32"),
    "F64_F64_F64": _Steps("float64", "float64", "float64"),
}  # fmt: skip


def _steps(precision: CanonicalPrecision) -> _Steps | None:
    if isinstance(precision, DotAlgorithmPreset):
        return _PRESETS[precision.name]
    if isinstance(precision, DotAlgorithm):
        lhs, rhs, total = (as_dtype(t).name for t in precision[:3])
        return _Steps(lhs, rhs, total, *precision[3:6])
    return None


def check_algorithm(precision: CanonicalPrecision, lhs: np.dtype[Any], rhs: np.dtype[Any]) -> None:
    """ValueError for operands that an algorithm does not take, and for counts that do not fit."""
    steps = _steps(precision)
    if steps is None:
        return
    if steps is _ANY and not all(t.name.startswith("float8") for t in (lhs, rhs)):
        raise ValueError(
            f"The dot algorithm '{precision}' requires both inputs to have float8 dtypes. Got {lhs.name} and {rhs.name} "
            "instead: cast them, or choose an algorithm by the types of the inputs."
        )
    if min(steps[3:]) < 1 or steps.products > steps.lhs_parts * steps.rhs_parts:
        raise ValueError(
            f"A dot algorithm takes one or more parts of each operand, and of their products as many as there are at most; "
            f"got lhs_component_count={steps.lhs_parts}, rhs_component_count={steps.rhs_parts} and "
            f"num_primitive_operations={steps.products}."
        )


def by_algorithm(
    precision: CanonicalPrecision,
    product: Callable[[Ndarray, Ndarray, np.dtype[Any]], Ndarray],
    lhs: Ndarray,
    rhs: Ndarray,
    dtype: np.dtype[Any],
) -> Ndarray:
    """`product(lhs, rhs, dtype)`, or the result of the algorithm of `precision`."""
    steps = _steps(precision)
    if steps is None or steps is _ANY or not (_is_float(lhs.dtype) and _is_float(rhs.dtype)):
        return product(lhs, rhs, dtype)
    lefts, rights = _parts(lhs, steps.lhs, steps.lhs_parts), _parts(rhs, steps.rhs, steps.rhs_parts)
    pairs = sorted(((i, j) for i in range(steps.lhs_parts) for j in range(steps.rhs_parts)), key=sum)[: steps.products]
    pairs = [(i, j) for i, j in pairs if i < len(lefts) and j < len(rights)]
    narrow = steps.total in ("float16", "bfloat16")
    if len(pairs) == 1 and not narrow:
        return product(lefts[0], rights[0], dtype)
    is_complex = dtype.kind == "c"
    wide = (
        dtype if is_complex or dtype.itemsize > 4 else np.dtype(np.float64 if steps.total == "float64" else np.float32)
    )
    rest: Any = None
    for i, j in reversed(pairs[1:]):
        part = product(lefts[i], rights[j], wide)
        rest = part if rest is None else rest + part
    total = product(lefts[0], rights[0], wide)
    if rest is not None:  # only finite sums: infinities times the zeros of a remainder give NaNs
        total = np.where(np.isfinite(total), total + rest, total)
    total = _round_to_kind(total, steps.total) if narrow else total
    return total if total.dtype == dtype else total.astype(dtype)


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or dtype.name.startswith(("bfloat16", "float8"))


def _parts(x: Ndarray, kind: str, count: int) -> list[Ndarray]:
    """`x` as a sum of at most `count` arrays of values of a type, by falling size."""
    if kind == x.dtype.name or (count > 1 and kind in ("float32", "float64")):
        count = 1
    parts: list[Ndarray] = []
    for _ in range(count):
        part = _round_to_kind(x, kind)
        parts.append(part)
        if len(parts) < count:
            with np.errstate(invalid="ignore"):
                rest = x - part.astype(x.dtype)
            x = np.where(np.isfinite(rest), rest, x.dtype.type(0))  # infinities leave nothing
    return parts


def _round_to_kind(x: Ndarray, kind: str) -> Ndarray:
    if kind == x.dtype.name:
        return x
    if x.dtype.kind == "c":  # each part of a complex number by itself
        real = x.real.dtype
        out = np.empty_like(x)
        out.real, out.imag = _round_to_kind(x.real, kind).astype(real), _round_to_kind(x.imag, kind).astype(real)
        return out
    if kind == "tf32":
        return _to_tf32(np.ascontiguousarray(x.astype(np.float32, copy=False)))
    with np.errstate(over="ignore"):
        return x.astype(as_dtype(kind))  # type: ignore[arg-type]


def _to_tf32(x: Ndarray) -> Ndarray:
    """float32 with 10 bits of mantissa, rounded to even."""
    bits = x.view(np.uint32)
    rounded_bits = (bits + (np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1)))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded_bits.view(np.float32), x)
