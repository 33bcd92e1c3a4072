"""Symbolic dims: sizes written as expressions of named variables, each a whole number >= 1, and what is known of them.

In: names, numbers and their sums, products, quotients, remainders, greatest and least. Out: `SymbolicDim`s in a normal form, a sum of
products, so that equal expressions compare equal; and decisions, `InconclusiveDimensionOperation` where the answer depends on the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from shardwise.base.errors import InconclusiveDimensionOperation

Size = "int | SymbolicDim"
Env = Mapping[str, int]


class Operation(NamedTuple):
    """A factor that is no sum of products: ``floordiv``, ``mod``, ``max`` or ``min`` of two sizes."""

    kind: str
    left: Any
    right: Any

    def evaluate(self, env: Env) -> int:
        """Its value where the variables have these values."""
        return _COMPUTE[self.kind](evaluate_size(self.left, env), evaluate_size(self.right, env))

    def __str__(self) -> str:
        return f"{self.kind}({self.left}, {self.right})"


_COMPUTE: Final[Mapping[str, Callable[[int, int], int]]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}
Product = tuple[tuple[Any, int], ...]  # factors with their powers, sorted; () is the constant


class SymbolicDim:
    """A size that is an expression of variables. `terms`: pairs of a product and its coefficient, none of them 0."""

    __slots__ = ("scope", "terms")

    def __init__(self, terms: Mapping[Product, int], scope: Any) -> None:
        self.terms = tuple(sorted(((p, c) for p, c in terms.items() if c), key=_order))
        self.scope = scope

    @classmethod
    def variable(cls, name: str, scope: Any) -> SymbolicDim:
        """The variable of that name."""
        return cls({((name, 1),): 1}, scope)

    def variables(self) -> frozenset[str]:
        """The names in it."""
        return frozenset(_names(self))

    def evaluate(self, env: Env) -> int:
        """Its value where the variables have these values."""
        return sum(c * math.prod(_value(f, env) ** n for f, n in product) for product, c in self.terms)

    def __str__(self) -> str:
        text = ""
        for product, c in self.terms:
            factors = [str(f) if n == 1 else f"{f}^{n}" for f, n in product]
            if abs(c) != 1 or not factors:
                factors.insert(0, str(abs(c)))
            sign = ("- " if c < 0 else "") if not text else (" - " if c < 0 else " + ")
            text += sign + "*".join(factors)
        return text

    __repr__ = __str__

    # -- arithmetic ------------------------------------------------------------------------------------------------------------

    def _with(self, other: Any, what: str) -> SymbolicDim | None:
        """The other operand as a dim of this scope; None if it is no size."""
        if isinstance(other, SymbolicDim):
            self.scope.check_same(other, what)
            return other
        return SymbolicDim({(): _integer(other)}, self.scope) if _is_integer(other) else None

    def _sum(self, other: Any, sign: int) -> Any:
        right = self._with(other, "for linear combination")
        if right is None:
            return self._as_value(other)
        terms = dict(self.terms)
        for product, c in right.terms:
            terms[product] = terms.get(product, 0) + sign * c
        return simplest(SymbolicDim(terms, self.scope))

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1)

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, -1)

    def __neg__(self) -> Any:
        return SymbolicDim({p: -c for p, c in self.terms}, self.scope)

    def __pos__(self) -> SymbolicDim:
        return self

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        right = self._with(other, "for multiplication")
        if right is None:
            return self._as_value(other)
        terms: dict[Product, int] = {}
        for p, c in self.terms:
            for q, d in right.terms:
                product = _times(p, q)
                terms[product] = terms.get(product, 0) + c * d
        return simplest(SymbolicDim(terms, self.scope))

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, power: Any, modulo: Any = None) -> Any:
        if not _is_integer(power) or power < 0:
            return self._as_value(power)
        result: Any = 1
        for _ in range(_integer(power)):
            result = self * result
        return result

    def __floordiv__(self, other: Any) -> Any:
        return self._divide(other)[0]

    def __mod__(self, other: Any) -> Any:
        return self._divide(other)[1]

    def __divmod__(self, other: Any) -> Any:
        return self._divide(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return SymbolicDim({(): _integer(other)}, self.scope)._divide(self)[0]

    def __rmod__(self, other: Any) -> Any:
        return SymbolicDim({(): _integer(other)}, self.scope)._divide(self)[1]

    def __rdivmod__(self, other: Any) -> Any:
        return SymbolicDim({(): _integer(other)}, self.scope)._divide(self)

    def _divide(self, other: Any) -> tuple[Any, Any]:
        """Quotient and remainder. The terms that the divisor divides are taken out; the rest stays an `Operation`."""
        right = self._with(other, "for division")
        if right is None:
            raise TypeError(f"a symbolic dim is divided by whole numbers and dims, not by {other!r}.")
        if not right.terms:
            raise ZeroDivisionError(f"division of the symbolic dim '{self}' by zero")
        if self == right:
            return 1, 0
        whole: dict[Product, int] = {}
        rest: dict[Product, int] = {}
        for product, c in self.terms:
            quotient = _quotient(product, c, *right.terms[0]) if len(right.terms) == 1 else None
            if quotient is None:
                rest[product] = c
            else:
                whole[quotient[0]] = whole.get(quotient[0], 0) + quotient[1]
        exact = simplest(SymbolicDim(whole, self.scope))
        if not rest:
            return exact, 0
        left, divisor = simplest(SymbolicDim(rest, self.scope)), simplest(right)
        if isinstance(left, int) and isinstance(divisor, int):
            return exact + left // divisor, left % divisor
        quotient, remainder = (
            SymbolicDim({((Operation(kind, left, divisor), 1),): 1}, self.scope) for kind in ("floordiv", "mod")
        )
        return quotient + exact, remainder

    def __truediv__(self, other: Any) -> Any:
        return self._as_value(other)

    def _as_value(self, other: Any) -> Any:
        if isinstance(other, (float, complex)):
            raise InconclusiveDimensionOperation(
                f"Symbolic dimension '{self}' used in arithmetic with {other!r}: its value is not known here. Compute with "
                "x.shape inside of the exported function, where sizes are numbers."
            )
        return NotImplemented

    # -- decisions -------------------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymbolicDim):
            return self.terms == other.terms and self.scope.same_as(other.scope)
        return False  # a number would have been made one by `simplest`

    def __hash__(self) -> int:
        return hash(self.terms)

    def __bool__(self) -> bool:
        low, high = bounds(self)
        return not (low == high == 0)

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, ">=", self - other)

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "<=", other - self)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, ">", self - other - 1)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "<", other - self - 1)

    def _compare(self, other: Any, sign: str, difference: Any) -> bool:
        """Whether the difference is >= 0."""
        if is_nonnegative(difference):
            return True
        if is_nonnegative(-1 - difference):
            return False
        question = f"{self} {'>=' if sign in ('>', '>=') else '<='} {other}"
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension comparison '{self}' {sign} '{other}' is inconclusive: it depends on the sizes. Give the scope a "
            f"constraint that decides it, such as symbolic_shape(..., constraints=[{question!r}])."
        )

    def _constant(self, *_: Any) -> Any:
        raise InconclusiveDimensionOperation(
            f"Symbolic dimension '{self}' used in a context that requires a constant. Use the sizes of x.shape inside of the exported "
            "function, where they are numbers."
        )

    __int__ = __float__ = __complex__ = _constant


def simplest(dim: SymbolicDim) -> Any:
    """The dim, or the number if it has no variables."""
    if not dim.terms:
        return 0
    return dim.terms[0][1] if len(dim.terms) == 1 and not dim.terms[0][0] else dim


def greatest(left: Any, right: Any) -> Any:
    """The greater of two sizes."""
    return _choose_bound("max", left, right)


def least(left: Any, right: Any) -> Any:
    """The lesser of two sizes."""
    return _choose_bound("min", left, right)


def _choose_bound(kind: str, left: Any, right: Any) -> Any:
    scope = next((x.scope for x in (left, right) if isinstance(x, SymbolicDim)), None)
    if scope is None or left == right:
        return _COMPUTE[kind](left, right)
    for first, second in ((left, right), (right, left)):
        if is_nonnegative(first - second):
            return first if kind == "max" else second
    return SymbolicDim({((Operation(kind, left, right), 1),): 1}, scope)


def evaluate_size(size: Any, env: Env) -> int:
    """A size as a number where the variables have these values."""
    return size.evaluate(env) if isinstance(size, SymbolicDim) else size


def bounds(size: Any) -> tuple[float, float]:
    """The least and the greatest value that a size can have."""
    if not isinstance(size, SymbolicDim):
        return size, size
    low = high = 0.0
    for product, c in size.terms:
        ends = (float(c), float(c))
        for factor, n in product:
            for _ in range(n):
                ends = _hull(ends, _factor_bounds(factor, size.scope))
        low, high = low + ends[0], high + ends[1]
    return low, high


def is_nonnegative(size: Any, depth: int = 2) -> bool:
    """Whether a size is >= 0 whatever the variables are, as far as bounds and the scope's constraints tell."""
    if not isinstance(size, SymbolicDim):
        return size >= 0
    if bounds(size)[0] >= 0:
        return True
    return depth > 0 and any(
        is_nonnegative(size - known_size, depth - 1)
        for known_size in size.scope.known
        if isinstance(known_size, SymbolicDim) and {p for p, _ in known_size.terms} & {p for p, _ in size.terms if p}
    )


