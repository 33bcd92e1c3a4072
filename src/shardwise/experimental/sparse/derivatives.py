"""`grad` and `value_and_grad` with respect to sparse arrays: by their elements, the places stay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tree import tree_flatten, tree_map, tree_unflatten
from shardwise.experimental.sparse.formats import JAXSparse
from shardwise.transforms.derivatives.autodiff import value_and_grad as _value_and_grad


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """`shardwise.value_and_grad` (`fun`, `argnums`, `has_aux` and `kwargs` as there) for functions of sparse arrays:
    the gradient of one is a sparse array with elements at the same places.

    >>> import numpy as np
    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(np.diag([1.0, 2.0]))
    >>> sparse.value_and_grad(lambda m: ((m @ np.ones(2)) ** 2).sum())(m)[1].data
    Array([2., 4.], dtype=float32)
    """
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(fun)
    def wrapped(*args: Any, **given: Any) -> Any:
        chosen = [args[i] for i in nums]

        def of_elements(*elements: Any) -> Any:
            full = list(args)
            for i, arg, own in zip(nums, chosen, elements, strict=True):
                full[i] = _with_elements(arg, own)
            return fun(*full, **given)

        value, grads = _value_and_grad(of_elements, tuple(range(len(nums))), has_aux, **kwargs)(*map(_elements, chosen))
        found = [_with_elements(arg, g) for arg, g in zip(chosen, grads, strict=True)]
        return value, found[0] if isinstance(argnums, int) else tuple(found)

    return wrapped


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """`shardwise.grad` (`fun`, `argnums`, `has_aux` and `kwargs` as there) for functions of sparse arrays: the
    gradient of one is a sparse array with elements at the same places.

    >>> m = jax.experimental.sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> jax.experimental.sparse.grad(lambda m: jnp.sum((m @ jnp.ones(3)) ** 2))(m).data
    Array([10., 10.], dtype=float32)
    """
    both = value_and_grad(fun, argnums, has_aux, **kwargs)

    @functools.wraps(fun)
    def wrapped(*args: Any, **given: Any) -> Any:
        value, found = both(*args, **given)
        return (found, value[1]) if has_aux else found

    return wrapped


def _is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


def _elements(arg: Any) -> Any:
    return tree_map(lambda x: x.data if _is_sparse(x) else x, arg, is_leaf=_is_sparse)


def _with_elements(arg: Any, elements: Any) -> Any:
    """`arg` with other elements in its sparse arrays, and other arrays."""
    leaves, tree = tree_flatten(arg, is_leaf=_is_sparse)
    found: list[Any] = []
    for leaf, own in zip(leaves, tree.flatten_up_to(elements), strict=True):
        if _is_sparse(leaf):
            parts, structure = tree_flatten(leaf)  # the elements come first in every format
            own = tree_unflatten(structure, [own, *parts[1:]])
        found.append(own)
    return tree_unflatten(tree, found)
