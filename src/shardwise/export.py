"""`shardwise.export`: programs as StableHLO, a form that they do not have here.

Its names can be imported, and symbolic shapes can be named; using one of the others refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise.base.refused import refusing

__all__ = ["DisabledSafetyCheck", "SymbolicDim", "symbolic_shape"]


@dataclass(frozen=True)
class DisabledSafetyCheck:
    """A check that `export` is to leave out. Modules name them when they are imported; `export` itself is not here.

    Attributes:
        description: which one, ``platform`` or ``custom_call:NAME``.
    """

    description: str

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """That of the platform that the program is called on."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """That of a custom call by its name."""
        return cls(f"custom_call:{target_name}")


class SymbolicDim:
    """A size that has a name and no value. Shapes of arrays take numbers only."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymbolicDim) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


def symbolic_shape(
    shape_spec: str | None, *, constraints: Sequence[str] = (), scope: Any = None, like: Sequence[Any] | None = None
) -> tuple[int | SymbolicDim, ...]:
    """The dims that a text such as ``"batch, 4, _"`` names; ``_`` and ``...`` take those of `like`.

    Raises:
        NotImplementedError: a dim is an expression, or there are constraints or a scope: no program is compiled for more than one size.
        ValueError: the text names no dims, or they do not fit those of `like`.

    >>> symbolic_shape("batch, 4")
    (batch, 4)
    """
    if constraints or scope is not None:
        raise NotImplementedError("symbolic_shape: constraints and scope are not supported; leave them out.")
    text = "..." if shape_spec is None else shape_spec.strip().removeprefix("(").removesuffix(")")
    words = [word.strip() for word in text.split(",")]
    if not words[-1]:  # a comma may end the text
        words.pop()
    if like is None and any(word in ("_", "...") for word in words):
        raise ValueError(
            f"symbolic_shape({shape_spec!r}): `_` and `...` take the dims of `like`. Give it, or name each dim."
        )
    given = list(like or ())
    if "..." in words:
        at = words.index("...")
        words[at : at + 1] = ["_"] * (len(given) - len(words) + 1)
    dims: list[int | SymbolicDim] = []
    for i, word in enumerate(words):
        if word == "_":
            if i >= len(given):
                raise ValueError(
                    f"symbolic_shape({shape_spec!r}): like={tuple(given)} has no dim {i} for the placeholder. Give it one."
                )
            dims.append(given[i])
        elif word.isdecimal():
            dims.append(int(word))
            if i < len(given) and isinstance(given[i], int) and given[i] != dims[i]:
                raise ValueError(
                    f"symbolic_shape({shape_spec!r}): dim {i} is {word}, and {given[i]} in like={tuple(given)}. Give one size, or `_`."
                )
        elif word.isidentifier():
            dims.append(SymbolicDim(word))
        elif word in ("", "..."):
            raise ValueError(
                f"symbolic_shape({shape_spec!r}): dim {i} is {word!r}. Separate dims with single commas, and give `...` once."
            )
        else:
            raise NotImplementedError(
                f"symbolic_shape({shape_spec!r}): {word!r} is an expression; name each dim, or give a number."
            )
    return tuple(dims)


__getattr__ = refusing(__name__)
