"""Sharding rules: the correspondence of the dims of an op's operands and results, as an einsum-like signature.

In: a signature such as ``"i k, k j -> i j"`` and the shapes it is applied to.
Out: a `Rule`: every dim of every tensor as a list of *factors* (major first), each factor with a size and a kind.

The same rule drives forward and backward propagation, partitioning, the explicit-mode type rule and the cost estimate.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape

DimFactors = tuple[int, ...]  # the factors of one dim, major first; () for a dim of size 1
TensorFactors = tuple[DimFactors, ...]


class Kind(enum.IntEnum):
    """The communication that an op needs when a factor is sharded; in conflicts the first kind wins."""

    PASS = 0  # nothing: every device computes its own part
    REDUCE = 1  # absent from the results: a local op, then an all-reduce
    PERMUTE = 2  # neighbouring parts are needed (slice, pad, reverse, convolution windows)
    REPLICATE = 3  # the whole dim is needed on every device (sort, fft, cumsum, cholesky)


@dataclass(frozen=True, slots=True)
class Rule:
    """A sharding rule for one op applied to tensors of known shapes.

    `inputs[t][d]` and `outputs[t][d]` are the factors of dim `d` of tensor `t`, major first; `sizes` and `kinds` are
    indexed by factor. Shardings of factors in `blocked` propagate neither forward nor backward. If several factors want one
    axis, the largest tensor decides; among tensors of one size, tensor `favored` and then the first.
    """

    inputs: tuple[TensorFactors, ...]
    outputs: tuple[TensorFactors, ...]
    sizes: tuple[int, ...]
    kinds: tuple[Kind, ...]
    blocked: frozenset[int] = frozenset()
    favored: int | None = None

    @property
    def tensors(self) -> tuple[TensorFactors, ...]:
        """All tensors of the op, inputs first."""
        return self.inputs + self.outputs

    def factors_of(self, kind: Kind) -> tuple[int, ...]:
        """The factors of that kind."""
        return tuple(f for f, k in enumerate(self.kinds) if k is kind)


@recent(4096)
def _parse(signature: str) -> tuple[tuple[tuple[tuple[str, ...], ...], ...], tuple[tuple[tuple[str, ...], ...], ...]]:
    left, arrow, right = signature.partition("->")
    if not arrow:
        raise ValueError(f"a sharding rule needs '->': {signature!r}")

    def tensors(side: str) -> tuple[tuple[tuple[str, ...], ...], ...]:
        return tuple(_dims(text) for text in side.split(",")) if side.strip() or "," in side else ()

    return tensors(left), tensors(right)


def _dims(text: str) -> tuple[tuple[str, ...], ...]:
    dims: list[tuple[str, ...]] = []
    group: list[str] | None = None
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            group = []
        elif token == ")":
            assert group is not None
            dims.append(tuple(group))
            group = None
        elif group is not None:
            group.append(token)
        else:
            dims.append((token,))
    return tuple(dims)


def make_rule(
    signature: str,
    in_shapes: Sequence[Shape],
    out_shapes: Sequence[Shape],
    *,
    sizes: dict[str, int] | None = None,
    replicate: Iterable[str] = (),
    permute: Iterable[str] = (),
    blocked: Iterable[str] = (),
) -> Rule:
    """The rule that `signature` describes for tensors of these shapes.

    Dims are separated by spaces, tensors by commas; ``(i j)`` is a dim made of two factors, ``1`` and ``()`` a dim
    without factors. A factor that no result has is a reduction. A scalar tensor is an empty text between commas. Sizes of
    single-factor dims are read from the shapes (the largest counts: size-1 dims broadcast and lose the factor); sizes of
    grouped factors come from `sizes`.

    >>> make_rule("i k, k j -> i j", [(8, 4), (4, 2)], [(8, 2)]).kinds
    (<Kind.PASS: 0>, <Kind.REDUCE: 1>, <Kind.PASS: 0>)
    """
    ins, outs = _parse(signature)
    return rule_of_names(
        tuple(ins),
        tuple(outs),
        tuple(map(tuple, in_shapes)),
        tuple(map(tuple, out_shapes)),
        sizes or {},
        frozenset(replicate),
        frozenset(permute),
        frozenset(blocked),
    )


Names = tuple[tuple[tuple[str, ...], ...], ...]


def rule_of_names(
    ins: Names,
    outs: Names,
    in_shapes: tuple[Shape, ...],
    out_shapes: tuple[Shape, ...],
    given: dict[str, int],
    replicate: frozenset[str] = frozenset(),
    permute: frozenset[str] = frozenset(),
    blocked: frozenset[str] = frozenset(),
) -> Rule:
    """`make_rule` for dims given as tuples of factor names; `given` holds the sizes of factors in grouped dims."""
    if len(ins) != len(in_shapes) or len(outs) != len(out_shapes):
        raise ValueError(
            f"rule has {len(ins)} inputs and {len(outs)} outputs for {len(in_shapes)} and {len(out_shapes)}"
        )
    sizes: dict[str, int] = {}
    for names, shape in zip(ins + outs, in_shapes + out_shapes, strict=True):
        if len(names) != len(shape):
            raise ValueError(f"rule dims {names} do not fit shape {shape}")
        for dim, size in zip(names, shape, strict=True):
            for name in dim:
                if name != "1":
                    sizes[name] = given[name] if name in given else max(sizes.get(name, 1), size)
    index = {name: i for i, name in enumerate(sizes)}

    def tensor(names: tuple[tuple[str, ...], ...], shape: Shape) -> TensorFactors:
        return tuple(
            tuple(index[n] for n in dim if n != "1" and (sizes[n] != 1 if size != 1 else len(dim) == sizes[n] == 1))
            for dim, size in zip(names, shape, strict=True)
        )

    in_results = {name for names in outs for dim in names for name in dim}

    def kind(name: str) -> Kind:
        if name in replicate:
            return Kind.REPLICATE
        if name in permute:
            return Kind.PERMUTE
        return Kind.PASS if name in in_results else Kind.REDUCE

    return Rule(
        tuple(tensor(n, s) for n, s in zip(ins, in_shapes, strict=True)),
        tuple(tensor(n, s) for n, s in zip(outs, out_shapes, strict=True)),
        tuple(sizes.values()),
        tuple(kind(name) for name in sizes),
        frozenset(index[name] for name in blocked if name in index),
    )


@recent(4096)
def own_factors(shape: Shape) -> TensorFactors:
    """Factor d for dim d, dims of size 1 included, because axes of size 1 may split them."""
    return tuple((d,) for d in range(len(shape)))


def pointwise_rule(in_shapes: tuple[Shape, ...], out_shapes: tuple[Shape, ...]) -> Rule:
    """Elementwise over equal-rank operands; size-1 dims broadcast and scalars have no factors."""
    out = out_shapes[0]
    result: TensorFactors = tuple((d,) for d in range(len(out)))
    return Rule(
        tuple(
            tuple((d,) if n == m else () for d, (n, m) in enumerate(zip(s, out, strict=True))) if s else ()
            for s in in_shapes
        ),
        tuple(result for _ in out_shapes),
        out,
        (Kind.PASS,) * len(out),
    )


def batched_rule(rule: Rule, size: int, in_batched: Sequence[bool]) -> Rule:
    """`rule` with one more pass-through factor as the first dim of the batched inputs and of every output."""
    factor = len(rule.sizes)
    front: TensorFactors = ((factor,) if size != 1 else (),)
    return Rule(
        tuple((front + t) if b else t for t, b in zip(rule.inputs, in_batched, strict=True)),
        tuple(front + t for t in rule.outputs),
        (*rule.sizes, size),
        (*rule.kinds, Kind.PASS),
        rule.blocked,
    )
