"""`sparsify`: functions of dense arrays, called with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.base.tree import tree_leaves
from shardwise.base.wrapping import wraps
from shardwise.experimental.sparse.formats import JAXSparse


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """`f` for arguments some of which may be sparse arrays. Those refuse: `f` has no sparse form here.

    `use_tracer` chooses one of two ways to find the sparse form, and so has no effect.

    Raises:
        NotImplementedError: when it is called with a sparse array.

    >>> jax.experimental.sparse.sparsify(jnp.sum)(jnp.arange(3))
    Array(3, dtype=int32)
    """
    del use_tracer

    @wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        for leaf in tree_leaves((args, kwargs), is_leaf=lambda x: isinstance(x, JAXSparse)):
            if isinstance(leaf, JAXSparse):
                raise NotImplementedError(
                    f"sparsify({getattr(f, '__name__', f)}) got {leaf}: functions of dense arrays have no sparse form here. Use the "
                    "array's own methods (@, *, sum, reshape, transpose), or its todense()."
                )
        return f(*args, **kwargs)

    return called
