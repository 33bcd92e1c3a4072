"""Sharding rules in the users' notation: text such as ``"... i j, j k -> ... i k"``, or mappings of dims to factor names.

In: the rule given to `custom_partitioning`. Out: the `Rule` for operands and results of known shapes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any

from shardwise.base.shapes import Shape
from shardwise.sharding.rule import Rule, rule_of_names

BATCHING = "…"
_FACTOR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CompoundFactor(tuple[str, ...]):
    """A dim made of several factors, major first."""

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ValueError("a compound dim is made of at least two factors")
        return super().__new__(cls, factors)


class ArrayMapping(tuple[Any, ...]):
    """The factors of one array's dims: names, `CompoundFactor`s, and `BATCHING` (optionally followed by a name) for leading dims."""

    def __new__(cls, *dims: Any) -> ArrayMapping:
        for i, dim in enumerate(dims):
            if not isinstance(dim, (str, CompoundFactor)):
                raise ValueError(
                    f"the dims of an ArrayMapping are names or CompoundFactors, got {dim!r} of type {type(dim).__name__}"
                )
            if isinstance(dim, str) and dim.startswith(BATCHING) and i:
                raise ValueError("batch dims (...) come first among the dims of an array")
            for name in dim if isinstance(dim, CompoundFactor) else (dim,):
                if not name.startswith(BATCHING) and not _FACTOR.fullmatch(name):
                    raise ValueError(f"factor names begin with a letter and hold letters, digits and _; got '{name}'")
        return super().__new__(cls, dims)


class SdyShardingRule:
    """The correspondence between the dims of operands and results.

    `operand_mappings` and `result_mappings` hold one `ArrayMapping` (or tuple) per value; `factor_sizes` holds the sizes of factors
    that occur only in compound dims. Dims with a factor in `need_replication_factors` stay whole.
    """

    def __init__(
        self,
        operand_mappings: Iterable[Any],
        result_mappings: Iterable[Any],
        *,
        reduction_factors: Iterable[str] = (),
        need_replication_factors: Iterable[str] = (),
        permutation_factors: Iterable[str] = (),
        **factor_sizes: int,
    ) -> None:
        self.operand_mappings = tuple(ArrayMapping(*m) for m in operand_mappings)
        self.result_mappings = tuple(ArrayMapping(*m) for m in result_mappings)
        self.reduction_factors = tuple(reduction_factors)
        self.need_replication_factors = tuple(need_replication_factors)
        self.permutation_factors = tuple(permutation_factors)
        self.factor_sizes = dict(factor_sizes)
        known_factors = {
            name
            for mapping in (*self.operand_mappings, *self.result_mappings)
            for dim in mapping
            for name in (dim if isinstance(dim, CompoundFactor) else (dim,))
        }
        special = (*self.reduction_factors, *self.need_replication_factors, *self.permutation_factors)
        for name in (*special, *self.factor_sizes):
            if name not in known_factors:
                raise ValueError(f"factor {name!r} has a size or a special kind, but no array of the rule has it")
        if len(set(special)) < len(special):
            raise ValueError(f"a factor has one kind; of {special} some are listed twice")

    def __repr__(self) -> str:
        return (
            f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, {self.factor_sizes}, "
            f"{self.reduction_factors}, {self.need_replication_factors}, {self.permutation_factors})"
        )

    def rule_for(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> Rule:
        """The rule for arrays of these shapes. ValueError if counts or ranks do not fit."""
        for what, mappings, shapes in (
            ("operands", self.operand_mappings, in_shapes),
            ("results", self.result_mappings, out_shapes),
        ):
            if len(mappings) != len(shapes):
                raise ValueError(f"the sharding rule is for {len(mappings)} {what}, but there are {len(shapes)}")
        ins, outs = (
            tuple(_dims(m, len(shape)) for m, shape in zip(mappings, shapes, strict=True))
            for mappings, shapes in ((self.operand_mappings, in_shapes), (self.result_mappings, out_shapes))
        )
        replicated_factors, permuted_factors = (
            frozenset(self.need_replication_factors),
            frozenset(self.permutation_factors),
        )
        return rule_of_names(
            ins, outs, tuple(in_shapes), tuple(out_shapes), self.factor_sizes, replicated_factors, permuted_factors
        )


def _dims(mapping: ArrayMapping, rank: int) -> tuple[tuple[str, ...], ...]:
    """The names of each dim's factors for a value of that rank."""
    batch_dims = [dim for dim in mapping if isinstance(dim, str) and dim.startswith(BATCHING)]
    extra = rank - (len(mapping) - len(batch_dims))
    if extra < 0 or (extra and not batch_dims):
        raise ValueError(f"the sharding rule has {len(mapping)} dims for a value of rank {rank}")
    batch = [(f"{batch_dims[0]}{i}",) for i in range(extra)] if batch_dims else []
    rest = [tuple(dim) if isinstance(dim, CompoundFactor) else (dim,) for dim in mapping if dim not in batch_dims]
    return (*batch, *rest)


def parse_rule(text: Any, **options: Any) -> SdyShardingRule:
    """The rule in `text`, with ``...`` for leading batch dims and ``(i j)`` for dims of several factors.

    Raises:
        ValueError: `text` has no ``->``, or is malformed.
    """
    if not isinstance(text, str):
        raise TypeError(f"a sharding rule is written as a str, got {type(text).__name__}")
    if text.count("->") != 1:
        raise ValueError(f"a sharding rule needs one -> between operands and results: {text!r}")
    operands, results = (_mappings(side) for side in text.replace("...", BATCHING).split("->"))
    return SdyShardingRule(operands, results, **options)


def _mappings(side: str) -> list[list[Any]]:
    return [_tokens(array) for array in side.split(",")]


def _tokens(array: str) -> list[Any]:
    dims: list[Any] = []
    group: list[str] | None = None
    for token in itertools.chain.from_iterable(re.findall(r"[()]|[^\s()]+", part) for part in array.split()):
        if token == "(":
            if group is not None:
                raise ValueError("compound dims do not nest: a bracket is open already")
            group = []
        elif token == ")":
            if group is None:
                raise ValueError("a bracket of the sharding rule lacks its partner")
            dims.append(CompoundFactor(*group))
            group = None
        elif group is not None:
            group.append(token)
        else:
            dims.append(token)
    if group is not None:
        raise ValueError("a bracket of the sharding rule lacks its partner")
    return dims
