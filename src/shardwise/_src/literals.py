"""`literals`: Python's numbers with a dtype, for libraries that tell them apart. No value of ours is one: types are beside values here."""

from typing import Any, Self


class TypedInt(int):
    """An integer with a dtype."""

    dtype: Any

    def __new__(cls, value: int, dtype: Any) -> Self:
        self = super().__new__(cls, value)
        self.dtype = dtype
        return self


class TypedFloat(float):
    """A real number with a dtype."""

    dtype: Any

    def __new__(cls, value: float, dtype: Any) -> Self:
        self = super().__new__(cls, value)
        self.dtype = dtype
        return self


class TypedComplex(complex):
    """A complex number with a dtype."""

    dtype: Any

    def __new__(cls, value: complex, dtype: Any) -> Self:
        self = super().__new__(cls, value)
        self.dtype = dtype
        return self
