"""`Precision` and dot algorithms: the arithmetic that users may request for products and convolutions.

On CPUs every product is computed in the full precision of its operands (16-bit floats in float32), so `Precision` changes
nothing. A `DotAlgorithm` is binding: operands are rounded to its types and split into its components (`split_products`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from shardwise.base import config

__all__ = ["DotAlgorithm", "DotAlgorithmPreset", "Precision", "PrecisionLike"]

_NAMES: dict[str | None, str] = {
    "default": "DEFAULT", "bfloat16": "DEFAULT", "fastest": "DEFAULT", None: "DEFAULT",
    "high": "HIGH", "bfloat16_3x": "HIGH", "tensorfloat32": "HIGH",
    "highest": "HIGHEST", "float32": "HIGHEST",
}  # fmt: skip


class Precision(enum.Enum):
    """The precision of float32 products: DEFAULT (fastest), HIGH, HIGHEST. All give the same result on CPUs."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Precision | None:
        name = _NAMES.get(value) if value is None or isinstance(value, str) else None
        return cls[name] if name is not None else None

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


class DotAlgorithm(NamedTuple):
    """The types to which a product's operands are rounded, and the type in which it accumulates.

    With component counts above 1, each operand is a sum of that many rounded parts, and the `num_primitive_operations` largest
    products of parts are added: three products of two bfloat16 parts have 16 bits. Sums accumulate in float32 or wider and are
    rounded to a narrower accumulation type at the end, with or without `allow_imprecise_accumulation`.
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Dot algorithms by name: the types of lhs, rhs and accumulator. `_X3` and similar suffixes give the number of products of
    rounded operand parts that are added for more bits."""

    DEFAULT = 1
    ANY_F8_ANY_F8_F32 = 2
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 3
    ANY_F8_ANY_F8_ANY = 4
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 5
    F16_F16_F16 = 6
    F16_F16_F32 = 7
    BF16_BF16_BF16 = 8
    BF16_BF16_F32 = 9
    BF16_BF16_F32_X3 = 10
    BF16_BF16_F32_X6 = 11
    BF16_BF16_F32_X9 = 12
    TF32_TF32_F32 = 13
    TF32_TF32_F32_X3 = 14
    F32_F32_F32 = 15
    F64_F64_F64 = 16

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    def __str__(self) -> str:
        return self.name


PrecisionLike = (
    None | str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset
)
CanonicalPrecision = None | tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset


def canonicalize_precision(precision: Any) -> CanonicalPrecision:
    """A precision argument as None, a pair of `Precision`s, or an algorithm; None selects the configured default.

    Raises ValueError for anything else.
    """
    source = "precision"
    if precision is None:
        precision = config.jax_default_matmul_precision
        source = "jax_default_matmul_precision"
        if precision is None:
            return None
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str):
        if precision in _NAMES:
            return (Precision(precision),) * 2  # type: ignore[return-value]
        if precision in DotAlgorithmPreset.__members__:
            return DotAlgorithmPreset[precision]
    if isinstance(precision, Precision):
        return precision, precision
    if isinstance(precision, (tuple, list)) and len(cast("Sequence[Any]", precision)) == 2:
        left, right = cast("Sequence[Any]", precision)
        if all(isinstance(p, Precision) or (isinstance(p, str) and p in _NAMES) for p in (left, right)):
            return Precision(left), Precision(right)
    raise ValueError(
        f"{source} is {precision!r}; expected None, a lax.Precision or one of the names "
        f"{[n for n in _NAMES if n]}, a pair of these, or a lax.DotAlgorithm, lax.DotAlgorithmPreset or a preset's name."
    )
