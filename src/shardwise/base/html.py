"""The HTML that notebooks show for our values. All that comes from users, such as the names of mesh axes, is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def text_html(text: str) -> str:
    """Text as it stands."""
    return f"<pre>{html.escape(text)}</pre>"


def table_html(caption: str, head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line above it."""

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption>{line(head, 'th')}{body}</table>"