def _factor_bounds(factor: Any, scope: Any) -> tuple[float, float]:
    if isinstance(factor, str):
        return scope.range_of(factor)
    left, right = bounds(factor.left), bounds(factor.right)
    if factor.kind == "max":
        return max(left[0], right[0]), max(left[1], right[1])
    if factor.kind == "min":
        return min(left[0], right[0]), min(left[1], right[1])
    if right[0] <= 0:
        return -math.inf, math.inf
    if factor.kind == "mod":
        return 0, min(right[1] - 1, left[1]) if left[0] >= 0 else right[1] - 1
    ends = [a // b if math.isfinite(a) and math.isfinite(b) else a / b for a in left for b in right if a or b]
    return min(e for e in ends if e == e), max(e for e in ends if e == e)


def _hull(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    ends = [0.0 if x == 0 or y == 0 else x * y for x in a for y in b]
    return min(ends), max(ends)


def _names(size: Any) -> Iterator[str]:
    for product, _ in size.terms if isinstance(size, SymbolicDim) else ():
        for factor, _ in product:
            if isinstance(factor, str):
                yield factor
            else:
                yield from (*_names(factor.left), *_names(factor.right))


def _value(factor: Any, env: Env) -> int:
    return env[factor] if isinstance(factor, str) else factor.evaluate(env)


def _times(p: Product, q: Product) -> Product:
    powers = dict(p)
    for factor, n in q:
        powers[factor] = powers.get(factor, 0) + n
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _quotient(product: Product, c: int, divisor: Product, d: int) -> tuple[Product, int] | None:
    powers = dict(product)
    for factor, n in divisor:
        if powers.get(factor, 0) < n:
            return None
        powers[factor] -= n
    return None if c % d else (tuple((f, n) for f, n in powers.items() if n), c // d)


def _order(term: tuple[Product, int]) -> Any:
    """Highest degree first, then names backwards, as JAX writes them; the constant comes last."""
    product, _ = term
    names = [-ord(letter) for factor, n in product for letter in str(factor) * n]
    return -sum(n for _, n in product), names


def _is_integer(value: Any) -> bool:
    return not isinstance(value, (float, complex)) and hasattr(value, "__index__") and getattr(value, "shape", ()) == ()


def _integer(value: Any) -> int:
    return value.__index__()
