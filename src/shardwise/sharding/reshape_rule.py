"""The sharding rule of a reshape: the pieces that the operand's dims and the result's dims have in common.

In: two shapes with equal element counts. Out: a `Rule` whose factors are those pieces.

Both shapes are read in row-major order. If both have covered the same number of elements, the next dims share a piece of
size gcd(rest of the operand's dim, rest of the result's dim). If that is 1, the two shapes have no common piece until
their products are equal again, and the dims in between get factors of their own, which must be replicated.
"""

from __future__ import annotations

from math import gcd

from shardwise.base.caches import recent
from shardwise.base.shapes import Shape
from shardwise.sharding.rule import Kind, Rule, TensorFactors


class _Side:
    """One of the two shapes, read from its major end; dims of size 1 are skipped and get no factors."""

    __slots__ = ("dim", "factors", "passed", "rest", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.factors: list[list[int]] = [[] for _ in shape]
        self.passed = 1  # elements covered by the factors so far
        self.dim = -1
        self.rest = 1  # the rest of the current dim
        self._skip()

    def _skip(self) -> None:
        while self.rest == 1 and self.dim < len(self.shape):
            self.dim += 1
            self.rest = self.shape[self.dim] if self.dim < len(self.shape) else 0

    @property
    def done(self) -> bool:
        return self.dim >= len(self.shape)

    def take(self, factor: int, size: int) -> None:
        """Assign the next `size` of the current dim to this factor."""
        self.factors[self.dim].append(factor)
        self.passed *= size
        self.rest //= size
        self._skip()

    def result(self) -> TensorFactors:
        return tuple(map(tuple, self.factors))


@recent(4096)
def reshape_rule(in_shape: Shape, out_shape: Shape) -> Rule:
    """The rule for reshaping `in_shape` to `out_shape` (equal element counts, row-major order).

    A dim made of several factors lists them major first: ``(8, 4) -> (2, 16)`` has factors of the sizes 2, 4, 4; the
    operand is ``(0 1) 2`` and the result ``0 (1 2)``. Factors on only one side are of kind REPLICATE.

    >>> reshape_rule((8, 4), (2, 16)).inputs, reshape_rule((8, 4), (2, 16)).outputs
    ((((0, 1), (2,)),), (((0,), (1, 2)),))
    """
    sizes: list[int] = []
    kinds: list[Kind] = []

    def new(size: int, kind: Kind) -> int:
        sizes.append(size)
        kinds.append(kind)
        return len(sizes) - 1

    source, target = _Side(in_shape), _Side(out_shape)
    if 0 in in_shape or 0 in out_shape:  # no elements: products say nothing about which dims correspond
        for side in (source, target):
            side.factors = [[new(n, Kind.REPLICATE)] if n != 1 else [] for n in side.shape]
        return Rule((source.result(),), (target.result(),), tuple(sizes), tuple(kinds))
    while not (source.done and target.done):
        if source.passed == target.passed:
            common = gcd(source.rest, target.rest)
            if common > 1:
                factor = new(common, Kind.PASS)
                source.take(factor, common)
                target.take(factor, common)
                continue
            own: tuple[_Side, ...] = (source, target)
        else:
            own = (source,) if source.passed < target.passed else (target,)
        for side in own:
            size = side.rest
            side.take(new(size, Kind.REPLICATE), size)
    return Rule((source.result(),), (target.result(),), tuple(sizes), tuple(kinds))
