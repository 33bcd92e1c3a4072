"""Notes on operations for XLA. No XLA runs here, so nothing reads them, and programs do the same with and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shardwise.base.listing import listing as _listing

__all__ = ["set_xla_metadata"]


F = TypeVar("F", bound=Callable[..., Any])


class _NoMetadata:
    def __call__(self, function: F) -> F:
        """`function` itself: as a decorator it leaves compiled functions with their methods."""
        return function

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: Any) -> None:
        return None


def set_xla_metadata(x: Any = None, **notes: Any) -> Any:
    """Without `x` a context manager (and decorator) for the operations inside of it; with `x` that value.

    The `notes` go nowhere: JAX writes them into the text that XLA reads, and the numbers do not depend on them.

    >>> with jax.experimental.xla_metadata.set_xla_metadata(note="mine"):
    ...     print(jnp.sin(0.0))
    0.0
    """
    return _NoMetadata() if x is None else x


__dir__ = _listing(__name__)
