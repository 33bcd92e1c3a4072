"""`grad`, `value_and_grad`, `jacfwd` and `jacrev` with respect to sparse arrays: by their elements, the places stay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tree import tree_flatten, tree_leaves, tree_map, tree_structure, tree_unflatten
from shardwise.experimental.sparse.formats import is_sparse
from shardwise.transforms.derivatives.autodiff import value_and_grad as _value_and_grad
from shardwise.transforms.derivatives.jacobians import jacfwd as _jacfwd
from shardwise.transforms.derivatives.jacobians import jacrev as _jacrev
from shardwise.transforms.interpreters.vmap import vmap


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
    def wrapper(*args: Any, **given: Any) -> Any:
        chosen = [args[i] for i in nums]
        of_elements = _of_elements(fun, nums, args, given)
        value, grads = _value_and_grad(of_elements, tuple(range(len(nums))), has_aux, **kwargs)(*map(_elements, chosen))
        gradients = [_with_elements(arg, g) for arg, g in zip(chosen, grads, strict=True)]
        return value, gradients[0] if isinstance(argnums, int) else tuple(gradients)

    return wrapper


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
    def wrapper(*args: Any, **given: Any) -> Any:
        value, gradient = both(*args, **given)
        return (gradient, value[1]) if has_aux else gradient

    return wrapper


def _elements(arg: Any) -> Any:
    return tree_map(lambda x: x.data if is_sparse(x) else x, arg, is_leaf=is_sparse)


def _with_elements(arg: Any, elements: Any) -> Any:
    """`arg` with other elements in its sparse arrays, and other arrays."""
    leaves, tree = tree_flatten(arg, is_leaf=is_sparse)
    leaves_found: list[Any] = []
    for leaf, own in zip(leaves, tree.flatten_up_to(elements), strict=True):
        if is_sparse(leaf):
            parts, structure = tree_flatten(leaf)  # the elements come first in every format
            own = tree_unflatten(structure, [own, *parts[1:]])
        leaves_found.append(own)
    return tree_unflatten(tree, leaves_found)


def _of_elements(
    fun: Callable[..., Any], nums: Sequence[int], args: Sequence[Any], given: dict[str, Any]
) -> Callable[..., Any]:
    """`fun` as a function of the elements of the arguments `nums`, at these other arguments."""

    def call(*elements: Any) -> Any:
        full = list(args)
        for i, own in zip(nums, elements, strict=True):
            full[i] = _with_elements(args[i], own)
        return fun(*full, **given)

    return call


def _jacobian(of: Callable[..., Any], name: str) -> Callable[..., Any]:
    def jacobian(
        fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
    ) -> Callable[..., Any]:
        nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)

        @functools.wraps(fun)
        def wrapper(*args: Any, **given: Any) -> Any:
            chosen = [args[i] for i in nums]

            call = _of_elements(fun, nums, args, given)

            def of_elements(*elements: Any) -> Any:
                result = call(*elements)
                if any(map(is_sparse, tree_leaves(result, is_leaf=is_sparse))):
                    raise NotImplementedError(
                        f"sparse.{name} of a function with a sparse result. Make it dense by todense(), or give its elements."
                    )
                return result

            every = tuple(range(len(nums)))
            jacobians = of(of_elements, every, has_aux=has_aux, **kwargs)(*map(_elements, chosen))
            parts, aux = jacobians if has_aux else (jacobians, None)

            def rebuild_slopes(slopes: tuple[Any, ...]) -> Any:
                pieces = tuple(map(_with_rows, chosen, slopes))
                return pieces[0] if isinstance(argnums, int) else pieces

            def is_slopes(x: Any) -> bool:
                if type(x) is not tuple or len(x) != len(nums):
                    return False
                same = lambda own, arg: tree_structure(own) == tree_structure(_elements(arg))  # noqa: E731
                return all(map(same, x, chosen))

            slopes = tree_map(rebuild_slopes, parts, is_leaf=is_slopes)
            return (slopes, aux) if has_aux else slopes

        return wrapper

    jacobian.__name__ = jacobian.__qualname__ = name
    jacobian.__doc__ = f"""`shardwise.{name}` of `fun`, a function of sparse arrays with a dense result, by the arguments `argnums`.

    By one of shape [m, n], a result of shape [k] has as slope a sparse array [k, m, n] with a batch dim and elements at the same
    places. `has_aux` and `kwargs` are as in `shardwise.{name}`. NotImplementedError for sparse results.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.{name}(lambda m: m @ jnp.ones(2))(m)
    BCOO(float32[2, 2, 2], nse=3, n_batch=1)
    """
    return jacobian


def _with_rows(arg: Any, slopes: Any) -> Any:
    """`arg` with slopes in place of its elements, whose leading dims become batch dims."""
    leaves, tree = tree_flatten(arg, is_leaf=is_sparse)
    return tree_unflatten(
        tree, [_rows_of(leaf, own) for leaf, own in zip(leaves, tree.flatten_up_to(slopes), strict=True)]
    )


def _rows_of(leaf: Any, slopes: Any) -> Any:
    if not is_sparse(leaf):
        return slopes
    build = lambda own: _with_elements(leaf, own)  # noqa: E731
    for _ in range(slopes.ndim - leaf.data.ndim):
        build = vmap(build)
    return build(slopes)


jacfwd = _jacobian(_jacfwd, "jacfwd")
jacrev = jacobian = _jacobian(_jacrev, "jacrev")
