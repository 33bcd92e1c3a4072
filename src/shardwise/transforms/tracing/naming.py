"""Names for parts of programs, shown in profiles: `named_scope` and `named_call`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from shardwise.base.config import Setting
from shardwise.base.wrapping import name_of, wraps

# This thread's open scopes, outermost first. Not traced: a name changes no program.
SCOPES: Setting[tuple[str, ...]] = Setting("named_scopes", (), traced=False)


def describe(wrapped: Callable[..., Any], sentence: str) -> Callable[..., Any]:
    """`wrapped`, a transformed function, with a docstring: `sentence` (its {} is the function's name), then the function's docstring."""
    own = wrapped.__doc__
    wrapped.__doc__ = sentence.format(getattr(wrapped, "__name__", "the function")) + (
        f"\n\nOriginal documentation:\n\n{own}" if own else ""
    )
    return wrapped


@contextmanager
def named_scope(name: Any) -> Generator[None]:
    """A context manager and decorator: profiles record the ops that run or are traced in it under `name`.

    TypeError if `name` is no text.

    >>> with jax.named_scope("encoder"):
    ...     print(jnp.sin(0.0))
    0.0
    """
    if not isinstance(name, str):
        raise TypeError(f"named_scope: name argument must be a string, got {name!r} of type {type(name).__name__}.")
    with SCOPES.override((*SCOPES.get(), name)):
        yield


def named_call(fun: Callable[..., Any], *, name: Any = None) -> Callable[..., Any]:
    """`fun` under a `named_scope` of that name, by default its own.

    Raises:
        TypeError: `fun` is no function, or `name` no text.

    >>> jax.named_call(jnp.sin, name='wave')(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    if not callable(fun):
        raise TypeError(f"named_call: Expected a callable value, got {fun!r}")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"named_call: name argument must be a string, got {name!r} of type {type(name).__name__}.")
    scope: str = name_of(fun) if name is None else name

    @wraps(fun)
    def named_function(*args: Any, **kwargs: Any) -> Any:
        with named_scope(scope):
            return fun(*args, **kwargs)

    return named_function
