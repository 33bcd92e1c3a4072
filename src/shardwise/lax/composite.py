"""`composite`: a named function; and tokens, which have no effect as programs run in order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise.base.tree import register_pytree_node
from shardwise.ir import Array
from shardwise.transforms.tracing import named_scope

__all__ = ["Token", "after_all", "composite", "create_token"]


def composite(decomposition: Callable[..., Any], name: Any, version: int = 0) -> Callable[..., Any]:
    """`decomposition` as a named part of programs: compilers that know the name could do it in their own way; ours does not.

    The `version` is for such a compiler alone and is not kept. Keyword arguments are attributes of the
    composite and must not be arrays.

    Raises:
        ValueError: `name` is no name, or an attribute is an array.

    >>> square = lax.composite(lambda x: x * x, "my.square")
    >>> square(3.0)
    9.0
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"composite takes a name, got {name!r}.")

    @functools.wraps(decomposition)
    def call(*args: Any, **kwargs: Any) -> Any:
        for key, value in kwargs.items():
            if hasattr(value, "aval"):
                raise ValueError(f"composite {name}: the attribute {key} is a traced array; pass it by position.")
        with named_scope(name):
            return decomposition(*args, **kwargs)

    return call


class Token:
    """Stands for all earlier work: for the array `buf`, if there is one. Programs run in order."""

    def __init__(self, buf: Array | None) -> None:
        self._buf = buf

    def block_until_ready(self) -> None:
        """Return once all earlier work is done."""
        if self._buf is not None:
            self._buf.block_until_ready()


register_pytree_node(Token, lambda _: ((), None), lambda aux, children: Token(None))


def create_token(_: Any = None) -> Token:
    """A new token. It does not wait for the operand `_`, which exists before the call.

    >>> token = lax.create_token()
    >>> type(token).__name__
    'Token'
    """
    return Token(None)


def after_all(*operands: Any) -> Token:
    """A token that stands for all of `operands`. TypeError for anything but tokens.

    >>> type(lax.after_all(lax.create_token(), lax.create_token())).__name__
    'Token'
    """
    for operand in operands:
        if not isinstance(operand, Token):
            raise TypeError(f"after_all takes tokens, got {type(operand).__name__}.")
    return Token(None)
