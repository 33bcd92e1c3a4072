"""What is known of a value's numbers by its dtype: how they round, how large they get, what a cast makes of them."""

from __future__ import annotations

from tests.fuzz.program import Quality, Value

EPSILON = {"float32": 2.0**-23, "complex64": 2.0**-22, "float16": 2.0**-10, "bfloat16": 2.0**-7}
LARGEST_INT = {"int32": 2**31, "uint32": 2**32, "int16": 2**15, "int8": 2**7, "uint8": 2**8, "uint16": 2**16}
LARGEST_FLOAT = {"float16": 3e4}
NOISY = 0.02  # noise, as a part of the bound, from which a value is used no further


class Unsuitable(Exception):
    """No value in sight suits the op."""


def kind(dtype: str) -> str:
    """One letter for a dtype: f, i, b or c."""
    if dtype == "bool":
        return "b"
    return "c" if dtype == "complex64" else "i" if "int" in dtype else "f"


def settled(dtype: str, q: Quality) -> Quality:
    """`q` as the numbers of an array of `dtype`: integers wrap, floats round."""
    if kind(dtype) in "bi":
        assert q.exact, dtype
        return Quality(1.0, min(q.bound, LARGEST_INT.get(dtype, 1)))
    epsilon = EPSILON[dtype]
    if q.step is not None and q.bound / q.step <= 0.5 / epsilon:
        return q
    return Quality(None, q.bound, q.noise + epsilon * q.bound)


def cast(value: Value, dtype: str) -> Quality:
    """The quality of `value` as `dtype`; truncation needs exact numbers within range."""
    q = value.quality
    if kind(dtype) == "b":
        if not q.exact:
            raise Unsuitable
        return Quality(1.0, 1.0)
    if kind(dtype) == "i":
        if not q.exact or (kind(value.dtype) == "f" and (q.bound > 100)):
            raise Unsuitable
        return Quality(1.0, max(q.bound, 1.0) if not dtype.startswith("u") else LARGEST_INT[dtype])
    return q
