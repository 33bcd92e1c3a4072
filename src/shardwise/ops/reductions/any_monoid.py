"""Reductions with any monoid: `reduce`. Those that an op of its own computes become that op, others fold halves of their dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.shapes import Ints
from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.ir import Array, Literal, Op, Program, ShapedArray, bind, eval_program, trace_program
from shardwise.ir.showing import SHOWING
from shardwise.ops.elementwise.binary import add_p, max_p, min_p, mul_p
from shardwise.ops.elementwise.bitwise import and_p, or_p, xor_p
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.reductions.initial import initial_value
from shardwise.ops.reductions.reduce import (
    check_axes,
    reduce_and_p,
    reduce_max_p,
    reduce_min_p,
    reduce_or_p,
    reduce_prod_p,
    reduce_sum,
    reduce_sum_p,
    reduce_xor_p,
)
from shardwise.ops.rules.bodies import define_shown
from shardwise.ops.rules.dims import int_tuple
from shardwise.ops.rules.operands import Value, operand
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.ops.shapes.joining import concatenate
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.ops.shapes.transpose import squeeze
from shardwise.runtime.monoids import MONOIDS

__all__ = ["reduce"]

_MONOIDS = {add_p: reduce_sum_p, mul_p: reduce_prod_p, max_p: reduce_max_p, min_p: reduce_min_p, and_p: reduce_and_p,
            or_p: reduce_or_p, xor_p: reduce_xor_p}  # fmt: skip


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Fold `computation` over these dims of the operands, arrays of one shape in any pytree: f[a, b] with (0,) -> f[b].

    Args:
        operands: the pytree of arrays.
        init_values: a pytree of scalars with the same structure: the identity of `computation`.
        computation: maps two pytrees like `operands` to one; associative and elementwise.
        dimensions: the dims to reduce.
        out_sharding: the sharding of a sum's result on Explicit axes.

    Raises:
        ValueError: trees do not match, initial values are not scalars, or dims are repeated or out of range.
        TypeError: dtypes do not match.
        NotImplementedError: `computation` is not elementwise, or `out_sharding` is given for another fold than a sum.

    >>> lax.reduce(jnp.array([1, 2, 3]), 0, lax.add, (0,))
    Array(6, dtype=int32)
    """
    xs, tree = tree_flatten(operands)
    inits, init_tree = tree_flatten(init_values)
    if tree != init_tree:
        raise ValueError(f"reduce takes init_values of the operands' structure, got {init_tree} for {tree}.")
    xs = [operand("reduce", x, i) for i, x in enumerate(xs)]
    inits = [initial_value("reduce", v, x, computation) for v, x in zip(inits, xs, strict=True)]
    dims = int_tuple(dimensions, "reduce dimensions")
    for x in xs:
        check_axes("reduce", x.aval, dims)
        if x.shape != xs[0].shape:
            raise TypeError(f"reduce takes operands of one shape, got {', '.join(str(v.shape) for v in xs)}.")

    def combine(*values: Any) -> list[Any]:
        out, out_tree = tree_flatten(
            computation(tree_unflatten(tree, values[: len(xs)]), tree_unflatten(tree, values[len(xs) :]))
        )
        if out_tree != tree:
            raise TypeError(f"reduce: computation must return the operands' structure {tree}, got {out_tree}.")
        return [operand("reduce", v) for v in out]

    scalars = [ShapedArray((), x.dtype) for x in xs]
    program, consts = trace_program(combine, scalars + scalars, "reduce")
    for have, want in zip(program.out_types, scalars, strict=True):
        if have.dtype != want.dtype or have.shape:
            raise TypeError(
                f"reduce: computation must return {want.str_short()} where it gets that, got {have.str_short()}."
            )
    op = _monoid_of(program)
    if op is None:
        if out_sharding is not None:
            raise NotImplementedError("reduce takes out_sharding= for sums only; reshard the result instead.")
        if SHOWING.get() and not consts:
            outs = bind(_reduce_p, *xs, *inits, computation=computation, dimensions=dims, jaxpr=program)
        else:
            outs = _fold_dims(program, consts, xs, inits, dims)
    else:
        outs = [_monoid(op, xs[0], inits[0], dims, out_sharding)]
    return tree_unflatten(tree, outs)


def _fold_dims(program: Program, consts: list[Any], xs: Sequence[Any], inits: Sequence[Value], dims: Ints) -> list[Any]:
    folded_values = _fold(program, consts, list(xs), list(inits), dims)
    return [
        convert(out, x.dtype, x.aval.weak_type and init.aval.weak_type)
        for out, x, init in zip(folded_values, xs, inits, strict=True)
    ]


def _reduce_body(*values: Any, computation: Any, dimensions: Ints, jaxpr: Program) -> list[Any]:
    del computation  # `jaxpr` is its program
    half = len(values) // 2
    return _fold_dims(jaxpr, [], values[:half], values[half:], dimensions)


_reduce_p = define_shown("reduce", _reduce_body, several=True)


def _monoid_of(program: Program) -> Op | None:
    """The reduction op equivalent to a program that is one known equation on its two inputs; else None."""
    if len(program.equations) != 1 or len(program.inputs) != 2 or program.num_consts:
        return None
    (eqn,) = program.equations
    same = set(eqn.inputs) == set(program.inputs) and program.outputs == eqn.outputs
    return _MONOIDS.get(eqn.op) if same else None


def _monoid(op: Op, x: Value, init: Value, dims: Ints, out_sharding: Any) -> Array:
    reduction = op.reduction_of({})
    if op is reduce_sum_p:
        total = reduce_sum(x, dims, out_sharding=out_sharding)
    elif out_sharding is not None:
        raise NotImplementedError(f"{op.name} takes no out_sharding=; reshard the result instead.")
    else:
        total = bind(op, x, axes=dims)
    if isinstance(init, Literal) and init.value[()] == MONOIDS[reduction].identity(x.dtype):
        return total
    binary = next(b for b, monoid_op in _MONOIDS.items() if monoid_op is op)
    return bind(binary, init, total)


def _fold(program: Program, consts: list[Any], xs: list[Any], inits: list[Value], dims: Ints) -> list[Any]:
    """Combine neighbours pairwise, in log2(n) rounds per dim; then combine the result with the initial value."""
    if any(e.op.rule is not None or e.op.multiple_results for e in program.equations):
        raise NotImplementedError(
            "reduce: computation must be elementwise. Use lax.scan or lax.associative_scan for others."
        )
    for d in dims:
        if not xs[0].shape[d]:
            shape = tuple(1 if i == d else n for i, n in enumerate(xs[0].shape))
            xs = [broadcast_in_dim(v, shape, ()) for v in inits]
        while xs[0].shape[d] > 1:
            n = xs[0].shape[d]
            even = n - n % 2
            left = [slice_in_dim(x, 0, even, 2, d) for x in xs]
            right = [slice_in_dim(x, 1, even, 2, d) for x in xs]
            pairs = eval_program(program, [*consts, *left, *right])
            xs = (
                pairs
                if even == n
                else [concatenate([p, slice_in_dim(x, even, n, 1, d)], d) for p, x in zip(pairs, xs, strict=True)]
            )
    xs = [squeeze(x, dims) for x in xs]
    full = [broadcast_in_dim(v, xs[0].shape, ()) for v in inits]
    return eval_program(program, [*consts, *full, *xs])
