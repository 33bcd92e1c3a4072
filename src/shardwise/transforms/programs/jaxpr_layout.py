"""Line breaking: documents of pieces and groups, laid out to a width.

A group is written on one line if it fits in the rest of the line; otherwise each of its own breaks starts a new line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardwise.base.lazy_dataclasses import dataclass

WIDTH = 80


@dataclass(frozen=True)
class Break:
    """A new line where the group is broken, `flat` otherwise."""

    flat: str = " "


@dataclass(frozen=True)
class Nest:
    """Its lines are indented by `by` more columns."""

    by: int
    body: tuple[Doc, ...]


@dataclass(frozen=True)
class Group:
    """Breaks within, not counting those of inner groups, are taken together."""

    body: tuple[Doc, ...]


Doc = str | Break | Nest | Group


def nest(by: int, *body: Doc) -> Nest:
    """`body`, indented."""
    return Nest(by, body)


def group(*body: Doc) -> Group:
    """`body` as a group."""
    return Group(body)


def join_docs(separator: Sequence[Doc], parts: Iterable[Sequence[Doc]]) -> list[Doc]:
    """The parts with the separator between them."""
    out: list[Doc] = []
    for i, part in enumerate(parts):
        out += [*separator, *part] if i else part
    return out


def layout(doc: Doc, width: int = WIDTH) -> str:
    """The text of a document."""
    out: list[str] = []
    column = 0
    todo: list[tuple[int, bool, Doc]] = [(0, False, doc)]  # indentation, whether the group is broken
    while todo:
        indent, broken, item = todo.pop()
        if isinstance(item, str):
            out.append(item)
            tail = item.rpartition("\n")
            column = len(tail[2]) + (0 if tail[1] else column)
        elif isinstance(item, Break):
            out.append("\n" + " " * indent if broken else item.flat)
            column = indent if broken else column + len(item.flat)
        elif isinstance(item, Nest):
            todo += [(indent + item.by, broken, d) for d in reversed(item.body)]
        else:
            fits = _fits(item.body, width - column)
            todo += [(indent, not fits, d) for d in reversed(item.body)]
    return "".join(out)


def _fits(body: Sequence[Doc], room: int) -> bool:
    """Whether a flat `body` fits. What follows it in its line does not count."""
    todo: list[Doc] = list(reversed(body))
    while room >= 0 and todo:
        item = todo.pop()
        if isinstance(item, str):
            if "\n" in item:
                return len(item.partition("\n")[0]) <= room
            room -= len(item)
        elif isinstance(item, Break):
            room -= len(item.flat)
        else:
            todo += reversed(item.body)
    return room >= 0
