"""How numbers of a program depend on its symbolic dims: it is traced at several sizes, and expressions are found that give them all.

In: a number's values at the sampled sizes. Out: the size, a `SymbolicDim`, that has these values: a polynomial, a quotient or remainder
of one variable, or the lesser or greater of two. None where there is none: such a program is refused, never guessed at.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from shardwise.export.dims import SymbolicDim, evaluate_size, greatest, least, simplest
from shardwise.export.scopes import SymbolicScope

Env = Mapping[str, int]

_SIZES: Final = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 53, 61, 67, 130)
_FAR: Final = (151, 307, 1009, 4099, 33013)  # no sizes of tables: a slice of a whole table is dropped
_LEAST: Final = 7  # smaller sizes have programs of their own where they need them
_CONSECUTIVE: Final = 24
_PERIODS: Final = (*range(2, 17), 32, 64, 128)


class Samples:
    """Sizes that a function is traced at, and the expressions that fit.

    Attributes:
        envs: the variables' values, each at least 5 where that is allowed.
        small: others, where some variables are 1, or one is 2 to 6. Functions often do something else there: dims of size 1 are
            broadcast, slices end earlier.
        far: the least and larger ones, of one variable or of all, at which the expressions found at the others are tried: functions
            may do something else from some size on.
        more: whether those that tell quotients from polynomials are among `envs`.
    """

    def __init__(
        self, names: Sequence[str], scope: SymbolicScope, more: bool = False, fixed: Env | None = None
    ) -> None:
        """Samples of the variables `names`, where others are `fixed`."""
        self.names = tuple(names)
        fixed = dict(fixed or {})
        self.scope = scope
        self.more = more
        self._products = list(_products(self.names))
        pools = {name: _pool(name, scope) for name in self.names}
        self.envs = list(_choose_values(pools, scope, len(self._products) + 3, fixed)) if names else [fixed]
        self.small = [] if fixed else list(_small(self.names, self.envs[-1], scope))
        self.far = list(_far(self.names, self.envs[-1], scope))
        if more:
            base = self.envs[-1]
            for name in self.names:
                row = [n for n in _row(name, scope) if n not in {v for k, v in base.items() if k != name}]
                envs = [{**base, name: n} for n in row]
                self.envs += [env for env in envs if scope.violated_constraint(env) is None and env not in self.envs]
        self._found: dict[tuple[int, ...], Any] = {}

    def fit(self, values: Sequence[int]) -> Any:
        """The size that has these values, at `envs` or at `envs` and `small`; None if none is found."""
        key = tuple(values)
        if len(set(key)) == 1:
            return key[0]
        if key not in self._found:
            polynomial = self._polynomial(key)
            if polynomial is None:
                candidates = itertools.chain(self._choices(key), self._quotients(key) if self.more else ())
                polynomial = next((size for size in candidates if self._gives(size, key)), None)
            self._found[key] = polynomial
        return self._found[key]

    def _gives(self, size: Any, values: Sequence[int]) -> bool:
        return all(evaluate_size(size, env) == n for env, n in self._where(values))

    def _where(self, values: Sequence[int]) -> list[tuple[Env, int]]:
        return list(zip((*self.envs, *self.small), values, strict=False))

    def _polynomial(self, values: Sequence[int]) -> Any:
        rows = [[_product(p, env) for p in self._products] for env, _ in self._where(values)]
        solution = _solution(rows, values)
        if solution is None:
            return None
        divisor = 1
        for c in solution:
            divisor = divisor * c.denominator // _gcd(divisor, c.denominator)
        terms: dict[Any, int] = {}
        for product, c in zip(self._products, solution, strict=True):
            terms[product] = int(c * divisor)
        size = simplest(SymbolicDim(terms, self.scope))
        return size if divisor == 1 else size // divisor

    def _choices(self, values: Sequence[int]) -> Iterator[Any]:
        """The lesser or greater of a dim, moved by a number, and a number or another dim."""
        dims = [SymbolicDim.variable(name, self.scope) for name in self.names]
        for name, dim in zip(self.names, dims, strict=True):
            sorted_pairs = sorted((env[name], n) for env, n in self._where(values))
            (small, at_small), (large, at_large) = sorted_pairs[0], sorted_pairs[-1]
            yield least(dim + (at_small - small), at_large)
            yield greatest(dim + (at_large - large), at_small)
        for a, b in itertools.combinations(dims, 2):
            yield least(a, b)
            yield greatest(a, b)

    def _quotients(self, values: Sequence[int]) -> Iterator[Any]:
        """``v*floordiv(b + q, k) + w`` of one variable, else ``u*b`` more."""
        for offset, name in itertools.product((0, 1), self.names):
            dim = SymbolicDim.variable(name, self.scope)
            for k in _PERIODS:
                for q in range(k) if k <= 16 else (0, 1, k // 2, k - 1):
                    rows = [[offset * env[name], (env[name] + q) // k, 1] for env, _ in self._where(values)]
                    solution = _solution(rows, values)
                    if solution is not None and all(c.denominator == 1 for c in solution):
                        u, v, w = map(int, solution)
                        yield u * dim + v * ((dim + q) // k) + w


def _products(names: Sequence[str]) -> Iterator[Any]:
    """The products that polynomials are sums of; of more than two variables only those of different ones."""
    most = 3 if len(names) != 2 else 2
    pick = itertools.combinations if len(names) > 2 else itertools.combinations_with_replacement
    for degree in range(most + 1):
        for factors in pick(sorted(names), degree):
            yield tuple((name, factors.count(name)) for name in sorted(set(factors)))


def _product(product: Any, env: Env) -> int:
    value = 1
    for name, power in product:
        value *= env[name] ** power
    return value


def _pool(name: str, scope: SymbolicScope) -> list[int]:
    """Values of a variable that its own constraints allow, the usual ones first."""
    low, high = scope.range_of(name)
    own = [
        c
        for c in scope.constraints
        if set().union(*(s.variables() for s in c[2:] if isinstance(s, SymbolicDim))) == {name}
    ]

    def is_allowed(n: int) -> bool:
        return low <= n <= high and all(
            _holds(sign, evaluate_size(left, {name: n}), evaluate_size(right, {name: n}))
            for _, sign, left, right in own
        )

    first = int(max(low, 5))
    sizes = sorted(n for n in _SIZES if is_allowed(n))
    for n in range(first, first + 4096):
        if len(sizes) >= len(_SIZES):
            break
        if n not in sizes and is_allowed(n):
            sizes.append(n)
    return sizes or [n for n in range(int(low), first) if is_allowed(n)]


def _row(name: str, scope: SymbolicScope) -> range:
    low, high = scope.range_of(name)
    start = int(max(low, 6))
    return range(start, int(min(high + 1, start + _CONSECUTIVE)))


def _holds(sign: str, a: int, b: int) -> bool:
    return a == b if sign == "==" else a >= b if sign == ">=" else a <= b


def _choose_values(
    pools: Mapping[str, Sequence[int]], scope: SymbolicScope, count: int, fixed: Env
) -> Iterator[dict[str, int]]:
    """Values of all variables that the constraints allow, no two variables alike where that can be."""
    numbers = random.Random(0)
    value_sets: list[dict[str, int]] = []
    for distinct in (True, False):
        for _ in range(500 * count):
            if len(value_sets) >= count:
                return
            env = {**fixed, **{name: numbers.choice(pool) for name, pool in pools.items() if pool}}
            if len(env) < len(fixed) + len(pools) or env in value_sets or scope.violated_constraint(env) is not None:
                continue
            if distinct and not _distinct(env, pools):
                continue
            value_sets.append(env)
            yield env
        if value_sets:
            return
    raise ValueError(
        f"The symbolic constraints of {scope} leave the dims no values that a function could be traced at."
    )


def _distinct(env: Env, names: Iterable[str]) -> bool:
    values = [env[name] for name in names]
    return len(set(values)) == len(values)


def _small(names: Sequence[str], base: Env, scope: SymbolicScope) -> Iterator[dict[str, int]]:
    """Values where each set of variables is 1, or one of them 2 to 6."""
    ones = [dict.fromkeys(c, 1) for count in range(1, len(names) + 1) for c in itertools.combinations(names, count)]
    for new_sizes in (*ones, *[{name: n} for name in names for n in range(2, _LEAST)]):
        env = {**base, **new_sizes}
        if (
            env != base
            and all(_in(scope.range_of(k), n) for k, n in new_sizes.items())
            and scope.violated_constraint(env) is None
        ):
            yield env


def _far(names: Sequence[str], base: Env, scope: SymbolicScope) -> Iterator[dict[str, int]]:
    """The least values that are not among the small ones, and large ones, of each variable and of all together."""
    environments: list[Env] = []
    for chosen in dict.fromkeys([*((name,) for name in names), tuple(names)]):
        ranges = [scope.range_of(name) for name in chosen]
        for n in (_LEAST, *_FAR):
            given = {
                name: int(min(max(n + 2 * i, low), high - 1))
                for i, (name, (low, high)) in enumerate(zip(chosen, ranges, strict=True))
            }
            env = {**base, **given}
            if env != base and env not in environments and scope.violated_constraint(env) is None:
                environments.append(env)
                yield env


def _in(ends: tuple[float, float], n: int) -> bool:
    return ends[0] <= n <= ends[1]


def _solution(rows: Sequence[Sequence[int]], values: Sequence[int]) -> list[Fraction] | None:
    """Numbers by which the rows give these values, exactly; None if there are none."""
    width = len(rows[0])
    table = [[Fraction(x) for x in (*row, value)] for row, value in zip(rows, values, strict=True)]
    pivots: list[int] = []
    for column in range(width):
        at = next((i for i in range(len(pivots), len(table)) if table[i][column]), None)
        if at is None:
            continue
        here = len(pivots)
        table[here], table[at] = table[at], table[here]
        lead = table[here][column]
        table[here] = [x / lead for x in table[here]]
        for i, row in enumerate(table):
            if i != here and row[column]:
                factor = row[column]
                table[i] = [x - factor * y for x, y in zip(row, table[here], strict=True)]
        pivots.append(column)
    if any(row[width] for row in table[len(pivots) :]):
        return None
    solution = [Fraction(0)] * width
    for i, column in enumerate(pivots):
        solution[column] = table[i][width]
    return solution


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a
