"""Jacobians and Hessians: one-hot tangents or cotangents pushed through a mapped derivative."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from shardwise.base.signatures import P
from shardwise.base.tracebacks import user_facing
from shardwise.base.tree import PyTreeDef, tree_flatten, tree_unflatten
from shardwise.base.wrapping import wraps
from shardwise.ir import ShapedArray, current_trace
from shardwise.ir.references import is_reference
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array, as_value, hand_out
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.ops.shapes.reshape import reshape
from shardwise.transforms.derivatives.arguments import (
    call_with,
    check_argnums,
    check_input,
    check_output,
    flat_arrays,
    split_aux,
)
from shardwise.transforms.derivatives.autodiff import jvp, pullback, strip_tangents
from shardwise.transforms.interpreters.vmap import vmap
from shardwise.transforms.tracing import describe


def _basis(values: Sequence[Any]) -> list[Any]:
    """One-hot tangents: for each value an array with a leading dim over all elements of all values."""
    total = sum(v.size for v in values)
    out, start = [], 0
    for v in values:
        rows = np.zeros((total, v.size), v.dtype)
        rows[start : start + v.size] = np.eye(v.size, dtype=v.dtype)
        out.append(convert(as_array(rows.reshape(total, *v.shape)), v.dtype, v.aval.weak_type))
        start += v.size
    return out


def _split(stacked: Any, values: Sequence[Any], leading: bool, like: ShapedArray) -> list[Any]:
    """A Jacobian over all elements as one array per value, its element dims unfolded, each as weakly typed as `like`, as JAX has them."""

    out, start = [], 0
    for v in values:
        axis = 0 if leading else stacked.ndim - 1
        part = slice_in_dim(stacked, start, start + v.size, axis=axis)
        rest = stacked.shape[1:] if leading else stacked.shape[:-1]
        part = reshape(part, (*v.shape, *rest) if leading else (*rest, *v.shape))
        out.append(convert(part, part.dtype, like.weak_type) if part.dtype == like.dtype else part)
        start += v.size
    return hand_out(out)


def jacfwd(
    fun: Callable[P, Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[P, Any]:
    """A function that gives the Jacobian of `fun` by forward mode, one column per input element: for tall Jacobians.
    f[n] -> f[m] has the Jacobian f[m, n]; trees nest, those of results outside.

    Args:
        argnums: the position or positions of the arguments to differentiate in.
        has_aux: `fun` returns a pair (value, aux); so does the result: (derivative, aux).
        holomorphic: `fun` is holomorphic, its arguments and results complex.

    Raises:
        TypeError: an argument is no float, or complex without `holomorphic`.

    >>> jax.jacfwd(lambda x: jnp.array([x[0] * x[1], x[0]]))(jnp.array([2.0, 3.0]))
    Array([[3., 2.],
           [1., 0.]], dtype=float32)
    """

    @wraps(fun)
    @user_facing
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nums = check_argnums(argnums, args, "jacfwd")
        chosen = tuple(args[n] for n in nums)
        ps, structure = flat_arrays(chosen)
        for p in ps:
            check_input(p, holomorphic, False, "jacfwd")
        aux: list[Any] = []
        types: list[ShapedArray] = []  # of the results

        def partial(*leaves: Any) -> Any:
            out = call_with(fun, args, kwargs, nums, tree_unflatten(structure, leaves))
            if has_aux:
                out, aux_out = split_aux(out)
                aux[:] = [aux_out, current_trace()]
            return out

        def push(*tangents: Any) -> Any:
            results, tangents_out = jvp(partial, tuple(ps), tangents)
            leaves = tree_flatten(results)[0]
            if any(map(is_reference, leaves)):
                raise ValueError(
                    "jacfwd takes apart arrays, and the function returns a Ref. Return its array, ref[...]."
                )
            types[:] = [as_value(leaf).aval for leaf in leaves]
            for leaf in tree_flatten(tangents_out)[0] if holomorphic else ():
                check_output(leaf, holomorphic, "jacfwd")
            return tangents_out

        columns = vmap(push, out_axes=-1)(*_basis(ps))
        leaves, out_structure = tree_flatten(columns)
        parts = [_split(c, ps, False, t) for c, t in zip(leaves, types, strict=True)]
        jacobian = tree_unflatten(out_structure, [_argument_tree(p, structure, argnums) for p in parts])
        return (jacobian, strip_tangents(*aux)) if has_aux else jacobian

    return describe(wrapper, f"Jacobian of {{}} with respect to positional argument(s) {argnums}.")


def _argument_tree(parts: list[Any], structure: PyTreeDef, argnums: Any) -> Any:
    tree = tree_unflatten(structure, parts)
    return tree if isinstance(argnums, Iterable) else tree[0]


def jacrev(
    fun: Callable[P, Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False
) -> Callable[P, Any]:
    """A function that gives the Jacobian of `fun` by reverse mode, one row per output element: for wide Jacobians. f[n]
    -> f[m] has the Jacobian f[m, n]; trees nest, those of results outside.

    Args:
        argnums: the position or positions of the arguments to differentiate in.
        has_aux: `fun` returns a pair (value, aux); so does the result: (derivative, aux).
        holomorphic: `fun` is holomorphic, its arguments and results complex.
        allow_int: integer arguments are taken; their gradients are of dtype float0.

    Raises:
        TypeError: an argument is no float, or complex without `holomorphic`.

    >>> jax.jacrev(lambda x: x**2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """

    @wraps(fun)
    @user_facing
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nums = check_argnums(argnums, args, "jacrev")
        chosen = tuple(args[n] for n in nums)
        types = [as_value(leaf).aval for leaf in tree_flatten(chosen)[0]]
        for leaf in tree_flatten(chosen)[0]:
            check_input(as_value(leaf), holomorphic, allow_int, "jacrev")

        def partial(*picked: Any) -> Any:
            return call_with(fun, args, kwargs, nums, picked)

        out, pull, *aux = pullback(partial, tuple(chosen), has_aux)[: 2 + has_aux]
        outs, out_structure = tree_flatten(out)
        for leaf in outs:
            check_output(leaf, holomorphic, "jacrev")
        rows = vmap(lambda *cts: pull(tree_unflatten(out_structure, cts)))(*_basis(outs))
        leaves, structure = tree_flatten(rows)
        split = [_split(leaf, outs, True, t) for leaf, t in zip(leaves, types, strict=True)]
        per_out = [_argument_tree([s[i] for s in split], structure, argnums) for i in range(len(outs))]
        jacobian = tree_unflatten(out_structure, per_out)
        return (jacobian, aux[0]) if has_aux else jacobian

    return describe(wrapper, f"Jacobian of {{}} with respect to positional argument(s) {argnums}.")


jacobian = jacrev


def hessian(
    fun: Callable[P, Any], argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[P, Any]:
    """A function that gives the second derivatives of `fun`, forward over reverse: for f[n] -> f[] a matrix f[n, n].

    Args:
        argnums: the position or positions of the arguments to differentiate in.
        has_aux: `fun` returns a pair (value, aux); so does the result: (derivative, aux).
        holomorphic: `fun` is holomorphic, its arguments and results complex.

    >>> jax.hessian(lambda x: x[0] ** 2 * x[1])(jnp.array([1.0, 2.0]))
    Array([[4., 2.],
           [2., 0.]], dtype=float32)
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)
