"""Arithmetic on sizes: quotients rounded up, multiples, powers of two, strides."""

from __future__ import annotations

from typing import Any


def cdiv(a: Any, b: Any) -> Any:
    """``a / b``, rounded up.

    >>> cdiv(10, 4)
    3
    """
    return (a + b - 1) // b


def align_to(a: Any, alignment: Any) -> Any:
    """The least multiple of `alignment` that is not below `a`.

    >>> align_to(10, 4)
    12
    """
    return cdiv(a, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The least power of two that is not below `x`; ValueError for a negative number.

    >>> next_power_of_2(9)
    16
    """
    if x < 0:
        raise ValueError(f"`next_power_of_2` requires a non-negative integer, got {x}.")
    return 1 if x == 0 else 1 << (x - 1).bit_length()


def strides_from_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one index to the next, per dim, in row-major order.

    >>> strides_from_shape((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
