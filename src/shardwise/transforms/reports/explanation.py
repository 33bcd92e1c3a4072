"""`Explanation`: the text of `explain`, with what it says as data.

In: the text, the record of communication and the memory of a compiled program. Out: a string that also gives tables and totals of its
collectives, compares itself with that of another program, and writes itself as a page.
"""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from shardwise.ir import source_text
from shardwise.passes import Transfer
from shardwise.transforms.reports.memory import MemoryStats

_STYLE = """:root { color-scheme: light dark }
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em }
pre { overflow-x: auto }
table { border-collapse: collapse }
td, th { padding: .2em 1em .2em 0; text-align: left; vertical-align: top }
td:first-child, th:first-child { text-align: right; font-variant-numeric: tabular-nums }
th { border-bottom: 1px solid }"""
_HEADS = ("bytes", "times", "collective", "value", "cause", "line")
# What totals and filters go by: the words under which a collective is counted.
_GROUPS: dict[str, Callable[[Transfer], str]] = {
    "axis": lambda t: ", ".join(t.axes),
    "kind": lambda t: t.kind,
    "line": lambda t: source_text(t.source) or "no line",
    "cause": lambda t: t.cause if t.implicit else "written by the program",
}


class Explanation(str):
    """The explanation of one program: a text, and behind it data.

    Attributes:
        name: the program's.
        collectives: each that a device takes part in, with its bytes, how often it runs, its cause and its line.
        memory: bytes of one device.
    """

    name: str
    collectives: tuple[Transfer, ...]
    memory: MemoryStats

    def __new__(cls, text: str, name: str, collectives: Sequence[Transfer], memory: MemoryStats) -> Explanation:
        """The text with its data."""
        self = super().__new__(cls, text)
        self.name, self.collectives, self.memory = name, tuple(collectives), memory
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Copies and pickles keep the text: the record belongs to the process."""
        return str, (str(self),)

    def totals(self, by: str = "axis") -> dict[str, int]:
        """Bytes that a device sends in one run by 'axis', 'kind', 'line' or 'cause', the most first.

        Raises:
            ValueError: there is no such grouping.
        """
        return totals(self.collectives, by)

    def table(
        self, *, sort: str = "bytes", axis: str | None = None, kind: str | None = None, line: str | None = None
    ) -> str:
        """The collectives as a table.

        Args:
            sort: 'bytes' (the most first), or by 'axis', 'kind', 'line' or 'cause'.
            axis: only those over this mesh axis.
            kind: only those of this kind, such as 'all_gather'.
            line: only those of this line, ``file.py:12``, or of this file.

        Raises:
            ValueError: they cannot be sorted so.
        """
        transfers = [
            t
            for t in self.collectives
            if (axis is None or axis in t.axes)
            and (kind is None or t.kind == kind)
            and (line is None or line in (source_text(t.source), source_text(t.source).rpartition(":")[0]))
        ]
        if sort == "bytes":
            transfers.sort(key=lambda t: -t.total)
        else:
            transfers.sort(key=_group_key(sort))
        cells = [_HEADS, *_rows(transfers)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(f"{c:>{w}}" if i < 2 else f"{c:<{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in cells
        )  # fmt: skip

    def diff(self, other: Explanation) -> str:
        """The changes from this program to `other`: memory, bytes sent, and collectives that come (+) or go (-)."""
        before, after = sum(t.total for t in self.collectives), sum(t.total for t in other.collectives)
        lines = [
            _change("peak memory", self.memory.peak_memory_in_bytes, other.memory.peak_memory_in_bytes),
            _change("arguments", self.memory.argument_size_in_bytes, other.memory.argument_size_in_bytes),
            _change("results", self.memory.output_size_in_bytes, other.memory.output_size_in_bytes),
            _change("sent", before, after),
        ]
        mine, theirs = (Counter(map(_essence, e.collectives)) for e in (self, other))
        where = {_essence(t): source_text(t.source) for t in (*self.collectives, *other.collectives)}
        for key in where:
            count = theirs[key] - mine[key]
            if count:
                kind, axes, value, nbytes, cause = key
                often = f"{abs(count)} x " if abs(count) > 1 else ""
                at = f" at {where[key]}" if where[key] else ""
                sign = "+" if count > 0 else "-"
                lines.append(f"{sign} {often}{kind} over {', '.join(axes)} of {value}: {nbytes} bytes, {cause}{at}")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a page for browsers (``.html``, without network), or the text (``.txt``).

        Raises:
            ValueError: the name ends otherwise.
        """
        file = Path(path)
        if file.suffix not in (".html", ".txt"):
            raise ValueError(f"save({os.fspath(path)!r}): give a name that ends in .html or .txt.")
        file.write_text(self._page() if file.suffix == ".html" else f"{self}\n", encoding="utf-8")

    def _page(self) -> str:
        head = f"<title>{html.escape(self.name)}</title><style>{_STYLE}</style>"
        return f'<!doctype html><html lang="en"><head><meta charset="utf-8">{head}</head><body>{self._repr_html_()}</body></html>\n'

    def _repr_html_(self) -> str:
        """The text, and the collectives as a table, for notebooks and pages."""
        rows = _rows(sorted(self.collectives, key=lambda t: -t.total))
        table = "".join(f"<tr>{''.join(f'<td>{html.escape(c)}</td>' for c in row)}</tr>" for row in rows)
        table_text = f"<table><tr>{''.join(f'<th>{h}</th>' for h in _HEADS)}</tr>{table}</table>" if rows else ""
        return f"<h1>{html.escape(self.name)}</h1>{table_text}<pre>{html.escape(str(self))}</pre>"


def totals(transfers: Sequence[Transfer], by: str) -> dict[str, int]:
    """Bytes that a device sends by group, the most first. ValueError where there is no such grouping."""
    group = _group_key(by)
    sums = Counter[str]()
    for t in transfers:
        sums[group(t)] += t.total
    return dict(sums.most_common())


def _group_key(by: str) -> Callable[[Transfer], str]:
    if by not in _GROUPS:
        raise ValueError(f"collectives have no {by!r}: give one of {', '.join(map(repr, _GROUPS))}.")
    return _GROUPS[by]


def _rows(transfers: Sequence[Transfer]) -> list[tuple[str, ...]]:
    """The rows of a table in their order; those alike are one, with the bytes of all of them."""
    alike = Counter(map(_facts, transfers))
    first = {_facts(t): t for t in reversed(transfers)}
    rows: list[tuple[str, ...]] = []
    for facts, count in alike.items():
        t = first[facts]
        times = f"{t.known_trips * count:,}{'?' if t.endless else ''}"
        rows.append((f"{t.total * count:,}", times, *facts[2:]))
    return rows


def _facts(t: Transfer) -> tuple[str, ...]:
    side = ", backward" if t.backward else ""
    over = f"{t.kind} over {', '.join(t.axes)}"
    return str(t.total), str(t.known_trips), over, t.value, _GROUPS["cause"](t) + side, source_text(t.source)


def _essence(t: Transfer) -> tuple[str, tuple[str, ...], str, int, str]:
    """The key by which two collectives of two programs are the same: not the line, which moves as a file is edited."""
    return t.kind, t.axes, t.value, t.total, _GROUPS["cause"](t)


def _change(what: str, before: int, after: int) -> str:
    return (
        f"  {what}: {before} bytes" if before == after else f"  {what}: {before} -> {after} bytes ({after - before:+})"
    )
