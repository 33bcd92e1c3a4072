"""Symbolic dims: their normal form, their text, and what is decided of them."""

from __future__ import annotations

import itertools

import pytest

from shardwise.errors import InconclusiveDimensionOperation
from shardwise.export import SymbolicScope, is_symbolic_dim, symbolic_shape
from shardwise.export.dims import bounds, evaluate_size

A, B = symbolic_shape("a, b")

# As JAX 0.10.2 prints them.
TEXTS = {
    "b + a": A + B,
    "2*b + 1": B * 2 + 1,
    "2*a*b - 3": B * A * 2 - 3,
    "- b + a": A - B,
    "- b + 4": 4 - B,
    "a^3 + a": A**3 + A,
    "floordiv(b, 2)": B // 2,
    "mod(b, 2)": B % 2,
    "floordiv(b + a, 3)": (A + B) // 3,
    "b + 2": (2 * B + 4) // 2,
    "2*a": A * 2 * B // B,
    "2*floordiv(a, 2) + 3": 3 + A // 2 * 2,
    "a*b + a": A * (B + 1),
    "- 2*a*b + a - 1": -2 * A * B + A - 1,
    "max(a, 3)": symbolic_shape("max(a, 3)")[0],
    "min(a, 3) + 2": symbolic_shape("min(a,3)+2")[0],
}


@pytest.mark.parametrize("text", TEXTS)
def test_text(text):
    assert str(TEXTS[text]) == text
    (again,) = symbolic_shape(text, scope=TEXTS[text].scope)
    assert again == TEXTS[text] and hash(again) == hash(TEXTS[text])


@pytest.mark.parametrize("text", TEXTS)
def test_values_lie_within_bounds(text):
    dim = TEXTS[text]
    low, high = bounds(dim)
    for a, b in itertools.product((1, 2, 3, 7, 20), repeat=2):
        assert low <= dim.evaluate({"a": a, "b": b}) <= high


@pytest.mark.parametrize("sizes", [{"a": 5, "b": 3}, {"a": 1, "b": 8}])
def test_arithmetic_is_that_of_numbers(sizes):
    a, b = sizes["a"], sizes["b"]
    for f in (
        lambda x, y: (x + 7) // 4 * y - x % 3,
        lambda x, y: divmod(3 * x + y, y)[1],
        lambda x, y: 40 // x + 41 % y,
        lambda x, y: (6 * x * y - 4 * x) // 2 + (x * y + 1) // y,
        lambda x, y: (-x) // 2 + y**2 - +x,
    ):
        assert evaluate_size(f(A, B), sizes) == f(a, b)


def test_what_is_a_number_is_no_dim():
    assert (A - A, A // A, (4 * A) % 2, 0 * A) == (0, 1, 0, 0)
    assert all(type(n) is int for n in (A - A, A // A, (4 * A) % 2, 0 * A))
    assert is_symbolic_dim(A) and not is_symbolic_dim(A - A)


def test_decisions():
    assert A >= 1 and A > 0 and A * 2 > 1 and A + B >= 2 and A <= A + B and A // 2 >= 0 and A % 3 < 3 and not A < 1
    assert A != B and A != 1 and A != A + 1 and bool(A)
    with pytest.raises(InconclusiveDimensionOperation, match=r"'a' < 'b'.*constraints=\['a <= b'\]"):
        _ = A < B
    for needs_number in (int, float):
        with pytest.raises(InconclusiveDimensionOperation, match="requires a constant"):
            needs_number(A)
    with pytest.raises(InconclusiveDimensionOperation, match=r"0\.5"):
        _ = A + 0.5
    with pytest.raises(ZeroDivisionError):
        _ = A // 0


def test_decisions_by_constraints():
    h, w = symbolic_shape("h, w", constraints=["h >= 8", "h <= w", "w <= 64", "mod(w, 8) == 0"])
    assert h >= 8 and w >= 8 and h <= 64 and w - h >= 0 and w % 8 == w % 8
    with pytest.raises(InconclusiveDimensionOperation):
        _ = h >= 9


def test_scopes_do_not_mix():
    (other,) = symbolic_shape("a")
    with pytest.raises(ValueError, match=r"Invalid mixing of symbolic scopes.*one call of symbolic_shape"):
        _ = A + other
    (same,) = symbolic_shape("a", scope=A.scope)
    assert same == A and other != A
    assert "b <= 4" in repr(SymbolicScope(["b <= 4"]))
