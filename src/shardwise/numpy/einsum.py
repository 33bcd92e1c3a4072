"""`einsum`: sums of products by labels, as a chain of `dot_general`s.

In: subscripts and arrays. Out: one array. Each step takes one or two operands: labels that only one of them has
and nobody wants are summed, repeated labels become diagonals, the rest is one matrix product and a free transpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.dtypes import check_requested, lattice_result_type
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, convert, no_out
from shardwise.numpy.products import dot as dot
from shardwise.numpy.products import inner as inner
from shardwise.numpy.products import kron as kron
from shardwise.numpy.products import matmul as matmul
from shardwise.numpy.products import matvec as matvec
from shardwise.numpy.products import outer as outer
from shardwise.numpy.products import tensordot as tensordot
from shardwise.numpy.products import vdot as vdot
from shardwise.numpy.products import vecdot as vecdot
from shardwise.numpy.products import vecmat as vecmat
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.ops.rules.precision import PrecisionLike
from shardwise.sharding import NamedSharding, PartitionSpec
from shardwise.transforms.manual.explicit import reshard

__all__ = ["dot", "einsum", "einsum_path", "inner", "kron", "matmul", "matvec", "outer", "tensordot", "vdot", "vecdot",
           "vecmat"]  # fmt: skip

Path = tuple[tuple[int, ...], ...]


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: str | bool | Sequence[tuple[int, ...]] = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    _dot_general: Callable[..., Array] = lax.dot_general,
    out_sharding: Any = None,
) -> Array:
    """Sum products of array elements over labelled dims: ``einsum('ij,jk->ik', a, b)`` is the matrix product.

    Labels that the output lacks are summed over; ``...`` stands for dims that broadcast; without ``->`` the output
    has the labels that occur once, sorted. ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` says the same with lists. Three
    and more operands are contracted in the order that `optimize` finds ('auto', 'optimal', 'greedy', ..., True, a
    path; False: left to right). The result has the operands' common type, or `preferred_element_type`.

    Raises ValueError for subscripts that do not fit the operands, NotImplementedError for `out`. See `dot_general`
    for `precision` and `out_sharding`.

    >>> a, b = jnp.ones((2, 3)), jnp.ones((3, 4))
    >>> jnp.einsum('ij,jk->ik', a, b).shape
    (2, 4)
    >>> jnp.einsum('ij->j', a)
    Array([2., 2., 2.], dtype=float32)
    """
    no_out("jnp.einsum", out)
    terms, arrays = _read(subscripts, operands)
    values = [array("einsum", x, i) for i, x in enumerate(arrays)]
    expression = parse(terms, tuple(v.shape for v in values))
    if preferred_element_type is None:
        dtype, weak = lattice_result_type(*values)
    else:
        dtype, weak = check_requested(preferred_element_type, "einsum"), False
    sharding = resolve_out_sharding(out_sharding, "einsum", len(expression.output))
    steps = _Steps(dtype, precision, _dot_general, asked=sharding is not None)

    named_terms = [
        steps.without_ones(x, labels, expression.sizes) for x, labels in zip(values, expression.inputs, strict=True)
    ]
    path = _path(expression, optimize if isinstance(optimize, str | bool) else tuple(map(tuple, optimize)))
    for i, chosen in enumerate(path):
        picked_terms = [named_terms[j] for j in chosen]
        named_terms = [x for j, x in enumerate(named_terms) if j not in chosen]
        last = i == len(path) - 1
        while len(picked_terms) > 2:  # a path may ask for several at once
            wanted_labels = _needed_labels(expression.output, picked_terms[2:] + named_terms)
            picked_terms = [steps.two(picked_terms[0], picked_terms[1], wanted_labels, None), *picked_terms[2:]]
        wanted_labels = expression.output if last else _needed_labels(expression.output, named_terms)
        out_labels = expression.output if last else None
        if len(picked_terms) == 2:
            if chosen[0] > chosen[1] and _splits_batch_apart(picked_terms[0], picked_terms[1], wanted_labels):
                picked_terms.reverse()
            result = steps.two(picked_terms[0], picked_terms[1], wanted_labels, out_labels, sharding if last else None)
        else:
            result = steps.one(*picked_terms[0], wanted_labels, out_labels)
            if last and sharding is not None:
                result = reshard(result[0], sharding), result[1]
        named_terms.append(result)
    ((value, _),) = named_terms
    return convert(value, dtype, weak)  # type: ignore[return-value]


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "auto") -> tuple[list[tuple[int, ...]], Any]:
    """The order in which `einsum` would contract `operands` by `subscripts`, and a report of its cost
    (`opt_einsum`'s). `optimize`: how to look for it, as for `einsum`.

    >>> jnp.einsum_path("ij,jk,kl->il", jnp.ones((9, 2)), jnp.ones((2, 8)), jnp.ones((8, 1)))[0]
    [(1, 2), (0, 1)]
    """
    import opt_einsum

    terms, arrays = _read(subscripts, operands)
    expression = parse(terms, tuple(np.shape(x) for x in arrays))
    if optimize is False:
        optimize = list(_left_to_right(len(arrays)))
    text = ",".join(expression.inputs) + "->" + expression.output
    return opt_einsum.contract_path(
        text, *(np.shape(x) for x in arrays), shapes=True, optimize="optimal" if optimize is True else optimize
    )  # type: ignore


# -- reading subscripts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expression:
    """Labels of the inputs and of the output, one character per dim, and each label's size."""

    inputs: tuple[str, ...]
    output: str
    sizes: dict[str, int]


def _read(subscripts: Any, operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Subscripts as text (``...`` kept) and the arrays, from either calling form."""
    if isinstance(subscripts, str):
        if not operands:
            raise ValueError(f"einsum {subscripts!r} got no operands.")
        return subscripts.replace(" ", ""), operands
    items = (subscripts, *operands)
    if len(items) < 2:
        raise ValueError("einsum takes subscripts and operands: einsum('ij,jk', a, b) or einsum(a, [0, 1], b, [1, 2]).")
    arrays, lists = items[0 : len(items) - len(items) % 2 : 2], items[1::2]
    output = items[-1] if len(items) % 2 else None
    if any(
        isinstance(x, str) or not isinstance(x, Sequence | np.ndarray) for x in (*lists, *([output] if output else []))
    ):
        raise ValueError("einsum with lists takes array, labels, array, labels, ..., and at last the output's labels.")
    labels = {x for entries in lists for x in entries if x is not Ellipsis}
    try:
        order = sorted(labels)
    except TypeError as error:
        raise ValueError(f"einsum labels in lists must be of one kind that sorts, got {labels}.") from error
    symbol = {x: _symbol(i) for i, x in enumerate(order)}
    if output is not None and any(x is not Ellipsis and x not in symbol for x in output):
        raise ValueError(f"einsum output labels {list(output)} include some that no operand has.")
    text = lambda entries: "".join("..." if x is Ellipsis else symbol[x] for x in entries)  # noqa: E731
    joined_terms = ",".join(text(entries) for entries in lists)
    return joined_terms if output is None else f"{joined_terms}->{text(output)}", arrays


def _symbol(i: int) -> str:
    return "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[i] if i < 52 else chr(i + 140)


@recent(1024)
def parse(text: str, shapes: tuple[tuple[int, ...], ...]) -> Expression:
    """Subscripts fitted to operands of these shapes; ValueError where they do not fit."""
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"einsum {text!r} has subscripts for {len(terms)} operands, but got {len(shapes)}.")
    used = set(text)
    broadcast = 0
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        term_labels = term.replace("...", "", 1)
        if any(c in ".->" for c in term_labels):  # any other character is a label, a digit as well
            raise ValueError(f"einsum {text!r}: operand {i} has the subscripts {term!r}, which are no labels.")
        if len(term_labels) > len(shape) or (len(term_labels) < len(shape) and "..." not in term):
            raise ValueError(
                f"einsum {text!r}: subscript {term!r} does not contain the correct number of indices for operand {i} of shape {shape}."
            )
        broadcast = max(broadcast, len(shape) - len(term_labels))
    fresh = (c for c in map(_symbol, range(10**4)) if c not in used)
    dots = "".join(next(fresh) for _ in range(broadcast))
    inputs = []
    for term, shape in zip(terms, shapes, strict=True):
        n = len(shape) - len(term.replace("...", "", 1))
        inputs.append(term.replace("...", dots[broadcast - n :], 1))
    if arrow:
        output = output.replace("...", dots, 1)  # without the dots, their dims are summed
    else:
        count = Counter("".join(inputs))
        output = dots + "".join(sorted(c for c, n in count.items() if n == 1 and c not in dots))
    sizes: dict[str, int] = {}
    for i, (labels, shape) in enumerate(zip(inputs, shapes, strict=True)):
        here: dict[str, int] = {}
        for c, n in zip(labels, shape, strict=True):
            if here.setdefault(c, n) != n:
                raise ValueError(
                    f"einsum {text!r}: label {c!r} stands for sizes {here[c]} and {n} in operand {i}. "
                    "Slice or broadcast the dims to one size."
                )
            known_size = sizes.get(c, 1)
            if known_size != n and 1 not in (known_size, n):
                raise ValueError(
                    f"einsum {text!r}: size of label {c!r} for operand {i} ({n}) does not match that of "
                    f"the previous ones ({known_size})."
                )
            if n != 1 or c not in sizes:
                sizes[c] = n
    if len(set(output)) != len(output) or not set(output) <= set(sizes):
        raise ValueError(f"einsum {text!r}: an output label is repeated, or did not appear in the input.")
    return Expression(tuple(inputs), output, sizes)


def _path(expression: Expression, optimize: Any) -> Path:
    n = len(expression.inputs)
    if isinstance(optimize, tuple):
        return optimize
    if n <= 2:
        return (tuple(range(n)),)
    if optimize is False:
        return _left_to_right(n)
    sizes = tuple(sorted(expression.sizes.items()))
    return _best_path(expression.inputs, expression.output, sizes, "optimal" if optimize is True else optimize)


def _left_to_right(n: int) -> Path:
    """Pairs in the given order: each result goes to the end, so the first pair is followed by it and its right neighbour."""
    return ((0, 1), *((n - 1 - i, 0) for i in range(1, n - 1))) if n > 1 else ((0,),)


@recent(512)
def _best_path(inputs: tuple[str, ...], output: str, sizes: tuple[tuple[str, int], ...], optimize: str) -> Path:
    import opt_einsum

    size = dict(sizes)
    shapes = [tuple(size[c] for c in labels) for labels in inputs]
    text = ",".join(inputs) + "->" + output
    path, _ = opt_einsum.contract_path(text, *shapes, shapes=True, optimize=optimize)  # type: ignore[call-overload]
    return tuple(map(tuple, path))


# -- contracting -----------------------------------------------------------------------------------------------

NamedArray = tuple[Array, str]  # an array and the label of each dim


def _needed_labels(output: str, others: Sequence[NamedArray]) -> set[str]:
    """The labels that must survive a step: those of the output and of the other operands."""
    return set(output).union(*(labels for _, labels in others))


def _splits_batch_apart(lhs: NamedArray, rhs: NamedArray, wanted: Any) -> bool:
    """Whether the types of two operands split a batch dim over different axes."""
    (x, left), (y, right) = lhs, rhs
    return any(c in right and x.aval.spec[d] != y.aval.spec[right.index(c)] for d, c in enumerate(left) if c in wanted)


@dataclass(frozen=True, slots=True)
class _Steps:
    """One- and two-operand contractions with common settings."""

    dtype: Any
    precision: PrecisionLike
    dot_general: Callable[..., Array]
    asked: bool  # whether the user gave out_sharding=: intermediate results then settle their sharding themselves

    def without_ones(self, x: Array, labels: str, sizes: dict[str, int]) -> NamedArray:
        """`x` without the dims of size 1 that broadcast against larger ones of the same label."""
        drop = tuple(d for d, c in enumerate(labels) if x.shape[d] == 1 != sizes[c])
        if not drop:
            return x, labels
        return lax.squeeze(x, drop), "".join(c for d, c in enumerate(labels) if d not in drop)

    def one(self, x: Array, labels: str, wanted: Any, output: str | None = None) -> NamedArray:
        """Sum the labels not wanted, take diagonals of repeated ones; in the order of `output`, if given."""
        for c, n in Counter(labels).items():
            if n > 1:
                x, labels = _diagonal(x, labels, c)
        drop = tuple(d for d, c in enumerate(labels) if c not in wanted)
        if drop:
            x = self.sum(x, drop)
            labels = "".join(c for c in labels if c in wanted)
        return self.arrange_dims(x, labels, output)

    def sum(self, x: Array, dims: tuple[int, ...]) -> Array:
        if x.dtype == np.bool_ and self.dtype == np.bool_:
            return lax.reduce_or(x, dims)
        if x.dtype != self.dtype and lattice_result_type(x, self.dtype)[0] == self.dtype:
            x = convert(x, self.dtype)  # type: ignore[assignment]
        return lax.reduce_sum(x, dims)

    def two(
        self, lhs: NamedArray, rhs: NamedArray, wanted: Any, output: str | None, sharding: NamedSharding | None = None
    ) -> NamedArray:
        """The product of two operands with the labels that are wanted."""
        x, left = self.one(*lhs, {*wanted, *rhs[1]})
        y, right = self.one(*rhs, {*wanted, *left})
        shared_labels = [c for c in left if c in right]
        order = output if output is not None else left
        batch = sorted((c for c in shared_labels if c in wanted), key=order.index)
        contracted_dims = [c for c in shared_labels if c not in wanted]
        left_free = "".join(c for c in left if c not in shared_labels)
        right_free = "".join(c for c in right if c not in shared_labels)
        is_swapped = (
            output is not None and "".join(batch) + right_free + left_free == output and bool(left_free and right_free)
        )
        if _splits_batch_apart((x, left), (y, right), batch):  # batch dims are split as those of the first one
            is_swapped = output is None or "".join(batch) + left_free + right_free != output
        if is_swapped:
            x, left, left_free, y, right, right_free = y, right, right_free, x, left, left_free
        labels = "".join(batch) + left_free + right_free
        numbers = (
            ([left.index(c) for c in contracted_dims], [right.index(c) for c in contracted_dims]),
            ([left.index(c) for c in batch], [right.index(c) for c in batch]),
        )
        extra: dict[str, Any] = {}
        if sharding is not None:
            extra["out_sharding"] = _permute_sharding(sharding, output or labels, labels)
        elif self.asked:
            merged_sharding = _merge_shardings(x, left, y, right, labels)
            if merged_sharding is not None:
                extra["out_sharding"] = merged_sharding
        product = self.dot_general(x, y, numbers, precision=self.precision, preferred_element_type=self.dtype, **extra)
        return self.arrange_dims(product, labels, output)

    def arrange_dims(self, x: Array, labels: str, output: str | None) -> NamedArray:
        if output is None or labels == output:
            return x, labels
        return lax.transpose(x, tuple(labels.index(c) for c in output)), output


def _diagonal(x: Array, labels: str, label: str) -> NamedArray:
    """Keep one dim for a repeated label: the elements at which its positions agree."""
    dims = [d for d, c in enumerate(labels) if c == label]
    rest = [d for d in range(x.ndim) if d not in dims]
    n, count = x.shape[dims[0]], len(dims)
    kept_labels = "".join(labels[d] for d in rest)
    x = lax.transpose(x, (*rest, *dims))
    if n == 1 or not x.size:
        return lax.reshape(x, (*x.shape[: len(rest)], n)), kept_labels + label
    if any(x.aval.spec[len(rest) :]):
        return _masked_diagonal(x, len(rest)), kept_labels + label
    # Row-major, the diagonal is every (1 + n + n**2 + ...)-th element.
    flat = lax.reshape(x, (*x.shape[: len(rest)], n**count))
    step = sum(n**i for i in range(count))
    ones = (1,) * len(rest)
    return lax.slice(flat, (0,) * flat.ndim, flat.shape, (*ones, step)), kept_labels + label


def _masked_diagonal(x: Array, first: int) -> Array:
    """The diagonal of the dims from `first` on, for dims that reshapes cannot merge because they are split."""
    shape = x.shape[first:]
    rows = lax.broadcasted_iota(np.dtype("int32"), shape, 0)
    mask = None
    for d in range(1, len(shape)):
        same = lax.eq(rows, lax.broadcasted_iota(np.dtype("int32"), shape, d))
        mask = same if mask is None else lax.bitwise_and(mask, same)
    mask = lax.broadcast_in_dim(mask, x.shape, range(first, x.ndim))
    diagonal = lax.select(mask, x, lax.full_like(x, 0))
    dims = tuple(range(first, x.ndim - 1))
    return lax.reduce_or(diagonal, dims) if x.dtype == np.bool_ else lax.reduce_sum(diagonal, dims)


def _permute_sharding(sharding: NamedSharding, output: str, labels: str) -> NamedSharding:
    """The sharding of dims `output`, for a value whose dims are `labels`."""
    if output == labels:
        return sharding
    entries = [*sharding.spec.partitions, *[None] * (len(output) - len(sharding.spec))]
    unreduced_axes = getattr(sharding.spec, "unreduced", None)
    marks = {"unreduced": unreduced_axes} if unreduced_axes else {}
    spec = PartitionSpec(*(entries[output.index(c)] for c in labels), **marks)
    return NamedSharding(sharding.mesh, spec)


def _merge_shardings(x: Array, left: str, y: Array, right: str, labels: str) -> NamedSharding | None:
    """How to split an intermediate product: as the operands are, the first to use an axis keeping it."""
    mesh = x.aval.mesh if x.aval.mesh is not None else y.aval.mesh
    if mesh is None:
        return None
    used: set[str] = set()
    entries: list[Any] = []
    for c in labels:
        axes = x.aval.spec[left.index(c)] if c in left else ()
        axes = axes or (y.aval.spec[right.index(c)] if c in right else ())
        entries.append(axes if axes and not used & set(axes) else None)
        used |= set(axes)
    return NamedSharding(mesh, PartitionSpec(*entries))
