"""`shardwise.experimental.jet`: Taylor coefficients of functions along curves, to any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.base.tree import tree_flatten, tree_map, tree_unflatten
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.derivatives.autodiff import jvp

__all__ = ["jet"]


def jet(
    fun: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]], factorial_scaled: bool = True
) -> tuple[Any, Any]:
    """``(fun(*primals), derivatives)`` of `fun` along the curve whose derivatives at 0 are `primals` and `series`.

    ``series[i][k]`` is the (k+1)-th derivative of argument i. The result holds for each output the list of its
    derivatives, of the orders given. By `jvp` of `jvp`: the cost doubles with each order. Without `factorial_scaled` series are Taylor
    coefficients, the derivatives divided by the factorial of their order.

    Raises:
        ValueError: arguments or their series of other number, structure or shape than each other.

    >>> jax.experimental.jet.jet(jnp.square, (3.0,), ([1.0, 0.0],))  # x**2 along 3 + t
    (Array(9., dtype=float32), [Array(6., dtype=float32), Array(2., dtype=float32)])
    """
    if len(primals) != len(series):
        raise ValueError(f"jet takes a series for each of {len(primals)} primals, got {len(series)}.")
    leaves, tree = tree_flatten(tuple(primals))
    points = [as_array(as_value(x)) for x in leaves]
    orders = {len(s) for s in series}
    if len(orders) != 1:
        raise ValueError(f"jet: the series have different lengths, {sorted(orders)}.")
    order = orders.pop()
    terms = []
    for k in range(order):
        tangents, found_tree = tree_flatten(tuple(s[k] for s in series))
        if found_tree != tree:
            raise ValueError(
                f"jet: the coefficients of order {k + 1} have the structure {found_tree}, the primals {tree}."
            )
        terms.append([as_array(as_value(x)) for x in tangents])
        for p, x in zip(points, terms[-1], strict=True):
            if p.shape != x.shape:
                raise ValueError(f"jet: a coefficient of order {k + 1} has shape {x.shape}, its primal {p.shape}.")
    out_tree: list[Any] = []

    def along(t: Any) -> list[Any]:
        moved_points = list(points)
        for k, coefficients in enumerate(terms, start=1):
            moved_points = [
                p + c * (t**k / (math.factorial(k) if factorial_scaled else 1)).astype(p.dtype)
                for p, c in zip(moved_points, coefficients, strict=True)
            ]
        outs, structure = tree_flatten(fun(*tree_unflatten(tree, moved_points)))
        out_tree[:] = [structure]
        return outs

    derivatives, function = [], along
    for number in range(order + 1):
        scale = 1 if factorial_scaled else math.factorial(number)
        derivatives.append([d if scale == 1 else d / scale for d in function(as_array(0.0))])
        function = _differentiate(function)
    per_output = (
        [list(column) for column in zip(*derivatives[1:], strict=True)] if order else [[] for _ in derivatives[0]]
    )
    value = tree_unflatten(out_tree[0], derivatives[0])
    boxes = tree_unflatten(out_tree[0], [_Box(column) for column in per_output])
    return value, tree_map(lambda box: box.items, boxes, is_leaf=lambda x: isinstance(x, _Box))


def _differentiate(function: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    return lambda t: jvp(function, (t,), (as_array(1.0),))[1]


class _Box:
    """A list as one leaf."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items


__dir__ = _listing(__name__)
