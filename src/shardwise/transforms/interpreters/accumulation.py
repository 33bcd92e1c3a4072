"""The ways of cotangents of arguments: returned, added to a Ref, or not wanted (`VJP.with_refs`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from shardwise.base.tree import register_pytree_node
from shardwise.ir import bind
from shardwise.ops.elementwise.binary import add_p


class _Mark:
    """A marker in place of a cotangent; a tree without leaves."""

    def __init_subclass__(cls) -> None:
        register_pytree_node(cls, lambda mark: ((), None), lambda _, children: cls())

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class GradValue(_Mark):
    """The cotangent is returned."""


class GradRef(_Mark):
    """The cotangent was added to a Ref."""


class DontWant(_Mark):
    """No cotangent is wanted."""


class DidntWant(_Mark):
    """No cotangent was wanted."""


ad = SimpleNamespace(DontWant=DontWant, DidntWant=DidntWant, GradRef=GradRef, GradValue=GradValue)


def accumulate_into(into: Any, cotangent: Any) -> Any:
    """The mark in place of a cotangent (None: zero) that is not wanted, or was added to the Ref `into`."""
    if isinstance(into, DontWant):
        return DidntWant()
    if cotangent is not None:
        into.store(bind(add_p, into.held(), cotangent))
    return GradRef()
