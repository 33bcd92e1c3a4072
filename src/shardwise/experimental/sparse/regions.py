"""Loops and branches of `sparsify`: their carries, operands and results may be `BCOO` arrays.

In: an equation, its operands, and `run`, which gives the sparse form of a program. Out: the results. What is known of places (sorted,
unique) holds on for a carry if each step keeps it; a carry that a step makes dense is dense from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tree import tree_map
from shardwise.experimental.sparse.bcoo import BCOO
from shardwise.ir import Equation, Program
from shardwise.lax import adaptive as lax
from shardwise.ops.rules.convert import as_array
from shardwise.transforms.jit.jaxpr import eval_shape

Values = Sequence[Any]
Run = Callable[[Program, Values], list[Any]]


def _is_sparse(x: Any) -> bool:
    return isinstance(x, BCOO)


def _arrays(values: Values) -> list[Any]:
    return [x if _is_sparse(x) else as_array(x) for x in values]


def _of_kind(x: Any, like: Any) -> Any:
    """`x` in the form of `like`: dense, or sparse and `indices_sorted` and `unique_indices` only where `like` is, too."""
    if not _is_sparse(like):
        return x.todense() if _is_sparse(x) else x
    new_value = object.__new__(BCOO)  # of arrays, or of their types
    new_value.data, new_value.indices, new_value.shape = x.data, x.indices, x.shape
    new_value.indices_sorted = x.indices_sorted and like.indices_sorted
    new_value.unique_indices = x.unique_indices and like.unique_indices
    return new_value


def _common(x: Any, y: Any, where: str) -> Any:
    """The common type: dense, or sparse with the known places of both."""
    if not (_is_sparse(x) and _is_sparse(y)):
        return y if _is_sparse(x) else x
    if (x.data.shape, x.indices.shape) != (y.data.shape, y.indices.shape):
        raise NotImplementedError(
            f"{where} gives {x} here and {y} there: keep the number of elements, by sum_duplicates(nse=...) for instance, or use todense()."
        )
    return _of_kind(x, y)


def _settle_carry(step: Callable[[list[Any]], Values], carry: Values) -> list[Any]:
    """The carry in the form that each step keeps."""
    arrays = _arrays(carry)
    while True:
        after = eval_shape(step, arrays)
        kinds = [_common(x, y, "a step of the loop") for x, y in zip(arrays, after, strict=True)]
        new = [_of_kind(x, kind) for x, kind in zip(arrays, kinds, strict=True)]
        if [_state(x) for x in new] == [_state(x) for x in arrays]:
            return new
        arrays = new


def _state(x: Any) -> Any:
    return (x.indices_sorted, x.unique_indices) if _is_sparse(x) else None


def branches(run: Run, eqn: Equation, index: Any, *operands: Any) -> list[Any]:
    """A choice among programs, whose results have one form."""
    programs = eqn.params["branches"]
    given = _arrays(operands)
    result_types = [eval_shape(lambda xs, p=p: run(p, xs), given) for p in programs]
    kinds = result_types[0]
    for other in result_types[1:]:
        kinds = [_common(x, y, "a branch") for x, y in zip(kinds, other, strict=True)]

    def one(program: Program) -> Callable[..., list[Any]]:
        return lambda *xs: [_of_kind(x, k) for x, k in zip(run(program, xs), kinds, strict=True)]

    return list(lax.switch(as_array(index), [one(p) for p in programs], *given))


def while_loop(run: Run, eqn: Equation, *operands: Any) -> list[Any]:
    """A loop with a test."""
    params = eqn.params
    a, b = params["cond_consts"], params["cond_consts"] + params["body_consts"]
    test_consts, body_consts = operands[:a], operands[a:b]
    step = lambda carry: run(params["body"], [*body_consts, *carry])  # noqa: E731
    carry = _settle_carry(step, operands[b:])

    def body(values: list[Any]) -> list[Any]:
        return [_of_kind(x, like) for x, like in zip(step(values), values, strict=True)]

    return list(lax.while_loop(lambda values: run(params["cond"], [*test_consts, *values])[0], body, carry))


def scan(run: Run, eqn: Equation, *operands: Any) -> list[Any]:
    """A loop over dense arrays. NotImplementedError for sparse ones."""
    params = eqn.params
    a, b = params["num_consts"], params["num_consts"] + params["num_carry"]
    consts, xs = operands[:a], _arrays(operands[b:])
    if any(map(_is_sparse, xs)):
        raise NotImplementedError("scan over the rows of a sparse array: loop over positions, or use todense().")
    count = params["num_carry"]
    first = tree_map(lambda x: x[0], xs) if params["length"] else xs
    step = lambda carry: run(params["body"], [*consts, *carry, *first])[:count]  # noqa: E731
    carry = _settle_carry(step, operands[a:b]) if params["length"] else _arrays(operands[a:b])

    def body(values: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = run(params["body"], [*consts, *values, *row])
        carry_values = [_of_kind(x, like) for x, like in zip(outs[:count], values, strict=True)]
        return carry_values, [x.todense() if _is_sparse(x) else x for x in outs[count:]]

    last, rows = lax.scan(body, carry, xs, length=params["length"], reverse=params["reverse"])
    return [*last, *rows]
