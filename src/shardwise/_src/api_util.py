"""`api_util`, with what completes numbers and names of arguments."""

import inspect
import operator
from collections.abc import Iterable

from shardwise.api_util import *  # noqa: F403


def infer_argnums_and_argnames(
    sig: inspect.Signature, argnums: int | Iterable[int] | None, argnames: str | Iterable[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the same arguments, where one of the two is given; as they are where both are, or neither.

    Arguments that are positional only, by keyword only, or that `sig` does not have, get no counterpart.
    """
    numbers = () if argnums is None else (argnums,) if isinstance(argnums, int) else tuple(map(operator.index, argnums))
    names = () if argnames is None else (argnames,) if isinstance(argnames, str) else tuple(argnames)
    both = [(i, p.name) for i, p in enumerate(sig.parameters.values()) if p.kind is p.POSITIONAL_OR_KEYWORD]
    if argnums is None:
        numbers = tuple(i for i, name in both if name in names)
    elif argnames is None:
        names = tuple(name for i, name in both if i in numbers)
    return numbers, names
